"""Who may open the operator's pages: anybody on this machine, and from elsewhere anybody with the operator's key.

Rule: only the connection's address says where somebody is. A header's claim can remove access, never grant it: a
request that came through another proxy is not local, nor is one with a foreign `Host` or `Origin`, by which a web page
in a browser on this machine reaches for what it should not (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from proxy.errors import KeyNeeded, NotFromHere
from proxy.shell.artifacts.access import FORWARDED, is_loopback
from proxy.shell.relay.relay import header
from proxy.shell.upstream.client import Headers


class Guard:
    """Admits requests."""

    def __init__(self, admin_key: SecretStr | None, host_names: frozenset[str]) -> None:
        self._key = admin_key.get_secret_value().encode() if admin_key is not None else None
        self._names = frozenset({"localhost", *(name.lower() for name in host_names)})

    def check(self, scope: Mapping[str, Any]) -> None:
        """Admit the request of an ASGI scope. Raises KeyNeeded or NotFromHere."""
        headers: Headers = scope["headers"]
        host = header(headers, b"host").decode("latin-1")
        _check_origin(headers, host)
        if self._key is not None and _has_key(header(headers, b"authorization").decode("latin-1"), self._key):
            return
        client = scope.get("client")
        peer = client[0] if client is not None else ""
        behind_proxy = next((name.decode() for name, _ in headers if name in FORWARDED), None)
        if is_loopback(peer) and behind_proxy is None:
            self._check_host(host)
        elif self._key is not None:
            raise KeyNeeded("this page needs the operator's key (server.admin_key) as a bearer token or as password")
        elif behind_proxy is not None:
            raise NotFromHere(
                f"this page answers clients on this machine only, and this request came through another proxy "
                f"({behind_proxy}); server.admin_key opens it to others"
            )
        else:
            raise NotFromHere("this page answers clients on this machine only; server.admin_key opens it to others")

    def _check_host(self, host: str) -> None:
        """A name that somebody else's DNS resolves to this machine appears in `Host`, as the browser trusts it."""
        name = _name_of(host)
        if not (name in self._names or is_loopback(name)):
            raise NotFromHere(
                "this page can be opened only as localhost, a loopback address or a name in server.host_names"
            )


def _check_origin(headers: Headers, host: str) -> None:
    """A browser sends the `Origin` of a foreign page that calls; programs send none."""
    origin = next((value.decode("latin-1") for name, value in headers if name == b"origin"), None)
    if origin is None:
        return
    try:
        is_own = urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # brackets without an address
        is_own = False
    if not is_own:
        raise NotFromHere("this page does not answer requests of other web pages")


def _has_key(authorization: str, key: bytes) -> bool:
    scheme, _, credentials = authorization.partition(" ")
    offered = credentials.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            offered = base64.b64decode(offered, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(offered, key)


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
