import multiprocessing
import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.waiting import PATIENCE_SECONDS

from proxy.config import VARIABLES, ArtifactSettings, Settings
from proxy.core.notices import ArtifactAccess
from proxy.shell.artifacts import KEY_HEADERS, AccessResolver, Tenants, create_folder, unwritable

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
    assert way(scope("10.0.0.6"), open_on_loopback=True).key_headers == ("Authorization: Bearer $OPENAI_API_KEY",)
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


@pytest.mark.parametrize(
    "host",
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
def test_any_other_is_not(host):
    assert way(scope("10.0.0.6", headers=[(b"host", host.encode())])) == ArtifactAccess()


@given(st.binary(max_size=30))
def test_nothing_but_a_host_ever_gets_into_an_address(host):
    url = way(scope(headers=[(b"host", host)])).url
    found = url and url.removeprefix("http://").removesuffix("/artifacts")
    assert found is None or (found.encode() == host and not set(found) & set(" \t\r\n'\"$`\\/?#@&;|<>(){}"))


def test_two_hosts_are_none():
    assert way(scope(headers=[HOST, HOST, KEY])) == ArtifactAccess(
        "/kept", None, ("Authorization: Bearer $OPENAI_API_KEY",)
    )


ANNA = [(b"authorization", b"Bearer sk-anna"), (b"x-other", b"1")]
BEN = [(b"authorization", b"Bearer sk-ben")]


def test_a_tenant_is_the_same_after_a_restart_and_for_every_worker(tmp_path):
    first, second = Tenants.of_folder(tmp_path), Tenants.of_folder(tmp_path)
    assert first.tenant_of(ANNA) == second.tenant_of(ANNA)
    assert len(first.tenant_of(ANNA)) == 16


def test_different_keys_are_different_tenants_and_other_headers_do_not_count(tmp_path):
    tenants = Tenants.of_folder(tmp_path)
    assert len({tenants.tenant_of(headers) for headers in (ANNA, BEN, [])}) == 3
    assert tenants.tenant_of(ANNA) == tenants.tenant_of(ANNA[:1])


def test_all_keys_of_a_request_count_in_their_order(tmp_path):
    tenants = Tenants.of_folder(tmp_path)
    one, two = (b"authorization", b"a"), (b"x-api-key", b"b")
    twice = [(b"authorization", b"a"), (b"authorization", b"b")]
    for sent in ([[one], [two], [one, two], [two, one]], [twice, twice[::-1], twice[:1], twice[1:]]):
        assert len({tenants.tenant_of(headers) for headers in sent}) == len(sent)


@pytest.mark.parametrize("name", sorted(KEY_HEADERS))
def test_every_header_that_carries_a_key_counts(name, tmp_path):
    tenants = Tenants.of_folder(tmp_path)
    assert tenants.tenant_of([(name, b"a")]) != tenants.tenant_of([(name, b"b")])


def test_the_name_of_a_tenant_needs_the_secret(tmp_path):
    assert Tenants.of_folder(tmp_path / "a").tenant_of(ANNA) != Tenants.of_folder(tmp_path / "b").tenant_of(ANNA)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"anna" not in written


def test_the_secret_is_readable_by_its_user_alone_and_nothing_else_stays(tmp_path):
    Tenants.of_folder(tmp_path / "kept")
    assert os.listdir(tmp_path / "kept") == ["owner-secret"]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept", tmp_path / "kept" / "owner-secret")]
    assert modes == [0o700, 0o600]


def test_the_secret_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done: list[str] = []
    link, fsync = os.link, os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("written"), fsync(file)))
    monkeypatch.setattr(os, "link", lambda *paths: (done.append("named"), link(*paths)))
    Tenants.of_folder(tmp_path)
    assert done == ["written", "named"]


def test_without_a_folder_a_tenant_lasts_as_long_as_the_process_and_the_log_says_so(tmp_path):
    (tmp_path / "folder").write_text("a file in its place")
    with capture_logs() as log:
        tenants = Tenants.of_folder(tmp_path / "folder")
    assert tenants.tenant_of(ANNA) == tenants.tenant_of(ANNA)
    assert [(line["event"], line["log_level"]) for line in log] == [("owner_secret_not_kept", "warning")]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_broken_secret_is_not_used_not_replaced_and_reported_without_its_content(content, tmp_path):
    (tmp_path / "owner-secret").write_bytes(content)
    with capture_logs() as log:
        first, second = Tenants.of_folder(tmp_path), Tenants.of_folder(tmp_path)
    assert first.tenant_of(ANNA) != second.tenant_of(ANNA)
    assert (tmp_path / "owner-secret").read_bytes() == content
    assert [line["reason"] for line in log] == [f"it has {len(content)} bytes, not 32"] * 2


def test_a_folder_in_the_place_of_the_secret_is_reported(tmp_path):
    (tmp_path / "owner-secret").mkdir()
    with capture_logs() as log:
        assert Tenants.of_folder(tmp_path).tenant_of(ANNA)
    assert [line["event"] for line in log] == ["owner_secret_not_kept"]


def _tenant(folder, start, found):
    start.wait()
    found.put(Tenants.of_folder(folder).tenant_of(ANNA))


def test_workers_that_start_at_once_agree_on_one_secret(tmp_path):
    fork = multiprocessing.get_context("fork")
    for attempt in range(5):
        start, found = fork.Event(), fork.Queue()
        workers = [fork.Process(target=_tenant, args=(tmp_path / str(attempt), start, found)) for _ in range(4)]
        for worker in workers:
            worker.start()
        start.set()
        tenants = {found.get(timeout=PATIENCE_SECONDS) for _ in workers}
        for worker in workers:
            worker.join(PATIENCE_SECONDS)
        assert len(tenants) == 1
        assert os.listdir(tmp_path / str(attempt)) == ["owner-secret"]


def test_a_secret_that_was_removed_while_the_proxy_runs_is_written_again(tmp_path):
    folder = tmp_path / "data"
    tenants = Tenants.of_folder(folder)
    for remove in ((folder / "owner-secret").unlink, lambda: shutil.rmtree(folder)):
        remove()
        tenants.keep_secret()
        assert Tenants.of_folder(folder).tenant_of(ANNA) == tenants.tenant_of(ANNA)
    assert stat.S_IMODE((folder / "owner-secret").stat().st_mode) == 0o600


def test_a_secret_that_another_process_has_made_meanwhile_stays_and_is_reported(tmp_path):
    tenants = Tenants.of_folder(tmp_path)
    (tmp_path / "owner-secret").unlink()
    other = Tenants(b"o" * 32, path=tmp_path / "owner-secret")
    with capture_logs() as logs:
        other.keep_secret()
        tenants.keep_secret()
        (tmp_path / "owner-secret").rename(tmp_path / "away")
        (tmp_path / "owner-secret").mkdir()
        tenants.keep_secret()
    assert logs == []
    assert tenants.tenant_of(ANNA) != other.tenant_of(ANNA)


def test_a_folder_that_cannot_be_made_again_is_reported_once(tmp_path):
    folder = tmp_path / "data"
    tenants = Tenants.of_folder(folder)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with capture_logs() as logs:
        tenants.keep_secret()
        tenants.keep_secret()
    assert [line["event"] for line in logs] == ["owner_secret_not_kept"]


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
