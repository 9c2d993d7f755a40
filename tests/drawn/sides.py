"""One side of a case: its proxies without sockets of their own, and what is behind them.

Rule: what two proxies share is the real server's, and what passes between two turns passes at once: an hour, or the
time after which they know what one of them has learned.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import structlog
from starlette.types import ASGIApp, Message
from support.state_server import PROGRAM, StateServer
from support.upstream.sockets import SocketServer
from support.waiting import PATIENCE_SECONDS

from drawn.bucket import DrawnBucket
from drawn.case import SETTINGS, Case, Turn
from drawn.upstream import DrawnUpstream
from proxy.app import create_app
from proxy.config import Settings
from proxy.shell.models import shared_state
from proxy.shell.planning import planner
from proxy.shell.relay import Relay

_AGENT_PATH: Final = "/kept/tool-output"
"""Where agents see artifacts: in notices, so of both sides the same."""
_KEPT: Final = "kept/"
"""The prefix in the bucket."""


@dataclass(frozen=True)
class Received:
    """The response that the client receives."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool

    @property
    def text(self) -> str:
        return self.content.decode()


@dataclass
class Side:
    """Proxies that serve a conversation in turn, and what is behind them."""

    apps: list[ASGIApp]
    relays: list[Relay]
    upstream: DrawnUpstream
    folder: Path
    """Of the artifacts, unless they are in the bucket."""
    bucket: DrawnBucket | None
    _asked: int = 0

    @property
    def kept(self) -> set[str]:
        """The names of the artifacts that are there."""
        if self.bucket is not None:
            return self.bucket.names(_KEPT)
        return {path.name for path in self.folder.iterdir() if path.is_file()} if self.folder.is_dir() else set()

    async def begin(self, turn: Turn) -> None:
        """Time and sweeps before a turn, and faults during it."""
        if self.bucket is not None:
            self.bucket.fault = ""
        for relay in self.relays:
            relay._sends._store._folder.cooldown.end()  # half a minute has passed, too
        if turn.hours:
            await self._pass(turn.hours)
        if self.bucket is not None:
            self.bucket.fault = turn.bucket_fault

    async def ask(self, path: str, key: bytes, body: bytes) -> Received:
        """Of the proxy whose turn it is."""
        self._asked += 1
        answer = await _called(self.apps[self._asked % len(self.apps)], path, key, body)
        await self._agree()
        return answer

    async def _pass(self, hours: int) -> None:
        seconds = hours * 3600.0
        if self.bucket is not None:
            self.bucket.age(seconds)
        for path in self.folder.rglob("*"):
            os.utime(path, (time.time(), path.stat().st_mtime - seconds))
        for relay in self.relays:
            relay._sends._store._known.clear()  # of what was made sure of an hour ago nothing is known
        await asyncio.to_thread(self.relays[0]._sends._store._sweep_once)

    async def _agree(self) -> None:
        """Wait until all proxies know the same."""
        first, *others = (relay._judge._learning for relay in self.relays)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(other.known != first.known for other in others):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)


async def _called(app: ASGIApp, path: str, key: bytes, body: bytes) -> Received:
    """A response of an application, without a socket between."""
    messages = [{"type": "http.request", "body": body}] if body else []
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", key)]
    headers.append((b"accept", b"application/json, text/event-stream"))
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app({**scope, "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}, receive, send)
    start, *pieces = sent
    content = b"".join([piece.get("body", b"") for piece in pieces])
    named = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Received(start["status"], named, content, is_whole=bool(pieces) and not pieces[-1].get("more_body"))


@contextlib.asynccontextmanager
async def started(case: Case, folder: Path, *, remembers: bool = True) -> AsyncIterator[Side]:
    """A side of a case. `remembers`: whether its proxies remember conversations."""
    upstream, bucket = DrawnUpstream(case), DrawnBucket() if case.has_bucket else None
    async with contextlib.AsyncExitStack() as stack:
        base_url = (await stack.enter_async_context(SocketServer(upstream))).base_url
        if bucket is not None:
            server = await stack.enter_async_context(SocketServer(bucket))
            found = {"ENDPOINT_URL": server.base_url.removesuffix("/v1"), "ACCESS_KEY_ID": "id", "REGION": "us-east-1"}
            found["SECRET_ACCESS_KEY"] = "secret"
            stack.enter_context(mock.patch.dict(os.environ, {f"AWS_{name}": given for name, given in found.items()}))
        if not remembers:
            stack.enter_context(mock.patch.object(planner, "MEMORY_BYTES", -1))
        stack.enter_context(mock.patch.object(shared_state, "COMPARE_SECONDS", 0.01))
        apps, secret = [], os.urandom(32)
        for place in ("one", "two")[: 1 + (case.replicas and PROGRAM is not None)]:
            (folder / place).mkdir(parents=True)
            (folder / place / "owner-secret").write_bytes(secret)
            apps.append(await asyncio.to_thread(create_app, _settings(case, folder, place, base_url)))
        relays = []
        for app in apps:
            await stack.enter_async_context(app.router.lifespan_context(app))
            await asyncio.sleep(0)
            relays.append(relay := app.state.services.routes.default.relay)
            await relay._models.discovery.answered()  # or what is known depends on the time
            if bucket is not None:
                relay._sends._store._folder.opened  # noqa: B018 - which looks for its address now, not at the first cut
        yield Side(apps, relays, upstream, folder / "tool-output", bucket)


def _settings(case: Case, folder: Path, place: str, base_url: str) -> Settings:
    found: dict[str, dict[str, Any]] = {
        "artifacts": {"agent_path": _AGENT_PATH, "folder": folder / "tool-output"},
        "decisions": {"stored": 0},
        "log": {"format": "json", "level": "error"},
    }
    if case.has_bucket:
        found["artifacts"] = {"url": f"s3://drawn/{_KEPT.strip('/')}", "public_url": "http://proxy.example"}
    if case.replicas and PROGRAM is not None:
        found["state"] = {"url": _state_server().url}
    for name in case.settings:
        for section, members in SETTINGS[name].items():
            if isinstance(members, Mapping):
                found.setdefault(section, {}).update(members)
            else:
                found[section] = members
    if of_model := found.pop("models", {}):
        window = of_model.pop("context_window", None)
        of_model |= {"context_window": int(window * case.window)} if window else {}
        found["models"] = [{"match": "*", **of_model}]  # type: ignore[assignment] # the one section that is a list
    return Settings(upstream={"base_url": base_url}, data_dir=folder / place, **found)


@cache
def _state_server() -> StateServer:
    """One for all cases of this process: each has a secret of its own, so none finds what another has learned."""
    folder = tempfile.TemporaryDirectory()
    server = StateServer(Path(folder.name))
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    return server


@contextlib.contextmanager
def logged(log: io.BytesIO) -> Iterator[None]:
    """What the proxies of this block log; then it is as before."""
    handlers, stdout = logging.getLogger().handlers[:], sys.stdout
    sys.stdout = io.TextIOWrapper(log, write_through=True)
    try:
        yield
    finally:
        sys.stdout.detach()
        sys.stdout = stdout
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()
