from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import (
    CSV,
    DOCX,
    JPEG,
    MP4,
    PDF,
    PNG,
    SVG,
    WAV,
    ZIP,
    anthropic_block,
    audio_part,
    base64_of,
    data_url,
    file_part,
    image_part,
    mcp_block,
    png,
    resource_block,
    routing_result,
)
from support.strategies import WAY, any_histories, content_after, conversation, notices, part, spelled

from proxy.core.artifact import Artifact
from proxy.core.conversation import Fetched, FetchError, Reason, Unfetched, references_in
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.core.notices import UNNAMED, ArtifactAccess, Notices
from proxy.wire.chat_completions import ChatMessage

TEXT = frozenset({Modality.TEXT})
SEEING = TEXT | {Modality.VISION}
ALL = frozenset(Modality)


def routed(role, content, reads=None, target=ToolImages.USER_AFTER_BATCH, words=None, resolved=None, **routes):
    """The content that is sent and the edits; the content that came when there are none."""
    message = ChatMessage.read(spelled({"role": role, "tool_call_id": "call_1", "content": content}))
    step = RouteMedia(Routes(reads, **routes), target, resolved or {})
    edits = list(step(4, message, "shot", words or notices()))
    if not edits:
        return content, []
    assert len({edit.becomes for edit in edits}) == 1
    assert {(edit.message, edit.at, edit.reason) for edit in edits} == {(4, ("content",), Reason.ROUTE_MEDIA)}
    return content_after(message, edits[0]), edits


def routes(edits):
    return [(edit.media.route, edit.media.mime, edit.media.reason) for edit in edits]


def moved(edits):
    return ChatMessage.read(b"{}").beside("user", edits[0].moved.parts).content()


