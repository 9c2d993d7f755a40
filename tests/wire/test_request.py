from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.json_bytes import BLANKS, MESSAGE_LISTS, messages
from support.request_bodies import bodies, joined, next_bodies

from proxy.errors import ContextOverflow, MalformedRequest
from proxy.wire import Request
from proxy.wire.chat_completions import CHAT_COMPLETIONS, ChatMessage
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES


def outcome(body, known=None):
    """All that a request is, or that it was refused. The place holder of `messages` among the members is left out."""
    try:
        request = CHAT_COMPLETIONS.parse(body, known, known.shared_messages(body) if known else 0)
    except MalformedRequest:
        return "refused"
    members = [(name, b"" if name == "messages" else bytes(raw)) for name, raw in request.members.items()]
    return bytes(request.body), members, request.conversation.messages, request.ends


@given(bodies())
def test_a_request_in_any_spelling_keeps_the_bytes_of_its_messages_and_members(pieces):
    before, _, items, after, _ = pieces
    members = [*before, (b'"messages"', b""), *after]
    if any(_name(name) == "messages" for name, _ in [*before, *after]):
        return
    request = CHAT_COMPLETIONS.parse(joined(pieces))
    assert [message.raw for message in request.conversation] == items
    last_of_each = {_name(name): value for name, value in members}
    assert list(request.members) == list(last_of_each)
    assert {name: bytes(raw) for name, raw in request.members.items() if name != "messages"} == {
        name: value for name, value in last_of_each.items() if name != "messages"
    }
    for end, message in zip(request.ends, request.conversation, strict=False):
        assert request.body[:end].endswith(message.raw)


def _name(raw):
    return json.loads(raw.decode("utf-8", "surrogateescape"))


@given(MESSAGE_LISTS, BLANKS)
def test_the_ends_of_the_messages_of_a_plain_request_are_known(items, blank):
    request = CHAT_COMPLETIONS.parse(
        joined([[(b'"model"', b'"m"')], b'"messages"', items, [(b'"stream"', b"true")], blank])
    )
    assert len(request.ends) == len(items)
    assert [request.body[end - len(raw) : end] for end, raw in zip(request.ends, items, strict=True)] == items


@settings(max_examples=400)
@given(st.data(), bodies(st.lists(messages(), max_size=8)))
def test_a_request_that_continues_a_known_one_reads_as_if_nothing_were_known(data, pieces):
    body, known = data.draw(next_bodies(pieces)), parse_or_none(joined(pieces))
    assert outcome(body, known) == outcome(body)


@given(st.data(), bodies(st.lists(messages(), max_size=8)))
def test_a_request_that_continues_a_continued_one_reads_as_if_nothing_were_known(data, pieces):
    first = parse_or_none(joined(pieces))
    second_body, third_body = data.draw(next_bodies(pieces)), data.draw(next_bodies(pieces))
    if first is None or outcome(second_body) == "refused":
        return
    second = CHAT_COMPLETIONS.parse(second_body, first, first.shared_messages(second_body))
    assert outcome(third_body, second) == outcome(third_body)


def parse_or_none(body):
    try:
        return CHAT_COMPLETIONS.parse(body)
    except MalformedRequest:
        return None


@pytest.mark.parametrize(
    ("known_body", "body"),
    [
        # a later member of the same name beats an earlier one: what stood before `messages` is not what counts
        (b'{"model":"a","messages":[1],"model":"b"}', b'{"model":"a","messages":[1,2]}'),
        (b'{"model":"a","messages":[1]}', b'{"model":"a","messages":[1],"model":"b"}'),
        (b'{"messages":[1]}', b'{"messages":[1],"messages":[2]}'),
        (b'{"messages":[1]}', b'{"messages":[1],"\\u006dessages":[2]}'),
        (b'{"messages":[1],"messages":[1]}', b'{"messages":[1,2],"messages":[1]}'),
        # an array that is not the one it seems to be
        (b'{"k":"messages","x":[1],"\\u006dessages":[1]}', b'{"k":"messages","x":[1,5],"\\u006dessages":[1]}'),
        (b'{"x":{"messages":[1]},"messages":[1]}', b'{"x":{"messages":[1]},"messages":[1,2]}'),
        (b'{"\\u006dessages":1,"x":2,"messages":[3]}', b'{"\\u006dessages":1,"x":2,"messages":[3,4]}'),
        # a message that only seems to be the known one
        (b'{"messages":[1]}', b'{"messages":[12]}'),
        (b'{"messages":[1]}', b'{"messages":[1,]}'),
        (b'{"messages":[1]}', b'{"messages":[1 2]}'),
        (b'{"messages":[1]}', b'{"messages":[1]}}'),
        # read by the standard library
        (b'{"messages":[1]}', b'{"messages":[1,NaN,null],"x":null}'),
        (b'{"t":NaN,"messages":["\\ud800"]}', b'{"t":NaN,"messages":["\\ud800", NaN ,1]}'),
    ],
)
def test_places_where_reading_on_could_go_astray(known_body, body):
    known = CHAT_COMPLETIONS.parse(known_body)
    assert outcome(body, known) == outcome(body)
    assert outcome(known_body, known) == outcome(known_body)


