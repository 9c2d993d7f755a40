"""Replaces what serves requests, on SIGHUP or `POST /-/reload`. It refuses upstreams that lead back to the proxy.

Rule: settings that are invalid, or that cannot work, change nothing. Counts and recent decisions continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from fastapi import FastAPI

from proxy.config import Settings, SettingsError, UpstreamSettings
from proxy.errors import SettingsRefused
from proxy.shell.artifacts import unwritable, with_secret
from proxy.shell.endpoints import Reloaded, Services
from proxy.shell.resources import configure_logging, forget_what_is_gone, logger

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


def leads_here(upstreams: Mapping[str, UpstreamSettings], host: str, port: int) -> str:
    """Which of the upstreams, by their places in the settings, is the proxy itself if it listens at `host` and `port`;
    else nothing."""
    for place, one in upstreams.items():
        if _is_here(one.base_url, host, port):
            return f"{place}.base_url: must not be the proxy itself, found {one.base_url}"
    return ""


def _is_here(base_url: str, host: str, port: int) -> bool:
    parts = urlsplit(base_url)
    if not parts.hostname or (parts.port or {"http": 80, "https": 443}[parts.scheme]) != port:
        return False
    with contextlib.suppress(OSError):
        listening = {ip_address(address[0]) for *_, address in _addresses(host, port)}
        everywhere = any(address.is_unspecified for address in listening)
        for family, *_, address in _addresses(parts.hostname, port):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # which sends nothing
                there, here = (ip_address(probe.getpeername()[0]), ip_address(probe.getsockname()[0]))
                is_own = there.is_loopback or there == here  # the system connects to itself from the same address
                if there in listening or (everywhere and is_own):
                    return True
    return False


def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """Resolve a host. Raises OSError for an unknown name."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)


def loaded_again(load: Load, running: Settings) -> tuple[Settings, list[str]]:
    """The settings as they are now, but with the running values of those that need a restart; and the names of the
    settings that wait for it. Raises SettingsRefused."""
    try:
        wanted = with_secret(load())
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


class Running:
    """Services that run: those that the next request gets, and former ones until their last request is over."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._lives: dict[asyncio.Task[None], Services] = {}

    async def serve(self, services: Services) -> None:
        """Serve with these services from the next request on. Raises whatever keeps them from starting; then nothing
        changes."""
        has_started = asyncio.get_running_loop().create_future()
        life = asyncio.create_task(_live(services, has_started))
        await asyncio.wait({has_started, life}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            await life
        self._lives[life] = services
        life.add_done_callback(self._forget)
        former, self._app.state.services = self._app.state.services, services
        if former is not services:
            former.let_go()

    async def stop(self) -> None:
        """Stop all of them. Raises what keeps the current ones from closing."""
        lives = list(self._lives)
        for services in self._lives.values():
            services.unused.set()
        await asyncio.wait(lives)  # a caller that gives up waiting cancels none of them
        lives[-1].result()

    def _forget(self, life: asyncio.Task[None]) -> None:
        del self._lives[life]
        if self._lives:
            forget_what_is_gone()


async def _live(services: Services, has_started: asyncio.Future[None]) -> None:
    """Run services until nobody uses them. One task enters and leaves, as task groups in them must."""
    async with services.running(services):
        has_started.set_result(None)
        await services.unused.wait()


class Reloader:
    """Reads the settings again, and replaces the services if they are new. To be created in the main thread of the
    process that serves."""

    def __init__(
        self,
        running: Running,
        settings: Settings,
        create: Callable[[Settings], Services],
        load: Load,
        tell_others: Callable[[], None],
    ) -> None:
        self._running = running
        self._settings = settings
        self._create = create
        self._load = load
        self._tell_others = tell_others
        self._one_at_a_time = asyncio.Lock()
        self._is_due = False
        self._by_signal: asyncio.Task[None] | None = None
        # A closing terminal must not end running streams, and an early SIGHUP must not end a worker that does not serve
        # yet.
        signal.signal(signal.SIGHUP, self._note_early)

    def listen(self) -> None:
        """Reload on SIGHUP; one received earlier reloads now."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._begin_reload)
        if self._is_due:
            self._begin_reload()

    async def reload(self) -> Reloaded:
        """Reload the settings, here and in the other workers; the outcome. Raises SettingsRefused."""
        found = await self._reload()
        self._tell_others()
        return found

    async def _reload(self) -> Reloaded:
        async with self._one_at_a_time:
            try:
                settings, waiting = await asyncio.to_thread(loaded_again, self._load, self._settings)
                is_new = settings != self._settings
                if is_new:
                    await self._replace(settings)
            except SettingsRefused as refused:
                logger().error("settings_not_reloaded", problem=refused.message)
                raise
        status: Literal["reloaded", "unchanged"] = "reloaded" if is_new else "unchanged"
        logger().info("settings_reloaded", status=status, restart_needed=waiting)
        return Reloaded(status=status, restart_needed=waiting, workers=self._settings.server.workers)

    async def _replace(self, settings: Settings) -> None:
        """Raises SettingsRefused."""
        try:
            # In a thread, as it reads files and may load libraries; requests are served meanwhile.
            await self._running.serve(await asyncio.to_thread(self._create, settings))
        except Exception as error:
            logger().exception("settings_not_reloaded", problem=type(error).__name__)
            raise SettingsRefused(f"nothing can be served with these settings: {type(error).__name__}") from error
        configure_logging(settings.log)
        self._settings = settings

    def _note_early(self, *_: object) -> None:
        self._is_due = True

    def _begin_reload(self) -> None:
        async def reload() -> None:
            with contextlib.suppress(SettingsRefused):  # it is in the log, and no response is due
                await self._reload()

        self._by_signal = asyncio.create_task(reload())
