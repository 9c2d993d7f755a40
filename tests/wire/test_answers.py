"""What an answer of each API says: its counts, its end, and whether an event says something or is plainly a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_rounds import END, START, event, text_block
from support.upstream.replies import Reply, Usage
from support.upstream.responses import answered

from proxy.core.overflow import Counted
from proxy.wire import TAIL_BYTES, Wire
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES


def chunk(delta: Any, finish: str | None = None, **members: Any) -> bytes:
    made = {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}
    return b"data: " + json.dumps(made).encode() + b"\n\n"


def response(name: str, is_named: bool = True, **members: Any) -> bytes:
    named = f"event: {name}\n" if is_named else ""
    return f"{named}data: {json.dumps({'type': name, **members})}\n\n".encode()


def delta(text: str) -> bytes:
    return response("response.output_text.delta", delta=text)


def line(content: str, **members: Any) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", "content": content}, **members}).encode() + b"\n"


def whole(stream: bool, text: str = "Hi.") -> bytes:
    return answered({"model": "m", "stream": stream}, Reply(text), Usage(100, 0, 10), 1)[0].body


TEXT = chunk({"content": "Hi."})
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
SAID = delta("Hi.")
SPOKEN = START + text_block(0, "x")
WORD = line("Hi", done=False)
LAST = line("", done=True, done_reason="stop", prompt_eval_count=26, eval_count=5)
ENDS = ["response.completed", "response.incomplete", "response.failed", "error"]
CALLED = b'{"message":{"tool_calls":[{"function":{"arguments":{"%b":99}}}]},"done":true'

# What a reply counts

COUNTS = st.integers(0, 999_999_999)


@pytest.mark.parametrize(
    ("wire", "prompt", "reply"),
    [(CHAT_COMPLETIONS, "prompt_tokens", "completion_tokens"), (RESPONSES, "input_tokens", "output_tokens")],
    ids=["chat", "responses"],
)
@given(COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_what_an_answer_counted_is_read_however_it_is_laid_out(wire, prompt, reply, asked, said, cached, indent):
    usage = {prompt: asked, reply: said, f"{prompt}_details": {"cached_tokens": cached}}
    end = json.dumps({"choices": [], "output": [], "usage": usage}, indent=indent).encode()
    assert wire.counted(end) == Counted(asked, said, cached)


@pytest.mark.parametrize(
    ("wire", "end", "counted"),
    [
        *(
            (CHAT_COMPLETIONS, b'{"prompt_tokens": 9, "%b": 4}' % name, Counted(9, 0, 4))
            for name in (b"cached_tokens", b"cache_read_input_tokens", b"prompt_cache_hit_tokens")
        ),
        (CHAT_COMPLETIONS, b'{"prompt_tokens":1,"completion_tokens":2}\n\n{"prompt_tokens":3}', Counted(3, 2)),
        *((CHAT_COMPLETIONS, end, None) for end in (b"", DONE, b'{"completion_tokens": 7}', b'"prompt_tokens": "7"')),
        (RESPONSES, b'{"input_tokens":1,"output_tokens":2},"usage":{"input_tokens":4}', Counted(4, 2)),
        (RESPONSES, b'{"input_tokens": 9}', Counted(9)),
        (RESPONSES, whole(stream=True)[-4_096:], Counted(100, 10, 0)),
        *((RESPONSES, end, None) for end in (b"", DONE, b'{"output_tokens": 7}', b'"input_tokens": null')),
        (OLLAMA, WORD + LAST, Counted(26, 5)),
        (OLLAMA, WORD, None),
        (OLLAMA, CALLED % b"prompt_eval_count" + b"}", None),
        (OLLAMA, CALLED % b"prompt_eval_count" + b',"prompt_eval_count":5,"eval_count":2}', Counted(5, 2)),
        (OLLAMA, b'1,2],"prompt_eval_count":5,"eval_count":2}', Counted(5, 2)),
    ],
)  # fmt: skip
def test_what_an_answer_counted_is_what_its_usage_says(wire: Wire, end: bytes, counted: Counted | None) -> None:
    assert wire.counted(end) == counted


# The end of a stream


@pytest.mark.parametrize(
    ("wire", "reported", "is_whole"),
    [
        *(
            (CHAT_COMPLETIONS, TEXT + end, True)
            for end in (
                DONE,
                b"data:[DONE]\r\n\r\n",
                DONE + b": bye\n\n",
                chunk({}, "stop") + USAGE,
                chunk({}, "stop", usage={"prompt_tokens": 9}),
                chunk({"content": "x" * TAIL_BYTES}) + chunk({}, "stop") + USAGE,
            )
        ),
        *(
            (CHAT_COMPLETIONS, reported, False)
            for reported in (
                b"",
                TEXT,
                TEXT + chunk({}, "stop"),
                TEXT + chunk({}, "stop") + USAGE[:-1],
                TEXT + USAGE,
                chunk({}, None, usage={"prompt_tokens": 9}) + chunk({}, "stop", usage=None),
                b'{"choices":[{"message":{"content":"data: [DONE]"},"finish_reason":"stop"}],"usage":{}}',
            )
        ),
        *(
            (MESSAGES, START + text_block(0, words) + end, True)
            for words in ("x", "x" * TAIL_BYTES)
            for end in (
                END,
                event("error", error={"type": "overloaded_error"}),
                b'event: message_stop\r\ndata:{"type" : "message_stop"}\r\n\r\n',
            )
        ),
        *((MESSAGES, reported, False) for reported in (b"", START, SPOKEN, SPOKEN + event("ping"))),
        (MESSAGES, START + END + text_block(0, "x" * TAIL_BYTES), False),
        *((RESPONSES, SAID + response(name, is_named), True) for name in ENDS for is_named in (True, False)),
        *((RESPONSES, SAID + response(name)[:-1], False) for name in ENDS),
        *((RESPONSES, SAID + response(ENDS[0]).replace(b"\n", end), True) for end in (b"\r\n", b"\r")),
        *((RESPONSES, SAID + end, True) for end in (response(ENDS[0]) + b": bye\n\n", DONE, b"data:[DONE]\n\n")),
        (RESPONSES, SAID + response(ENDS[0], response={"output": ["x" * TAIL_BYTES], "usage": {}}), True),
        (RESPONSES, whole(True, "word " * 9_000), True),
        (RESPONSES, whole(True, "word " * 9_000)[:-1], False),
        (RESPONSES, whole(True, "word " * 9_000).rpartition(b"event: ")[0], False),
        *((RESPONSES, reported, False) for reported in (b"", SAID, response("errors"))),
        (RESPONSES, response("response.created", response={"usage": None}), False),
        (RESPONSES, response("response.output_item.done", item={"status": "completed"}), False),
        *((OLLAMA, reported, True) for reported in (WORD + LAST, WORD + LAST.rstrip(), b'{"response":"","done":true}')),
        (OLLAMA, WORD + b'{"error":"it stopped"}\n', True),
        *((OLLAMA, reported, False) for reported in (WORD, WORD + LAST[:-3])),
        (OLLAMA, WORD.replace(b"Hi", b'\\"done\\":true,\\"done_reason\\"'), False),
        (OLLAMA, CALLED.replace(b"true", b"false") % b'done":true,"x', False),
    ],
)
def test_a_stream_is_whole_with_what_ends_one_on_its_api(wire: Wire, reported: bytes, is_whole: bool) -> None:
    assert wire.is_complete(reported) is is_whole


SIGNS = [
    "\ndata: [DONE]\n\n",
    "data: [DONE]",
    '"finish_reason": "stop"',
    '"usage": {',
    '"type":"message_stop"',
    '\ndata: {"type":"message_stop"}\n\n',
    '"type": "response.completed"',
    '{"type":"error"}',
    '"done": true',
]


@given(st.text(), st.sampled_from(SIGNS))
def test_what_a_model_writes_never_ends_a_stream(words, sign):
    text = words + sign + words
    assert not CHAT_COMPLETIONS.is_complete(TEXT + chunk({"content": text + '"usage": {'}))
    assert not MESSAGES.is_complete(START + text_block(0, text))
    assert not RESPONSES.is_complete(delta(text))
    assert not OLLAMA.is_complete(line(text, done=False))


# What an event, and the beginning of an answer, say

SILENT = ["created", "queued", "in_progress", "metadata"]


@pytest.mark.parametrize(
    ("wire", "data", "says"),
    [
        *((wire, b"", False) for wire in (CHAT_COMPLETIONS, MESSAGES, RESPONSES, OLLAMA)),
        (CHAT_COMPLETIONS, b'{"choices": [], "prompt_filter_results": [{}]}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {"role": "assistant"}}]}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {"role": "a", "content": "", "tool_calls": []}}]}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {}, "finish_reason": null}], "usage": null}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {"role": "assistant", "content": "a"}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {"role": "assistant", "reasoning": "a"}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {}, "finish_reason": "length"}]}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {}, "error": {"message": "too long"}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"delta": {}}], "usage": {"prompt_tokens": 3}}', True),
        (CHAT_COMPLETIONS, b'{"choices": [{"message": {"role": "assistant", "content": ""}}]}', True),
        *(
            (CHAT_COMPLETIONS, data, True)
            for data in (
                b'{"choices": [{"delta": null}]}',
                b'{"choices": ["a"]}',
                b'{"choices": "a"}',
                b"[1]",
                b"[DONE]",
            )
        ),
        (CHAT_COMPLETIONS, b'{"error": {"message": "too long"}}', True),
        (MESSAGES, b'{"type":"message_start","message":{}}', False),
        (MESSAGES, b'{"type": "ping"}', False),
        (MESSAGES, b'{"type":"content_block_start"}', True),
        (MESSAGES, b'{"type":"message_delta"}', True),
        *((MESSAGES, data, True) for data in (b'{"type":"error"}', b'{"error":1}', b"x")),
        *((RESPONSES, b'{"x": 1, "type": "response.%b"}' % name.encode(), False) for name in SILENT),
        *((RESPONSES, b'{"type": "%b"}' % name, False) for name in (b"keepalive", b"ping")),
        *((RESPONSES, b'{"type": "%b"}' % name, True) for name in (b"response.failed", b"error")),
        *((RESPONSES, data, True) for data in (b"[DONE]", b'{"type":7}', b"{}")),
        (OLLAMA, line("", done=False), False),
        *((OLLAMA, data, True) for data in (WORD, LAST, b'{"error":"x"}')),
        *((OLLAMA, b'{"message":%b}' % message, True) for message in (b'{"thinking":"h"}', b'{"tool_calls":[{}]}')),
    ],
)
def test_an_event_that_only_begins_an_answer_says_nothing(wire: Wire, data: bytes, says: bool) -> None:
    assert wire.says_something(data) is says


@pytest.mark.parametrize(
    ("wire", "evidence", "is_plain"),
    [
        *((wire, b"", False) for wire in (CHAT_COMPLETIONS, MESSAGES, RESPONSES)),
        (CHAT_COMPLETIONS, b'data: {"choices": [{"delta": {"content": "hi"}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices":[ {"message": {}}]}', True),
        (CHAT_COMPLETIONS, b'{"choices": []}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"finish_reason": "length"}]}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{}], "error": {}}', False),
        (CHAT_COMPLETIONS, b'{"choices": [{"text": "the context is full"}]}', False),
        (MESSAGES, START + text_block(0, "hi"), True),
        (MESSAGES, b'{"type":"message","content":[{"type":"text","text":"x"}]}', True),
        (MESSAGES, START, False),
        (MESSAGES, b'{"content": []}', False),
        (MESSAGES, b'{"content":[{}],"stop_reason":"model_context_window_exceeded"}', False),
        (MESSAGES, b'{"content":[{}],"stop_reason":"max_tokens"}', False),
        (MESSAGES, b'{"content":[{}],"error":{}}', False),
        (RESPONSES, whole(True).split(b"\n\n", 2)[2], True),
        (RESPONSES, whole(False), True),
        (RESPONSES, b'{"output": [{}], "error": null}', True),
        (RESPONSES, b'{"output": [], "error": null}', False),
        (RESPONSES, b'{"output": [{}], "error": {"code": "x"}}', False),
        (RESPONSES, b'{"output": [{}], "status": "incomplete"}', False),
        (RESPONSES, b'{"type":"response.output_item.added"}\n\n{"type":"error"}', False),
        (OLLAMA, WORD, True),
        (OLLAMA, b'{"error":"x"}', False),
        (OLLAMA, LAST.replace(b'"stop"', b'"length"'), False),
    ],
)
def test_an_answer_is_plainly_a_reply_once_it_has_begun_without_a_word_of_a_refusal(
    wire: Wire, evidence: bytes, is_plain: bool
) -> None:
    assert wire.is_plainly_a_reply(evidence) is is_plain
