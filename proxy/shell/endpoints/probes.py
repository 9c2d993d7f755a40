"""`/healthz` and `/readyz`: what machines ask first, and again and again.

Rule: open to everybody who reaches the port; they wait for no framework, so a process that has just started responds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.text import jsontext
from proxy.shell.operator.readiness import Readiness

ALIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
_Found: TypeAlias = tuple[int, Mapping[str, Any]]
"""A status and its JSON body."""


def probes(readiness: Readiness) -> dict[str, ASGIApp]:
    """The applications that respond, by path; each accepts GET and HEAD."""

    async def alive() -> _Found:
        return 200, {"status": "ok"}

    async def ready() -> _Found:
        is_ready, problems = await readiness.looked()
        if not is_ready:
            return 503, {"status": "not ready", "reasons": problems}
        return 200, {"status": "ready", "unavailable": problems} if problems else {"status": "ready"}

    return {ALIVE_PATH: _answering(alive), READY_PATH: _answering(ready)}


def _answering(find: Callable[[], Awaitable[_Found]]) -> ASGIApp:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        status, found = await find()
        body = jsontext.dump(found)
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer
