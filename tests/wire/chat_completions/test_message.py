from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES, messages
from support.media_samples import PDF, WAV
from support.messages_conversations import PNG

from proxy.core.content_types import media_type
from proxy.core.conversation import Carried, Part, Parts, Route, Shown, ToolCall, Words
from proxy.core.text import jsontext
from proxy.wire.chat_completions import ChatMessage
from proxy.wire.chat_completions import message as chat_message
from proxy.wire.chat_completions.message import calls_in, meant_by, name_of, part_of, texts_of, texts_of_call

# Calls

LOOK = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
PATCH = {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def spelled(*found):
    return [json.dumps(one).encode() for one in found]


def test_calls_of_functions_and_custom_tools_have_an_id_and_a_name():
    found = calls_in(json.dumps([LOOK, PATCH, 7, {"name": "flat"}]).encode())
    assert found == (ToolCall("a", "look"), ToolCall("b", "patch"), ToolCall("", "flat"))
    assert calls_in(b'{"id":"a"}') == ()


@pytest.mark.parametrize("tool", [{}, {"function": "look"}, {"function": {"name": 7}}, {"custom": {}, "name": 7}])
def test_a_tool_of_another_shape_has_no_name(tool):
    assert name_of(tool) == ""


def test_calls_are_compared_by_their_meaning():
    compact = json.loads(json.dumps(LOOK))
    compact["function"]["arguments"] = '{"x":1}'
    assert meant_by(spelled(LOOK)) == meant_by(spelled(compact)) == [["a", "look", {"x": 1}]]
    broken = {"id": "a", "function": {"name": "look", "arguments": "{"}}
    assert meant_by(spelled(broken, PATCH, 7)) == [["a", "look", "{"], [PATCH], [7]]
    assert meant_by(spelled({"function": {"arguments": {"x": 1}}})) == [[None, None, {"x": 1}]]


def test_only_so_many_calls_are_compared(monkeypatch):
    monkeypatch.setattr(chat_message, "MAX_CALLS", 2)
    assert len(meant_by(spelled(LOOK, LOOK, LOOK))) == 2


def test_a_model_reads_the_name_and_the_arguments_of_a_call():
    assert list(texts_of_call(LOOK)) == ["look", '{"x": 1}']
    assert list(texts_of_call(PATCH)) == ["patch", "*** Begin"]
    assert list(texts_of_call({"function": {"name": 5, "arguments": 7}, "custom": "odd"})) == []


def test_a_model_reads_arguments_that_are_an_object_as_json():
    called = {"function": {"name": "write", "arguments": {"path": "a", "text": "é" * 9}}}
    assert list(texts_of_call(called)) == ["write", '{"path":"a","text":"ééééééééé"}']


@given(VALUES)
def test_any_json_may_be_a_call(raw):
    calls_in(b"[" + raw + b"]")
    meant_by([raw])
    list(texts_of_call(jsontext.opened(raw)))


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
    part = part_of(Shown(route, media_type(content), content, "", name, like, **more))
    assert part.keys() == {"type", MEMBERS[route]}
    assert part["type"] == MEMBERS[route]
    return part[MEMBERS[route]]


@pytest.mark.parametrize("route", MEMBERS)
def test_what_the_old_part_says_of_its_content_stays(route):
    member = MEMBERS[route]
    assert made(route, name="theirs.pdf", old={"type": member, member: {"detail": "low", "x": 1}}) | {
        "detail": "low",
        "x": 1,
    } == made(route, name="theirs.pdf", old={"type": member, member: {"detail": "low", "x": 1}})


def test_a_file_has_its_name_and_raw_audio_its_format():
    assert made(Route.FILE, name="a.pdf")["filename"] == "a.pdf"
    assert made(Route.AUDIO, WAV)["format"] == "wav"


def test_an_old_part_of_an_odd_type_leaves_nothing():
    assert made(Route.IMAGE, old={"image_url": "text"}).keys() == {"url"}


def test_a_replaced_address_goes_and_the_members_beside_it_stay():
    old = {"image_url": {"url": "https://example.org/a.png", "file_id": "7", "detail": "high"}}
    assert made(Route.IMAGE, old=old, is_fetched=True).keys() == {"url", "detail"}
    assert made(Route.IMAGE, old=old)["file_id"] == "7"


def test_what_is_not_here_is_shown_by_its_address():
    shown = Shown(Route.IMAGE, media_type(b""), address="https://example.org/a.png")
    assert part_of(shown) == {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def test_the_rest_of_a_part_has_all_but_the_content_in_the_same_order():
    part = {"type": "image_url", "image_url": {"url": "data:" + "A" * 5_000, "detail": "low"}, "b64": "A" * 5_000}
    assert ChatMessage.rest_of(part) == b'{"type":"image_url","image_url":{"url":"","detail":"low"},"b64":""}'


# Parts

TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}


def part_read(part):
    return ChatMessage.read_part(json.dumps(part).encode(), part)


def test_media_have_a_content_and_the_rest_of_their_part():
    found = part_read(IMAGE)
    assert (found.text, found.attachment.payload) == (None, PNG)
    assert json.loads(found.rest)["image_url"]["detail"] == "low"
    shown = Shown(Route.IMAGE, media_type(b""), found.attachment.content(), like=found.rest)
    assert json.loads(ChatMessage.json_of(shown, "user"))["image_url"]["detail"] == "low"


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


def test_a_result_that_is_an_object_is_read_as_its_json_and_others_are_left_alone():
    raw = b'{"role":"tool","content":{"rows": [1.0, NaN],  "name":"\xc3\xa9"}}'
    result, text = ChatMessage.read(raw), '{"rows": [1.0, NaN],  "name":"é"}'
    assert (result.text(), list(result.texts())) == (text, [(("content",), text)])
    assert result.parts() == (("content",), (Part(json.dumps(text, ensure_ascii=False).encode(), text),))
    assert json.loads(result.changed({("content",): "cut"}).raw) == {"role": "tool", "content": "cut"}
    assert result.changed({}).raw == raw
    asked = read(role="user", content={"type": "text", "text": "x"})
    assert (asked.text(), list(asked.texts()), asked.parts()) == ("", [], None)


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
