from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.addresses import is_own_server, is_private_network, is_public, literal_address

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::200e"]
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "fd12:3456::1"]
METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
]
OTHERS = [
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "169.254.1.1",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0",
    "fec0::1",
    "224.0.0.1",
    "224.0.1.1",
    "239.255.255.250",
    "ff02::1",
    "ff0e::1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:db8::1",
    "3fff::1",
    "100::1",
    "5f00::1",
]
CARRIERS = [
    "::ffff:127.0.0.1",
    "::ffff:1.1.1.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::1.1.1.1",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::",
    "2002:101:101::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2606:4700::5efe:127.0.0.1",
    "2606:4700::200:5efe:10.0.0.1",
]


KINDS = {"public": PUBLIC, "private": [*LOOPBACK, *PRIVATE], "closed": [*METADATA, *OTHERS, *CARRIERS]}


def at(*hosts: str) -> list[bool]:
    return [is_own_server(f"http://{host}:11434/v1") for host in hosts]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in KINDS.items() for text in texts])
def test_an_address_is_public_or_private_as_an_operators_own_server_or_stays_closed(kind, text):
    address = ipaddress.ip_address(text)
    assert (is_public(address), is_private_network(address)) == (kind == "public", kind == "private")
    assert kind != "private" or at(f"[{text}]" if ":" in text else text) == [True]


ADDRESSES = st.one_of(
    st.ip_addresses(),
    st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address),
    st.integers(0, 2**125 - 1).map(lambda low: ipaddress.IPv6Address(2**125 + low)),
    st.ip_addresses(v=6, network="2001::/16"),
)
EMBEDDED = st.sampled_from(
    [
        lambda inner: 0xFFFF_0000_0000 | inner,
        lambda inner: inner,
        lambda inner: 0x0064_FF9B << 96 | inner,
        lambda inner: 0x2002 << 112 | inner << 80 | 1,
        lambda inner: 0x2001_0000 << 96 | inner ^ 0xFFFF_FFFF,
    ]
)


@given(ADDRESSES)
@example(ipaddress.ip_address("224.0.1.1"))
@example(ipaddress.ip_address("fec0::1"))
def test_what_is_public_is_global_and_no_other_kind(address):
    odd = [address.is_private, address.is_loopback, address.is_link_local, address.is_multicast, address.is_reserved]
    if address.version == 6:
        odd += [address.ipv4_mapped, address.sixtofour, address.teredo, address.is_site_local]
    if is_public(address):
        assert address.is_global
        assert not any(odd)
        assert not is_private_network(address)


KEPT_OUT = [
    ipaddress.ip_network(written)
    for written in (
        *("224.0.0.0/4", "192.0.0.0/24", "192.88.99.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"),
        *(
            "168.63.129.16/32",
            "::/3",
            "4000::/2",
            "8000::/1",
            "2001::/23",
            "2002::/16",
            "3fff::/20",
            "2620:4f:8000::/48",
        ),
    )
]


@given(ADDRESSES)
def test_what_the_standard_library_calls_global_is_public_but_for_a_known_list(address):
    is_isatap = address.version == 6 and f"{int(address):032x}"[16:24] in ("00005efe", "02005efe")
    kept_out = is_isatap or any(address in network for network in KEPT_OUT)
    assert is_public(address) == (address.is_global and not kept_out)


@given(st.integers(0, 2**32 - 1), EMBEDDED)
def test_an_address_inside_an_address_is_never_public(inner, carry):
    assert not is_public(ipaddress.IPv6Address(carry(inner)))


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0X7F.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "01.1.1.1",
        "1.1.1.0x1",
        "1.1.1.256",
        "1.1.1.1.1",
        "example.0x",
        "example.7",
        "256",
        "::ffff:1.2.3.4.5",
        "fe80::1%25eth0",
        "fe80::1%eth0",
        "1:2",
        "",
        ".",
        "a..b",
        ".a",
        "-a.org",
        "a-.org",
        "a b",
        "%31.example",
        "a/b",
        "a@b",
        "a\n",
        "例え.jp",
        "A.org",
        "a" * 254,
    ],
)
def test_what_is_neither_an_address_nor_a_name_is_refused(host):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of the standard library in part
        literal_address(host)


@pytest.mark.parametrize(
    "host", ["example.org", "example.org.", "a_b.c-d", "xn--r8jz45g.jp", "localhost", "0x7f.example"]
)
def test_names_are_no_addresses(host):
    assert literal_address(host) is None


@given(ADDRESSES)
def test_the_usual_spelling_of_an_address_is_read(address):
    assert literal_address(str(address)) == address


def test_this_machine_private_networks_and_local_names_are_servers_of_ones_own():
    hosts = ["127.0.0.1", "[::1]", "192.168.0.9", "172.16.1.1", "169.254.1.1", "[fe80::1]", "0.0.0.0", "[::]"]
    assert all(at(*hosts, "[::ffff:10.0.0.1]", "localhost", "vllm", "gpu.local", "gpu.lan.", "host.docker.internal"))


def test_a_server_reached_over_tailscale_is_ones_own():
    assert all(
        at("100.64.0.1", "100.101.102.103", "[fd7a:115c:a1e0::5]", "gpu.tail1a2b3.ts.net", "GPU.tail1a2b3.TS.net.")
    )


def test_public_hosts_are_no_servers_of_ones_own():
    public = ["api.openai.com", "8.8.8.8", "[2606:4700::1]", "100.128.0.1", "ts.net.example.org", "evilts.net"]
    assert not any(at(*public, "[::ffff:8.8.8.8]", "169.254.169.254.nip.io"))
