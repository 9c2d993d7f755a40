"""Who may call. The operator's pages are for this machine, or for the operator's key. A foreign web page gets nothing.
And whose artifacts a request may read: the same rule for `/artifacts` and for `/mcp`.

Rule: only the connection's address says where a client is. A header's claim can remove access, never grant it: a
request that came through another proxy is not local, nor is one with a foreign `Host` or `Origin`, by which a web page
in a browser on this machine reaches for what it should not (DNS rebinding). Content that arrived with a key is served
for that key only, unless the settings open all of it to clients on this machine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import hmac
import ipaddress
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import SecretStr
from starlette.types import Scope

from proxy.errors import KeyNeeded, NotFromHere, WrongKey
from proxy.shell.artifacts import Tenants, front_header, is_loopback
from proxy.shell.resources import logger
from proxy.shell.upstream import Headers, header

WRONG_KEY_SECONDS: Final = 1.0
"""Delay before a wrong key is refused. A key of 16 characters cannot be guessed; one from a leaked list can, and the
log should have time to be seen."""
MAX_SLOWED: Final = 100
"""Refusals that wait; more are sent at once, as each holds a connection that others may need."""
_BECAUSE: Final = "as every client of the proxy uses its key (upstream.api_key); server.host_names allows more names"
_SAID_CHARACTERS: Final = 100
"""Limit for a header or path in the log."""


class Guard:
    """Admits requests."""

    def __init__(
        self,
        admin_key: SecretStr | None,
        host_names: frozenset[str],
        *,
        lends_key: bool = False,
        wrong_key_seconds: float = WRONG_KEY_SECONDS,
    ) -> None:
        """`lends_key`: every client uses the operator's key, so only this machine may."""
        self._key = admin_key.get_secret_value().encode() if admin_key is not None else None
        self._names = frozenset({"localhost", *(name.lower() for name in host_names)})
        self._lends_key = lends_key
        self._wrong_key_seconds = wrong_key_seconds
        self._slowed = asyncio.Semaphore(MAX_SLOWED)

    def check_stranger(self, scope: Mapping[str, Any]) -> None:
        """Raise NotFromHere for a request that may be that of a web page that has no business here. An address in
        `Host` is safe: no DNS can redirect it."""
        if not self._lends_key:
            return
        headers: Headers = scope["headers"]
        host, origin = _host_and_origin(headers)
        if host and not (self._is_of_this_machine(name := _name_of(host)) or _is_address(name)):
            raise NotFromHere(f"the proxy answers to localhost, to addresses and to known names only, {_BECAUSE}")
        if origin and not (_is_own(origin, host) or self._is_of_this_machine(_name_of(origin.partition("://")[2]))):
            raise NotFromHere(f"the proxy does not answer web pages from other hosts, {_BECAUSE}")

    async def admit(self, scope: Mapping[str, Any]) -> None:
        """Admit a request for the operator. Raises KeyNeeded or NotFromHere; for a wrong key, after a while."""
        try:
            self.check(scope)
        except WrongKey:
            front = header(scope["headers"], b"x-forwarded-for").decode("latin-1")
            logger().warning(
                "wrong_admin_key",
                client=(scope.get("client") or [None])[0],
                forwarded_for=front[:_SAID_CHARACTERS] or None,
                path=scope["path"][:_SAID_CHARACTERS],
            )
            if not self._slowed.locked():
                async with self._slowed:
                    await asyncio.sleep(self._wrong_key_seconds)
            raise

    def check(self, scope: Mapping[str, Any]) -> None:
        """Check without the delay and without a log line. Raises KeyNeeded or NotFromHere."""
        headers: Headers = scope["headers"]
        host, origin = _host_and_origin(headers)
        if origin and not _is_own(origin, host):
            raise NotFromHere("this page does not answer requests of other web pages")
        if self._key is not None:
            _check_key(header(headers, b"authorization").decode("latin-1"), self._key)
            return
        client, front = scope.get("client"), front_header(headers)
        if front is not None:
            raise NotFromHere(
                f"this page answers clients on this machine only, and this request came through another proxy "
                f"({front[:_SAID_CHARACTERS].decode()}); server.admin_key opens it to others"
            )
        if client is None or not is_loopback(client[0]):
            raise NotFromHere("this page answers clients on this machine only; server.admin_key opens it to others")
        if not self._is_of_this_machine(_name_of(host)):  # the name that a browser trusts, wherever DNS leads it
            raise NotFromHere(
                "this page can be opened only as localhost, a loopback address or a name in server.host_names"
            )

    def _is_of_this_machine(self, name: str) -> bool:
        return name in self._names or is_loopback(name)


def listens_here_only(host: str) -> bool:
    """Whether a server that listens there can be reached from this machine alone.

    >>> listens_here_only("127.0.0.1"), listens_here_only("Localhost"), listens_here_only("0.0.0.0")
    (True, True, False)
    """
    return host.lower() == "localhost" or is_loopback(host)


def _host_and_origin(headers: Headers) -> tuple[str, str]:
    """A browser sends the `Origin` of a foreign page that calls; programs send none."""
    return header(headers, b"host").decode("latin-1"), header(headers, b"origin").decode("latin-1")


def _is_own(origin: str, host: str) -> bool:
    """True if `origin` is this proxy."""
    return origin.partition("://")[2].lower() == host.lower()


def _check_key(authorization: str, key: bytes) -> None:
    """Raises KeyNeeded, and WrongKey if another key is offered."""
    scheme, _, credentials = authorization.partition(" ")
    offered = credentials.strip().encode("latin-1", "replace")
    if not offered:
        raise KeyNeeded("this page needs the operator's key (server.admin_key) as a bearer token or as password")
    if scheme.lower() == "basic":
        try:
            offered = base64.b64decode(offered, validate=True).partition(b":")[2]
        except binascii.Error:
            offered = b""
    elif scheme.lower() != "bearer":
        offered = b""
    if not hmac.compare_digest(offered, key):
        raise WrongKey("this is not the operator's key (server.admin_key)")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@functools.lru_cache(1024)
def _name_of(host: str) -> str:
    """The name in a `Host` header, without port and brackets; empty if there is none.

    >>> _name_of("LocalHost:8787"), _name_of("[::1]:80"), _name_of("a@b:1:2")
    ('localhost', '::1', '')
    """
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "") if parts.port != 0 and parts.username is None else ""
    except ValueError:
        return ""


class ArtifactRights(Struct, frozen=True):
    """Which artifacts a request may read."""

    tenants: Tenants
    all_for: Guard | None = None
    """Admits the clients that may read those of any tenant; None: there are none."""

    def tenant_of(self, scope: Scope) -> str | None:
        """The tenant whose artifacts it may read; None: those of any tenant."""
        if self.all_for is not None:
            with contextlib.suppress(NotFromHere):
                self.all_for.check(scope)
                return None
        return self.tenants.tenant_of(scope["headers"]).hex()
