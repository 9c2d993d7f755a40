from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import VARIABLES, ArtifactSettings, Settings
from proxy.core.notices import ArtifactAccess
from proxy.shell.artifacts import KEY_HEADERS, AccessResolver, create_folder, unwritable

KEY = (b"authorization", b"Bearer sk-1")
HOST = (b"host", b"proxy:8787")


def scope(client="127.0.0.1", server="127.0.0.1", headers=(HOST, KEY)):
    seat = None if client is None else (client, 5000)
    return {"client": seat, "server": (server, 8787), "headers": [*headers], "scheme": "http"}


def way(seen, folder="/kept", **stated):
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
def test_who_comes_from_an_address_of_this_host_is_on_it(client, server, here):
    assert (way(scope(client, server)).folder is not None) is here


@pytest.mark.parametrize("name", [b"forwarded", b"x-forwarded-for", b"x-real-ip", b"x-forwarded-host", b"via"])
def test_who_came_through_a_reverse_proxy_may_be_anywhere(name):
    assert way(scope(headers=[(name, b"10.0.0.1")])).folder is None


def test_a_client_on_this_machine_gets_the_path_and_others_the_url():
    url, keys = "http://proxy:8787/artifacts", ("Authorization: Bearer $OPENAI_API_KEY",)
    assert way(scope()) == ArtifactAccess("/kept", url, keys)
    assert way(scope("10.0.0.6")) == ArtifactAccess(None, url, keys)
    assert way(scope("10.0.0.6", headers=[HOST])) == ArtifactAccess(None, url)
    assert way(scope(), folder=None) == ArtifactAccess(None, url, keys)


@pytest.mark.parametrize("folder", ["/home/o'brien/kept", "/tmp/a\nb", "/tmp/\udcff"])
def test_a_path_that_no_shell_command_can_quote_is_not_named(folder):
    assert way(scope(), folder=folder) == way(scope("10.0.0.6"))
    assert way(scope(), folder="/home/o brien/ü").folder == "/home/o brien/ü"


def test_what_the_operator_states_holds_for_everybody():
    stated = {"agent_path": "/mnt/kept", "public_url": "https://p.example/x/v1/"}
    for client in ("127.0.0.1", "10.0.0.6"):
        assert way(scope(client), **stated) == ArtifactAccess(
            "/mnt/kept", "https://p.example/x/artifacts", ("Authorization: Bearer $OPENAI_API_KEY",)
        )


def test_no_key_is_requested_if_none_is_needed():
    assert way(scope(), shared=True).key_headers == ()
    assert way(scope(), open_on_loopback=True).key_headers == ()
    for client in ("10.0.0.6", "10.0.0.5"):  # the second by this machine's own address, which opens nothing
        seen = scope(client, "10.0.0.5")
        assert way(seen, open_on_loopback=True).key_headers == ("Authorization: Bearer $OPENAI_API_KEY",)
    assert way(scope(headers=[(b"api-key", b"1"), (b"x-api-key", b"2")])).key_headers == (
        "api-key: $AZURE_OPENAI_API_KEY",
        "x-api-key: $ANTHROPIC_API_KEY",
    )


def test_each_header_is_written_with_a_variable_whose_key_our_own_commands_send_in_it():
    headers = [(name, b"1") for name in KEY_HEADERS]
    for version in ([], [(b"anthropic-version", b"2023-06-01")]):
        for header in way(scope(headers=[*version, *headers])).key_headers:
            name, _, value = header.partition(": ")
            form, _, variable = value.partition("$")
            assert VARIABLES[variable] == (name.lower().encode(), form + "{}")


@pytest.mark.parametrize(
    "host",
    [
        *("proxy", "proxy:8787", "my_proxy.local:1", "127.0.0.1:8787", "[::1]:8787", "[fe80::1]", "a"),
        "xn--bcher-kva.example",
    ],
)
def test_a_plain_host_is_taken_over(host):
    assert way(scope(headers=[(b"host", host.encode())])).url == f"http://{host}/artifacts"


@pytest.mark.parametrize("host", ["", "a:0", "a:65536", "a:", "-a", "a.", "a\n", "[::g]", "[1.2.3.4]", "é", "x" * 300])
def test_any_other_is_not(host):
    assert way(scope("10.0.0.6", headers=[(b"host", host.encode())])) == ArtifactAccess()


@given(st.binary(max_size=30) | st.text("a:1[]. /@'\"\n", max_size=9).map(str.encode))
def test_nothing_but_a_host_ever_gets_into_an_address(host):
    url = way(scope(headers=[(b"host", host)])).url
    found = url and url.removeprefix("http://").removesuffix("/artifacts")
    assert found is None or (found.encode() == host and not set(found) & set(" \t\r\n'\"$`\\/?#@&;|<>(){}"))


def test_two_hosts_are_none():
    assert way(scope(headers=[HOST, HOST, KEY])) == ArtifactAccess(
        "/kept", None, ("Authorization: Bearer $OPENAI_API_KEY",)
    )


def test_a_folder_in_which_nothing_can_be_kept_stops_the_start_unless_artifacts_go_elsewhere(tmp_path):
    (tmp_path / "file").write_text("in the way")
    stated = {"upstream": {"base_url": "http://127.0.0.1:9/v1"}, "data_dir": tmp_path / "file"}
    problem = unwritable(Settings(**stated))
    assert problem is not None
    assert str(tmp_path / "file") in problem
    assert "data_dir" in problem
    assert unwritable(Settings(**stated, artifacts={"url": "s3://bucket/prefix"})) is None
    assert unwritable(Settings(**stated, artifacts={"url": f"file://{tmp_path}/elsewhere"})) is None
    assert unwritable(Settings(**{**stated, "data_dir": tmp_path / "new"})) is None


@pytest.mark.parametrize(
    ("stated", "place"),
    [
        ({}, "kept/tool-output"),
        ({"folder": "there"}, "there"),
        ({"url": "file:///there"}, "/there"),
        ({"url": "s3://bucket/prefix"}, "s3://bucket/prefix"),
    ],
)
def test_artifacts_lie_in_the_data_folder_unless_another_place_is_set(stated, place):
    settings = Settings(data_dir=Path("kept"), artifacts=stated)
    assert place in create_folder(settings).address