PARTS = {
    "image": (image_part(), "vision", PNG),
    "audio": (audio_part(), "audio", WAV),
    "pdf": (file_part(PDF), "file", PDF),
    "zip": (file_part(ZIP, "application/zip", "a.zip"), "file", ZIP),
    "video": ({"type": "video_url", "video_url": {"url": data_url(MP4, "video/mp4")}}, "video", MP4),
    "audio url": ({"type": "audio_url", "audio_url": {"url": data_url(WAV, "audio/wav")}}, "audio", WAV),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("role", ["user", "tool", "function", "assistant"])
def test_media_stay_if_the_models_modalities_are_unknown(name, role):
    content = [part("look"), PARTS[name][0]]
    assert routed(role, content, target=ToolImages.KEEP) == (content, [])


@pytest.mark.parametrize("name", PARTS)
def test_what_the_model_reads_stays_as_it_came(name):
    media, modality, _ = PARTS[name]
    content = [part("look"), media]
    assert routed("user", content, frozenset({Modality(modality)})) == (content, [])
    assert routed("tool", content, ALL, ToolImages.KEEP) == (content, [])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
def test_what_the_model_does_not_read_becomes_a_description_and_is_kept(name, role):
    media, _, file = PARTS[name]
    after, edits = routed(role, [part("look"), media], TEXT)
    assert after[0] == part("look")
    assert after[1]["text"].startswith("[cannot read] ")
    assert f"artifact:{edits[0].artifact.id}" in after[1]["text"]
    assert edits[0].artifact.content == file
    assert base64_of(file)[:40] not in json.dumps(after)
    assert [route[0] for route in routes(edits)] == ["description"]


def test_a_description_has_name_type_size_reason_and_the_way_to_it():
    after, edits = routed("user", [file_part(PDF, name="report.pdf")], TEXT)
    name = edits[0].artifact.id
    assert after == [
        part(
            f"[cannot read] report.pdf (artifact:{name})\nType: PDF document, 89 bytes\n"
            f"The current model cannot read this kind of file. The whole is kept in /data/tool-output/{name}."
        )
    ]
    assert name.endswith(".pdf")
    after, edits = routed("tool", [image_part()], TEXT, words=notices("zh"))
    name = edits[0].artifact.id
    assert after == [
        part(
            f"[无法读取] image.png (artifact:{name})\n类型：PNG 图片，68 字节，3 x 2 像素\n"
            f"当前模型无法读取此类文件。 完整内容保存在 /data/tool-output/{name}。"
        )
    ]
    assert name.startswith("tool_shot_")


def test_a_name_is_one_line_however_it_was_written():
    after, _ = routed("user", [file_part(PDF, name="a\n[system] b\u2028c" + "x" * 900)], TEXT)
    assert after[0]["text"].splitlines()[0].startswith("[cannot read] a [system] b cxxx")
    assert len(after[0]["text"].splitlines()) == 3


def test_when_nothing_can_be_kept_the_description_says_so():
    (text,), _ = routed("user", [image_part()], TEXT, ToolImages.TEXT, notices(kept=False))
    assert text["text"].endswith("The current model cannot read this kind of file. It could not be kept.")
    assert "artifact:" not in text["text"]


@pytest.mark.parametrize(
    ("media", "fixed"),
    [
        (image_part(JPEG, "image/png", detail="low"), image_part(JPEG, "image/jpeg", detail="low")),
        ({"type": "image_url", "image_url": {"url": base64_of(PNG)}}, image_part()),
        ({"type": "image_url", "image_url": base64_of(PNG)}, image_part()),
        (audio_part(WAV, "mp3"), audio_part(WAV, "wav")),
        (file_part(PDF, "text/plain"), file_part(PDF)),
        ({"type": "file", "file": {"filename": "report.pdf", "file_data": base64_of(PDF)}}, file_part(PDF)),
        (image_part(PDF, "image/png"), file_part(PDF, name="document.pdf")),
        (audio_part(PNG, "wav"), image_part()),
        (file_part(PNG, "application/pdf", "a.pdf"), image_part()),
        (mcp_block(), image_part()),
        (anthropic_block(), image_part()),
        (anthropic_block(PDF, "application/pdf", "document") | {"title": "report.pdf"}, file_part(PDF)),
        (mcp_block(WAV, "audio/wav", "audio"), audio_part()),
        (mcp_block(MP4, "video/mp4", "video"), file_part(MP4, "video/mp4", "video.mp4")),
        (resource_block(DOCX, "application/zip", "file:///d/a.docx"), None),
    ],
)
def test_a_part_that_the_model_reads_gets_the_right_shape_and_type(media, fixed):
    after, edits = routed("user", [media], ALL)
    if fixed is None:
        assert after[0]["file"]["filename"] == "a.docx"
        assert after[0]["file"]["file_data"].startswith("data:application/vnd.openxmlformats-officedocument.word")
    else:
        assert after == [fixed]
    assert edits[0].artifact is None
    assert routed("user", after, ALL)[1] == []


@pytest.mark.parametrize("target", [ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT])
@pytest.mark.parametrize("media", [image_part(), mcp_block(), anthropic_block()])
def test_an_image_of_a_result_goes_behind_the_batch(target, media):
    after, edits = routed("tool", [part("done"), media], SEEING, target)
    words = "[image 1 of this result is shown in the user message behind the tool results]"
    assert after == [part("done"), part(words)]
    assert moved(edits) == [part("[attachment 1 of the result of shot, call call_1]"), image_part()]
    assert routes(edits) == [("image", "image/png", "")]
    speaks = target is ToolImages.USER_AFTER_ASSISTANT
    assert (edits[0].moved.spoken is not None) == speaks
    if speaks:
        assert edits[0].moved.spoken == "I look at what the tools have returned."


def test_an_image_of_a_result_stays_or_is_described_where_that_is_set():
    assert routed("tool", [image_part()], SEEING, ToolImages.KEEP) == ([image_part()], [])
    assert routed("tool", [mcp_block()], SEEING, ToolImages.KEEP)[0] == [image_part()]
    after, edits = routed("tool", [image_part()], SEEING, ToolImages.TEXT)
    assert "It cannot be shown in this message." in after[0]["text"]
    assert edits[0].moved is None


def test_an_image_in_a_text_is_shown_behind_it_where_the_model_sees():
    text = f"see {data_url(PNG, 'image/jpeg')} there"
    after, _ = routed("user", text, SEEING)
    words = "see [image 1 of this message is shown behind this text] there"
    assert after == [part(words), image_part()]
    after, _ = routed("user", [part(text) | {"cache_control": {"type": "ephemeral"}}], SEEING)
    assert after == [part(words) | {"cache_control": {"type": "ephemeral"}}, image_part()]
    after, edits = routed("tool", json.dumps({"content": [mcp_block()]}), SEEING)
    assert json.loads(after)["content"][0]["text"].startswith("[image 1 of this result is shown in the user message")
    assert moved(edits)[1] == image_part()


@pytest.mark.parametrize("reads", [None, TEXT, SEEING])
@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
@pytest.mark.parametrize("text", [f"a {data_url(PDF, 'image/png')} b", json.dumps([mcp_block(PDF)]), base64_of(PDF)])
def test_binary_in_a_text_is_a_description_for_a_model_that_is_not_known_to_read_it(reads, role, text):
    after, edits = routed(role, text, reads)
    assert "[cannot read] document.pdf" in after
    assert base64_of(PDF)[:30] not in after
    assert edits[0].artifact.content == PDF
    assert routes(edits)[0][2] == ("in_text" if reads is None else "model")


@pytest.mark.parametrize("role", ["user", "tool"])
def test_after_a_refusal_what_is_text_alone_is_a_string_as_some_take_no_list(role):
    refused = frozenset({Modality.VISION})
    after, _ = routed(role, [part("Look."), image_part()], None, refused=refused)
    assert after.startswith("Look.\n[cannot read] image.png")
    for other in (part("marked") | {"cache_control": {"type": "ephemeral"}}, {"type": "refusal", "refusal": "no"}, "a"):
        after, _ = routed(role, [image_part(), other], None, refused=refused)
        assert after[1] == other, "no plain text, so the list stays"


def test_several_in_one_message_are_routed_one_by_one():
    text = json.dumps(
        {"content": [mcp_block(), mcp_block(JPEG, "image/png"), mcp_block(PDF, "application/pdf", "file")]}
    )
    after, edits = routed("tool", [part(text), image_part(), "and a plain string"], SEEING)
    assert routes(edits) == [
        ("image", "image/png", ""),
        ("image", "image/jpeg", ""),
        ("description", "application/pdf", "model"),
        ("image", "image/png", ""),
    ]
    assert [one for one in moved(edits) if one["type"] == "image_url"] == [
        image_part(),
        image_part(JPEG, "image/jpeg"),
        image_part(),
    ]
    assert "[image 3 of this result" in after[1]["text"]
    assert after[2] == "and a plain string"


def test_a_structured_result_is_honoured():
    after, edits = routed("tool", routing_result(), SEEING)
    assert json.loads(after)["metadata"] == {"name": "a"}
    assert moved(edits)[1] == image_part()
    remote = json.dumps(
        {"routing": "image_url", "imageUrl": {"type": "image_url", "image_url": {"url": "https://x.org/a"}}}
    )
    after, edits = routed("tool", remote, SEEING)
    assert moved(edits)[1] == {"type": "image_url", "image_url": {"url": "https://x.org/a"}}
    assert routed("tool", remote, TEXT) == (remote, [])
    elsewhere = json.dumps([{"type": "image_url", "image_url": {"url": "https://x.org/" + "a" * 70}}])
    assert routed("tool", elsewhere, SEEING) == (elsewhere, [])


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
            "a.png\nType: image\nAddress: https://x.org",
        ),
        ({"type": "file", "file": {"file_id": "file-7"}}, "document\nType: document\nAddress: file-7"),
    ],
)
def test_what_is_elsewhere_is_described_only_when_the_model_cannot_read_it(media, text):
    assert routed("user", [media], ALL) == ([media], [])
    assert routed("user", [media]) == ([media], [])
    after, edits = routed("user", [media], TEXT)
    assert text in after[0]["text"]
    assert edits[0].artifact is None
    after, edits = routed("tool", [media], ALL)
    assert moved(edits)[1] == media


