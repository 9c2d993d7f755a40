from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.artifact import Artifact
from proxy.core.conversation import Origin, Reference, references_in
from proxy.wire.chat_completions import ChatMessage

URL = "https://example.org/a.png"
ID = Artifact(b"image", "Read", "png").id
HELD = f"artifact:{ID}"


def image(url):
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def message(content, role="tool"):
    return ChatMessage.read(json.dumps({"role": role, "tool_call_id": "c", "content": content}).encode())


def addresses(content, role="tool"):
    return [found.address for found in references_in(message(content, role))]


def routed(**members):
    return json.dumps(members)


@pytest.mark.parametrize("role", ["user", "tool", "function"])
def test_images_on_the_web_are_found_where_a_user_or_a_tool_puts_them(role):
    parts = [{"type": "text", "text": "see"}, image(URL), image("http://example.org/b"), image(URL)]
    found = references_in(message(parts, role))
    assert found == (Reference(URL, Origin.REMOTE), Reference("http://example.org/b", Origin.REMOTE))
    assert [reference.artifact_id for reference in found] == ["", ""]


@pytest.mark.parametrize("role", ["system", "developer", "assistant", ""])
def test_what_others_say_is_left_alone(role):
    assert addresses([image(URL), image(HELD)], role) == []


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,aHR0cA==",
        "ftp://example.org/a.png",
        "file:///etc/passwd",
        "http://",
        "https://exa mple.org/http",
        "https://example.org/\nhttp",
        "https://" + "a" * 4_096,
        " https://example.org/a.png",
        "",
        7,
        None,
        {"url": "https://example.org"},
    ],
)
def test_what_is_no_address_on_the_web_is_none(url):
    assert addresses([image(url), {"type": "text", "text": "http"}], "user") == []


@pytest.mark.parametrize(
    "content",
    [
        [image(HELD)],
        [{"type": "file", "file": {"file_data": HELD}}],
        [{"type": "file", "file": {"url": HELD}}],
        [{"type": "file", "file": {"file_id": HELD, "filename": "a.pdf"}}],
        routed(routing="image_url", imageUrl=image(HELD), metadata={}),
        routed(routing="image_url", imageUrl={"url": HELD}),
        routed(routing="image_url", imageUrl=HELD),
        routed(routing="file", file={"type": "file", "file": {"file_data": HELD}}),
        routed(routing="file", file={"file_data": HELD}),
        routed(routing="image_url", artifact=HELD),
        routed(routing="file", artifact=HELD),
        routed(routing="file", content=HELD),
        [{"type": "text", "text": " " + routed(routing="file", content=HELD)}],
    ],
)
def test_a_tool_result_may_name_an_artifact(content):
    assert references_in(message(content)) == (Reference(HELD, Origin.ARTIFACT),)
    assert references_in(message(content))[0].artifact_id == ID


@pytest.mark.parametrize(
    "name",
    [
        "tool_Read_0123456789abcdef.txt\n",
        "tool_Read_0123456789ABCDEF.txt",
        "tool_Read_0123456789abcde.txt",
        "tool__0123456789abcdef.txt",
        "tool_../x_0123456789abcdef.txt",
        "tool_Read_0123456789abcdef.txt/../x",
        "tool_" + "a" * 49 + "_0123456789abcdef.txt",
        "Read_0123456789abcdef.txt",
        "",
    ],
)
def test_what_is_not_exactly_the_name_of_an_artifact_names_none(name):
    assert addresses([image(f"artifact:{name}")]) == []


@pytest.mark.parametrize(
    "text",
    [
        routed(error="artifact_not_found", artifact=HELD),
        routed(status="ok", data=HELD),
        routed(routing="text", content=HELD),
        routed(routing=["file"], file=HELD),
        f"[cannot read] report.pdf ({HELD})",
        '{"routing": "text", "content": "' + HELD,
        '{"routing": "text", "content": ' + "[" * 5_000 + HELD,
        f'["routing", "{HELD}"]',
    ],
)
def test_other_results_that_mention_one_stay(text):
    assert addresses(text) == []


def test_there_is_a_limit_for_each_message():
    parts = [image(f"https://example.org/{number}") for number in range(64)]
    assert addresses(parts) == [part["image_url"]["url"] for part in parts[:32]]


def test_an_address_never_shows_in_a_text_about_it():
    assert "secret" not in repr(Reference("https://example.org/a?signature=secret", Origin.REMOTE))


JSON = st.recursive(
    st.sampled_from([None, 7, "", URL, HELD, "routing", "image_url", "file", routed(routing="file", content=HELD)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "url", "image_url", "file", "file_data", "routing", "imageUrl", "artifact"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["user", "tool"]), st.booleans())
def test_no_content_makes_it_raise_and_every_finding_occurs_in_it(content, role, as_text):
    found = message(json.dumps(content) if as_text else content, role)
    for reference in references_in(found):
        assert reference.address in (URL, HELD)
        assert (reference.origin is Origin.ARTIFACT) == (reference.address == HELD) == bool(reference.artifact_id)
        assert reference.address.encode() in found.raw
