"""The end of a stream of the Responses API that has to tell an error; bodies have OpenAI's shape.

Rule: a stream ends with both events, because some clients read only `response.failed` (Codex,
codex-rs/codex-api/src/sse/responses.rs), and others raise on `error` (openai-python, src/openai/_streaming.py).
"""

from __future__ import annotations

import re
from typing import Any, Final

from proxy.core.text import jsontext
from proxy.wire.openai_errors import error_in_body

_UNANSWERED: Final = re.compile(r"No tool output found for function call ([\w\-.]{1,200}?)\.?(?![\w\-.])")
"""github.com/openai/codex/issues/620"""
_SERVER_ERROR: Final = "server_error"


def error_in_stream(status: int, body: bytes) -> bytes:
    """A response that is no stream as the end of a stream of which the client has received nothing.

    >>> error_in_stream(400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}').splitlines()[0]
    b'event: error'
    """
    said = jsontext.opened(error_in_body(status, body))
    error = said.get("error") if isinstance(said, dict) else None
    error = error if isinstance(error, dict) else {"message": str(error)}
    code, message = _text(error.get("code")) or str(status), _text(error.get("message")) or f"HTTP {status}"
    told = {"type": "error", "code": code, "message": message, "param": error.get("param"), "sequence_number": 0}
    failed = {
        "id": "resp_of_the_proxy",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "error": {"code": code if not code.isdigit() else _SERVER_ERROR, "message": message},
        "incomplete_details": None,
        "model": "",
        "output": [],
        "usage": None,
    }
    return event(told) + event({"type": "response.failed", "sequence_number": 1, "response": failed})


def unanswered_in(refusal: str) -> str:
    """The id of the call of a function that has no output, by the words of a refusal.

    >>> unanswered_in("No tool output found for function call call_1.")
    'call_1'
    """
    found = _UNANSWERED.search(refusal)
    return found[1] if found else ""


def event(said: dict[str, Any]) -> bytes:
    """An event with its name."""
    return b"event: %b\ndata: %b\n\n" % (said["type"].encode(), jsontext.dump(said))


def _text(found: Any) -> str:
    return found if isinstance(found, str) else str(found) if isinstance(found, int) else ""
