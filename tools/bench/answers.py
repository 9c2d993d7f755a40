"""The upstream's responses, known to both ends, so that every response can be checked to the last byte.

The first event and the JSON response carry a checksum of the request body that reached the upstream (`fp_…`): it
verifies a proxy's claim to forward requests byte for byte.
"""

from __future__ import annotations

import re
import zlib

from tools.bench.apis import CHAT, TEXT, Api

_FINGERPRINT = re.compile(rb'"fp_([0-9a-f]{8})"')


class WrongAnswer(Exception):
    """A response that is not what the upstream sent; nothing measured with it counts."""


def json_answer(request_body: bytes, api: Api = CHAT) -> bytes:
    """A response of constant length, whatever the request."""
    return api.response(_fingerprint(request_body))


def stream_events(request_body: bytes, count: int, api: Api = CHAT) -> list[bytes]:
    """`count` writes with a word each, and the end of the stream."""
    return api.events(_fingerprint(request_body), count)


def check(
    status: int,
    answer: bytes,
    request_body: bytes,
    *,
    events: int,
    verbatim: bool,
    fits: bool | None = True,
    api: Api = CHAT,
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
    expected = b"".join(stream_events(request_body, events, api)) if events else json_answer(request_body, api)
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