def test_a_text_that_came_as_a_file_is_text_for_a_model_that_reads_no_files():
    media = file_part(CSV, "text/csv", "a.csv")
    after, edits = routed("user", [media], TEXT)
    assert after == [part(f"[a.csv]\n{CSV.decode()}")]
    assert routes(edits) == [("text", "text/csv", "")]
    assert routed("user", [media], ALL) == ([media], [])
    assert routed("user", [media]) == ([media], [])
    long = file_part(CSV * 9_000, "text/csv", "a.csv")
    after, edits = routed("user", [long], TEXT)
    assert "It is text, too long to be shown here." in after[0]["text"]
    assert edits[0].artifact.id.endswith(".csv")
    blob = json.dumps([resource_block(CSV * 3, "text/csv", "file:///a.csv")])
    after, _ = routed("tool", blob, SEEING)
    assert json.loads(after) == [part(f"[a.csv]\n{(CSV * 3).decode()}")]


def test_a_data_uri_of_text_stays_text():
    for reads in (None, TEXT, ALL):
        text = f"see {data_url(CSV * 4, 'text/csv')} there"
        assert routed("user", text, reads) == (text, [])


@pytest.mark.parametrize(
    ("media", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}, "broken"),
        (image_part(b""), "empty"),
        (image_part(SVG, "image/svg+xml"), "format"),
        (
            mcp_block(
                b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18" + b"\0" * 30, "image/bmp"
            ),
            "format",
        ),
        (image_part(png(60_000, 60_000)), "too_many_pixels"),
        (image_part(png(2**31 - 1, 2**31 - 1)), "too_many_pixels"),
        (image_part(PNG + b"\0" * 5_000), "too_large"),
    ],
)
def test_what_cannot_be_shown_is_described_with_the_reason(media, reason):
    after, edits = routed("user", [media], SEEING, max_bytes=4_000)
    assert routes(edits)[0][::2] == ("description", reason)
    assert after[0]["type"] == "text"
    unknown, unknown_edits = routed("user", [media], None, max_bytes=4_000)
    if reason.startswith("too"):
        assert unknown == after
    else:
        assert (unknown, unknown_edits) == ([media], [])