@given(st.data(), bodies())
def test_shared_messages_are_exactly_the_head_byte_for_byte(data, pieces):
    body, known = data.draw(next_bodies(pieces)), parse_or_none(joined(pieces))
    if known is None:
        return
    shared = sum(body.startswith(known.body[:end]) for end in known.ends)
    assert known.shared_messages(body) == shared
    for more_than in range(len(known.ends) + 1):
        assert known.shared_messages(body, more_than) == (shared if shared > more_than else 0)


def test_a_continued_conversation_opens_its_new_messages_only(monkeypatch):
    old = [b'{"role":"user","content":"%d"}' % number for number in range(100)]
    known = CHAT_COMPLETIONS.parse(joined([[(b'"model"', b'"m"')], b'"messages"', old, [], b""]))
    opened = []
    read = ChatMessage.read
    monkeypatch.setattr(ChatMessage, "read", lambda raw: opened.append(bytes(raw)) or read(raw))
    new = b'{"role":"user","content":"new"}'
    body = joined([[(b'"model"', b'"m"')], b'"messages"', [*old, new], [(b'"stream"', b"true")], b""])
    request = CHAT_COMPLETIONS.parse(body, known, known.shared_messages(body))
    assert opened == [new]
    assert len(request.conversation) == 101
    assert request.stream


@settings(max_examples=300)
@given(bodies(), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=4))
def test_no_bytes_raise_anything_but_a_malformed_request_that_quotes_nothing(pieces, mutations):
    marked = [*pieces[2], b'{"role":"user","content":"SECRET"}']
    body = joined([pieces[0], pieces[1], marked, pieces[3], pieces[4]])
    for place, removed, added in mutations:
        at = int(place * len(body))
        body = body[:at] + added + body[at + removed :]
    request = parse_or_none(body)
    if request is None:
        with pytest.raises(MalformedRequest) as caught:
            CHAT_COMPLETIONS.parse(body)
        assert "SECRET" not in caught.value.message
        assert caught.value.__cause__ is None
    else:
        assert isinstance(request.model, str)
        assert isinstance(request.stream, bool)
        assert request.reply_tokens is None or request.reply_tokens > 0
        for message in request.conversation:
            message.text()
            list(message.media())
            message.content()


@given(st.binary(max_size=80))
@example(b"")
@example(b"[" * 100_000)
@example(b'{"messages":' + b"[" * 100_000)
def test_neither_does_noise(body):
    assert outcome(body) == "refused" or CHAT_COMPLETIONS.parse(body).body == body


@pytest.mark.parametrize(
    ("body", "says", "param"),
    [
        (b"", "the body must be a JSON object", None),
        (b"hello", "the body must be a JSON object", None),
        (b"[1]", "the body must be a JSON object: expected a JSON object, found an array", None),
        (b"{}", "the request has no `messages`; a list of messages is needed", "messages"),
        (b'{"messages":{}}', "`messages` must be a list: expected a JSON array, found an object", "messages"),
        (b'{"messages":null}', "`messages` must be a list: expected a JSON array, found null", "messages"),
        (b'{"messages":"array"}', "`messages` must be a list: expected a JSON array, found a string", "messages"),
    ],
)
def test_a_refusal_says_what_was_wrong(body, says, param):
    with pytest.raises(MalformedRequest) as caught:
        CHAT_COMPLETIONS.parse(body)
    assert caught.value.message.startswith(says)
    assert caught.value.param == param
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("members", "model", "stream"),
    [
        (b'"model":"gpt-4o","stream":true', "gpt-4o", True),
        (b'"model":5,"stream":"yes"', "", False),
        (b'"model":null,"stream":null', "", False),
        (b'"model":"\\ud800"', "\ud800", False),
        (b'"model":"\xff","x":1', "\udcff", False),
    ],
)
def test_members_of_an_odd_type_read_as_absent(members, model, stream):
    request = CHAT_COMPLETIONS.parse(b'{"messages":[],' + members + b"}")
    assert (request.model, request.stream) == (model, stream)


