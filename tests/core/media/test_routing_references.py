"""What a message names and does not hold, once it was looked up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import JPEG, PDF, PNG, SVG, WAV, data_url
from support.strategies import WAY, any_histories, content_after, conversation, notices, spelled

from proxy.core.artifact import Artifact
from proxy.core.conversation.references import Fetched, FetchError, Unfetched, references_in
from proxy.core.media.placement import Routes
from proxy.core.media.routing import RouteMedia
from proxy.core.models.profile import Modality, ToolImages
from proxy.core.notices.artifact_access import NOWHERE, ArtifactAccess
from proxy.core.notices.writing import Notices
from proxy.wire.chat_completions.message import ChatMessage

TEXT = frozenset({Modality.TEXT})
SEEING = TEXT | {Modality.VISION}
ALL = frozenset(Modality)
URL = "https://example.org/a.png?signature=secret"
ID = Artifact(PNG, "shot", "png").id
HELD = f"artifact:{ID}"
FETCHED = Fetched(PNG, "image/png", "a.png")
GONE = Unfetched(FetchError.NOT_FOUND, 404, "https://example.org/a.png")


def image(url=URL):
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def inlined(content=PNG, declared="image/png"):
    return image(data_url(content, declared))


def beside(content=PNG, suffix="png", name="a.png"):
    """The text that stands beside an image that was fetched."""
    place = f"/data/tool-output/{Artifact(content, 'fetched', suffix).id}"
    return {"type": "text", "text": f"[image: {name}, kept in {place}]"}


def routed(role, content, resolved, reads=SEEING, target=ToolImages.KEEP, **routes):
    """The content that is sent, and the edits."""
    message = ChatMessage.read(spelled({"role": role, "tool_call_id": "call_1", "content": content}))
    step = RouteMedia(Routes(reads, **routes), target, resolved)
    edits = list(step(4, message, "shot", notices()))
    return (content_after(message, edits[0]) if edits else content), edits


@pytest.mark.parametrize("reads", [SEEING, None], ids=["known", "unknown"])
@pytest.mark.parametrize("role", ["user", "tool"])
def test_an_image_that_was_fetched_stands_where_its_address_stood(role, reads):
    content, edits = routed(role, [{"type": "text", "text": "see"}, image()], {URL: FETCHED}, reads)
    assert content == [{"type": "text", "text": "see"}, beside(), inlined()]
    assert [edit.artifact for edit in edits] == [Artifact(PNG, "fetched", "png")]
    assert [(edit.media.route, edit.media.mime, edit.media.byte_count) for edit in edits] == [
        ("image", "image/png", len(PNG))
    ]


def test_what_a_server_says_of_its_type_is_corrected_by_the_bytes():
    assert routed("user", [image()], {URL: Fetched(JPEG, "image/png", "a.png")})[0] == [
        beside(JPEG, "jpg"),
        inlined(JPEG, "image/jpeg"),
    ]


def test_no_path_stands_beside_an_image_where_the_agent_sees_no_folder():
    message = ChatMessage.read(spelled({"role": "user", "content": [image()]}))
    (edit,) = RouteMedia(Routes(SEEING), ToolImages.KEEP, {URL: FETCHED})(4, message, "shot", Notices("en", NOWHERE))
    assert content_after(message, edit) == [inlined()]
    assert edit.artifact is None


@pytest.mark.parametrize("reads", [SEEING, TEXT, None])
def test_a_failure_is_told_in_the_place_of_the_image(reads):
    content, edits = routed("user", [image(), image("https://example.org/b")], {URL: GONE}, reads)
    assert content[0]["type"] == "text"
    assert content[0]["text"].startswith(f"[cannot fetch] {URL}\nStatus: failed; HTTP code: 404;")
    assert (edits[0].media.route, edits[0].media.reason) == ("description", "not_found")
    if reads != TEXT:
        assert content[1] == image("https://example.org/b")


@pytest.mark.parametrize(
    ("way", "place"),
    [
        (WAY, f" The image would have been kept in {WAY.folder}."),
        (ArtifactAccess(url="http://p:1/a"), " in http://p:1/a."),
    ],
)
def test_where_it_would_have_been_kept_is_said_as_the_agent_sees_it(way, place):
    message = ChatMessage.read(spelled({"role": "user", "content": [image()]}))
    step = RouteMedia(Routes(SEEING), ToolImages.KEEP, {URL: GONE})
    for kept in (True, False):
        (edit,) = step(0, message, "", Notices("en", way, kept=kept))
        assert content_after(message, edit)[0]["text"].endswith(place) == kept


def test_a_model_that_sees_nothing_gets_a_description_and_the_bytes_are_kept():
    content, edits = routed("user", [image()], {URL: FETCHED}, TEXT)
    assert content[0]["text"].startswith("[cannot read] a.png (artifact:tool_shot_")
    assert edits[0].artifact.content == PNG


def test_what_no_model_reads_is_described():
    content, _ = routed("user", [image()], {URL: Fetched(SVG, "image/svg+xml", "a.svg")})
    assert "Models do not read this format." in content[0]["text"]


def test_a_fetched_image_over_a_limit_is_described_whoever_reads_it():
    for reads in (SEEING, None):
        assert "over the limit" in routed("user", [image()], {URL: FETCHED}, reads, max_bytes=10)[0][0]["text"]
        assert "pixels" in routed("user", [image()], {URL: FETCHED}, reads, max_image_pixels=2)[0][0]["text"]


def test_an_empty_artifact_is_told():
    content, _ = routed("tool", [image(HELD)], {HELD: Fetched(b"", "", "a")}, None)
    assert "It is empty." in content[0]["text"]


@pytest.mark.parametrize("reads", [ALL, None])
def test_an_artifact_goes_where_its_kind_goes_whatever_names_it(reads):
    pdf = Fetched(PDF, "application/pdf", "a.pdf")
    assert routed("tool", [image(HELD)], {HELD: pdf}, reads)[0][0]["file"]["file_data"] == data_url(PDF, pdf.declared)
    text = Fetched(b"one\ntwo", "text/plain", "a.txt")
    assert routed("tool", [image(HELD)], {HELD: text}, reads)[0] == [{"type": "text", "text": "[a.txt]\none\ntwo"}]


def test_what_was_not_looked_up_stays():
    content = [image(), image(HELD)]
    assert routed("tool", content, {}) == (content, [])


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_only_what_users_and_tools_name_is_put_in(role):
    content = [image()]
    assert URL in json.dumps(routed(role, content, {URL: FETCHED}, None)[0])


def test_an_artifact_that_a_tool_named_is_not_put_into_what_a_user_says():
    content = [image(HELD)]
    assert routed("user", content, {HELD: FETCHED}) == (content, [])


def test_an_image_in_a_tool_result_goes_behind_the_batch():
    content, edits = routed("tool", [image(HELD)], {HELD: FETCHED}, target=ToolImages.USER_AFTER_BATCH)
    assert content[0]["type"] == "text"
    assert ChatMessage.read(b"{}").beside("user", edits[0].moved.parts).content()[1] == inlined()


@pytest.mark.parametrize("member", ["file_data", "file_id", "file_url", "url"])
@pytest.mark.parametrize("reads", [ALL, None])
def test_a_file_part_holds_the_content_and_no_address(member, reads):
    part = {"type": "file", "file": {"filename": "a.pdf", member: HELD}}
    content, _ = routed("tool", [part], {HELD: Fetched(PDF, "application/pdf", "a.pdf")}, reads)
    assert content == [{"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}}]


def test_where_nothing_can_be_shown_an_artifact_is_described():
    content, _ = routed("tool", [image(HELD)], {HELD: FETCHED}, None, ToolImages.TEXT)
    assert "cannot be shown in this message" in content[0]["text"]


@pytest.mark.parametrize(
    "result",
    [
        {"routing": "image_url", "imageUrl": image(HELD), "metadata": {"from": "disk"}},
        {"routing": "image_url", "imageUrl": HELD},
        {"routing": "image_url", "artifact": HELD},
        {"routing": "image_url", "content": HELD},
    ],
)
def test_a_structured_result_that_names_an_image_shows_it(result):
    content, _ = routed("tool", json.dumps(result), {HELD: FETCHED})
    assert content[1] == {"type": "image_url", "image_url": {"url": data_url(PNG, "image/png")}}
    assert HELD not in content[0]["text"]
    assert set(json.loads(content[0]["text"])) == set(result)


def test_an_artifact_that_a_result_names_is_not_called_base64_where_nobody_says_what_the_model_reads():
    result = json.dumps({"routing": "image_url", "artifact": HELD})
    content, edits = routed("tool", result, {HELD: FETCHED}, None)
    assert "It is not known whether the current model can read this kind of file." in json.loads(content)["content"]
    assert edits[0].media.reason == "unstated"


def test_a_structured_result_that_names_a_file_shows_it():
    result = json.dumps({"routing": "file", "artifact": HELD})
    content, _ = routed("tool", result, {HELD: Fetched(PDF, "application/pdf", "a.pdf")}, ALL)
    assert content[1]["file"]["file_data"] == data_url(PDF, "application/pdf")


def test_a_structured_result_whose_image_failed_says_so():
    result = json.dumps({"routing": "image_url", "imageUrl": image()})
    content, _ = routed("tool", result, {URL: GONE})
    assert "[cannot fetch]" in content
    assert json.loads(content)["routing"] == "text"


def test_a_structured_text_stays():
    result = json.dumps({"routing": "text", "content": HELD})
    assert routed("tool", result, {HELD: FETCHED}) == (result, [])


def test_audio_that_a_tool_names_is_put_in():
    part = {"type": "input_audio", "input_audio": {"data": HELD, "format": "wav"}}
    assert routed("tool", [part], {HELD: Fetched(WAV, "audio/wav", "a.wav")}, ALL)[0] == [part], "no such reference"


CONTENTS = st.sampled_from([PNG, JPEG, SVG, PDF, WAV, b"", b"text", b"\x00\x01", b"\x89PNG\r\n\x1a\n"])
OUTCOMES = st.one_of(st.builds(Fetched, CONTENTS, st.sampled_from(["", "image/png", "x/y"]), st.text(max_size=5)))
OUTCOMES |= st.builds(Unfetched, st.sampled_from(FetchError))
PIECES = st.sampled_from(
    [
        [image()],
        [image(HELD)],
        [{"type": "file", "file": {"file_id": HELD}}],
        json.dumps({"routing": "image_url", "imageUrl": image()}),
        json.dumps({"routing": "file", "artifact": HELD}),
        [{"type": "image_url", "image_url": URL}, image(HELD), "x"],
    ]
)


@given(
    PIECES,
    OUTCOMES,
    st.sampled_from([ALL, SEEING, TEXT, None]),
    st.sampled_from(ToolImages),
    st.sampled_from(["user", "tool"]),
)
def test_whatever_was_found_nothing_raises_and_the_address_is_answered(content, outcome, reads, target, role):
    message = ChatMessage.read(spelled({"role": role, "content": content}))
    resolved = {URL: outcome, HELD: outcome}
    step = RouteMedia(Routes(reads), target, resolved)
    first = [edit.becomes for edit in step(0, message, "shot", notices())]
    assert first == [edit.becomes for edit in step(0, message, "shot", notices())]
    if references_in(message) and isinstance(outcome, Unfetched):
        assert "[cannot fetch]" in str(content_after(message, next(step(0, message, "shot", notices()))))


@given(any_histories())
def test_what_others_name_changes_no_message_that_names_nothing(messages):
    for message in conversation(messages):
        plain, looked_up = (RouteMedia(Routes(SEEING), ToolImages.KEEP, found) for found in ({}, {URL: FETCHED}))
        if not references_in(message):
            assert list(plain(0, message, "", notices())) == list(looked_up(0, message, "", notices()))
