from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import ArtifactSettings
from proxy.core.notices.writing import ArtifactAccess
from proxy.shell.artifacts.access import AccessResolver, host_of, is_on_this_machine

KEY = (b"authorization", b"Bearer sk-1")
HOST = (b"host", b"proxy:8787")


def scope(client: str | None = "127.0.0.1", server: str = "127.0.0.1", headers: Any = (HOST, KEY)) -> dict[str, Any]:
    seat = None if client is None else (client, 5000)
    return {"client": seat, "server": (server, 8787), "headers": [*headers], "scheme": "http"}


def way(seen: dict[str, Any], folder: str | None = "/kept", **stated: Any) -> ArtifactAccess:
    return AccessResolver(ArtifactSettings(**stated), folder).of(seen)


@pytest.mark.parametrize(
    ("client", "server", "here"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("172.17.0.1", "172.17.0.2", False),
        ("10.0.0.6", "10.0.0.5", False),
        (None, "10.0.0.5", False),
    ],
)
def test_who_comes_from_an_address_of_this_host_is_on_it(client: str | None, server: str, here: bool) -> None:
    assert is_on_this_machine(scope(client, server)) is here


@pytest.mark.parametrize("name", [b"forwarded", b"x-forwarded-for", b"x-real-ip", b"x-forwarded-host", b"via"])
def test_who_came_through_a_reverse_proxy_may_be_anywhere(name: bytes) -> None:
    assert not is_on_this_machine(scope(headers=[(name, b"10.0.0.1")]))


def test_a_client_on_this_machine_is_told_the_path_and_others_the_address() -> None:
    url, keys = "http://proxy:8787/artifacts", ("Authorization: Bearer",)
    assert way(scope()) == ArtifactAccess("/kept", url, keys)
    assert way(scope("10.0.0.6")) == ArtifactAccess(None, url, keys)
    assert way(scope("10.0.0.6", headers=[HOST])) == ArtifactAccess(None, url)
    assert way(scope(), folder=None) == ArtifactAccess(None, url, keys)


def test_what_the_operator_states_holds_for_everybody() -> None:
    stated = {"agent_path": "/mnt/kept", "public_url": "https://p.example/x/v1/"}
    for client in ("127.0.0.1", "10.0.0.6"):
        assert way(scope(client), **stated) == ArtifactAccess(
            "/mnt/kept", "https://p.example/x/artifacts", ("Authorization: Bearer",)
        )


def test_no_key_is_asked_for_where_none_is_needed() -> None:
    assert way(scope(), shared=True).key_headers == ()
    assert way(scope(), open_on_loopback=True).key_headers == ()
    assert way(scope("10.0.0.6"), open_on_loopback=True).key_headers == ("Authorization: Bearer",)
    assert way(scope(headers=[(b"api-key", b"1"), (b"x-api-key", b"2")])).key_headers == ("api-key:", "x-api-key:")


@pytest.mark.parametrize(
    "said",
    [
        "proxy",
        "proxy:8787",
        "my_proxy.local:1",
        "127.0.0.1:8787",
        "[::1]:8787",
        "[fe80::1]",
        "a",
        "xn--bcher-kva.example",
    ],
)
def test_a_plain_host_is_taken_over(said: str) -> None:
    assert host_of([(b"host", said.encode())]) == said


@pytest.mark.parametrize(
    "said",
    [
        "",
        "a b",
        "a'b",
        'a"',
        "a/b",
        "a:0",
        "a:65536",
        "a:",
        "-a",
        "a.",
        "[::g]",
        "[1.2.3.4]",
        "u@h",
        "a\n",
        "é",
        "x" * 300,
    ],
)
def test_any_other_is_not(said: str) -> None:
    assert host_of([(b"host", said.encode())]) is None
    assert way(scope("10.0.0.6", headers=[(b"host", said.encode())])) == ArtifactAccess()


@given(st.binary(max_size=30))
def test_nothing_but_a_host_ever_gets_into_an_address(said: bytes) -> None:
    found = host_of([(b"host", said)])
    assert found is None or (found.encode() == said and not set(found) & set(" \t\r\n'\"$`\\/?#@&;|<>(){}"))


def test_two_hosts_are_none() -> None:
    assert host_of([HOST, HOST]) is None