@pytest.mark.parametrize(
    ("members", "limit"),
    [
        (b'"max_tokens":100', ("max_tokens", 100)),
        (b'"max_tokens":100,"max_completion_tokens":50', ("max_completion_tokens", 50)),
        (b'"max_tokens":100,"max_completion_tokens":null', ("max_tokens", 100)),
        (b'"max_tokens":true', None),
        (b'"max_tokens":0', None),
        (b'"max_tokens":-1', None),
        (b'"max_tokens":"100"', None),
        (b'"max_tokens":1e999', None),
        (b'"max_tokens":' + b"9" * 5_000, None),
    ],
)
def test_the_reply_limit_is_a_whole_number_above_nothing(members, limit):
    name, tokens = limit or ("max_tokens", None)
    request = CHAT_COMPLETIONS.parse(b'{"messages":[],' + members + b"}")
    assert request.reply_tokens == tokens
    assert CHAT_COMPLETIONS.limiting(request, 7) == {name: b"7"}


@pytest.mark.parametrize("wire", [CHAT_COMPLETIONS, RESPONSES])
@pytest.mark.parametrize(
    ("reasoning", "tokens", "limited"),
    [
        ({"max_tokens": 4_000, "exclude": True}, 5_000, None),
        ({"max_tokens": 4_000, "exclude": True}, 4_000, {"max_tokens": 1_024, "exclude": True}),
        ({"max_tokens": 4_000}, 1_024, {"effort": "none"}),
        ({"effort": "high"}, 300, None),
        (None, 300, None),
    ],
)
def test_a_lower_reply_limit_leaves_reasoning_less_or_disables_it(wire, reasoning, tokens, limited):
    request = wire.parse(json.dumps({wire.shape.messages: [], "reasoning": reasoning}).encode())
    found = wire.limiting(request, tokens)
    assert ("reasoning" in found, json.loads(found.get("reasoning", b"null"))) == (limited is not None, limited)


def test_a_lower_reply_limit_leaves_less_thinking_in_a_chat():
    request = CHAT_COMPLETIONS.parse(b'{"messages":[],"thinking":{"type":"enabled", "budget_tokens":2000}}')
    assert json.loads(CHAT_COMPLETIONS.limiting(request, 1_500)["thinking"])["budget_tokens"] == 1_024
    assert CHAT_COMPLETIONS.limiting(request, 800) == {"thinking": b'{"type":"disabled"}', "max_tokens": b"800"}


@pytest.mark.parametrize(
    ("members", "options", "limited"),
    [
        (b'"options":{"num_predict":9, "x":1.0}', (True, 9, None), b'{"num_predict":7,"x":1.0}'),
        (b'"options":{"num_predict":-1},"stream":false', (False, None, None), b'{"num_predict":7}'),
        (b'"options":{"num_ctx":"100"}', (True, None, None), b'{"num_ctx":"100","num_predict":7}'),
        (b'"options":{"num_ctx":100}', (True, None, 100), b'{"num_ctx":100,"num_predict":7}'),
        (b'"options":{"num_ctx":true}', (True, None, None), b'{"num_ctx":true,"num_predict":7}'),
        (b'"options":null,"num_predict":5,"num_ctx":5', (True, None, None), b'{"num_predict":7}'),
        (b'"options":[{"num_predict":5}]', (True, None, None), b'{"num_predict":7}'),
        (b'"stream":null', (True, None, None), b'{"num_predict":7}'),
    ],
)
def test_what_a_body_states_may_be_inside_a_member_which_keeps_the_rest_of_its_bytes(members, options, limited):
    request = OLLAMA.parse(b'{"messages":[],' + members + b"}")
    assert (request.stream, request.reply_tokens, request.window_tokens) == options
    assert OLLAMA.limiting(request, 7) == {"options": limited}


def test_what_a_body_states_is_read_anew_in_the_next_turn():
    first = b'{"options":{"num_ctx":5},"messages":[{"role":"user","content":"a"}'
    known = OLLAMA.parse(first + b"]}")
    body = first + b',{"role":"user","content":"b"}],"stream":false,"model":"m"}'
    request = OLLAMA.parse(body, known, known.shared_messages(body))
    assert (request.model, request.stream, request.window_tokens) == ("m", False, 5)


@given(bodies(), st.data())
def test_rendering_changes_the_given_members_and_nothing_else(pieces, data):
    request, added = parse_or_none(joined(pieces)), data.draw(messages())
    if request is None:
        return
    new_messages = [*(message.raw for message in request.conversation[::2]), added]
    again = CHAT_COMPLETIONS.parse(
        CHAT_COMPLETIONS.render(request, [ChatMessage.read(raw) for raw in new_messages], {"max_tokens": b"7"})
    )
    assert [message.raw for message in again.conversation] == new_messages
    kept = {name: bytes(raw) for name, raw in request.members.items()} | {"max_tokens": b"7", "messages": b""}
    assert list(again.members) == list(kept)
    assert {name: b"" if name == "messages" else bytes(raw) for name, raw in again.members.items()} == kept


