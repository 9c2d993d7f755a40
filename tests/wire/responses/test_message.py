from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_bytes import VALUES, spelled_array
from support.media_samples import PDF, PNG, WAV, base64_of, data_url
from support.responses_items import inputs

from proxy.core.content_types import media_type
from proxy.core.conversation import (
    Argument,
    Attachment,
    Carried,
    Parts,
    Route,
    Shape,
    Shown,
    ToolCall,
    Words,
)
from proxy.errors import MalformedRequest
from proxy.wire.responses import RESPONSES, ResponsesMessage

# Parts with media

URL = "https://example.org/a.png"


def made(route, content=PNG, old=None, name="", address=""):
    like = None if old is None else json.dumps(old).encode()
    shown = Shown(route, media_type(content or b""), content, address, name, like)
    return json.loads(ResponsesMessage.json_of(shown, "user"))


def content_of(part):
    return part_read(part).attachment


def test_an_image_that_only_its_server_has_is_known_by_its_id():
    assert content_of({"type": "input_image", "file_id": "file_1"}) == Attachment(Shape.IMAGE, address="file_1")
    assert content_of({"type": "input_image", "image_url": None, "file_id": ""}) is None
    assert content_of({"type": "input_image", "file_id": 7}) is None
    here = content_of({"type": "input_image", "image_url": data_url(PNG, "image/png"), "file_id": "file_1"})
    assert (here.shape, here.content(), here.address) == (Shape.IMAGE, PNG, "")


def test_content_is_in_the_part_itself():
    assert made(Route.IMAGE) == {"type": "input_image", "detail": "auto", "image_url": data_url(PNG, "image/png")}
    assert made(Route.FILE, PDF, name="a.pdf") == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": data_url(PDF, "application/pdf"),
    }
    assert made(Route.AUDIO, WAV) == {"type": "input_audio", "input_audio": {"data": base64_of(WAV), "format": "wav"}}


@pytest.mark.parametrize(("route", "member"), [(Route.AUDIO_ADDRESS, "audio_url"), (Route.VIDEO, "video_url")])
def test_content_without_a_part_in_the_api_is_written_as_on_chat_completions(route, member):
    assert made(route, None, address=URL) == {"type": member, member: {"url": URL}}


def test_what_is_not_here_is_shown_by_its_address():
    assert made(Route.IMAGE, None, address=URL)["image_url"] == URL


def test_what_the_old_part_says_of_its_content_goes_into_the_new_one_and_its_content_does_not():
    old = {"type": "input_image", "detail": "low", "image_url": "old", "file_id": "f", "x": 1, "empty": None}
    assert made(Route.IMAGE, old=old) == {
        "type": "input_image",
        "detail": "low",
        "x": 1,
        "image_url": data_url(PNG, "image/png"),
    }
    old = {"type": "input_file", "filename": "theirs.pdf", "file_url": URL, "file_data": "old"}
    assert made(Route.FILE, PDF, old, name="ours.pdf") == {
        "type": "input_file",
        "filename": "theirs.pdf",
        "file_data": data_url(PDF, "application/pdf"),
    }


@pytest.mark.parametrize("old", [{"type": "input_file", "x": 1}, {"type": "image_url", "x": 1}, ["x"], "x"])
def test_an_old_part_of_another_kind_leaves_nothing(old):
    assert made(Route.IMAGE, old=old) == made(Route.IMAGE)


def test_the_rest_of_a_part_has_all_but_the_content_in_the_same_order():
    part = {"type": "input_file", "file_data": "A" * 5_000, "filename": "a" * 1_000, "n": 7}
    assert ResponsesMessage.rest_of(part) == b'{"type":"input_file","file_data":"","filename":"%b","n":7}' % (
        b"a" * 1_000
    )


# Parts


def part_read(part):
    return ResponsesMessage.read_part(json.dumps(part).encode(), part)


