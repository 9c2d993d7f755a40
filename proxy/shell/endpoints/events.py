"""Requests as they happen: server-sent events for the dashboard.

Rule: nothing is computed for nobody: the history is looked at once a second for each listener, and only what is new is
sent. A stream ends when its client leaves, when the server stops, and after a minute, so that it keeps no application
alive whose settings were replaced; the browser then connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from proxy.core.text import jsontext
from proxy.errors import TooManyListeners
from proxy.shell.endpoints.refusals import refusal
from proxy.shell.endpoints.services import SERVICES, Services
from proxy.shell.http.clients import STATE_KEY

LOOK_SECONDS: Final = 1.0
LIFE_SECONDS: Final = 60.0
MAX_LISTENERS: Final = 16
"""Of one process: each costs a look a second."""
MAX_AT_ONCE: Final = 100
"""Decisions in one event: a page that missed more shows its list anew."""
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]
_listeners: Final[set[EventStream]] = set()


class EventStream(Response):
    """A response that goes on."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(_listeners) >= MAX_LISTENERS:
            error = TooManyListeners(f"{MAX_LISTENERS} pages are listening already; /decisions has the same")
            await refusal(error)(scope, receive, send)
            return
        _listeners.add(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            telling = asyncio.create_task(_tell(scope, send))
            leaving = asyncio.create_task(_left(receive))
            try:
                await asyncio.wait({telling, leaving}, timeout=LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (telling, leaving):
                    task.cancel()
                await asyncio.gather(telling, leaving, return_exceptions=True)
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b""})
        finally:
            _listeners.discard(self)


async def _tell(scope: Scope, send: Send) -> None:
    """Events until the server stops."""
    services: Services = scope[SERVICES]
    history = services.history
    connection = scope.get("state", {}).get(STATE_KEY)
    last, told = await history.newest(), b"[]"
    await send({"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True})
    while connection is None or not connection.is_draining:
        last, decisions = await history.news(last, MAX_AT_ONCE)
        running = jsontext.dump(await history.running())
        if decisions or running != told:
            told = running
            event = b'data: {"decisions":%b,"running":%b}\n\n' % (jsontext.dump(decisions), running)
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await asyncio.sleep(LOOK_SECONDS)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
