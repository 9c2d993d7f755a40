"""The heads of messages and blocks: the strict reader and the lenient one agree."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import IMAGE, histories, result, spelled, text, use

from proxy.core.text import jsontext
from proxy.wire.messages.blocks import brings_tools, kind_of
from proxy.wire.messages.heads import (
    content_in,
    content_in_first,
    heads_in,
    may_bring_tools,
    opened_in,
    opened_in_first,
    said_in,
)

SURROGATE = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\\ud800"}]}'
"""msgspec does not read it; Python writes it."""
REFERENCE = {"type": "tool_reference", "tool_name": "t"}
BLOCKS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                text("a"),
                use(1),
                result(1, "a"),
                result(1, [text("a")]),
                result(1, [REFERENCE]),
                IMAGE,
                REFERENCE,
                {"type": "tool_addition", "tool": {}},
                {"type": "hologram", "inner": [REFERENCE]},
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
        assert said_in(kept) == (message["role"], bytes(content_in(kept)))
        assert opened_in(kept) == jsontext.opened(content_in(kept)) == message["content"]


@given(BLOCKS)
def test_heads_say_of_each_block_what_it_says_itself(blocks):
    heads = heads_in(raw(blocks))
    assert [head.type for head in heads] == [kind_of(block) for block in blocks]
    assert [head.id for head in heads] == [
        str(block.get("id") or "") if isinstance(block, dict) else "" for block in blocks
    ]
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
    assert opened_in_first(SURROGATE) == "\ud800"
    assert bytes(content_in_first(SURROGATE)) == b'"\\ud800"'
    role, content = said_in(SURROGATE)
    (head,) = heads_in(content)
    assert (role, head.type, head.tool_use_id) == ("user", "tool_result", "t")
    assert (head.name, head.id) == ("", "")
    (odd,) = heads_in(b'[{"type":"tool_result","tool_use_id":7,"content":[{"type":"tool_reference"}]}]')
    assert (odd.tool_use_id, may_bring_tools([odd])) == ("", True)


@pytest.mark.parametrize(
    "odd", [b"7", b"", b"{", b"null", b"[]", b'{"role":7}', b'{"content":null}', b'{"content":[]}']
)
def test_a_message_without_a_content_has_none(odd):
    assert opened_in(odd) in (None, [])
    assert opened_in_first(odd) is None
    assert content_in_first(odd) is None
    assert said_in(odd)[0] == ""


def test_a_result_without_a_content_has_none():
    kept = raw({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]})
    assert (opened_in_first(kept), content_in_first(kept)) == (None, None)
    assert heads_in(b'"text"') == ()
