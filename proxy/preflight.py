"""Checks, before the first request, for what makes a start pointless, and the place where artifacts are kept.

Rule: a check returns the reason in a sentence, or nothing.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proxy.config.settings import Settings
from proxy.config.upstreams import UpstreamSettings
from proxy.shell.artifacts.access import Tenants
from proxy.shell.artifacts.folder import TRIAL_KEY, TROUBLE, PrivateFolder, reason_of

if TYPE_CHECKING:
    from proxy.shell.artifacts.bucket import Bucket


def create_folder(settings: Settings) -> PrivateFolder | Bucket:
    """Where the artifacts are kept; nothing is created or requested yet."""
    scheme, _, path = (settings.artifacts.url or "").partition("://")
    if scheme and scheme != "file":
        from proxy.shell.artifacts.bucket import Bucket  # noqa: PLC0415 - 4 MB that a local folder does not need

        return Bucket(settings.artifacts.url or "")
    return PrivateFolder(Path(path) if scheme else settings.artifacts.folder or settings.data_dir / "tool-output")


def unwritable(settings: Settings) -> str | None:
    """Why nothing can be kept in the local folder, found by a trial write; None if it can, or if artifacts go into a
    bucket."""
    folder = create_folder(settings)
    if not isinstance(folder, PrivateFolder):
        return None
    try:
        folder.put(TRIAL_KEY, b"ok\n")
    except TROUBLE as error:
        where = f"{folder.address} (data_dir, or artifacts.url for another place)"
        return f"nothing can be kept in {where}: {reason_of(error)}"
    return None


def create_tenants(settings: Settings, folder: PrivateFolder | Bucket) -> Tenants:
    """What tells the owners of artifacts apart."""
    if settings.artifacts.url is None:
        return Tenants.of_folder(settings.data_dir, shared=settings.artifacts.shared)
    return Tenants.of_store(folder, settings.data_dir, shared=settings.artifacts.shared)


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
    """Those of a name, or an address itself. Raises OSError for a name that nobody knows."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
