from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import choice, chunk, cut, is_own, messages, streams, understood

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.chat_completions import AnswerStream

PLACES = st.lists(st.integers(0, 3_000), max_size=12)
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 1},
    "cost": 0.5,
}


def expected(message, own=False):
    """A message as a client should parse it."""
    return {
        "role": "assistant",
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "tool_calls": [call for call in message.get("tool_calls", []) if own or not is_own(call)],
    }


def fed(stream, pieces):
    return b"".join(stream.feed(piece) for piece in pieces)


@given(st.data(), messages(own=False), PLACES)
def test_an_answer_without_our_calls_passes_as_the_very_bytes(data, message, places):
    events = b"".join(data.draw(streams(message, usage=USAGE)))
    stream = AnswerStream()
    reported = fed(stream, cut(events, places))
    assert stream.end() is None
    assert reported + stream.last_words() == events


@given(st.data(), messages(), PLACES)
def test_what_the_client_gets_and_what_is_left_out_are_what_came(data, message, places):
    events = b"".join(data.draw(streams(message, usage=USAGE)))
    stream = AnswerStream()
    reported = fed(stream, cut(events, places))
    reply = stream.end()
    own = [call for call in message.get("tool_calls", []) if is_own(call)]
    assert (reply is None) == (not own)
    client = understood(reported + stream.last_words())
    assert (client["message"], client["usage"], client["done"]) == (expected(message), USAGE, True)
    assert client["finish"] == ("tool_calls" if message.get("tool_calls") else "stop")
    if reply is not None:
        assert [call.id for call in reply.own] == [call["id"] for call in own]
        assert [json.loads(call) for call in reply.others] == expected(message)["tool_calls"]
        sent_back = json.loads(reply.message)
        assert sent_back["tool_calls"] == message["tool_calls"]
        assert (sent_back["content"] or "") == (message["content"] or "")
        assert sent_back.get("reasoning_content") == message.get("reasoning_content")


@given(st.data(), messages(), PLACES)
def test_pieces_of_any_size_give_the_same_stream(data, message, places):
    events = b"".join(data.draw(streams(message)))
    whole, pieces = AnswerStream(), AnswerStream()
    assert fed(whole, [events]) == fed(pieces, cut(events, places))
    assert whole.end() == pieces.end()
    assert whole.last_words() == pieces.last_words()


@given(st.data(), st.lists(messages(own=True).filter(lambda found: found.get("tool_calls")), max_size=3), messages())
def test_several_rounds_are_one_stream(data, rounds, last):
    stream, reported = AnswerStream(), b""
    for number, message in enumerate(rounds):
        reported += fed(stream, data.draw(streams(message, number=number, usage=USAGE)))
        assert stream.end() is not None
        stream.next_round()
    reported += fed(stream, data.draw(streams(last, number=len(rounds), usage=USAGE)))
    stream.end()
    client = understood(reported + stream.last_words())
    count = len(rounds) + 1
    assert client["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2 * count,
        "total_tokens": 7 + 2 * count,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": count},
        "cost": 0.5 * count,
    }
    if rounds:
        assert stream.usage == {"prompt_tokens": 7 * count, "completion_tokens": 2 * count, "total_tokens": 9 * count}
    assert client["message"]["tool_calls"] == expected(last)["tool_calls"]
    for name in ("content", "reasoning_content"):
        texts = [found for message in [*rounds, last] if (found := message.get(name))]
        assert client["message"][name] == "\n\n".join(texts)
    assert client["done"]


OWN = {"index": 0, "id": "call_o", "type": "function", "function": {"name": RETRIEVAL_TOOL, "arguments": "{}"}}
OTHER = {"index": 1, "id": "call_c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
DONE = b"data: [DONE]\n\n"


def test_text_reaches_the_client_at_once_also_behind_our_call():
    stream = AnswerStream()
    for event in (chunk([choice({"role": "assistant", "content": ""})]), chunk([choice({"content": "Let me look."})])):
        assert stream.feed(event) == event
    assert stream.feed(chunk([choice({"tool_calls": [OWN]})])) == b""
    late = chunk([choice({"content": " And more."})])
    assert stream.feed(late) == late
    assert stream.feed(b": still here\n\n") == b": still here\n\n"
    assert stream.feed(chunk([choice({}, "tool_calls")])) == b""


def test_an_own_call_in_the_first_event_leaves_the_role():
    stream = AnswerStream()
    reported = stream.feed(chunk([choice({"role": "assistant", "content": None, "tool_calls": [OWN]}, "tool_calls")]))
    assert json.loads(reported.removeprefix(b"data: "))["choices"] == [choice({"role": "assistant", "content": None})]
    assert stream.end().own[0].id == "call_o"


def test_what_is_no_json_passes_in_any_round():
    odd = b"data: not json\n\ndata: 7\n\nevent: ping\n\n"
    stream = AnswerStream()
    assert stream.feed(odd) == odd
    stream.next_round()
    assert stream.feed(odd) == odd
    stream.feed(chunk([choice({"tool_calls": [None, OWN]})]))
    assert stream.feed(b"data: [DONE]") == b""
    assert stream.end().own[0].id == "call_o"
    assert stream.last_words() == b"data: [DONE]"


def test_a_usage_in_the_last_event_of_text_is_reported_once():
    stream = AnswerStream()
    event = chunk([choice({"content": "Hm.", "tool_calls": [OWN]}, "tool_calls")], usage=USAGE)
    reported = stream.feed(event + DONE)
    stream.end()
    client = understood(reported + stream.last_words())
    assert (client["message"]["content"], client["usage"]) == ("Hm.", USAGE)


def test_odd_deltas_pass_and_are_put_together_as_far_as_they_go():
    stream = AnswerStream()
    events = [
        chunk([choice({"role": "assistant", "reasoning_details": [{"text": "a"}], "refusal": None})]),
        chunk([choice({"reasoning_details": [{"text": "b"}], "content": "x", "seen": 1})]),
        chunk([choice({"content": 7, "seen": 2, "tool_calls": "none"})]),
        chunk([choice({"tool_calls": [OTHER | {"index": 0}]})]),
    ]
    assert b"".join(stream.feed(event) for event in events) == b"".join(events)
    stream.feed(chunk([choice({"tool_calls": [OWN | {"index": 1}, {"index": 1, "extra": {"a": {"b": 1}}}]})]))
    stream.feed(chunk([choice({"tool_calls": [{"index": 1, "function": None, "extra": {"a": {"c": 2}}}]})]))
    sent_back = json.loads(stream.end().message)
    assert sent_back["reasoning_details"] == [{"text": "a"}, {"text": "b"}]
    assert sent_back["tool_calls"][1]["extra"] == {"a": {"b": 1, "c": 2}}
    assert sent_back["tool_calls"][1]["function"]["name"] == RETRIEVAL_TOOL


def long_event(content: str, **members: object) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": content} | members}]}).encode() + b"\n\n"
    )


