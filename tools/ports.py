"""Ports for servers that are told where to listen."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 where a server may begin to listen, more than once; until the block ends the system gives it
    to no other socket, as it could with one that is only free at the moment."""
    with socket.socket() as holder:
        # Linux lets several sockets have an address with this option as long as at most one listens.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
