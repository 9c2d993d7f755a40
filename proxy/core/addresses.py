"""Kinds of addresses, such as public ones, to which clients may have the proxy connect.

Rule: what is not known to be public is not public. For a client, addresses are judged, never names, and one that
contains another (mapped, tunnelled, translated) is not public, as the host that unwraps the inner one is unknown. An
upstream is the operator's choice: its host's name is enough.
"""

from __future__ import annotations

import ipaddress
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = IPv4Address | IPv6Address


def _networks(*written: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, written))


_NOT_PUBLIC: Final = _networks(
    "0.0.0.0/8",  # this host, RFC 791
    "10.0.0.0/8",  # private, RFC 1918
    "100.64.0.0/10",  # behind a carrier's NAT, RFC 6598; Alibaba's metadata, 100.100.100.200
    "127.0.0.0/8",  # loopback
    "168.63.129.16/32",  # Azure's own services in each virtual network, though the address is registered as public
    "169.254.0.0/16",  # link-local; the metadata of AWS, Google, Azure
    "172.16.0.0/12",  # private
    "192.0.0.0/24",  # protocols, RFC 6890; Oracle's metadata, 192.0.0.192
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112, RFC 7535
    "192.52.193.0/24",  # AMT relays, RFC 7450
    "192.88.99.0/24",  # 6to4 relays, RFC 7526
    "192.168.0.0/16",  # private
    "192.175.48.0/24",  # AS112, RFC 7534
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, and the broadcast
    "2001::/23",  # protocols; Teredo, ORCHID
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4: carries an IPv4 address
    "2620:4f:8000::/48",  # AS112, RFC 7534
    "3fff::/20",  # documentation, RFC 9637
)
"""https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry, written out: `is_global`
of the standard library differs from version to version and calls some multicast global."""
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All addresses in use. The rest includes ::1, mapped (::ffff:0:0/96) and translated (64:ff9b::/96) addresses, unique
local ones (fc00::/7) with the metadata of AWS, link-local, site-local, multicast."""

_PRIVATE: Final = _networks(
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "::1/128", "fc00::/7"
)
"""Networks opened by `media.allow_private_addresses`."""
_METADATA: Final = _networks("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::/32")
"""Metadata of Alibaba, AWS and Google inside those networks; the others are link-local. They hand out keys."""

_OWN: Final = (*_PRIVATE, *_networks("0.0.0.0/8", "169.254.0.0/16", "::/128", "fe80::/10"))
"""Private networks, this host and its links. Tailscale gives addresses behind a carrier's NAT (100.64.0.0/10):
https://tailscale.com/kb/1015/100.x-addresses"""
_OWN_NAMES: Final = (".local", ".internal", ".lan", ".localhost", ".home.arpa", ".ts.net")
"""The ends of names in private networks; the last is Tailscale's: https://tailscale.com/kb/1217/tailnet-name"""

_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE)
"""Anything that resolvers and browsers read as an IPv4 address:
https://url.spec.whatwg.org/#ends-in-a-number-checker."""
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?")


def is_public(address: Address) -> bool:
    """Whether it belongs to the public internet.

    >>> [is_public(ipaddress.ip_address(text)) for text in ("1.1.1.1", "10.1.1.1", "2606:4700::1", "::ffff:1.1.1.1")]
    [True, False, True, False]
    """
    if isinstance(address, IPv6Address) and (address not in _GLOBAL_UNICAST or address.scope_id or _is_isatap(address)):
        return False
    return address.is_global and not any(address in network for network in _NOT_PUBLIC)


def is_private_network(address: Address) -> bool:
    """Whether it belongs to a private network or to this machine, and is not a cloud's metadata address."""
    return any(address in network for network in _PRIVATE) and not any(address in network for network in _METADATA)


def is_own_server(base_url: str) -> bool:
    """Whether an address is on this machine or a private network, where a server may give a model any window.

    >>> [is_own_server(f"http://{host}/v1") for host in ("localhost:8000", "10.0.0.7", "vllm", "api.openai.com")]
    [True, True, True, False]
    """
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_OWN_NAMES)
    inner = getattr(address, "ipv4_mapped", None) or address
    return any(inner in network for network in _OWN)


def literal_address(host: str) -> Address | None:
    """The address, if a host is one in the usual spelling; None for a name. Raises ValueError for anything else.

    >>> literal_address("1.1.1.1"), literal_address("example.org")
    (IPv4Address('1.1.1.1'), None)
    >>> literal_address("0x7f.1")
    Traceback (most recent call last):
    ValueError: an address in an unusual spelling
    """
    if ":" in host:
        found = IPv6Address(host)
        if found.scope_id is not None:
            raise ValueError("an address of one interface of this machine")
        return found
    if _ENDS_IN_A_NUMBER.fullmatch(host):
        try:
            return IPv4Address(host)
        except ValueError:
            raise ValueError("an address in an unusual spelling") from None
    if not _HOST.fullmatch(host):
        raise ValueError("not the name of a host")
    return None


def _is_isatap(address: IPv6Address) -> bool:
    """An IPv4 address of a site behind `0:5efe` or `200:5efe`: RFC 5214, section 6.1."""
    return int(address) >> 32 & 0xFDFF_FFFF == 0x5EFE
