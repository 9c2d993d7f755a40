"""Errors in OpenAI's shape, as bodies: those of its APIs, and of the proxy's own pages."""

from __future__ import annotations

from typing import Any, Final

from proxy.core.text import jsontext
from proxy.errors import ContextOverflow, ProxyError

_MAX_MESSAGE_CHARS: Final = 2_000


def error_body(error: ProxyError) -> bytes:
    """An error of the proxy in OpenAI's shape."""
    described: dict[str, Any] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ContextOverflow) and error.upstream_message is not None:
        described["upstream"] = {"message": error.upstream_message}
    return jsontext.dump({"error": described})


def error_in_body(status: int, body: bytes) -> bytes:
    """The body of a response for a client that does not see its status; anything that is no OpenAI error becomes one.

    >>> error_in_body(503, b"")
    b'{"error":{"message":"HTTP 503","type":"upstream_error","param":null,"code":"503"}}'
    """
    try:
        is_known = "error" in jsontext.members(body) or status == 200
    except jsontext.NotJson:
        is_known = False
    if is_known:
        return body
    message = body.decode("utf-8", "replace")[:_MAX_MESSAGE_CHARS]
    said = {"message": message or f"HTTP {status}", "type": "upstream_error", "param": None, "code": str(status)}
    return jsontext.dump({"error": said})
