"""Runs the application on sockets: one process, or several that share a port."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from proxy.app import create_app
from proxy.settings import ServerSettings, Settings
from proxy.shell.telemetry.logs import configure_logging, logger
from proxy.shell.telemetry.metrics import SHARED_FOLDER

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the 60 seconds for which load balancers keep idle connections: the side that reuses must close first."""

_BACKLOG: Final = 2048
"""Connections that wait to be taken; uvicorn's own figure."""


def serve(settings: Settings) -> int:
    """Serve until a signal comes; the exit status: 0, or 1 when the port cannot be had."""
    config = uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        host=settings.server.host,
        port=settings.server.port,
        workers=settings.server.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        interface="asgi3",
        proxy_headers=False,  # nothing here asks who the client is, so nobody's X-Forwarded-For has to be believed
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.server.shutdown_grace_seconds),
    )
    configure_logging(settings.log)
    try:
        listener = _listener(settings.server)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        where = f"{settings.server.host} port {settings.server.port}"
        print(f"cannot listen at {where} (server.host, server.port): {reason}", file=sys.stderr)
        return 1
    host, port = listener.getsockname()[:2]
    logger().info("listening", host=host, port=port, upstream=settings.upstream.base_url, workers=config.workers)
    if settings.server.workers > 1:
        with _shared_counts():
            gc.enable()  # off since the start, and of use to the application alone
            _Workers(config, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _listener(settings: ServerSettings) -> socket.socket:
    """A socket that takes connections from now on; they wait for the application. Raises OSError."""
    is_six = ":" in settings.host
    return socket.create_server(
        (settings.host, settings.port),
        family=socket.AF_INET6 if is_six else socket.AF_INET,
        backlog=_BACKLOG,
        dualstack_ipv6=is_six and socket.has_dualstack_ipv6(),  # `::` stands for every address, IPv4 too
    )


class _Workers(Multiprocess):
    """uvicorn's, but for the parent's own hold on the socket: with it new connections would be taken until the last
    worker has ended, and answered by nobody."""

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


@contextlib.contextmanager
def _shared_counts() -> Iterator[None]:
    """A folder in which the workers, which inherit the environment, count together; without one each tells its own."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="context-proxy-metrics-", ignore_cleanup_errors=True)
    except OSError as error:
        logger().warning("metrics_not_shared", reason=error.strerror)
        yield
        return
    with folder as path:
        os.environ[SHARED_FOLDER] = path
        yield
