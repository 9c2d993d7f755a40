"""How a client can read artifacts, as its connection proves it.

Rule: client headers are believed only in a strict form, as they end up in texts that models read, and only if a lie
would harm no other client.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final

from starlette.types import Scope

from proxy.config import ArtifactSettings, fits_into_quotes
from proxy.core.notices import ArtifactAccess
from proxy.shell.upstream import Headers

_HOST: Final = re.compile(
    rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
_OF_FRONTS: Final = frozenset(
    b"forwarded via x-real-ip x-client-ip true-client-ip x-cluster-client-ip fastly-client-ip fly-client-ip "
    b"x-original-forwarded-for x-original-host cdn-loop".split()
)
"""Headers of reverse proxies: the connection is theirs, and their client may be anywhere. No other client has a use
for them; a header sent by mistake costs a client on this machine a path or a page."""
_BEGIN_OF_FRONTS: Final = (b"x-forwarded-", b"x-envoy-", b"cf-")
"""Families of headers: nginx's, HAProxy's and Traefik's; Envoy's, and so Istio's; Cloudflare's."""

_HOST_BYTES: Final = 300
"""A longer value is no host; what is remembered is bounded."""
_KEYS: Final = {
    b"authorization": "Authorization: Bearer $OPENAI_API_KEY",
    b"api-key": "api-key: $AZURE_OPENAI_API_KEY",
    b"x-api-key": "x-api-key: $ANTHROPIC_API_KEY",
}
"""How an agent writes the header that carries its key, with the variable in which clients that send this header keep
it."""
_ANTHROPIC: Final = b"anthropic-version"
"""Sent with every request by Anthropic's clients, which have another variable for a bearer token:
https://code.claude.com/docs/en/env-vars"""
_ANTHROPIC_KEYS: Final = {**_KEYS, b"authorization": "Authorization: Bearer $ANTHROPIC_AUTH_TOKEN"}


class AccessResolver:
    """Finds the ways in which a client can read artifacts."""

    def __init__(self, settings: ArtifactSettings, folder: str | None) -> None:
        """`folder`: where the artifacts are on this machine; None: in a bucket."""
        self._settings = settings
        self._folder = folder if folder is not None and fits_into_quotes(folder) else None
        self._way = functools.lru_cache(1024)(self._build)

    def of(self, scope: Scope) -> ArtifactAccess:
        """The ways for the client of a request; 1.4 µs, as every request asks."""
        client, server = scope.get("client"), scope.get("server")
        headers: Headers = scope["headers"]
        named = dict(headers)
        host = named.get(b"host", b"")[:_HOST_BYTES]
        if len(named) < len(headers) and [name for name, _ in headers].count(b"host") > 1:
            host = b""
        keys = tuple(filter(named.__contains__, _KEYS))
        if len(keys) > 1:  # in the client's order, as its tenant depends on it
            keys = tuple(filter(_KEYS.__contains__, named))
        written = tuple(map((_ANTHROPIC_KEYS if _ANTHROPIC in named else _KEYS).__getitem__, keys))
        if next(filter(_is_of_front, named), None) is not None:
            client = None
        return self._way(client and client[0], server and server[0], scope.get("scheme", "http"), host, written)

    @property
    def here(self) -> ArtifactAccess:
        """The ways for an agent on this machine."""
        return self._built(True, None, "http", ())

    def _build(
        self, client: str | None, server: str | None, scheme: str, host: bytes, key_headers: tuple[str, ...]
    ) -> ArtifactAccess:
        """`client`: its address; None: unknown, or a reverse proxy's. It runs on this machine if that is a loopback
        address, or the same one that it connected to."""
        is_local = client is not None and is_loopback(client)
        is_here = is_local or bool(client and client == server)
        # One that has called by another of this machine's addresses is asked for its key when it reads.
        is_open = self._settings.open_on_loopback and is_local
        return self._built(is_here, _host_in(host), scheme, () if is_open else key_headers)

    def _built(self, is_here: bool, host: str | None, scheme: str, key_headers: tuple[str, ...]) -> ArtifactAccess:
        stated = self._settings
        folder = stated.agent_path or (self._folder if is_here else None)
        base = stated.public_url or (f"{scheme}://{host}" if host is not None else None)
        return ArtifactAccess(
            folder, None if base is None else base + "/artifacts", () if stated.shared else key_headers
        )


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


def _host_in(value: bytes) -> str | None:
    """Host and port by which the client reached the proxy; None if they are in no plain form.

    >>> _host_in(b"proxy:8787"), _host_in(b"[::1]:80"), _host_in(b"a'b")
    ('proxy:8787', '[::1]:80', None)
    """
    found = _HOST.fullmatch(value)
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        return None
    try:
        if found["six"]:
            ipaddress.IPv6Address(found["six"].decode())
    except ValueError:
        return None
    return found[0].decode()
