"""The end of a stream of chat completions that has to tell an error."""

from __future__ import annotations

from typing import Final

from proxy.wire.openai_errors import error_in_body

_DONE: Final = b"data: [DONE]\n\n"


def error_in_stream(status: int, body: bytes) -> bytes:
    """A response that is no stream as the end of a stream; anything that is no OpenAI error becomes one.

    >>> error_in_stream(429, b'{"error": {\\n"message": "slow down"}}')
    b'data: {"error": { "message": "slow down"}}\\n\\ndata: [DONE]\\n\\n'
    >>> error_in_stream(502, b"Bad Gateway")[:35]
    b'data: {"error":{"message":"Bad Gate'
    """
    # Line ends in JSON are white space, and most clients do not read data of several lines.
    return b"data: " + error_in_body(status, body).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n" + _DONE