@pytest.mark.parametrize(
    ("item", "role", "written"),
    [
        (Carried(b'{"x" : 1}'), "user", b'{"x" : 1}'),
        (Words("b"), "user", b'{"type":"input_text","text":"b"}'),
        (Words("b"), "assistant", b'{"type":"output_text","text":"b","annotations":[]}'),
        (Words("b", like=b'{"text":"a","x":1}'), "assistant", b'{"text":"b","x":1}'),
        (Words("b", like=b'"a"'), "tool", b'{"type":"input_text","text":"b"}'),
    ],
)
def test_a_part_keeps_its_bytes_and_a_text_says_whose_it_is(item, role, written):
    assert ResponsesMessage.json_of(item, role) == written


# Messages

CALL = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"a": 1}'}
EXEC = {"type": "custom_tool_call", "call_id": "e", "name": "exec", "input": "pwd"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]}
IMAGE = {"type": "input_image", "image_url": data_url(PNG, "image/png"), "detail": "low"}
SHOWN = Shown(Route.IMAGE, media_type(PNG), PNG)


def read(*items):
    return ResponsesMessage.read(", ".join(json.dumps(item) for item in items).encode())


def text_part(text):
    return {"type": "input_text", "text": text}


def user(content):
    return {"role": "user", "content": content}


def opened(message):
    """Its items."""
    return json.loads(b"[" + message.raw + b"]")


def everything_of(message):
    """All that the core asks of a message."""
    texts = dict(message.texts())
    message.text(), message.media(), message.images, message.may_hold_media, list(message.addresses())
    list(message.arguments()), message.parts()
    for at in texts:
        changed = message.changed({at: "new"})
        assert dict(changed.texts()) == {**texts, at: "new"}
    if message.can_carry_a_note:
        at, content = message.with_note("a note", after=True)
        assert "a note" in message.changed({at: content}).text()


@given(inputs())
def test_every_message_answers_every_property(items):
    for message in RESPONSES.parse(json.dumps({"input": items}).encode()).conversation:
        everything_of(message)


@given(st.one_of(VALUES, st.lists(VALUES, max_size=4).map(spelled_array)), st.sampled_from([b"", b',"store":1']))
def test_any_json_is_read_or_is_malformed(value, more):
    try:
        request = RESPONSES.parse(b'{"input":' + value + more + b"}")
    except MalformedRequest:
        return
    for message in request.conversation:
        everything_of(message)
    RESPONSES.render(request, request.conversation.messages, {})


@pytest.mark.parametrize(
    ("item", "must_stay"),
    [
        ({"type": "item_reference", "id": "x"}, True),
        ({"type": "compaction"}, True),
        ({"type": "mcp_list_tools"}, True),
        ({"type": "tool_search_output", "call_id": "c", "tools": []}, True),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, False),
        (user("hi"), False),
        (CALL, False),
    ],
)
def test_what_later_messages_rest_on_must_stay(item, must_stay):
    assert read(item).must_stay is must_stay


def test_only_an_unknown_item_is_a_companion_on_its_own():
    assert read({"type": "hologram"}).is_companion
    assert not any(read(item).is_companion for item in (user("hi"), CALL, {"type": "compaction"}))


def test_items_of_the_model_are_one_message_with_all_its_calls():
    message = read(THOUGHT, WORDS, CALL, EXEC)
    assert message.calls == (ToolCall("c", "ls"), ToolCall("e", "exec"))
    assert [json.loads(bytes(raw)) for raw in message.items()] == [THOUGHT, WORDS, CALL, EXEC]
    assert message.again(message.raw) == message
    assert message.unmarked() == message.raw


def test_an_output_names_its_call_and_its_tool():
    message = read({"type": "function_call_output", "call_id": "c", "name": "ls", "output": "x"})
    assert (message.answers, message.name, message.calls) == ("c", "ls", ())


def test_no_text_of_a_message_is_in_its_repr():
    assert "secret" not in repr(read(user("secret")))


def test_arguments_are_at_the_positions_of_their_calls():
    message = read(THOUGHT, CALL, EXEC, {"type": "shell_call", "call_id": "s", "action": {}})
    found = list(message.arguments())
    assert found == [Argument((1, "arguments"), "c", '{"a": 1}'), Argument((2, "input"), "e", "pwd")]
    changed = opened(message.changed({at: "new" for at, _, _ in found}))
    assert (changed[1]["arguments"], changed[2]["input"]) == ("new", "new")
    assert list(read(WORDS).arguments()) == []