def test_a_broken_content_is_kept_as_it_was_written():
    _, edits = routed("user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO…"}}], SEEING)
    assert edits[0].artifact.content == "iVBO…".encode()
    assert edits[0].artifact.id.endswith(".txt")


def test_bytes_of_no_known_type_stay_in_a_part_that_the_model_reads():
    raw = {"type": "input_audio", "input_audio": {"data": base64_of(b"\0\1" * 90), "format": "pcm16"}}
    rare = image_part(b"\0\1unknown\2" * 20, "image/x-rare")
    assert routed("user", [raw, rare], ALL) == ([raw, rare], [])


def test_a_file_decoded_by_force_is_a_description_for_every_model():
    text = (PNG * 40).decode("utf-8", "replace")
    for reads in (None, TEXT, ALL):
        after, edits = routed("tool", text, reads)
        assert "It was decoded as text" in after
        assert edits[0].artifact.content == text.encode()


def test_the_words_of_the_model_hold_no_images():
    after, _ = routed("assistant", [part("here"), image_part()], ALL)
    assert "It cannot be shown in this message." in after[1]["text"]
    after, _ = routed("assistant", f"![a]({data_url(PNG, 'image/png')})", ALL)
    assert after.startswith("![a]([cannot read] image.png")


@pytest.mark.parametrize("role", ["system", "developer", "", "other"])
def test_other_messages_are_left_alone(role):
    assert routed(role, [image_part()], TEXT)[1] == []


def test_not_more_than_a_bounded_number_of_images_is_shown_out_of_a_text():
    page = " ".join(f"url({data_url(png(3, 2, bytes([number])), 'image/png')})" for number in range(50))
    after, edits = routed("user", page, SEEING)
    assert len(after) == 1 + 32
    assert routes(edits)[-1] == ("description", "image/png", "too_many")


@pytest.mark.parametrize("content", [None, 7, {}, [], [None, 7, {"type": "image_url"}, {"text": 9}], ""])
def test_odd_contents_are_left_alone(content):
    assert routed("tool", content, TEXT) == (content, [])


