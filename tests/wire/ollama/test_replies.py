from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.ollama import OLLAMA, AnswerStream

HEAD = {"model": "m", "created_at": "2026-11-23T10:00:00Z"}
COUNTS = {"total_duration": 9, "prompt_eval_count": 26, "eval_count": 5, "eval_duration": 4}


def line(content="", *, done=False, calls=(), thinking="", **more):
    message = {"role": "assistant", "content": content}
    message |= {"thinking": thinking} if thinking else {}
    message |= {"tool_calls": [*calls]} if calls else {}
    end = {"done_reason": "stop", **COUNTS} if done else {}
    return json.dumps({**HEAD, "message": message, "done": done, **end, **more}).encode() + b"\n"


def call(name, index=0, **more):
    return {"id": f"call_{name}", "function": {"index": index, "name": name, "arguments": {"id": "x"}}, **more}


OURS = call("read_artifact")


def fed(stream, lines, size=None):
    whole = b"".join(lines)
    size = size or len(whole)
    return b"".join(stream.feed(whole[start : start + size]) for start in range(0, len(whole), size))


@given(st.lists(st.binary(max_size=9)))
def test_lines_joined_are_the_stream(pieces):
    splitter = OLLAMA.framing.splitter()
    lines = [found for piece in pieces for found in splitter.feed(piece)]
    assert b"".join(lines) + splitter.rest == b"".join(pieces)
    assert all(found.endswith(b"\n") and found.count(b"\n") == 1 for found in lines)
    assert splitter.held_bytes == len(splitter.rest) == len(splitter.release())


@pytest.mark.parametrize("size", [None, 1, 13])
def test_the_rounds_of_a_stream_are_one_with_one_end(size):
    stream = AnswerStream()
    first = [line(thinking="Hm."), line("I look."), line(calls=[OURS]), line(done=True)]
    reported = fed(stream, first, size)
    reply = stream.end()
    assert reported == first[0] + first[1]
    assert json.loads(reply.message) == {
        "role": "assistant",
        "content": "I look.",
        "thinking": "Hm.",
        "tool_calls": [OURS],
    }
    assert [(one.id, one.arguments) for one in reply.own] == [("call_read_artifact", '{"id":"x"}')]
    stream.next_round()
    reported = fed(stream, [line("It is "), line("42."), line(done=True)], size)
    assert stream.end() is None
    *texts, end = [json.loads(one) for one in reported.splitlines()]
    assert [one["message"]["content"] for one in texts] == ["\n\nIt is ", "42."]
    assert (end["prompt_eval_count"], end["eval_count"], end["total_duration"]) == (26, 10, 18)
    assert stream.usage == {"prompt_tokens": 52, "completion_tokens": 10, "total_tokens": 62}
    assert stream.last_words() == b""


def test_calls_on_the_last_line_are_removed_and_its_words_passed():
    stream = AnswerStream()
    reported = fed(stream, [line("Now.", done=True, calls=[OURS, call("get", 1)])])
    reply = stream.end()
    assert reply.others
    (ahead,) = [json.loads(one) for one in reported.splitlines()]
    assert (ahead["done"], ahead["message"]["content"]) == (False, "Now.")
    assert [one["function"] for one in ahead["message"]["tool_calls"]] == [{**call("get")["function"], "index": 0}]
    end = json.loads(stream.last_words())
    assert (end["done"], end["message"], end["eval_count"]) == (True, {"role": "assistant", "content": ""}, 5)
