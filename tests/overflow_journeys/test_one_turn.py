"""One turn, as a row: what the upstream plays, what the client asks, and what it gets, after how many sends."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from support.media_samples import PNG, image_part
from support.overflow_stage import staged
from support.overflow_words import (
    conversation,
    edited_request,
    estimate,
    openai_error,
    tokens_per_minute,
    too_long,
    window,
    without_numbers,
)
from support.upstream import Scene, resetting
from support.upstream.scenes import COMPLETION, DELTA, EVENTS, JSON, STREAM, accepting, saying

SMALL, ROOMY, GUESSED = window(12_000), window(64_000), dict[str, Any]()
WHOLE, STREAMED = conversation(9_500), conversation(9_500, stream=True)
TOO_LONG: Final = too_long(8_000, 9_500)
REFUSED, REFUSAL = saying(400, TOO_LONG), b"data: " + TOO_LONG + b"\n\n"


@dataclass(frozen=True)
class Turn:
    """The upstream plays each scene, and is asked for no more."""

    plays: Sequence[Scene]
    gets: bytes | None = COMPLETION
    """The client; None: `error` says what."""
    status: int = 200
    asks: bytes = WHOLE
    settings: Mapping[str, Any] = field(default_factory=lambda: SMALL)
    headers: Mapping[str, str] = field(default_factory=dict)
    answered: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer."""
    error: Mapping[str, str] = field(default_factory=dict)
    """Members of the error in the body, or of one in its message."""
    last: float | None = None
    """The most that the last send has of the first, by the estimate; None: of two it is smaller; 0: it is the request
    as it came."""


def system_text(words: str, model: str = "m") -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "system", "content": words}]}).encode()


def looking(*parts: Any, role: str = "user", rules: str = "") -> bytes:
    system = [{"role": "system", "content": rules}] if rules else []
    content = [{"type": "text", "text": "Look."}, *parts]
    return json.dumps({"model": "blind", "messages": [*system, {"role": role, "content": content}]}).encode()


def choices(*found: Any, **members: Any) -> bytes:
    return json.dumps({"choices": found, **members}).encode()


def passes(status: int, body: bytes, asks: bytes = WHOLE, settings: Any = None, *more: str, last: Any = None) -> Turn:
    """The upstream says it once, and the client gets it as it is; `more`: headers of the answer."""
    answered = dict(header.split(": ") for header in more)
    return Turn([saying(status, body, JSON, *more)], body, status, asks, settings or {}, answered=answered, last=last)


def streams(body: bytes, asks: bytes = STREAMED) -> Turn:
    """The same in a stream."""
    return Turn([saying(200, body, EVENTS)], body, asks=asks)


def cured(
    status: int, body: bytes, asks: bytes = WHOLE, settings: Any = None, last: Any = None, **headers: str
) -> Turn:
    """It is refused, and a smaller one is taken."""
    streamed = b'"stream": true' in asks
    kind = EVENTS if streamed and status == 200 else JSON
    plays = [saying(status, body, kind), accepting]
    return Turn(plays, STREAM if streamed else COMPLETION, 200, asks, settings or {}, headers, last=last)


