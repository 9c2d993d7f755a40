"""Errors in Anthropic's shape, as bodies and as the end of streams.
https://platform.claude.com/docs/en/api/errors

Rule: a prompt that does not fit is always reported in the one sentence that every client of this API knows, whatever
the upstream said: `prompt is too long: P tokens > L maximum`. Clients parse these numbers and calculate with them.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.text import jsontext
from proxy.errors import ContextOverflow, ProxyError

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_SERVER_ERROR: Final = "api_error"
_CLIENT_ERRORS: Final = range(400, 500)
_ERROR: Final = re.compile(rb'^\s*\{\s*"type"\s*:\s*"error"')
_MAX_MESSAGE_CHARS: Final = 2_000


def type_of(status: int) -> str:
    """The error type that belongs to a status.

    >>> type_of(404), type_of(422), type_of(502)
    ('not_found_error', 'invalid_request_error', 'api_error')
    """
    return _TYPES.get(status, _TYPES[400] if status in _CLIENT_ERRORS else _SERVER_ERROR)


def error_body(error: ProxyError, request_id: str = "") -> bytes:
    """An error of the proxy in Anthropic's shape."""
    message = error.message
    if isinstance(error, ContextOverflow) and error.sizes is not None:
        prompt, most = error.sizes
        message = f"prompt is too long: {prompt} tokens > {most} maximum. {error.advice}"
    return _body(type_of(error.status), message, request_id)


def error_in_body(status: int, body: bytes) -> bytes:
    """The body of a response for a client that does not see its status; anything that is no error of this API becomes
    one.

    >>> error_in_body(503, b"")
    b'{"type":"error","error":{"type":"overloaded_error","message":"HTTP 503"}}'
    """
    if status == 200 or _ERROR.match(body):
        return body
    return _body(type_of(status), _message_in(body) or f"HTTP {status}")


def error_in_stream(status: int, body: bytes) -> bytes:
    """A response that is no stream as the end of a stream.

    >>> error_in_stream(429, b'{"error": {"message": "slow down"}}')
    b'event: error\\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}\\n\\n'
    """
    # Line ends in JSON are white space, and most clients do not read data of several lines.
    told = error_in_body(status, body).replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: error\ndata: " + told + b"\n\n"


def _message_in(body: bytes) -> str:
    """The message of another API's error, or the whole body."""
    found = jsontext.opened(body)
    inner = found.get("error", found) if isinstance(found, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return (message if isinstance(message, str) else body.decode("utf-8", "replace"))[:_MAX_MESSAGE_CHARS]


def _body(kind: str, message: str, request_id: str = "") -> bytes:
    named = {"request_id": request_id} if request_id else {}
    return jsontext.dump({"type": "error", "error": {"type": kind, "message": message}, **named})
