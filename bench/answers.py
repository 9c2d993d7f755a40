"""The upstream's responses, known to both ends, so that every response can be checked to the last byte.

The first event and the JSON response carry a checksum of the request body that reached the upstream (in OpenAI's member
`system_fingerprint`): it verifies a proxy's claim to forward requests byte for byte.
"""

from __future__ import annotations

import re
import zlib

TEXT = "The build fails because the cache returns a stale prefix; the handler has to read it once more."
"""In every JSON response."""

_PROMPT_TOKENS = 0
"""Nothing is learned from it. A figure made up from the bytes would be wrong differently for each conversation, and
more so for a cut one; a proxy that believed it would move its cuts again and again."""

_FINGERPRINT = re.compile(rb'"fp_([0-9a-f]{8})"')


class WrongAnswer(Exception):
    """A response that is not what the upstream sent; nothing measured with it counts."""


def json_answer(request_body: bytes) -> bytes:
    """A chat completion of constant length, whatever the request."""
    return (
        '{"id":"chatcmpl-bench","object":"chat.completion","created":1714000000,"model":"bench","choices":[{"index":0,'
        f'"message":{{"role":"assistant","content":"{TEXT}"}},"logprobs":null,"finish_reason":"stop"}}],'
        f'"usage":{{"prompt_tokens":{_PROMPT_TOKENS},"completion_tokens":24,"total_tokens":24}},'
        f'"system_fingerprint":"{_fingerprint(request_body)}"}}'
    ).encode()


def stream_events(request_body: bytes, count: int) -> list[bytes]:
    """`count` events with a word each, of about 130 bytes, and the closing `[DONE]`."""
    head = 'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1714000000,"model":"bench",'
    first = (
        f'{head}"system_fingerprint":"{_fingerprint(request_body)}",'
        '"choices":[{"index":0,"delta":{"role":"assistant","content":"word00000 "}}]}\n\n'
    )
    rest = (head + f'"choices":[{{"index":0,"delta":{{"content":"word{n:05d} "}}}}]}}\n\n' for n in range(1, count))
    return [first.encode(), *(event.encode() for event in rest), b"data: [DONE]\n\n"]


def check(
    status: int, answer: bytes, request_body: bytes, *, events: int, verbatim: bool, fits: bool | None = True
) -> None:
    """Raise WrongAnswer unless `answer` is what the upstream sent.

    `verbatim`: the contender promises to pass responses on byte for byte, and requests, too, if they fit the window;
    otherwise it may rewrite the JSON, and only its text has to be whole. `fits`: None if either may be true.
    """
    if status != 200:
        raise WrongAnswer(f"status {status}: {answer[:300].decode(errors='replace')}")
    if not verbatim:
        _check_text(answer, events)
        return
    expected = b"".join(stream_events(request_body, events)) if events else json_answer(request_body)
    if fits and answer != expected:
        raise WrongAnswer(_difference(answer, expected))
    if len(answer) != len(expected):
        raise WrongAnswer(f"{len(answer)} bytes instead of {len(expected)}")
    if fits is False and _FINGERPRINT.findall(answer) == _FINGERPRINT.findall(expected):
        raise WrongAnswer("a request over the window was forwarded as it came")


def _check_text(answer: bytes, events: int) -> None:
    if events:
        words = re.findall(rb"word(\d{5}) ", answer)
        if words != [b"%05d" % n for n in range(events)] or b"data: [DONE]" not in answer:
            raise WrongAnswer(
                f"{len(words)} words of {events}, or without an end: …{answer[-200:].decode(errors='replace')}"
            )
    elif TEXT.encode() not in answer:
        raise WrongAnswer(f"another text: {answer[:300].decode(errors='replace')}")


def _difference(answer: bytes, expected: bytes) -> str:
    if _FINGERPRINT.sub(b"", answer) == _FINGERPRINT.sub(b"", expected):
        return "the request did not reach the upstream as it was sent"
    return f"{len(answer)} bytes instead of {len(expected)}, or other ones: {answer[:300].decode(errors='replace')}"


def _fingerprint(request_body: bytes) -> str:
    return f"fp_{zlib.crc32(request_body):08x}"