@pytest.mark.parametrize("reads", [ALL, None])
def test_what_was_refused_is_not_read_whatever_is_stated(reads):
    after, _ = routed("user", [image_part(), file_part(PDF)], reads, refused=frozenset({Modality.VISION}))
    assert (after[0]["type"], after[1]) == ("text", file_part(PDF))


def test_in_strict_mode_only_text_is_sent_to_an_unknown_model():
    after, _ = routed("user", [image_part()], None, is_strict=True)
    assert "cannot read this kind" in after[0]["text"]


def test_a_plain_message_is_not_opened(monkeypatch):
    message = ChatMessage.read(spelled({"role": "tool", "content": "def f(x):\n    return x\n" * 90}))
    monkeypatch.setattr(ChatMessage, "parts", None)
    assert list(RouteMedia(Routes(TEXT))(0, message, "", notices())) == []
    assert not ChatMessage.read(b'{"role":"user","content":[{"type":"text","text":"a"}]}').may_hold_media


def test_a_bounded_number_of_contents_of_one_text_becomes_words():
    short = base64_of(PNG)
    after, edits = routed("tool", " ".join([short] * 1_100), TEXT)
    assert len(edits) == 1_000
    assert after.count("[cannot read]") == 1_000


def test_of_the_images_of_a_message_the_newest_are_shown():
    contents = [image_part(png(3, 2 + number)) for number in range(4)]
    after, edits = routed("user", [audio_part(PNG), *contents], ALL, max_images=2)
    assert [one["type"] for one in after] == ["image_url", "text", "text", "image_url", "image_url"]
    assert routes(edits)[1][2] == "too_many"


def test_a_text_in_the_encoding_of_one_country_is_described_with_the_way_to_it():
    latin = "Größe;Länge\n".encode("latin-1") * 9
    after, edits = routed("user", [file_part(latin, "text/csv", "a.csv")], TEXT)
    assert "It is text in an encoding other than Unicode." in after[0]["text"]
    assert edits[0].artifact.content == latin


def test_an_attachment_of_a_tool_without_a_name_is_a_tools():
    message = ChatMessage.read(spelled({"role": "tool", "content": [image_part()]}))
    (edit,) = RouteMedia(Routes(SEEING))(0, message, "", notices())
    assert edit.moved.parts[0].text == "[attachment 1 of the result of a tool]"


def test_a_configured_place_holds_even_if_the_models_modalities_are_unknown():
    after, edits = routed("tool", [image_part()], None, ToolImages.USER_AFTER_BATCH)
    assert moved(edits)[1] == image_part()
    assert routed("tool", [mcp_block()], None, ToolImages.USER_AFTER_BATCH) == ([mcp_block()], [])
    after, edits = routed("tool", [image_part()], None, ToolImages.TEXT)
    assert after[0]["type"] == "text"
    assert edits[0].artifact.content == PNG


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
    """The text beside a fetched image."""
    place = f"/data/tool-output/{Artifact(content, 'fetched', suffix).id}"
    return {"type": "text", "text": f"[image: {name}, kept in {place}]"}


def routed_with(role, content, resolved, reads=SEEING, **routes):
    """The content that is sent where images stay in results, and the edits."""
    return routed(role, content, reads, ToolImages.KEEP, resolved=resolved, **routes)


@pytest.mark.parametrize("reads", [SEEING, None], ids=["known", "unknown"])
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_fetched_image_replaces_its_address(role, reads):
    content, edits = routed_with(role, [{"type": "text", "text": "see"}, image()], {URL: FETCHED}, reads)
    assert content == [{"type": "text", "text": "see"}, beside(), inlined()]
    assert [edit.artifact for edit in edits] == [Artifact(PNG, "fetched", "png")]
    assert [(edit.media.route, edit.media.mime, edit.media.byte_count) for edit in edits] == [
        ("image", "image/png", len(PNG))
    ]


def test_no_path_is_beside_an_image_if_the_agent_sees_no_folder():
    content, (edit,) = routed_with("user", [image()], {URL: FETCHED}, words=Notices("en", UNNAMED))
    assert (content, edit.artifact) == ([inlined()], None)


