"""Replies of the Responses API: what is held, what ends one, and what the client gets of rounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.model_turns import Call, Reply, Usage
from support.responses_answers import answered

from proxy.errors import ContextOverflow
from proxy.wire.responses.reply_stream import MAX_KEPT_BYTES, ReplyStream
from proxy.wire.responses.wire import RESPONSES

READS = Call("read_artifact", {"id": "tool_x_0123456789abcdef.txt"})
FETCHES = Call("fetch", {"n": 1})


def reply(*said: Any, stream: bool = True, number: int = 1) -> bytes:
    body = {"model": "m", "stream": stream, "include": ["reasoning.encrypted_content"]}
    return answered(body, Reply(*said), Usage(100, 0, 10), number)[0].body


@pytest.mark.parametrize("size", [1, 7, 10_000_000])
@pytest.mark.parametrize("said", [("Hello.",), ("", (FETCHES,), "hm"), ("Both.", (FETCHES, FETCHES))])
def test_a_stream_without_our_calls_keeps_its_bytes(said: Any, size: int) -> None:
    came = reply(*said)
    stream = ReplyStream()
    told = b"".join(stream.feed(came[at : at + size]) for at in range(0, len(came), size))
    assert stream.end() is None
    assert told + stream.last_words() == came
    assert stream.usage == {}


def test_events_that_say_nothing_are_not_waited_for_in_vain() -> None:
    silent = ["response.created", "response.queued", "response.in_progress", "keepalive"]
    assert not any(RESPONSES.says_something(json.dumps({"x": 1, "type": name}).encode()) for name in silent)
    assert not RESPONSES.says_something(b"")
    for data in (b'{"type":"response.failed"}', b'{"type":"error"}', b"[DONE]", b'{"type":7}', b"{}"):
        assert RESPONSES.says_something(data)


def test_the_beginning_of_an_answer_is_told_from_a_refusal() -> None:
    assert RESPONSES.is_plainly_a_reply(reply("Hi.").split(b"\n\n", 2)[2])
    assert RESPONSES.is_plainly_a_reply(reply("Hi.", stream=False))
    assert not RESPONSES.is_plainly_a_reply(b'{"output": [], "error": null}')
    assert not RESPONSES.is_plainly_a_reply(b'{"output": [{}], "error": {"code": "x"}}')


@pytest.mark.parametrize("cut", [0, 1])
def test_a_stream_is_whole_once_its_last_event_is(cut: int) -> None:
    came = reply("word " * 9_000)
    assert RESPONSES.is_complete(came[: len(came) - cut]) is not bool(cut)
    assert not RESPONSES.is_complete(came.rpartition(b"event: ")[0])


def test_what_was_counted_stands_at_the_end() -> None:
    assert RESPONSES.counted(reply("Hi.")[-4_096:]).prompt == 100
    assert RESPONSES.counted(b"{}") is None


def test_an_event_without_end_passes_as_it_comes() -> None:
    stream = ReplyStream()
    piece = b"data: " + b"x" * (MAX_KEPT_BYTES + 1)
    assert stream.feed(piece) == piece
    assert stream.feed(b"more") == b"more"
    assert stream.end() is None
    assert stream.last_words() == b""


def test_a_stream_that_breaks_off_in_our_call_stands_as_it_is() -> None:
    came = reply("Let me look.", (READS,))
    stream = ReplyStream()
    told = stream.feed(came[: came.index(b"response.completed")])
    assert stream.end() is None
    assert b"read_artifact" not in told + stream.last_words()


def test_an_error_in_a_stream_is_told_to_all_kinds_of_clients() -> None:
    error = ContextOverflow("too long", param="input")
    events = RESPONSES.error_in_stream(400, RESPONSES.error(error)).decode().split("\n\n")
    first, second = (json.loads(event.split("data: ")[1]) for event in events[:2])
    assert (first["type"], first["code"], first["param"]) == ("error", "context_length_exceeded", "input")
    assert second["type"] == "response.failed"
    assert second["response"]["error"] == {"code": "context_length_exceeded", "message": "too long"}
    bare = RESPONSES.error_in_stream(502, b"Bad Gateway")
    assert b"Bad Gateway" in bare
    assert b'"server_error"' in bare
