"""Where a client is, how it reached the proxy, and so how it can read artifacts, as far as connection and headers
prove.

Rule: what a client writes is believed only if a lie would harm nobody else, and only in a strict form, as it ends up in
texts that models read.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final

from starlette.types import Scope

from proxy.config.settings import ArtifactSettings
from proxy.core.notices.writing import ArtifactAccess
from proxy.shell.artifacts.tenants import KEY_HEADERS
from proxy.shell.upstream.client import Headers

_HOST: Final = re.compile(
    rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
_OF_FRONTS: Final = frozenset(
    b"forwarded via x-real-ip x-client-ip true-client-ip x-cluster-client-ip fastly-client-ip fly-client-ip "
    b"x-original-forwarded-for x-original-host cdn-loop".split()
)
"""Headers of reverse proxies: the connection is theirs, and the client that uses them may be anywhere. Nobody else has
a use for them, so a header that is here by mistake costs a client on this machine a path or a page."""
_BEGIN_OF_FRONTS: Final = (b"x-forwarded-", b"x-envoy-", b"cf-")
"""Of whole families: nginx's, HAProxy's and Traefik's; Envoy's, and so Istio's; Cloudflare's."""

_TELLING: Final = frozenset((b"host", *KEY_HEADERS))
_CAME_THROUGH: Final = (b"forwarded", b"")
_HOST_BYTES: Final = 300
"""A longer value is no host; what is remembered is bounded."""
_KEYS: Final = {b"authorization": "Authorization: Bearer", b"api-key": "api-key:", b"x-api-key": "x-api-key:"}
"""How to write a header that carries the key again."""


class AccessResolver:
    """Finds the ways in which a client can read artifacts."""

    def __init__(self, settings: ArtifactSettings, folder: str | None) -> None:
        """`folder`: where the artifacts are on this machine; None: in a bucket."""
        self._settings = settings
        self._folder = folder
        self._way = functools.lru_cache(1024)(self._build)

    def of(self, scope: Scope) -> ArtifactAccess:
        """The ways for the client of a request; 1.4 µs, as every request asks."""
        client, server = scope.get("client"), scope.get("server")
        headers: Headers = scope["headers"]
        telling = tuple(
            [(name, value[:_HOST_BYTES] if name == b"host" else b"") for name, value in headers if name in _TELLING]
        )
        if front_header(headers) is not None:
            telling += (_CAME_THROUGH,)
        return self._way(client and client[0], server and server[0], scope.get("scheme", "http"), telling)

    @property
    def here(self) -> ArtifactAccess:
        """The ways for an agent on this machine."""
        return self._built(True, None, "http", ())

    def _build(
        self, client: str | None, server: str | None, scheme: str, telling: tuple[tuple[bytes, bytes], ...]
    ) -> ArtifactAccess:
        seen: Scope = {"client": client and (client, 0), "server": server and (server, 0), "headers": telling}
        keys = tuple(dict.fromkeys(name for name, _ in telling if name in KEY_HEADERS))
        return self._built(is_on_this_machine(seen), host_of([*telling]), scheme, keys)

    def _built(self, is_here: bool, host: str | None, scheme: str, keys: tuple[bytes, ...]) -> ArtifactAccess:
        stated = self._settings
        folder = stated.agent_path or (self._folder if is_here else None)
        base = stated.public_url or (f"{scheme}://{host}" if host is not None else None)
        is_open = stated.shared or (stated.open_on_loopback and is_here)
        return ArtifactAccess(
            folder,
            None if base is None else base + "/artifacts",
            () if is_open else tuple(_KEYS[name] for name in keys),
        )


def is_on_this_machine(scope: Scope) -> bool:
    """Whether the client runs on this host: its address is a loopback address, or the same one that it connected to."""
    client, server = scope.get("client"), scope.get("server")
    if not client or front_header(scope["headers"]) is not None:
        return False
    return is_loopback(client[0]) or (server is not None and client[0] == server[0])


def front_header(headers: Headers) -> bytes | None:
    """The first header that only a reverse proxy adds; None if there is none.

    >>> front_header([(b"host", b"a"), (b"x-forwarded-proto", b"https")]), front_header([(b"x-request-id", b"1")])
    (b'x-forwarded-proto', None)
    """
    return next(filter(_is_of_front, dict(headers)), None)


@functools.lru_cache(1024)
def _is_of_front(name: bytes) -> bool:
    return name in _OF_FRONTS or name.startswith(_BEGIN_OF_FRONTS)


@functools.lru_cache(1024)
def is_loopback(address: str) -> bool:
    """Whether this is the machine's address for itself.

    >>> is_loopback("127.0.0.9"), is_loopback("::1"), is_loopback("::ffff:127.0.0.1"), is_loopback("localhost")
    (True, True, True, False)
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def host_of(headers: Headers) -> str | None:
    """Host and port by which the client reached the proxy; None if it sent none, or none in a plain form.

    >>> host_of([(b"host", b"proxy:8787")]), host_of([(b"host", b"[::1]:80")]), host_of([(b"host", b"a'b")])
    ('proxy:8787', '[::1]:80', None)
    """
    said = [value for name, value in headers if name == b"host"]
    found = _HOST.fullmatch(said[0]) if len(said) == 1 else None
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        return None
    try:
        if found["six"]:
            ipaddress.IPv6Address(found["six"].decode())
    except ValueError:
        return None
    return found[0].decode()
