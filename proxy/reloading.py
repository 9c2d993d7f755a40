"""Replaces the running application with another: what SIGHUP and `POST /-/reload` do.

Rule: a request stays with the application that it began with, to its last byte; the next one goes to the new one.
Settings that are invalid, or that cannot work, change nothing. Counts and recent decisions continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from starlette.types import Message, Receive, Scope, Send

from proxy.app import Inherited, create_app, unwritable
from proxy.config.settings import Settings, SettingsError
from proxy.errors import SettingsRefused
from proxy.preflight import leads_here
from proxy.shell.endpoints.dispatch import Dispatcher
from proxy.shell.endpoints.parts import Reloaded
from proxy.shell.resources.interpreter import forget_what_is_gone
from proxy.shell.resources.logs import logger

Load: TypeAlias = Callable[[], Settings]
"""Reads the settings again. Raises SettingsError."""

FIXED: Final = (
    "data_dir",
    "server.header_timeout_seconds",
    "server.host",
    "server.max_connections",
    "server.max_header_bytes",
    "server.port",
    "server.shutdown_grace_seconds",
    "server.workers",
)
"""Settings that are fixed from start to end: the server's sockets and limits, and the folder that all workers share."""


def loaded_again(load: Load, running: Settings) -> tuple[Settings, list[str]]:
    """The settings as they are now, but with the running values of those that need a restart; and the names of the
    settings that wait for it. Raises SettingsRefused."""
    try:
        wanted = load()
    except SettingsError as error:
        raise SettingsRefused(str(error)) from None
    waiting = [name for name in FIXED if _value(wanted, name) != _value(running, name)]
    kept = {name.partition(".")[2]: _value(running, name) for name in FIXED if name.startswith("server.")}
    server = wanted.server.model_copy(update=kept)
    settings = wanted.model_copy(update={"server": server, "data_dir": running.data_dir})
    if problem := leads_here(settings.named_upstreams, server.host, server.port) or unwritable(settings):
        raise SettingsRefused(problem)
    return settings, waiting


def _value(settings: Settings, name: str) -> Any:
    section, _, key = name.rpartition(".")
    return getattr(getattr(settings, section) if section else settings, key)


class Reloadable:
    """The application as the server sees it."""

    def __init__(self, settings: Settings, load: Load, tell_others: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._load = load
        self._tell_others = tell_others
        self._inherited = Inherited()
        self._current = _Generation(create_app(settings, self._inherited, self.reload))
        self._retiring: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._is_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """While the application is served."""
        # A closing terminal must not end running streams, and an early SIGHUP must not end a worker that does not serve
        # yet.
        signal.signal(signal.SIGHUP, lambda *_: self._note_hangup())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._current(scope, receive, send)

    async def reload(self) -> Reloaded:
        """Reload the settings and continue with them, here and in the other workers; the outcome. Raises
        SettingsRefused."""
        found = await self._reload()
        self._tell_others()
        return found

    async def _reload(self) -> Reloaded:
        async with self._one_at_a_time:
            try:
                settings, waiting = await asyncio.to_thread(loaded_again, self._load, self._settings)
                is_new = settings != self._settings
                if is_new:
                    await self._go_on_with(settings)
            except SettingsRefused as refused:
                logger().error("settings_not_reloaded", problem=refused.message)
                raise
        found = Reloaded("reloaded" if is_new else "unchanged", waiting)
        logger().info("settings_reloaded", status=found.status, restart_needed=waiting)
        return found

    async def _go_on_with(self, settings: Settings) -> None:
        """Raises SettingsRefused."""
        try:
            # In a thread, as it reads files and may load libraries; requests continue meanwhile.
            app = await asyncio.to_thread(create_app, settings, self._inherited, self.reload)
            following = _Generation(app)
            await following.start()
        except Exception as error:
            logger().exception("settings_not_reloaded", problem=type(error).__name__)
            raise SettingsRefused(f"nothing can be served with these settings: {type(error).__name__}") from error
        former, self._current, self._settings = self._current, following, settings
        task = asyncio.create_task(self._retire(former))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _retire(self, generation: _Generation) -> None:
        try:
            await generation.idle()
        finally:
            await generation.stop()
        del generation
        forget_what_is_gone()

    async def _live(self, receive: Receive, send: Send) -> None:
        """The server's start and end: starts the first application, and stops everything at the end."""
        await receive()
        try:
            await self._current.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        self._loop = asyncio.get_running_loop()
        if self._is_due:
            self._begin_reload()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._loop = None
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        try:
            await self._current.stop()
        except RuntimeError as error:
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    def _note_hangup(self) -> None:
        if self._loop is None:
            self._is_due = True
        else:
            self._loop.call_soon_threadsafe(self._begin_reload)

    def _begin_reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload_by_signal())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _reload_by_signal(self) -> None:
        with contextlib.suppress(SettingsRefused):  # it is in the log, and nobody waits for an answer
            await self._reload()


class _Generation:
    """One application, from its start until its last request is over."""

    def __init__(self, app: Dispatcher) -> None:
        self._app = app
        self._running = 0
        self._is_idle = asyncio.Event()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._life: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
            if not self._running:
                self._is_idle.set()

    async def start(self) -> None:
        """Raises RuntimeError when the application cannot start."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._life = asyncio.create_task(self._app(scope, self._messages.get, self._said.put))
        try:
            await self._tell("lifespan.startup")
        except RuntimeError:
            await asyncio.gather(self._life, return_exceptions=True)
            raise

    async def idle(self) -> None:
        """Wait until no request is under way; no new ones arrive."""
        if self._running:
            self._is_idle.clear()
            await self._is_idle.wait()

    async def stop(self) -> None:
        """Stop the application. Raises RuntimeError if something in it could not be closed."""
        assert self._life is not None
        try:
            await self._tell("lifespan.shutdown")
        finally:
            await asyncio.gather(self._life, return_exceptions=True)

    async def _tell(self, kind: str) -> None:
        await self._messages.put({"type": kind})
        answer = await self._said.get()
        if answer["type"] != f"{kind}.complete":
            raise RuntimeError(answer.get("message", ""))
