"""The rounds in which a model calls our tool are one reply for the client, on every API, streamed or whole."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import cut
from support.spellings import SPELLINGS
from support.upstream import FACES, Call, Reply, Usage

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES

WIRES = {"chat": CHAT_COMPLETIONS, "messages": MESSAGES, "responses": RESPONSES, "ollama": OLLAMA}
APIS = pytest.mark.parametrize("api", WIRES)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BETWEEN = {"chat": "\n\n", "messages": "", "responses": "", "ollama": "\n\n"}
"""What stands between the words of two rounds, which may be blocks or items of their own."""
READS, FETCHES = Call(RETRIEVAL_TOOL, {"id": "tool_x_0123456789abcdef.txt"}), Call("fetch", {"n": 1})
TEXTS = st.sampled_from(["", "Hello.", "Long words. " * 9])
ROUNDS = st.lists(st.builds(Reply, TEXTS, st.lists(st.just(READS), min_size=1, max_size=3)), max_size=3)
LAST = st.builds(Reply, TEXTS, st.lists(st.just(FETCHES), max_size=2)).filter(lambda reply: reply.text or reply.calls)
PLACES = st.lists(st.integers(0, 3_000), max_size=6)


def came(api, stream, reply, prompt=100, *, is_counted=True):
    body = {"model": "m", "stream": stream, "stream_options": {"include_usage": True}, "store": False}
    return FACES[api].answered(body, reply, Usage(prompt, 0, 10) if is_counted else None, prompt)[0]


def fed(reply, content, places=()):
    return b"".join(reply.feed(piece) for piece in cut(content, places))


def understood(api, stream, content):
    return SPELLINGS[api].reply_in(content, streamed=stream)


def reason_in(content):
    return re.findall(rb'"(?:finish_reason|stop_reason|done_reason|status)": ?"(\w+)"', content)[-1].decode()


@APIS
@STREAMED
@given(ROUNDS, LAST, PLACES)
def test_the_client_gets_the_words_of_all_rounds_its_own_calls_and_the_count_of_its_own_prompt(
    api, stream, rounds, last, places
):
    wire, reported = WIRES[api], b""
    reply = wire.reply(stream=stream)
    for number, said in enumerate(rounds, 1):
        reported += fed(reply, came(api, stream, said, 100 * number).body, places)
        made = reply.end()
        assert len(made.own) == len(said.calls)
        assert not made.others
        reply.next_round()
    whole = came(api, stream, last, 100 * (len(rounds) + 1)).body
    reported += fed(reply, whole, places)
    assert reply.end() is None
    reported += reply.last_words()
    if not rounds:
        assert (reported, reply.usage) == (whole, {})
        return
    found = understood(api, stream, reported)
    assert found.text == BETWEEN[api].join(said.text for said in [*rounds, last] if said.text)
    assert len(found.calls) == len(last.calls)
    assert RETRIEVAL_TOOL.encode() not in reported
    assert wire.counted(reported).prompt == 100
    assert reply.usage["prompt_tokens"] == sum(100 * number for number in range(1, len(rounds) + 2))
    assert reply.usage["total_tokens"] == reply.usage["prompt_tokens"] + reply.usage["completion_tokens"]


@APIS
@STREAMED
def test_a_call_of_ours_beside_one_of_the_client_is_left_out(api, stream):
    reply = WIRES[api].reply(stream=stream)
    reported = fed(reply, came(api, stream, Reply("Both.", [FETCHES, READS, FETCHES])).body)
    made = reply.end()
    assert (len(made.own), len(made.others)) == (1, 2)
    found = understood(api, stream, reported + reply.last_words())
    assert (found.text, len(found.calls)) == ("Both.", 2)


@APIS
@STREAMED
def test_an_answer_that_only_speaks_of_our_tool_keeps_its_bytes(api, stream):
    whole = came(api, stream, Reply(f"{RETRIEVAL_TOOL} is a tool.", [FETCHES])).body
    whole = whole if stream else json.dumps(json.loads(whole), separators=(" , ", " : ")).encode()
    reply = WIRES[api].reply(stream=stream)
    reported = fed(reply, whole)
    assert reply.end() is None
    assert reported + reply.last_words() == whole


@APIS
@STREAMED
@pytest.mark.parametrize("spoken", ["", "So."])
def test_a_model_that_is_stopped_ends_with_a_word(api, stream, spoken):
    reply, reported = WIRES[api].reply(stream=stream), b""
    for _ in range(2):
        reported += fed(reply, came(api, stream, Reply(spoken, [READS])).body)
        assert reply.end() is not None
        ending = reply.stopped("Stopped.")
        reply.next_round()
    found = understood(api, stream, reported + ending)
    assert found.text == BETWEEN[api].join([*([spoken] * 2 if spoken else []), "Stopped."])
    assert not found.calls
    assert reason_in(ending) == {"messages": "end_turn", "responses": "completed"}.get(api, "stop")


CUT_OFF = {
    "chat": (b'"tool_calls"', b'"length"'),
    "messages": (b"tool_use", b"max_tokens"),
    "responses": (b"completed", b"incomplete"),
    "ollama": (b'"done_reason":"stop"', b'"done_reason":"length"'),
}


@APIS
@STREAMED
def test_a_reply_that_was_cut_off_is_forwarded_without_our_call(api, stream):
    reply, (usual, other) = WIRES[api].reply(stream=stream), CUT_OFF[api]
    body = came(api, stream, Reply("So", [READS])).body
    head, _, end = body.rpartition(usual)
    content = body.replace(usual, other) if api == "responses" else head + other + end
    reported = fed(reply, content)
    assert reply.end() is None
    reported += reply.last_words()
    assert reason_in(reported).encode() in other
    assert b"So" in reported
    assert stream or RETRIEVAL_TOOL.encode() not in reported


@APIS
@pytest.mark.parametrize(
    "written",
    [
        b"read_artifact",
        b'["read_artifact"]',
        b'{"read_artifact": 1}',
        *(b'{"%b": "read_artifact"}' % name for name in (b"choices", b"content", b"output", b"message", b"error")),
        b'{"choices": [{"message": "read_artifact"}]}',
        b'{"choices": [{"message": {"tool_calls": "read_artifact"}}]}',
        b'{"choices": [{"message": {}}, {"message": {"content": "read_artifact"}}]}',
    ],
)
@pytest.mark.parametrize("rounds", [0, 1])
def test_what_is_no_answer_of_a_model_keeps_its_bytes(api, written, rounds):
    reply = WIRES[api].reply(stream=False)
    for _ in range(rounds):
        fed(reply, came(api, False, Reply("", [READS])).body)
        reply.next_round()
    assert fed(reply, written) == b""
    assert reply.end() is None
    assert reply.last_words() == written


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_usage_from_only_one_round_is_not_reported(api):
    reply = WIRES[api].reply(stream=False)
    fed(reply, came(api, False, Reply("", [READS])).body)
    reply.next_round()
    second = json.loads(came(api, False, Reply("b")).body)
    del second["usage"]
    fed(reply, json.dumps(second).encode())
    assert "usage" not in json.loads(reply.last_words())


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize(("most", "goes_on"), [(100_000, True), (300, False)])
def test_a_round_too_long_to_buffer_is_the_answer(api, most, goes_on, monkeypatch):
    for module in ("replies", "responses.replies"):
        monkeypatch.setattr(f"proxy.wire.{module}.MAX_KEPT_BYTES", most)
    reply = WIRES[api].reply(stream=True)
    reported = fed(reply, came(api, True, Reply("x" * 2_000, [READS])).body)
    assert (reply.end() is not None) is goes_on
    assert WIRES[api].is_complete(reported + reply.last_words())


@APIS
def test_an_error_after_our_call_is_forwarded_and_no_round_follows(api):
    reply, error = WIRES[api].reply(stream=True), FACES[api].error_event("overloaded")
    pieces = came(api, True, Reply("", [READS])).pieces()
    reported = fed(reply, b"".join(pieces[: -3 if api == "chat" else -2 if api == "messages" else -1]) + error)
    assert reply.end() is None
    reported += reply.last_words()
    assert b"overloaded" in reported
    assert RETRIEVAL_TOOL.encode() not in reported
