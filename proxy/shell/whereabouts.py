"""Where a client is and how it reached us, as far as its connection and its headers prove it.

Rule: what a client writes is believed only where it harms nobody but itself, and only in a strict form: it ends up in
what models read.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.types import Scope

from proxy.shell.upstream import Headers

_HOST: Final = re.compile(
    rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
_FORWARDED: Final = frozenset((b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))
"""Headers of reverse proxies: the client is then the one behind it, and may be anywhere."""


def is_on_this_machine(scope: Scope) -> bool:
    """Whether the client runs on this host: its address is a loopback one, or the very one that it connected to."""
    client, server = scope.get("client"), scope.get("server")
    if not client or any(name in _FORWARDED for name, _ in scope["headers"]):
        return False
    return is_loopback(client[0]) or (server is not None and client[0] == server[0])


def is_loopback(address: str) -> bool:
    """Whether this is an address of the machine for itself.

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
    """Host and port under which the client reached us; None when it says nothing, or nothing plain.

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