def test_an_error_has_the_shape_of_openai():
    body = json.loads(CHAT_COMPLETIONS.error(ContextOverflow("too long: é \ud800", param="messages")))
    members = {"type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    assert body == {"error": {"message": "too long: é \ud800", **members}}


def test_neither_body_nor_messages_are_shown_by_repr():
    assert "SECRET" not in repr(
        CHAT_COMPLETIONS.parse(b'{"x":"SECRET","messages":[{"role":"user","content":"SECRET"}]}')
    )
    assert isinstance(CHAT_COMPLETIONS.parse(b'{"messages":[]}'), Request)


def test_messages_are_inserted_and_the_next_body_continues_from_there():
    first = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}'
    request = CHAT_COMPLETIONS.parse(first + b"]}")
    more = (ChatMessage.read(b'{"role": "assistant", "content": "whole"}'), ChatMessage.read(b'{"role": "tool"}'))
    whole = request.in_place(lambda index, one: more if index == 1 else (one,))
    assert whole.put_in == (2,)
    assert whole.conversation.messages == (request.conversation[0], *more)
    assert whole.full_bytes == len(whole.body) + whole.added_bytes > request.full_bytes == len(request.body)
    body = first + b', {"role": "user", "content": "c"}]}'
    shared = whole.shared_messages(body)
    assert shared == 3
    following = CHAT_COMPLETIONS.parse(body, whole, shared)
    assert [message.role for message in following.conversation] == ["user", "assistant", "tool", "user"]
    assert following.added_bytes == whole.added_bytes
    assert following.put_in == (2,)
    taken_back = CHAT_COMPLETIONS.parse(first[: first.index(b', {"role": "ass')] + b"]}", whole, 1)
    assert (taken_back.put_in, taken_back.added_bytes) == ((), 0)
    assert whole.shared_messages(body.replace(b'"b"', b'"x"')) == 1
    longer = whole.continued([ChatMessage.read(b'{"role": "user"}')])
    assert (len(longer.conversation), longer.ends) == (4, ())
    assert CHAT_COMPLETIONS.parse(body, longer, longer.shared_messages(body)).added_bytes == 0


def test_that_a_conversation_has_images_is_known_of_its_later_turns_too():
    image = b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]}'
    first = CHAT_COMPLETIONS.parse(b'{"messages":[%b]}' % image)
    later = CHAT_COMPLETIONS.parse(b'{"messages":[%b,{"role":"user","content":"b"}]}' % image, first, 1)
    assert later.conversation[0] is first.conversation[0], "it was taken over"
    assert (first.has_images, later.has_images) == (True, True)
    plain = CHAT_COMPLETIONS.parse(b'{"messages":[{"role":"user","content":"a"}]}')
    shown = CHAT_COMPLETIONS.parse(b'{"messages":[{"role":"user","content":"a"},%b]}' % image, plain, 1)
    assert (plain.has_images, shown.has_images) == (False, True)
    taken_back = CHAT_COMPLETIONS.parse(plain.body, shown, 1)
    assert (taken_back.conversation[0], taken_back.has_images) == (shown.conversation[0], False)


def test_a_request_without_seals_counts_the_messages_that_it_changed():
    sealed = {"role": "assistant", "content": "a", "reasoning_details": [{"signature": "S"}]}
    request = CHAT_COMPLETIONS.parse(json.dumps({"messages": [sealed, {"role": "user", "content": "b"}]}).encode())
    left = request.unsealed()
    assert (left.healed, left.ends, request.healed) == (request.ends[:1], request.ends, ())
    assert [b"reasoning_details" in message.raw for message in left.conversation] == [False, False]
    assert left.conversation[1] is request.conversation[1]


