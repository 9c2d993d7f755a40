from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import DOCUMENT, IMAGE, MARK, PNG, histories, result, spelled, text, use

from proxy.core.text import jsontext
from proxy.wire.messages import ApiMessage
from proxy.wire.messages.blocks import (
    brings_tools,
    heads_in,
    holds_compaction,
    images_in,
    kind_of,
    may_bring_tools,
    media_in,
    role_and_content,
    text_in,
    texts_of,
)

# Blocks

COMPACTION = {"type": "compaction", "content": "so far"}
REFERENCE = {"type": "tool_reference", "tool_name": "t"}
URL = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.sampled_from(["text", "image", "document", "tool_use", "tool_reference", "compaction", "base64"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["type", "text", "source", "content", "input", "data"]), inner, max_size=4),
    ),
    max_leaves=20,
)


def deep(value, levels):
    for _ in range(levels):
        value = {"inner": value}
    return value


@given(JSON)
def test_no_content_makes_it_raise(content):
    assert all(isinstance(text, str) for text in texts_of(content))
    assert images_in(content) <= len(list(media_in(content)))
    brings_tools(json.dumps(content).encode(), content)
    holds_compaction(content)


@pytest.mark.parametrize(
    ("block", "kind", "expected"),
    [
        (text("a"), "text", "a"),
        (text(7), "text", None),
        ({"type": "input_text", "text": "a"}, "input_text", None),
        ({"type": ["text"], "text": "a"}, "", None),
        ("text", "", None),
    ],
)
def test_a_text_block_is_recognised_by_its_type(block, kind, expected):
    assert (kind_of(block), text_in(block)) == (kind, expected)


@pytest.mark.parametrize(
    ("block", "texts"),
    [
        (text("t", citations=[{"cited_text": "E"}], **MARK), ["t"]),
        ({"type": "thinking", "thinking": "why", "signature": "E"}, ["why"]),
        ({"type": "redacted_thinking", "data": "E"}, []),
        (COMPACTION, ["so far"]),
        (use(1, "Read", path="a"), ["Read", '{"path":"a"}']),
        ({"type": "mcp_tool_use", "id": "E", "name": "m", "input": {}}, ["m", "{}"]),
        (result(1, "a"), ["a"]),
        (result(1, [text("a"), IMAGE, {"type": "unheard_of", "inner": ["b"]}]), ["a", "b"]),
        ({"type": "web_search_tool_result", "content": [{"title": "T", "encrypted_content": "E"}]}, ["T"]),
        (DOCUMENT, ["text/plain", "a page", "t"]),
        ({"type": "document", "source": {"type": "base64", "media_type": "m", "data": "E"}}, ["m"]),
        (IMAGE, []),
        ({"type": "container_upload", "file_id": "E"}, []),
        (deep("w", 5), ["w"]),
        (deep("w", 50), []),
        (7, []),
    ],
)
def test_texts_of_any_block_count_and_unreadable_content_does_not(block, texts):
    assert list(texts_of([block])) == texts


def test_a_plain_text_is_its_own():
    assert list(texts_of("a")) == ["a"]


def test_content_before_the_last_compaction_is_not_read():
    assert list(texts_of([text("a"), COMPACTION, text("b"), {**COMPACTION, "content": "c"}, text("d")])) == ["c", "d"]


@pytest.mark.parametrize(("content", "holds"), [([text("a"), COMPACTION], True), ([result(1, [COMPACTION])], False)])
def test_a_compaction_is_a_block_of_the_content_itself(content, holds):
    assert holds_compaction(content) is holds


def test_images_are_media_with_their_address_and_files_are_media_without():
    embedded, linked, file = media_in([text("a"), IMAGE, URL, {"type": "document", "source": {"type": "base64"}}])
    assert (embedded.url, linked.url) == (f"data:image/png;base64,{PNG}", "https://example.org/a.png")
    assert file is None


def test_of_a_large_image_only_the_head_is_looked_at():
    (view,) = media_in([{"type": "image", "source": {"type": "base64", "data": "A" * 10**6}}])
    assert 80_000 < len(view.url) < 100_000


