from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES, messages
from support.media_samples import PDF

from proxy.core.content_types import media_type
from proxy.core.conversation import Carried, Part, Parts, Route, Shown, ToolCall, Words
from proxy.wire.chat_completions import ChatMessage

# Calls

LOOK = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
PATCH = {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def calling(*calls):
    return read(role="assistant", tool_calls=calls)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (LOOK, 'look\n{"x": 1}'),
        (PATCH, "patch\n*** Begin"),
        ({"function": {"name": 5, "arguments": 7}, "custom": "odd"}, ""),
        (
            {"function": {"name": "write", "arguments": {"path": "a", "text": "é" * 9}}},
            'write\n{"path":"a","text":"ééééééééé"}',
        ),
    ],
)
def test_a_model_reads_the_name_and_the_arguments_of_a_call(call, text):
    assert calling(call).text() == text


@given(VALUES)
def test_any_json_may_be_a_call(raw):
    message = ChatMessage.read(b'{"role":"assistant","tool_calls":[' + raw + b"]}")
    message.text()


# Parts with media

MEMBERS = {
    Route.IMAGE: "image_url",
    Route.AUDIO: "input_audio",
    Route.AUDIO_ADDRESS: "audio_url",
    Route.VIDEO: "video_url",
    Route.FILE: "file",
}


def made(route, content=PDF, name="", old=None, **more):
    """The part, and the member that holds its content."""
    like = None if old is None else json.dumps(old).encode()
    part = json.loads(ChatMessage.json_of(Shown(route, media_type(content), content, "", name, like, **more), "user"))
    assert part.keys() == {"type", MEMBERS[route]}
    assert part["type"] == MEMBERS[route]
    return part[MEMBERS[route]]


@pytest.mark.parametrize("route", MEMBERS)
def test_what_the_old_part_says_of_its_content_stays(route):
    old = {"detail": "low", "x": 1}
    found = made(route, name="theirs.pdf", old={"type": MEMBERS[route], MEMBERS[route]: old})
    assert found | old == found


def test_an_old_part_of_an_odd_type_leaves_nothing():
    assert made(Route.IMAGE, old={"image_url": "text"}).keys() == {"url"}


def test_a_replaced_address_goes_and_the_members_beside_it_stay():
    old = {"image_url": {"url": "https://example.org/a.png", "file_id": "7", "detail": "high"}}
    assert made(Route.IMAGE, old=old, is_fetched=True).keys() == {"url", "detail"}
    assert made(Route.IMAGE, old=old)["file_id"] == "7"


def test_the_rest_of_a_part_has_all_but_the_content_in_the_same_order():
    part = {"type": "image_url", "image_url": {"url": "data:" + "A" * 5_000, "detail": "low"}, "b64": "A" * 5_000}
    assert ChatMessage.rest_of(part) == b'{"type":"image_url","image_url":{"url":"","detail":"low"},"b64":""}'


# Parts

TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (Carried(b'{"x" : 1}'), b'{"x" : 1}'),
        (Words("b"), b'{"type":"text","text":"b"}'),
        (Words("b", like=b'{"text":"a","type":"text","x":1}'), b'{"text":"b","type":"text","x":1}'),
        (Words("b", like=b'"a"'), b'{"type":"text","text":"b"}'),
    ],
)
def test_a_part_keeps_its_bytes_and_a_text_the_members_of_the_one_before(item, written):
    assert ChatMessage.json_of(item, "user") == written


@pytest.mark.parametrize(
    ("new", "in_text", "written"),
    [
        (None, True, None),
        ("a", False, "a"),
        (Parts((Words("a"),)), True, "a"),
        (Parts((Words("a"),)), False, [TEXT]),
        (Parts((Words("a"), Words("a"))), True, [TEXT, TEXT]),
        (Parts((Words("a"), Words("a")), as_text=True), True, [TEXT, TEXT]),
        (Parts((Words("a"), Words("a")), as_text=True), False, "a\na"),
        (Parts((Carried(b'{"type":"x"}'),)), True, [{"type": "x"}]),
        (Parts((Words("a"), Carried(b'{"type":"x"}')), as_text=True), False, [TEXT, {"type": "x"}]),
        (Parts((Words("a"), Carried(b'"b"')), as_text=True), False, [TEXT, "b"]),
        (Parts((Carried(b'{"type":"text","text":5}'),), as_text=True), False, [{"type": "text", "text": 5}]),
    ],
)
def test_a_text_stays_one_and_parts_become_one_where_only_a_text_is_read(new, in_text, written):
    found = ChatMessage(b"{}").replacement(new, in_text=in_text)
    assert (found if found is None else json.loads(found)) == written


# Messages


def read(**members):
    return ChatMessage.read(json.dumps(members).encode())


def test_what_names_a_message_is_read():
    message = read(role="tool", tool_call_id="call_1", name="read", content="x")
    assert (message.role, message.answers, message.name) == ("tool", "call_1", "read")


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        ([LOOK, PATCH], (ToolCall("a", "look"), ToolCall("b", "patch"))),
        ([{"id": "2", "name": "flat"}], (ToolCall("2", "flat"),)),
        ([{"custom": {}, "name": 7}], (ToolCall("", ""),)),
        ({"id": "a"}, ()),
        (None, ()),
        ("none", ()),
        ([None, 5, "x"], ()),
        ([{}], (ToolCall("", ""),)),
        ([{"id": None, "function": {"name": 5}}], (ToolCall("", ""),)),
        ([{"id": 7, "function": "read"}], (ToolCall("7", ""),)),
    ],
)
def test_tool_calls_are_read_in_every_shape_and_as_empty_where_it_is_odd(calls, seen):
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
        function_call={"name": "h", "arguments": "i"},
    )
    assert message.text() == "\n".join("abcdefghi")


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


def test_a_result_that_is_an_object_is_read_as_its_json_and_others_are_left_alone():
    raw = b'{"role":"tool","content":{"rows": [1.0, NaN],  "name":"\xc3\xa9"}}'
    result, text = ChatMessage.read(raw), '{"rows": [1.0, NaN],  "name":"é"}'
    assert (result.text(), list(result.texts())) == (text, [(("content",), text)])
    assert result.parts() == (("content",), (Part(json.dumps(text, ensure_ascii=False).encode(), text),))
    assert json.loads(result.changed({("content",): "cut"}).raw) == {"role": "tool", "content": "cut"}
    assert result.changed({}).raw == raw
    asked = read(role="user", content={"type": "text", "text": "x"})
    assert (asked.text(), list(asked.texts()), asked.parts()) == ("", [], None)


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