CALL = chunk([choice({"tool_calls": [OWN]})])
FINAL = chunk([choice({}, "tool_calls")])
LIMIT = 1_000


@pytest.fixture
def short_events(monkeypatch):
    monkeypatch.setattr("proxy.wire.chat_completions.replies.MAX_EVENT_BYTES", LIMIT)
    monkeypatch.setattr("proxy.wire.chat_completions.replies.MAX_KEPT_BYTES", 20 * LIMIT)
    monkeypatch.setattr("proxy.wire.replies.MAX_KEPT_BYTES", 20 * LIMIT)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_a_long_event_passes_while_it_comes(end, short_events):
    stream, event = AnswerStream(), long_event("x" * 10_000)[:-2] + end
    reported, most_held, sent = b"", 0, 0
    for piece in cut(event + DONE, range(0, 11_000, 100)):
        reported, sent = reported + stream.feed(piece), sent + len(piece)
        most_held = max(most_held, sent - len(reported))
    assert stream.end() is None
    assert reported + stream.last_words() == event + DONE
    assert most_held <= LIMIT + 100


def test_a_long_event_is_a_part_of_what_the_model_said(short_events):
    stream, text = AnswerStream(), "x" * 10_000
    reported = fed(stream, cut(long_event(text) + CALL + DONE, range(0, 11_000, 100)))
    reply = stream.end()
    assert reported == long_event(text)
    assert json.loads(reply.message)["content"] == text
    assert [call.id for call in reply.own] == ["call_o"]


def test_a_long_event_that_names_a_call_is_collected_and_the_call_left_out(short_events):
    stream, text = AnswerStream(), "x" * 10_000
    first = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[' + json.dumps(OWN).encode() + b'],"content":"'
    events = first + text.encode() + b'"}}]}\n\n'
    reported = fed(stream, cut(events, range(0, 11_000, 100)))
    assert json.loads(reported.removeprefix(b"data: "))["choices"][0]["delta"] == {"content": text}
    assert [call.id for call in stream.end().own] == ["call_o"]


@pytest.mark.parametrize("last", [11_000, 9_000], ids=["in pieces", "at once"])
def test_a_long_event_that_names_its_call_only_at_its_end_is_forwarded_as_the_answer(last, short_events):
    stream, events = AnswerStream(), long_event("x" * 10_000, tool_calls=[OWN]) + CALL + DONE
    reported = fed(stream, cut(events, range(0, last, 100)))
    assert stream.end() is None
    assert (reported + stream.last_words()).startswith(long_event("x" * 10_000, tool_calls=[OWN]))


def test_a_call_in_an_event_without_end_passes_as_it_comes(short_events):
    stream = AnswerStream()
    reported = fed(stream, cut(CALL[:-3] + b"x" * 50_000, range(0, 60_000, 100)))
    assert stream.end() is None
    assert reported + stream.last_words() == CALL[:-3] + b"x" * 50_000


def test_the_end_of_a_stream_precedes_a_long_event_that_follows_it(short_events):
    stream = AnswerStream()
    reported = fed(stream, cut(CALL + FINAL + long_event("x" * 10_000) + DONE, range(0, 11_000, 100)))
    assert stream.end() is None
    assert reported + stream.last_words() == FINAL + long_event("x" * 10_000) + DONE


def test_a_long_event_that_breaks_off_ends_the_answer(short_events):
    stream, event = AnswerStream(), long_event("x" * 10_000)[:-10]
    reported = fed(stream, cut(CALL + event, range(0, 11_000, 100)))
    assert stream.end() is None
    assert reported + stream.last_words() == event
