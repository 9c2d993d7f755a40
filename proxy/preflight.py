"""Checks, before the first request, for what makes a start pointless: each gives the reason in a sentence, or
nothing."""

from __future__ import annotations

import contextlib
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit


def leads_here(base_url: str, host: str, port: int) -> str:
    """Why this cannot be the upstream if the proxy itself listens there, at `host` and `port`; else nothing."""
    parts = urlsplit(base_url)
    if not parts.hostname or (parts.port or {"http": 80, "https": 443}[parts.scheme]) != port:
        return ""
    with contextlib.suppress(OSError):
        for family, *_, address in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # which sends nothing
                there, here = (ip_address(probe.getpeername()[0]), ip_address(probe.getsockname()[0]))
                is_own = there.is_loopback or there == here  # the system connects to itself from the same address
                if ip_address(host) == there or (ip_address(host).is_unspecified and is_own):
                    return f"upstream.base_url: must not be the proxy itself, found {base_url}"
    return ""