def test_a_request_without_its_older_seals_is_continued_and_recognised_in_the_next_turn():
    def turn(*messages):
        return json.dumps({"messages": [{"role": "user", "content": "a"}, *messages]}).encode()

    old, new = ({"role": "assistant", "content": "b", "reasoning_details": [{"signature": seal}]} for seal in "ST")
    request = CHAT_COMPLETIONS.parse(turn(old, new))
    left = request.unsealed(2)
    assert [b"reasoning_details" in message.raw for message in left.conversation] == [False, False, True]
    assert (left.healed, left.ends) == (request.ends[1:2], request.ends)
    body = turn(old, new, old)
    shared = left.shared_messages(body)
    following = CHAT_COMPLETIONS.parse(body, left, shared)
    assert (shared, following.healed, following.added_bytes > 0) == (3, left.healed, True)
    assert following.conversation.messages[:3] == left.conversation.messages
    assert b"reasoning_details" in following.conversation[3].raw
    assert CHAT_COMPLETIONS.parse(body, left, 2).healed == left.healed
    taken_back = CHAT_COMPLETIONS.parse(body, left, 1)
    assert (taken_back.healed, taken_back.added_bytes) == ((), 0)
    assert b"reasoning_details" in taken_back.conversation[1].raw
    twice = following.unsealed()
    assert twice.healed == (left.ends[1], left.ends[2], following.ends[3])
    assert twice.unsealed() is twice


def test_a_message_of_nothing_but_seals_is_left_out_and_its_place_is_not_lost():
    def turn(*items):
        return json.dumps({"input": [{"role": "user", "content": "a"}, *items]}).encode()

    thought = {"type": "reasoning", "summary": [], "encrypted_content": "S"}
    question = {"role": "user", "content": "b"}
    request = replace(RESPONSES.parse(turn(thought, question)), put_in=(2,))
    left = request.unsealed()
    assert left.put_in == (1,)
    assert [message.role for message in left.conversation] == ["user", "user"]
    assert (left.ends, left.healed) == ((request.ends[0], request.ends[2]), (request.ends[1],))
    body = turn(thought, question, thought)
    following = RESPONSES.parse(body, left, left.shared_messages(body))
    assert [message.role for message in following.conversation] == ["user", "user", "assistant"]
    assert following.healed == left.healed


def test_more_messages_than_can_be_planned_are_refused_at_once_or_turn_by_turn(monkeypatch):
    monkeypatch.setattr("proxy.wire.request.MAX_ITEMS", 3)
    most = b'{"messages":[{},{},{}]}'
    known = CHAT_COMPLETIONS.parse(most)
    for earlier, shared in ((None, 0), (known, 3)):
        with pytest.raises(MalformedRequest, match="`messages` has 4 items; at most 3 are read"):
            CHAT_COMPLETIONS.parse(b'{"messages":[{},{},{},{}]}', earlier, shared)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
TEXT = {"type": "text", "text": ""}
TINY = {
    "images beside a text": (OLLAMA, lambda n: {"content": "", "images": [""] * n}),
    "calls": (OLLAMA, lambda n: {"content": "", "tool_calls": [{}] * n}),
    "images": (CHAT_COMPLETIONS, lambda n: {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}] * n}),
    "texts": (CHAT_COMPLETIONS, lambda n: {"content": [TEXT] * n}),
    "anything": (CHAT_COMPLETIONS, lambda n: {"content": [0] * n}),
    "blocks": (MESSAGES, lambda n: {"content": [IMAGE] * n}),
    "results": (MESSAGES, lambda n: {"content": [{"type": "tool_result", "tool_use_id": "a"}] * n}),
    "parts of results": (
        MESSAGES,
        lambda n: {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [TEXT] * (n - 1)}]},
    ),
    "inputs": (RESPONSES, lambda n: {"content": [{"type": "input_image", "image_url": ""}] * n}),
    "parts of an output": (
        RESPONSES,
        lambda n: {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": ""}] * n},
    ),
}


@pytest.mark.parametrize("kind", TINY)
def test_more_parts_than_can_be_planned_are_refused_on_every_api(monkeypatch, kind):
    wire, made = TINY[kind]
    monkeypatch.setattr("proxy.wire.request.MAX_PARTS", 20)
    name = wire.parse(b'{"messages":[],"input":[]}').shape.messages

    def body(*counts):
        messages = [{"role": "user", **made(count)} for count in counts]
        return json.dumps({name: messages, "model": "m"}, separators=(",", ":")).encode()

    with pytest.raises(MalformedRequest, match=f"the items of `{name}` have 21 parts in all; at most 20 are read"):
        wire.parse(body(11, 10))
    known = wire.parse(body(10, 10))
    with pytest.raises(MalformedRequest, match="41 parts"):
        wire.parse(body(10, 10, 21), known, 2)


def test_commas_in_texts_are_no_parts(monkeypatch):
    monkeypatch.setattr("proxy.wire.request.MAX_PARTS", 2)
    texts = [{"role": "user", "content": "one, two, three, four"}, {"role": "user", "content": [TEXT, TEXT]}]
    assert len(CHAT_COMPLETIONS.parse(json.dumps({"messages": texts}).encode()).conversation) == 2
