"""What the blocks of a message are to its reader: texts, media, calls, and tools that they bring."""

from __future__ import annotations

import json

import pytest
from support.messages_conversations import DOCUMENT, IMAGE, MARK, PNG, body_of, result, spelled, text, use, user

from proxy.wire.messages import MESSAGES, ApiMessage

COMPACTION = {"type": "compaction", "content": "so far"}
REFERENCE = {"type": "tool_reference", "tool_name": "t"}
URL = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}


def deep(value, levels):
    for _ in range(levels):
        value = {"inner": value}
    return value


def read(content):
    return ApiMessage.read(json.dumps(user(content)).encode())


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a", ["a"]),
        ([text("t", citations=[{"cited_text": "E"}], **MARK)], ["t"]),
        ([{"type": "thinking", "thinking": "why", "signature": "E"}], ["why"]),
        ([{"type": "redacted_thinking", "data": "E"}], []),
        ([COMPACTION], ["so far"]),
        ([use(1, "Read", path="a")], ["Read", '{"path":"a"}']),
        ([{"type": "mcp_tool_use", "id": "E", "name": "m", "input": {}}], ["m", "{}"]),
        ([result(1, "a")], ["a"]),
        ([result(1, [text("a"), IMAGE, {"type": "unheard_of", "inner": ["b"]}])], ["a", "b"]),
        ([{"type": "web_search_tool_result", "content": [{"title": "T", "encrypted_content": "E"}]}], ["T"]),
        ([DOCUMENT], ["text/plain", "a page", "t"]),
        ([{"type": "document", "source": {"type": "base64", "media_type": "m", "data": "E"}}], ["m"]),
        ([IMAGE], []),
        ([{"type": "container_upload", "file_id": "E"}], []),
        ([deep("w", 5)], ["w"]),
        ([deep("w", 50)], []),
        ([7], []),
        ([text("a"), COMPACTION, text("b"), {**COMPACTION, "content": "c"}, text("d")], ["c", "d"]),
    ],
)
def test_texts_of_any_block_count_and_unreadable_content_does_not(content, texts):
    assert read(content).text() == "\n".join(texts)


def test_images_are_media_with_their_address_and_files_are_media_without():
    found = read([text("a"), IMAGE, URL, {"type": "document", "source": {"type": "base64"}}])
    embedded, linked, file = found.media()
    assert (embedded.url, linked.url) == (f"data:image/png;base64,{PNG}", "https://example.org/a.png")
    assert (file, found.images) == (None, 2)


def test_of_a_large_image_only_the_head_is_looked_at():
    (view,) = read([{"type": "image", "source": {"type": "base64", "data": "A" * 10**6}}]).media()
    assert 80_000 < len(view.url) < 100_000


@pytest.mark.parametrize("kind", ["text", "content"])
def test_a_document_of_text_is_no_file(kind):
    assert list(read([{"type": "document", "source": {"type": kind}}]).media()) == []


@pytest.mark.parametrize(
    ("block", "brings"),
    [
        (REFERENCE, True),
        (result(1, [REFERENCE]), True),
        ({"type": "tool_addition", "tool": {}}, True),
        ({"type": "tool_removal", "tool": {}}, True),
        ({"type": "mcp_tool_listing"}, True),
        ({"type": "hologram", "inner": [REFERENCE]}, True),
        (use(1, inner=REFERENCE), False),
        (result(1, '"tool_reference"'), False),
        (text("tool_reference", kind="tool_reference"), False),
        (deep(REFERENCE, 50), False),
    ],
)
def test_tools_are_brought_by_blocks_and_not_by_words_about_them(block, brings):
    (found,) = MESSAGES.parse(json.dumps(body_of([user([block])])).encode()).conversation
    assert found.must_stay is read([block]).must_stay is brings


def test_half_a_pair_which_the_strict_reader_refuses_is_read_all_the_same():
    lone = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\\ud800"}]}'
    found = ApiMessage.read(lone)
    assert (found.role, found.answers, found.text()) == ("tool", "t", "\ud800")
    odd = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":7,"content":[{"type":"tool_reference"}]}]}'
    assert (ApiMessage.read(odd).answers, ApiMessage.read(odd).must_stay) == ("", True)


def test_a_result_without_a_content_says_nothing():
    found = ApiMessage.read(spelled(user([{"type": "tool_result", "tool_use_id": "toolu_1"}])))
    assert (found.answers, found.text(), found.content()) == ("toolu_1", "", None)
