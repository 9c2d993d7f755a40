"""`/healthz` and `/readyz`: what machines ask first, and again and again.

Rule: open to everybody who reaches the port; they wait for no framework, so a process that has just started responds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.text import jsontext
from proxy.shell.operator.readiness import Note, Readiness

ALIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
NO_NOTES: Final[Mapping[str, Note]] = {}
_Found: TypeAlias = tuple[int, Mapping[str, Any]]
"""A status and its JSON body."""


def probes(readiness: Readiness, notes: Mapping[str, Note] = NO_NOTES) -> dict[str, ASGIApp]:
    """The applications that respond, by path; each accepts GET and HEAD. `notes`: what is said, and is no reason not to
    be ready."""

    async def alive() -> _Found:
        return 200, {"status": "ok"}

    async def ready() -> _Found:
        is_ready, problems = await readiness.looked()
        if not is_ready:
            return 503, {"status": "not ready", "reasons": problems}
        noted = {name: why for name, note in notes.items() if (why := note()) is not None}
        unavailable = {**problems, **noted}
        return 200, {"status": "ready", "unavailable": unavailable} if unavailable else {"status": "ready"}

    return {ALIVE_PATH: _answering(alive), READY_PATH: _answering(ready)}


def _answering(find: Callable[[], Awaitable[_Found]]) -> ASGIApp:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        status, found = await find()
        body = jsontext.dump(found)
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer
