"""Runs the application on sockets: one process, or several that share a port."""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from proxy.app import create_app
from proxy.config import HERE, ServerSettings, Settings, user_data_dir
from proxy.errors import SettingsRefused
from proxy.reloading import Load, leads_here, loaded_again
from proxy.shell.artifacts import unwritable, with_secret
from proxy.shell.http.connection import Connection, Connections
from proxy.shell.operator import Announcement, announced
from proxy.shell.resources import configure_logging, logger
from proxy.shell.telemetry.metrics import SHARED_FOLDER

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the 60 seconds that load balancers keep idle connections: the side that reuses one must close first."""

WORKER_SILENCE_SECONDS: Final = 60
"""A worker that does not respond to its parent for so long is replaced, and its streams break. It first responds when
its modules are loaded: a busy machine that needs more than uvicorn's 5 seconds for that would replace all workers for
ever."""

_OWN_FILES: Final = 256
"""Open files that belong to no client: the store, the log, downloads."""
_BACKLOG: Final = 2048
"""Connections that wait to be accepted; uvicorn's own figure."""


def serve(settings: Settings, load: Load, until_closed: int | None = None) -> int:
    """Serve until a signal comes; the exit status: 0, or 1 if the port is taken or nothing can be stored. `load` reads
    the settings again in each worker, so it must be picklable. `until_closed`: a pipe; serve until its other end is
    closed. Raises SettingsError if the secret that replicas share is missing."""
    configure_logging(settings.log)
    settings, token = with_secret(settings), secrets.token_hex(32)
    config = uvicorn.Config(
        partial(_application, settings, load, token),
        factory=True,
        host=settings.server.host,
        port=settings.server.port,
        workers=settings.server.workers,
        http=partial(Connection, _connections(settings.server)),  # type: ignore[arg-type] # called as the class would be
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        interface="asgi3",
        proxy_headers=False,  # nothing here needs the client's address, so no X-Forwarded-For has to be trusted
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.server.shutdown_grace_seconds),
        timeout_worker_healthcheck=WORKER_SILENCE_SECONDS,
    )
    if (problem := unwritable(settings)) is not None:
        print(problem, file=sys.stderr)
        return 1
    try:
        listener = _listener(settings.server)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        where = f"{settings.server.host} port {settings.server.port}"
        print(f"cannot listen at {where} (server.host, server.port): {reason}", file=sys.stderr)
        return 1
    host, port = listener.getsockname()[:2]
    if reason := leads_here(settings.named_upstreams, host, port):
        listener.close()
        print(reason, file=sys.stderr)
        return 1
    announcement = Announcement(os.getpid(), host, port, token, shared=until_closed is None)
    _say_where(settings, announcement)
    if until_closed is not None:
        threading.Thread(target=_end_when_closed, args=[until_closed], daemon=True).start()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(announced(settings.data_dir, announcement))
        except OSError as error:  # artifacts may be kept elsewhere
            logger().warning("not_announced", folder=str(settings.data_dir.absolute()), reason=error.strerror)
        if settings.server.workers > 1:
            stack.enter_context(_shared_counts())
            gc.enable()  # off since the start; only the application needs it
            _Workers(config, [listener], settings, load, token).run()
        else:
            _Server(config, stack.close).run(sockets=[listener])
    return 0


class _Server(uvicorn.Server):
    """uvicorn's class, except for what is done when it stops: it ends the process by the signal that it got."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], None]) -> None:
        super().__init__(config)
        self._close = close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Withdraw the announcement, then stop."""
        self._close()
        await super().shutdown(sockets)


def _say_where(settings: Settings, announcement: Announcement) -> None:
    """Say where it listens and where it keeps data, in the log and on a terminal."""
    host, port, folder = announcement.host, announcement.port, str(settings.data_dir.absolute())
    upstream, workers = settings.upstream.base_url, settings.server.workers
    is_found = settings.data_dir == HERE and "data_dir" not in settings.model_fields_set
    former = {"user_data_dir": str(user_data_dir())} if is_found else {}
    logger().info("listening", host=host, port=port, upstream=upstream, workers=workers, data_dir=folder, **former)
    if sys.stdout.isatty():
        print(f"The dashboard: {announcement.root}/  (Ctrl-C stops the proxy)")
        why = f", which is there; without it: {former['user_data_dir']}" if former else ""
        print(f"The data folder: {folder}{why}", flush=True)


def _end_when_closed(pipe: int) -> None:
    """End as on SIGTERM when nobody holds the other end of a pipe, however its holder has ended: a worker without its
    parent could be neither stopped nor replaced."""
    while os.read(pipe, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _application(settings: Settings, load: Load, token: str) -> ASGIApp:
    """Made in the process that serves it."""
    if settings.server.workers == 1:
        return create_app(settings, load, token=token)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has one"
    threading.Thread(target=_end_when_closed, args=[parent.sentinel], daemon=True).start()
    if folder := os.environ.get(SHARED_FOLDER):  # which a cleaner of temporary files may have deleted
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return create_app(settings, load, _tell_parent, token)


def _tell_parent() -> None:
    """Have the parent signal all workers; the one that received the reload then finds nothing new."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        os.kill(parent.pid, signal.SIGHUP)


def _connections(settings: ServerSettings) -> Connections:
    """Limits for clients, with as many open files as the system allows: each client also needs an upstream
    connection."""
    files = _open_files()
    possible = settings.max_connections if files is None else max(1, (files - _OWN_FILES) // 2)
    return Connections(
        max_head_bytes=settings.max_header_bytes,
        head_seconds=settings.header_timeout_seconds,
        max_connections=min(settings.max_connections, possible),
    )


def _open_files() -> int | None:
    """How many files this process may open after raising its limit to the system's; None: any number."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - Windows has none

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says "infinite" but allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def _listener(settings: ServerSettings) -> socket.socket:
    """A socket that accepts connections from now on; they wait for the application. Raises OSError."""
    is_six = ":" in settings.host
    return socket.create_server(
        (settings.host, settings.port),
        family=socket.AF_INET6 if is_six else socket.AF_INET,
        backlog=_BACKLOG,
        dualstack_ipv6=is_six and socket.has_dualstack_ipv6(),  # `::` means every address, IPv4 included
    )


class _Workers(Multiprocess):
    """uvicorn's class, except that the parent closes its socket and forgets the gauges of workers that are gone, and
    that SIGHUP reloads instead of restarting."""

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], settings: Settings, load: Load, token: str
    ) -> None:
        super().__init__(config, sockets)
        self._former: list[Process] = []
        """Workers of the last look."""
        self._settings = settings
        self._load = load
        self._token = token

    def terminate_all(self) -> None:
        # With the parent's socket open, connections would be accepted, and never served, until the last worker
        # ends.
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died; the gauges of those that are gone would show requests under way for ever."""
        super().keep_subprocess_alive()
        former, self._former = self._former, [*self.processes]
        for process in former if SHARED_FOLDER in os.environ else ():
            if process not in self.processes:
                mark_process_dead(process.pid)  # type: ignore[no-untyped-call] # it has no types

    def handle_hup(self) -> None:
        """Make every worker reload the settings, and give them to future workers; invalid ones go no further."""
        try:
            self._settings, _ = loaded_again(self._load, self._settings)
        except SettingsRefused as refused:
            logger().error("settings_not_reloaded", problem=refused.message)
            return
        self.config.app = partial(_application, self._settings, self._load, self._token)
        for process in self.processes:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):  # its successor gets the new settings
                    os.kill(process.pid, signal.SIGHUP)


_TMPFS: Final = "/dev/shm"  # noqa: S108 - the folder in it is made by tempfile
"""Where each count is a write to memory; a container without it has its folder for temporary files."""


@contextlib.contextmanager
def _shared_counts() -> Iterator[None]:
    """A folder where the workers, which inherit the environment, add up their metrics; without it each reports its
    own."""
    try:
        place = _TMPFS if os.access(_TMPFS, os.W_OK) else None
        folder = tempfile.TemporaryDirectory(prefix="context-proxy-metrics-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        logger().warning("metrics_not_shared", reason=error.strerror)
        yield
        return
    with folder as path:
        os.environ[SHARED_FOLDER] = path
        yield