def test_reasoning_may_neither_be_changed_nor_left_out():
    message = read({**THOUGHT, "content": [{"text": "hm"}]}, WORDS)
    assert (list(message.thoughts()), list(message.reasoning()), message.reasoning_bytes) == ([], [], 0)
    assert list(message.texts()) == [((1, "content", 0, "text"), "so")]


def test_a_message_is_described_part_by_part():
    at, (text, image, odd, plain) = read(user([text_part("a"), IMAGE, 7, "b"])).parts()
    assert at == (0, "content")
    assert (text.text, plain.text, odd.text, image.text) == ("a", "b", None, None)
    assert image.attachment.content() == PNG
    assert json.loads(image.rest) == {**IMAGE, "image_url": data_url(PNG, "image/png")}
    assert (text.attachment, text.rest, odd.raw) == (None, b"", b"7")


@pytest.mark.parametrize(
    ("items", "found"),
    [
        (["hi"], ((0,), ["hi"])),
        ([user("hi")], ((0, "content"), ["hi"])),
        ([{"type": "function_call_output", "output": "x"}], ((0, "output"), ["x"])),
        ([THOUGHT, WORDS, CALL], ((1, "content"), ["so"])),
        ([WORDS, WORDS], None),
        ([THOUGHT, CALL], None),
        ([user({"text": "x"})], None),
        ([{"type": "shell_call_output", "output": []}], None),
    ],
)
def test_parts_are_those_of_the_one_content_of_a_message(items, found):
    parts = read(*items).parts()
    assert (parts and (parts[0], [part.text for part in parts[1]])) == found


def test_media_are_counted_and_images_among_them():
    message = read(user([IMAGE, {"type": "input_file", "file_id": "f"}]), user([IMAGE]))
    assert len(message.media()) == 3
    assert message.images == 2
    assert not read(user("an input_image")).media()
    texts = [Words("x"), Carried(b'"input_text"'), Carried(b'"input_file"')]
    assert message.images_among([SHOWN, Carried(json.dumps(IMAGE).encode()), *texts]) == 2


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (IMAGE, True),
        ({"type": "input_file"}, True),
        ({"type": "hologram"}, True),
        (text_part("hi"), False),
        ({"type": "output_text", "text": "type"}, False),
    ],
)
def test_a_message_may_hold_media_if_a_part_is_no_plain_one(part, found):
    assert read(user([part])).may_hold_media is found


def test_content_held_elsewhere_is_named():
    link = {"type": "input_image", "image_url": "https://example.org/a.png"}
    assert list(read(user([link])).addresses()) == ["https://example.org/a.png"]
    assert list(read(user("https://example.org/a.png")).addresses()) == []
    routed = json.dumps({"routing": "file", "file": {"file_data": "artifact:x"}})
    assert "artifact:x" in list(read({"type": "function_call_output", "call_id": "c", "output": routed}).addresses())
    assert list(read(user(routed)).addresses()) == []


def changed(item, *items, as_text=False):
    """An item with these parts in the place of what it says."""
    message = read(item)
    at, _ = message.parts()
    return opened(message.changed({at: Parts(items, as_text)}))[0]


@pytest.mark.parametrize(
    ("item", "items", "as_text", "content"),
    [
        (user("hi"), [Words("a")], False, "a"),
        (user("hi"), [Words("a"), Words("b")], True, [text_part("a"), text_part("b")]),
        (user([IMAGE]), [Words("a"), Words("b")], True, "a\nb"),
        (user([IMAGE]), [Words("a"), Words("b")], False, [text_part("a"), text_part("b")]),
        (user([IMAGE]), [Words("a"), Carried(b'{"type":"x"}')], True, [text_part("a"), {"type": "x"}]),
        (user([IMAGE]), [Words("a", b'{"type":"input_text","text":"old","x":1}')], True, [{**text_part("a"), "x": 1}]),
        (WORDS, [Words("a")], False, [{"type": "output_text", "text": "a", "annotations": []}]),
    ],
)
def test_parts_are_written_as_the_message_and_its_reader_want_them(item, items, as_text, content):
    assert changed(item, *items, as_text=as_text)["content"] == content


