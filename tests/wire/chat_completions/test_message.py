from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES, messages

from proxy.core.conversation.message import ToolCall
from proxy.wire.chat_completions.message import ChatMessage, texts_of


def read(**members):
    return ChatMessage.read(json.dumps(members).encode())


def test_what_names_a_message_is_read():
    message = read(role="tool", tool_call_id="call_1", name="read", content="x")
    assert (message.role, message.answers, message.name) == ("tool", "call_1", "read")


def test_tool_calls_are_read_in_both_shapes():
    calls = [{"id": "1", "type": "function", "function": {"name": "read"}}, {"id": "2", "name": "flat"}]
    assert read(role="assistant", tool_calls=calls).calls == (ToolCall("1", "read"), ToolCall("2", "flat"))


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        (None, ()),
        ("none", ()),
        ([None, 5, "x"], ()),
        ([{}], (ToolCall("", ""),)),
        ([{"id": None, "function": {"name": 5}}], (ToolCall("", ""),)),
        ([{"id": 7, "function": "read"}], (ToolCall("7", ""),)),
    ],
)
def test_tool_calls_of_an_odd_type_read_as_empty(calls, seen):
    assert read(role="assistant", tool_calls=calls).calls == seen


@pytest.mark.parametrize("odd", [None, 5, [5], {"a": 1}, True])
def test_members_of_an_odd_type_read_as_empty(odd):
    message = read(role=odd, tool_call_id=odd, name=odd, content=odd)
    assert (message.role, message.answers, message.name, message.text()) == ("", "", "", "")
    assert message.content() == odd


@given(messages() | VALUES)
def test_every_json_value_is_a_view_that_keeps_its_bytes(raw):
    message = ChatMessage.read(raw)
    assert message.raw == raw
    assert ChatMessage.read(message.raw) == message
    assert isinstance(message.text(), str)
    assert all(not isinstance(part.get("text"), str) for part in message._media_parts())
    assert len(message.members()) == 0 or raw.lstrip()[:1] == b"{"
    message.content()


@pytest.mark.parametrize("raw", [b"[1]", b'"text"', b"null", b"5", b"no json", b""])
def test_what_is_no_object_has_no_role_and_no_members(raw):
    message = ChatMessage.read(raw)
    assert (message.role, message.members(), message.content(), message.text()) == ("", {}, None, "")


def test_every_text_a_model_reads_is_given():
    message = read(
        role="assistant",
        content=[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b", {"text": 5}],
        reasoning_content="c",
        reasoning="d",
        refusal="e",
        tool_calls=[{"function": {"name": "f", "arguments": "g"}}, {"function": {"arguments": ["no text"]}}],
    )
    assert message.text() == "\n".join("abcdefg")


def test_thoughts_and_refusals_among_the_parts_are_text_and_no_media():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]},
        {"type": "thinking", "thinking": "b"},
        {"type": "refusal", "refusal": "c"},
        {"type": "thinking", "thinking": 7},
        {"type": "text", "text": "d", "thinking": "no"},
    ]
    message = read(role="assistant", content=parts)
    assert sorted(message.text().split("\n")) == ["a", "b", "c", "d"]
    assert list(message.media()) == []


def test_parts_without_text_are_media():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": None}, "b"]
    assert list(read(role="user", content=parts)._media_parts()) == [parts[1], parts[2]]
    assert list(read(role="user", content="text")._media_parts()) == []


def test_reasoning_is_measured_as_json():
    assert read(role="assistant", reasoning_content="four").reasoning_bytes == len('"four"')
    assert read(role="assistant").reasoning_bytes == 0


def test_contents_that_are_neither_text_nor_list_have_no_texts():
    assert list(texts_of({"text": "x"})) == list(texts_of(None)) == []


def test_the_words_of_every_kind_of_call_are_read():
    message = read(
        role="assistant",
        tool_calls=[
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{1}"}},
            {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
            {"id": "c", "type": "custom", "custom": "odd"},
        ],
        function_call={"name": "old", "arguments": "{2}"},
    )
    assert message.text() == "look\n{1}\npatch\n*** Begin\nold\n{2}"
    assert [call.name for call in message.calls] == ["look", "patch", ""]


@pytest.mark.parametrize("name", ["reasoning_details", "thinking_blocks"])
def test_what_gateways_seal_can_be_left_out(name):
    found = ChatMessage.read(
        f'{{"role":"assistant", "content":"a","{name}":[{{"signature":"S"}}],"reasoning":"b"}}'.encode()
    )
    assert found.unsealed().raw == b'{"role":"assistant","content":"a","reasoning":"b"}'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"assistant","content":"a","reasoning_content":"b"}',
        b'{"role":"assistant","content":[{"type":"text","text":"a","reasoning_details":[]}]}',
        b'{"role":"user","content":"a","reasoning_details":[]}',
    ],
)
def test_a_message_without_seals_is_left_alone(raw):
    found = ChatMessage.read(raw)
    assert found.unsealed() is found


def test_arguments_that_are_an_object_are_read_as_json_and_stay_an_object():
    calls = [
        {"id": "1", "function": {"name": "write", "arguments": {"text": "né\ud800w"}}},
        {"id": "2", "function": {"name": "write", "arguments": '{"text": "old"}'}},
    ]
    message = read(role="assistant", tool_calls=calls)
    first, second = message.arguments()
    assert json.loads(first.text) == calls[0]["function"]["arguments"]
    assert (first.call_id, second.call_id, second.text) == ("1", "2", '{"text": "old"}')
    changed = message.changed({first.at: '{"text": "cut"}', second.at: '{"text": "cut"}'})
    assert [call["function"]["arguments"] for call in json.loads(changed.raw)["tool_calls"]] == [
        {"text": "cut"},
        '{"text": "cut"}',
    ]


@pytest.mark.parametrize("form", [json.dumps, dict], ids=["text", "object"])
def test_the_arguments_of_a_function_call_are_read_and_changed_like_those_of_a_tool(form):
    message = read(role="assistant", content=None, function_call={"name": "write", "arguments": form({"a": "old"})})
    (argument,) = message.arguments()
    assert json.loads(argument.text) == {"a": "old"}
    changed = json.loads(message.changed({argument.at: '{"a": "cut"}'}).raw)
    assert changed["function_call"] == {"name": "write", "arguments": form({"a": "cut"})}


@pytest.mark.parametrize("odd", [None, 5, "x", [], {}, {"arguments": None}, {"arguments": [1]}])
def test_a_function_call_of_an_odd_type_has_no_arguments(odd):
    assert list(read(role="assistant", function_call=odd).arguments()) == []