@pytest.mark.parametrize("reads", [SEEING, TEXT, None])
def test_a_failure_is_described_in_place_of_the_image(reads):
    content, edits = routed_with("user", [image(), image("https://example.org/b")], {URL: GONE}, reads)
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
def test_the_place_in_a_notice_is_the_one_the_agent_sees(way, place):
    for kept in (True, False):
        (text,), _ = routed_with("user", [image()], {URL: GONE}, words=Notices("en", way, kept=kept))
        assert text["text"].endswith(place) == kept


def test_a_fetched_image_over_a_limit_is_described_for_every_model():
    for reads in (SEEING, None):
        assert "over the limit" in routed_with("user", [image()], {URL: FETCHED}, reads, max_bytes=10)[0][0]["text"]
        assert "pixels" in routed_with("user", [image()], {URL: FETCHED}, reads, max_image_pixels=2)[0][0]["text"]


@pytest.mark.parametrize("reads", [ALL, None])
def test_an_artifact_goes_where_its_kind_goes_whatever_names_it(reads):
    pdf = Fetched(PDF, "application/pdf", "a.pdf")
    assert routed_with("tool", [image(HELD)], {HELD: pdf}, reads)[0][0]["file"]["file_data"] == data_url(
        PDF, pdf.declared
    )
    text = Fetched(b"one\ntwo", "text/plain", "a.txt")
    assert routed_with("tool", [image(HELD)], {HELD: text}, reads)[0] == [{"type": "text", "text": "[a.txt]\none\ntwo"}]


@pytest.mark.parametrize(
    ("role", "part", "resolved"),
    [
        ("tool", image(), {}),
        ("tool", image(HELD), {}),
        ("user", image(HELD), {HELD: FETCHED}),
        ("system", image(), {URL: FETCHED}),
        ("tool", {"type": "input_audio", "input_audio": {"data": HELD}}, {HELD: Fetched(WAV, "audio/wav", "a.wav")}),
    ],
    ids=[
        "an address that was not looked up",
        "an artifact that was not looked up",
        "an artifact that only a tool may name",
        "an address in the words of the operator",
        "audio, which has no such reference",
    ],
)
def test_a_part_stays_where_nothing_that_it_may_name_was_found(role, part, resolved):
    assert routed_with(role, [part], resolved, ALL) == ([part], [])


def test_what_the_model_names_is_not_put_in():
    assert URL in json.dumps(routed_with("assistant", [image()], {URL: FETCHED}, None)[0])


@pytest.mark.parametrize("member", ["file_data", "file_id", "file_url", "url"])
@pytest.mark.parametrize("reads", [ALL, None])
def test_a_file_part_holds_the_content_and_no_address(member, reads):
    part = {"type": "file", "file": {"filename": "a.pdf", member: HELD}}
    content, _ = routed_with("tool", [part], {HELD: Fetched(PDF, "application/pdf", "a.pdf")}, reads)
    assert content == [{"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}}]


@pytest.mark.parametrize(
    ("result", "found", "shown"),
    [
        ({"routing": "image_url", "imageUrl": image(HELD), "metadata": {"from": "disk"}}, FETCHED, image_part()),
        ({"routing": "image_url", "imageUrl": HELD}, FETCHED, image_part()),
        ({"routing": "image_url", "artifact": HELD}, FETCHED, image_part()),
        ({"routing": "image_url", "content": HELD}, FETCHED, image_part()),
        ({"routing": "file", "artifact": HELD}, Fetched(PDF, "application/pdf", "report.pdf"), file_part(PDF)),
    ],
)
def test_a_structured_result_that_names_a_content_shows_it(result, found, shown):
    content, _ = routed_with("tool", json.dumps(result), {HELD: found}, ALL)
    assert content[1] == shown
    assert HELD not in content[0]["text"]
    assert set(json.loads(content[0]["text"])) == set(result)


def test_an_artifact_named_by_a_result_is_not_taken_for_base64_if_modalities_are_unknown():
    result = json.dumps({"routing": "image_url", "artifact": HELD})
    content, edits = routed_with("tool", result, {HELD: FETCHED}, None)
    assert "It is not known whether the current model can read this kind of file." in json.loads(content)["content"]
    assert edits[0].media.reason == "unstated"


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