@pytest.mark.parametrize("kind", ["text", "content"])
def test_a_document_of_text_is_no_file(kind):
    assert list(media_in([{"type": "document", "source": {"type": kind}}])) == []


def test_only_images_count_as_images():
    assert images_in([IMAGE, text("image"), URL, {"type": "document", "source": {"type": "base64"}}]) == 2
    assert images_in("image") == 0


@pytest.mark.parametrize(
    ("block", "brings"),
    [
        (REFERENCE, True),
        (result(1, [REFERENCE]), True),
        ({"type": "tool_addition", "tool": {}}, True),
        ({"type": "tool_removal", "tool": {}}, True),
        ({"type": "mcp_tool_listing"}, True),
        (use(1, inner=REFERENCE), False),
        (result(1, '"tool_reference"'), False),
        (text("tool_reference", kind="tool_reference"), False),
        (deep(REFERENCE, 50), False),
    ],
)
def test_tools_are_brought_by_blocks_and_not_by_words_about_them(block, brings):
    assert brings_tools(json.dumps([block]).encode(), [block]) is brings


# Heads

SURROGATE = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\\ud800"}]}'
"""msgspec does not read it; Python writes it."""
REFERENCE_HEAD = {"type": "tool_reference", "tool_name": "t"}
BLOCKS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                text("a"),
                use(1),
                result(1, "a"),
                result(1, [text("a")]),
                result(1, [REFERENCE_HEAD]),
                IMAGE,
                REFERENCE_HEAD,
                {"type": "tool_addition", "tool": {}},
                {"type": "hologram", "inner": [REFERENCE_HEAD]},
            ]
        ),
        st.sampled_from([7, None, "text", {"type": 7}, {"type": "tool_use", "id": 7, "name": ["x"]}]),
    ),
    max_size=4,
)


def raw(value):
    return json.dumps(value).encode()


@given(histories())
def test_the_content_of_a_message_is_the_same_opened_and_unopened(history):
    for message in history:
        kept = spelled(message)
        role, content = role_and_content(kept)
        assert (role, jsontext.opened(content)) == (message["role"], message["content"])


@given(BLOCKS)
def test_heads_say_of_each_block_what_it_says_itself(blocks):
    heads = heads_in(raw(blocks))
    assert [head.type for head in heads] == [kind_of(block) for block in blocks]
    assert [head.id for head in heads] == [jsontext.string_in(block, "id") for block in blocks]
    assert [head.tool_use_id for head in heads] == [
        block.get("tool_use_id", "") if isinstance(block, dict) else "" for block in blocks
    ]


@given(BLOCKS)
def test_no_block_that_brings_tools_is_taken_for_one_that_brings_none(blocks):
    if brings_tools(raw(blocks), blocks):
        assert may_bring_tools(heads_in(raw(blocks)))


@pytest.mark.parametrize("blocks", [[text("a")], [use(1)], [result(1, "a"), text("b")], [{"type": "thinking"}], []])
def test_texts_calls_and_plain_results_are_not_opened(blocks):
    assert not may_bring_tools(heads_in(raw(blocks)))


def test_what_the_strict_reader_refuses_is_read_all_the_same():
    role, content = role_and_content(SURROGATE)
    (head,) = heads_in(content)
    assert (role, head.type, head.tool_use_id) == ("user", "tool_result", "t")
    assert jsontext.opened(head.content) == "\ud800"
    assert (head.name, head.id) == ("", "")
    (odd,) = heads_in(b'[{"type":"tool_result","tool_use_id":7,"content":[{"type":"tool_reference"}]}]')
    assert (odd.tool_use_id, may_bring_tools([odd])) == ("", True)


@pytest.mark.parametrize(
    "odd", [b"7", b"", b"{", b"null", b"[]", b'{"role":7}', b'{"content":null}', b'{"content":[]}']
)
def test_a_message_without_a_content_has_none(odd):
    assert jsontext.opened(ApiMessage.read(odd).raw_content()) in (None, [])
    assert role_and_content(odd)[0] == ""


def test_a_result_without_a_content_has_none():
    kept = raw({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]})
    assert ApiMessage.read(kept).raw_content() is None
    assert heads_in(b'"text"') == ()