def test_a_text_alone_becomes_a_message_once_it_has_parts():
    found = changed("hi", Words("hi"), SHOWN)
    assert (found["type"], found["role"]) == ("message", "user")
    assert [part["type"] for part in found["content"]] == ["input_text", "input_image"]
    assert changed("hi", Words("ho")) == "ho"


def test_what_is_not_changed_keeps_its_bytes():
    raw = b'{"role" : "assistant","n":1.50,"content":"a"} , {"type":"function_call","call_id":"c","name":"x"}'
    message = ResponsesMessage.read(raw)
    assert b'"n":1.50' in message.changed({(0, "content"): "b"}).raw
    assert b'{"type":"function_call","call_id":"c","name":"x"}' in message.changed({(0, "content"): "b"}).raw
    assert "content" not in opened(message.changed({(0, "content"): None}))[0]


@pytest.mark.parametrize(
    ("item", "can"),
    [
        (user("hi"), True),
        (user([IMAGE]), True),
        (user(None), True),
        ({"type": "message", "role": "user"}, True),
        (user({"a": 1}), False),
        (CALL, False),
        ({"type": "shell_call_output", "output": []}, False),
    ],
)
def test_a_note_goes_only_where_text_is_allowed(item, can):
    assert read(item).can_carry_a_note is can


@pytest.mark.parametrize(
    ("content", "after", "found"),
    [
        ([IMAGE], True, [IMAGE, text_part("a note")]),
        ([IMAGE], False, [text_part("a note"), IMAGE]),
        ("", True, "a note"),
        (None, False, "a note"),
    ],
)
def test_a_note_is_what_a_message_says_or_a_part_of_it(content, after, found):
    message = read(user(content))
    at, note = message.with_note("a note", after=after)
    assert opened(message.changed({at: note}))[0]["content"] == found


def test_another_message_is_one_item_with_a_text_or_with_parts():
    message = read(user("hi"))
    assert opened(message.beside("developer", "x")) == [{"type": "message", "role": "developer", "content": "x"}]
    found = opened(message.beside("assistant", [Words("x")]))
    assert found[0]["content"] == [{"type": "output_text", "text": "x", "annotations": []}]
    assert message.beside("developer", "x").role == "developer"


@pytest.mark.parametrize(
    ("item", "brings"),
    [({"type": "additional_tools", "tools": []}, True), ({"type": "configuration_update"}, False), (user("x"), False)],
)
def test_only_additional_tools_bring_tools(item, brings):
    body = json.dumps({"model": "m", "input": [item]}).encode()
    assert RESPONSES.parse(body).shape.items_add_tools is brings


SAID = user([text_part("a") | {"encrypted_content": "a user may write of seals"}])
OPEN = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([THOUGHT, CALL], [CALL]),
        ([CALL, THOUGHT], [CALL]),
        ([THOUGHT], None),
        ([THOUGHT, OPEN, CALL], [OPEN, CALL]),
        ([OPEN, CALL], [OPEN, CALL]),
        ([SAID], [SAID]),
        ([{**THOUGHT, "encrypted_content": None}, CALL], [{**THOUGHT, "encrypted_content": None}, CALL]),
    ],
)
def test_only_encrypted_reasoning_is_sealed(items, left):
    found = read(*items)
    unsealed = found.unsealed()
    assert (unsealed is found) == (items == left)
    if left is None:
        assert unsealed is None
    else:
        assert json.loads(b"[" + unsealed.raw + b"]") == left
        assert unsealed == read(*left)


def test_a_call_that_mentions_an_image_elsewhere_refers_to_none():
    call = {"type": "function_call", "call_id": "c", "name": "show", "arguments": '{"image_url":"http://x/a.png"}'}
    assert list(read(call).addresses()) == []
