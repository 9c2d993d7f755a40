"""Runs the application on sockets: one process, or several that share a port."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from proxy.app import create_app
from proxy.settings import Settings
from proxy.shell.telemetry.logs import configure_logging, logger
from proxy.shell.telemetry.metrics import SHARED_FOLDER

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the 60 seconds for which load balancers keep idle connections: the side that reuses must close first."""


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
        timeout_graceful_shutdown=int(settings.server.shutdown_grace_seconds),
    )
    configure_logging(settings.log)
    try:
        listener = config.bind_socket()
    except SystemExit:
        return 1
    host, port = listener.getsockname()[:2]
    logger().info("listening", host=host, port=port, upstream=settings.upstream.base_url, workers=config.workers)
    if settings.server.workers > 1:
        with _shared_counts():
            Multiprocess(config, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run(sockets=[listener])
    return 0


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
