import asyncio
import base64

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from proxy.errors import KeyNeeded, NotFromHere, ProxyError, WrongKey
from proxy.shell.endpoints import Guard

KEY = "operator-key-0123456789"
NO_HEADER = "none at all"


def request(peer="127.0.0.1", **headers):
    """A request with these headers, `_` for `-`."""
    pairs = {"host": "localhost:8787", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return {
        "type": "http",
        "path": "/decisions",
        "client": (peer, 5000) if peer is not None else None,
        "headers": [(name.encode(), text.encode()) for name, text in pairs.items() if text != NO_HEADER],
    }


def refusal(guard, peer="127.0.0.1", **headers):
    """Status and headers of the refusal."""
    try:
        guard.check(request(peer, **headers))
    except ProxyError as error:
        return type(error)
    return None


@pytest.fixture
def local():
    return Guard(None, frozenset({"Agent-Box"}))


@pytest.fixture
def keyed():
    return Guard(SecretStr(KEY), frozenset())


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_a_client_on_this_machine_needs_a_key_only_if_there_is_one(local, keyed, peer):
    assert refusal(local, peer) is None
    assert refusal(keyed, peer) is KeyNeeded
    assert refusal(keyed, peer, authorization=f"Bearer {KEY}") is None


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.1.2", "2001:db8::1", "::ffff:10.0.0.7", "testclient", "", None])
def test_a_remote_client_is_recognised_by_the_address_of_its_connection(local, keyed, peer):
    assert refusal(local, peer) is NotFromHere
    assert refusal(keyed, peer) is KeyNeeded


@pytest.mark.parametrize(
    "header",
    [
        *("forwarded", "via", "x_real_ip", "x_forwarded_for", "x_forwarded_host", "x_forwarded_proto"),
        *("x_forwarded_client_cert", "x_client_ip", "x_envoy_external_address", "x_envoy_internal"),
        *("cf_connecting_ip", "cf_ray", "true_client_ip", "fly_client_ip"),
    ],
)
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


@pytest.mark.parametrize("origin", ["http://localhost:8787", "http://LocalHost:8787"])
def test_a_page_of_ours_is_let_in_however_its_host_is_written(local, origin):
    assert refusal(local, origin=origin) is None


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("sent", [f"Bearer {KEY}", f"bearer  {KEY}", basic(f":{KEY}"), basic(f"somebody:{KEY}")])
def test_the_key_opens_the_pages_from_anywhere_and_by_any_name(keyed, sent):
    assert refusal(keyed, "10.0.0.7", host="proxy.example", x_forwarded_for="1.2.3.4", authorization=sent) is None


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Bearer wrong", f"Token {KEY}", KEY, f"Bearer {KEY}x", basic(KEY), "Basic ~", f"Basic {KEY}"]
)
def test_anything_but_the_key_opens_no_page(keyed, sent):
    is_empty = sent in ("", "Bearer", KEY)  # without a scheme it is a scheme without a key
    assert refusal(keyed, "10.0.0.7", authorization=sent) is (KeyNeeded if is_empty else WrongKey)


def test_without_a_key_in_the_settings_no_key_opens_anything(local):
    assert refusal(local, "10.0.0.7", authorization="Bearer ") is NotFromHere
    assert refusal(local, "10.0.0.7", authorization="Bearer None") is NotFromHere


async def test_a_wrong_key_is_logged_without_the_key_and_refused_after_a_while():
    slow = Guard(SecretStr(KEY), frozenset(), wrong_key_seconds=3600)
    with capture_logs() as lines:
        wrong = asyncio.create_task(slow.admit(request("10.0.0.7", authorization="Bearer wrong-canary")))
        await asyncio.sleep(0)
        assert not wrong.done()
        await slow.admit(request(authorization=f"Bearer {KEY}"))  # no other caller waits
        with pytest.raises(KeyNeeded):
            await slow.admit(request())
    wrong.cancel()
    assert [(line["event"], line["client"], line["path"]) for line in lines] == [
        ("wrong_admin_key", "10.0.0.7", "/decisions")
    ]
    assert "wrong-canary" not in str(lines)


async def test_only_so_many_wrong_keys_wait(monkeypatch):
    monkeypatch.setattr("proxy.shell.endpoints.guard.MAX_SLOWED", 2)
    slow = Guard(SecretStr(KEY), frozenset(), wrong_key_seconds=3600)
    wrong = request("10.0.0.7", authorization="Bearer wrong")
    waiting = [asyncio.create_task(slow.admit(wrong)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(WrongKey):
        await slow.admit(wrong)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    again = asyncio.create_task(slow.admit(wrong))
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


@pytest.fixture
def lending():
    return Guard(None, frozenset({"Agent-Box"}), lends_key=True)


@pytest.mark.parametrize(
    "foreign",
    [
        *(
            {"host": name}
            for name in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[", "a@localhost")
        ),
        *({"origin": page} for page in ("http://evil.example", "null", "https://", "http://192.0.2.1", "app://evil")),
        {"origin": "http://localhost.evil.example"},
    ],
)
def test_where_the_proxy_adds_its_key_a_foreign_name_or_page_gets_nothing(lending, local, foreign):
    with pytest.raises(NotFromHere, match=r"server\.host_names"):
        lending.check_stranger(request(**foreign))
    local.check_stranger(request(**foreign))


@pytest.mark.parametrize(
    "known",
    [
        *({"host": host} for host in ("localhost:1", "127.0.0.1:8787", "[::1]:8787", "agent-box", "0.0.0.0:8787")),
        *({"host": host} for host in ("192.0.2.1", NO_HEADER)),
        *({"origin": origin} for origin in ("http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]")),
        {"origin": "app://agent-box"},
        {"host": "192.0.2.1:8787", "origin": "http://192.0.2.1:8787"},
    ],
)
def test_known_names_addresses_and_pages_and_programs_that_name_nothing_are_served(lending, known):
    lending.check_stranger(request(**known))
