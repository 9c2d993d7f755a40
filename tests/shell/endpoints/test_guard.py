from __future__ import annotations

import base64

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from proxy.errors import KeyNeeded, NotFromHere, ProxyError
from proxy.shell.endpoints.guard import Guard

KEY = "operator-key-0123456789"


def refusal(guard: Guard, peer: str | None = "127.0.0.1", **headers: str) -> type[ProxyError] | None:
    """What a request with these headers, `_` for `-`, is refused with."""
    pairs = {"host": "localhost:8787", **{name.replace("_", "-"): text for name, text in headers.items()}}
    scope = {
        "type": "http",
        "client": (peer, 5000) if peer is not None else None,
        "headers": [(name.encode(), text.encode()) for name, text in pairs.items()],
    }
    try:
        guard.check(Request(scope))
    except ProxyError as error:
        return type(error)
    return None


@pytest.fixture
def local() -> Guard:
    return Guard(None, frozenset({"Agent-Box"}))


@pytest.fixture
def keyed() -> Guard:
    return Guard(SecretStr(KEY), frozenset())


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_a_client_on_this_machine_needs_no_key(local, keyed, peer):
    assert refusal(local, peer) is None
    assert refusal(keyed, peer) is None


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.1.2", "2001:db8::1", "::ffff:10.0.0.7", "testclient", "", None])
def test_a_client_elsewhere_is_told_apart_by_the_address_of_its_connection(local, keyed, peer):
    assert refusal(local, peer) is NotFromHere
    assert refusal(keyed, peer) is KeyNeeded


@pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "x_real_ip", "via", "x_forwarded_host"])
def test_what_a_header_claims_gives_no_access_and_what_came_through_a_proxy_is_not_from_here(local, header):
    assert refusal(local, "10.0.0.7", **{header: "127.0.0.1"}) is NotFromHere
    assert refusal(local, "127.0.0.1", **{header: "127.0.0.1"}) is NotFromHere


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8787", "[::1]:8787", "agent-box:8787"])
def test_names_of_this_machine_are_let_in(local, host):
    assert refusal(local, host=host) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "x@localhost", "localhost:0", "[", "10.0.0.7"],
)
def test_a_foreign_name_that_leads_here_is_refused(local, host):
    assert refusal(local, host=host) is NotFromHere


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9999", "https://"])
def test_a_foreign_page_is_refused_with_and_without_the_key(local, keyed, origin):
    assert refusal(local, origin=origin) is NotFromHere
    assert refusal(keyed, origin=origin, authorization=f"Bearer {KEY}") is NotFromHere


def test_a_page_of_ours_is_let_in(local):
    assert refusal(local, origin="http://localhost:8787") is None


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("sent", [f"Bearer {KEY}", f"bearer  {KEY}", basic(f":{KEY}"), basic(f"somebody:{KEY}")])
def test_the_key_opens_the_pages_from_anywhere_and_by_any_name(keyed, sent):
    assert refusal(keyed, "10.0.0.7", host="proxy.example", x_forwarded_for="1.2.3.4", authorization=sent) is None


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Bearer wrong", f"Token {KEY}", KEY, f"Bearer {KEY}x", basic(KEY), "Basic ~", f"Basic {KEY}"]
)
def test_anything_but_the_key_opens_no_page(keyed, sent):
    assert refusal(keyed, "10.0.0.7", authorization=sent) is KeyNeeded


def test_without_a_key_in_the_settings_no_key_opens_anything(local):
    assert refusal(local, "10.0.0.7", authorization="Bearer ") is NotFromHere
    assert refusal(local, "10.0.0.7", authorization="Bearer None") is NotFromHere