BEFORE = (
    b"",
    b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
    b"\xef\xbb\xbf",
    b"event: error\n",
    b"\r\n",
    DELTA,
)
NO_EVENT = (b"", b": nothing to say\n\n", b"data: [DONE]\n\n", b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
# Azure's first chunk: https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming
NO_CHOICE = b'data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}\n\n' + STREAM
RATE = "Rate limit reached for tokens per min. Limit 30000, requested 40000"
OTHER_REASONS = {
    429: RATE,
    401: "Incorrect API key provided",
    404: "The model does not exist",
    500: "Internal",
    503: "Busy",
}
PLAIN_WORDS = [
    (400, b'{"error": {"code": "1261", "message": "Prompt exceeds max length"}}'),  # zeroclaw-labs/zeroclaw#4124
    (413, openai_error("Prompt is too long")),  # https://github.com/anthropics/claude-code/issues/2569
    (400, openai_error("Your input exceeds the context window of this model.")),  # onyx-dot-app/onyx/issues/6051
    (400, b'{"error": "the input length exceeds the context length"}'),  # nano-step/nano-brain/issues/208
    (401, b'{"error":{"type":"authentication_error","message":"k3-256k supports only 256K context."}}'),
    (400, openai_error("超过最大长度")),
    (400, openai_error("length limit exceeded")),
]
"""The fifth: https://github.com/MoonshotAI/kimi-code/pull/2655"""
# https://github.com/vllm-project/vllm/issues/22635
OF_VLLM = openai_error("truncate_prompt_tokens value (40000) is greater than max_model_len (32768).")
SILICON_FLOW = (
    b'{"code":20015,"message":"length of prompt_tokens (9500) must be less than max_seq_len (8000).","data":null}'
)
OF_SOMETHING_ELSE = [
    "The output has 24120 tokens; at most 20000 completion tokens are possible",
    "You used 24120 tokens per day of 20000",
    "Your balance is 20000 tokens, and this costs 24120 tokens",
    "The image has 24120 pixels of 20000",
    "4 of 24120 tokens are over 20000",
]
LONG_RUN = conversation(24_000, model="m", exchanges=60, max_tokens=1_000)
EMPTY = {"code": "upstream_empty", "type": "upstream_error"}
EMPTY_WORDS = {"en": "an empty success", "zh": "内容为空"}
NO_STREAM, NO_BODY = saying(200, b"data: [DONE]\n\n", EVENTS), saying(200, b"{}")
USED = choices(usage={"prompt_tokens": 9_000, "completion_tokens": 0, "total_tokens": 9_000})
NO_WORD = choices({"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"})
NO_JSON, NO_IMAGES = openai_error("Failed to parse tool result as JSON"), openai_error("image input is not supported")
PACKED, NO_GZIP = gzip.compress(COMPLETION, mtime=0), "content-encoding: gzip"
DOWN, SILENT = b'{"error": "down"}', saying(400, b"  ", JSON, "x-refusal: its own")
OVER_A_RATE = tokens_per_minute(600, "Requested 9000")
WAITS = {413: tokens_per_minute(6_000, "Requested 5000"), 429: tokens_per_minute(6_000, "Used 5034, Requested 1443")}

OF_ITS_CONTENT = [
    openai_error("Invalid 'messages[3].content': unexpected value"),
    openai_error("Messages with role tool must be a response to a preceding message with tool_calls"),
    b"",
]
WORDLESS = (400, 413, 422, 429, 500, 502, 503, 529)
TOO_MANY_BYTES = b'{"message":"request entity too large","type":"entity.too.large"}'
OF_RULES = looking(*[image_part(PNG * 300)] * 2, rules="These are the rules of the house. " * 20_000)

GPT = {"by bytes": conversation(30_000, model="gpt-4o"), "by its tokenizer": conversation(60_000, model="gpt-4o")}

TURNS = {
    **{f"first event, {it!r} before": cured(200, it + REFUSAL, STREAMED, SMALL) for it in BEFORE},
    **{f"no event, far from the window: {it!r}": streams(it, conversation(5_000, stream=True)) for it in NO_EVENT},
    **{f"second send fails, {it}": Turn([REFUSED, saying(it, DOWN)], DOWN, it) for it in (500, 502, 503, 504, 529)},
    "reset": Turn([resetting], None, 502),
    "second send is reset": Turn([REFUSED, resetting], None, 502),
    "retry off": passes(400, TOO_LONG, WHOLE, window(12_000, overflow={"retry": False}), "x-refusal: its own"),
    **{
        f"edited, and refused for another reason, {it}": passes(it, openai_error(words), edited_request(), ROOMY)
        for it, words in OTHER_REASONS.items()
    },
    "edited, and refused for content twice": Turn(
        [saying(400, b'{"error": "no"}'), saying(422, DOWN)], DOWN, 422, edited_request(), ROOMY, last=0
    ),
    "edited, and refused without a word": Turn(
        [saying(400, b""), saying(400, b"still no")], b"still no", 400, edited_request(), {}, last=0
    ),
    **{
        f"edited, and refused for its content, {it}, {words!r}": Turn(
            [saying(it, words), accepting], asks=edited_request(), settings=ROOMY, last=0
        )
        for it in (400, 422)
        for words in OF_ITS_CONTENT
    },
    "words about JSON for what came so": passes(500, NO_JSON, conversation(3_000), window(200_000)),
    "refusal, asked for without compression": cured(400, TOO_LONG, WHOLE, SMALL, accept_encoding="gzip, br"),
    "body said not to be compressed": cured(400, TOO_LONG, WHOLE, SMALL, content_encoding="identity"),
    "compressed answer": passes(200, PACKED, conversation(2_000), SMALL, NO_GZIP),
    "not what its encoding says": passes(400, b"no gzip at all", conversation(2_000), SMALL, NO_GZIP),
    **{f"plain words, {it[1].decode()}": cured(*it, conversation(4_500), last=0.55) for it in PLAIN_WORDS},
    **{f"plain words, long, {it[1].decode()}": cured(*it, conversation(30_000), last=0.55) for it in PLAIN_WORDS},
    "parameter of vLLM": passes(400, OF_VLLM),
    "200 without a word of error": cured(200, SILICON_FLOW, WHOLE, SMALL),
    "stream that does not say so": Turn([saying(200, REFUSAL, "text/plain"), accepting], STREAM, asks=STREAMED),
    **{f"half is half, counted {it}": cured(400, without_numbers(), asks, last=0.55) for it, asks in GPT.items()},
    "over a rate, and has to stay": passes(413, OVER_A_RATE, system_text("a word " * 6_000)),
    **{
        f"under a rate, {it}": passes(it, body, conversation(5_000), None, "retry-after: 5")
        for it, body in WAITS.items()
    },
    **{
        f"three empty answers, {it}": Turn(
            [NO_BODY] * 3, None, 502, WHOLE, {"language": it}, error={**EMPTY, "message": words}
        )
        for it, words in EMPTY_WORDS.items()
    },
    **{
        f"three empty streams, {it}": Turn(
            [NO_STREAM] * 3, None, 502, STREAMED, {"language": it}, error={**EMPTY, "message": words}
        )
        for it, words in EMPTY_WORDS.items()
    },
    "refusal, then nothing": Turn([REFUSED, saying(200, b"", EVENTS)], None, 502, STREAMED, error=EMPTY),
    "no choice, but a usage": passes(200, USED),
    "empty message": passes(200, NO_WORD),
    "stream that begins without a choice": streams(NO_CHOICE),
    "short, and answered with nothing": passes(200, b"{}", conversation(900)),
    **{f"refused without a word, {it}": passes(it, b"", WHOLE, SMALL) for it in WORDLESS},
    "small, and too many bytes": passes(413, TOO_MANY_BYTES, system_text("Hello.")),
    "too many bytes that have to stay": passes(413, TOO_MANY_BYTES, OF_RULES, window(200_000)),
    "400 with a word": passes(400, openai_error("Unknown parameter: 'foo'.")),
    **{
        f"less is refused as well, {it}, {body!r}": Turn(
            [SILENT, saying(it, body)], b"  ", 400, settings={}, answered={"x-refusal": "its own"}
        )
        for it in (400, 422, 429, 500)
        for body in (DOWN, b"")
    },
    **{f"numbers of something else, {it}": passes(400, openai_error(it), LONG_RUN) for it in OF_SOMETHING_ELSE},
    "refusal of media where there are none": passes(400, NO_IMAGES, looking()),
    "media that are never touched": passes(400, NO_IMAGES, looking(image_part(), role="system"), last=0),
    "media, retries off": passes(400, NO_IMAGES, looking(image_part()), {"overflow": {"retry": False}}),
}


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
async def test_a_turn(tmp_path: Path, turn: Turn) -> None:
    async with staged(tmp_path, **turn.settings) as stage:
        stage.model.plays(*turn.plays)
        answer = await stage.ask(turn.asks, **turn.headers)
    bodies = stage.model.bodies
    assert (answer.status, len(bodies), answer.attempts) == (turn.status, len(turn.plays), str(len(turn.plays)))
    assert turn.gets is None or answer.body == turn.gets
    assert turn.answered.items() <= answer.headers.items()
    assert not answer.headers.keys() & {"x-refusal", "retry-after"} - turn.answered.keys()
    for name, words in turn.error.items():
        assert words in json.loads(answer.body)["error"][name]
    if turn.last == 0:
        assert bodies[-1] == turn.asks
        assert len(bodies) == 1 or len(bodies[0]) < len(turn.asks)
    elif turn.last is not None:
        assert len(bodies[-1]) < turn.last * len(bodies[0]), (estimate(bodies[-1]), estimate(bodies[0]))
    elif len(bodies) > 1:
        assert len(bodies[-1]) < len(bodies[0])
    if "accept_encoding" in turn.headers:
        assert [one.values(b"accept-encoding") for one in stage.model.sent] == [[b"identity"]] * 2
