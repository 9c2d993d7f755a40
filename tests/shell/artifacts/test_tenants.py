"""Which clients are one tenant, and where the secret that tells them apart comes from."""

import multiprocessing
import os
import shutil
import stat
import subprocess

import pytest
from structlog.testing import capture_logs
from support.waiting import PATIENCE_SECONDS

from proxy.config import Settings, SettingsError
from proxy.shell.artifacts import KEY_HEADERS, PrivateFolder, Tenants, create_tenants, look_after, with_secret

ANNA = [(b"authorization", b"Bearer sk-anna"), (b"x-other", b"1")]
BEN = [(b"authorization", b"Bearer sk-ben")]


ONE, TWO = (b"authorization", b"a"), (b"x-api-key", b"b")
TWICE = [(b"authorization", b"a"), (b"authorization", b"b")]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([ANNA, BEN, []], id="different keys, and none"),
        pytest.param([[ONE], [TWO], [ONE, TWO], [TWO, ONE]], id="all keys of a request in their order"),
        pytest.param([TWICE, TWICE[::-1], TWICE[:1], TWICE[1:]], id="also those of one header"),
        *([[(name, b"a")], [(name, b"b")]] for name in sorted(KEY_HEADERS)),
    ],
)
def test_different_keys_are_different_tenants_and_other_headers_do_not_count(sent, tmp_path):
    tenants = Tenants.of_folder(tmp_path)
    names = {tenants.tenant_of(headers) for headers in sent}
    assert (len(names), {len(name) for name in names}) == (len(sent), {16})
    assert tenants.tenant_of(sent[0]) == tenants.tenant_of([*sent[0], (b"x-other", b"2")])


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


@pytest.mark.parametrize("in_the_way", [".", "owner-secret"])
def test_without_a_file_a_tenant_lasts_as_long_as_the_process_and_the_log_says_so(in_the_way, tmp_path):
    folder = tmp_path / "folder"
    folder.touch() if in_the_way == "." else (folder / in_the_way).mkdir(parents=True)
    with capture_logs() as log:
        tenants = Tenants.of_folder(folder)
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


def test_a_data_folder_is_looked_after_by_the_proxy(tmp_path):
    folder = tmp_path / "data"
    tenants = Tenants.of_folder(folder)
    left = folder / "learned.0123456789abcdef.unfinished"
    left.write_text("half")
    os.utime(left, (1_000, 1_000))
    look_after(folder, tenants, PrivateFolder(folder))
    assert not left.exists()
    folder.rename(tmp_path / "gone")
    look_after(folder, tenants, PrivateFolder(folder))
    assert (folder / "owner-secret").exists()


SECRET = "5e" * 32
REDIS = {"state": {"url": "redis://127.0.0.1:9"}}


def settings(folder, **stated):
    return Settings(data_dir=folder / "data", **stated)


def test_replicas_with_one_secret_name_tenants_alike_whatever_their_folders_hold(tmp_path):
    stated = {"server": {"secret": SECRET}, "artifacts": {"url": "s3://kept"}}
    one, two = (create_tenants(with_secret(settings(tmp_path / name, **stated))) for name in ("one", "two"))
    assert (one.tenant_of(ANNA), one.fleet) == (two.tenant_of(ANNA), two.fleet)
    assert not list(tmp_path.iterdir())


def test_a_proxy_that_shares_nothing_needs_no_secret(tmp_path):
    assert with_secret(settings(tmp_path)).server.secret is None


@pytest.mark.parametrize(
    "shared", [REDIS, {"artifacts": {"url": "memory://"}}, {"artifacts": {"url": "file:///dev/null"}}]
)
def test_what_replicas_share_needs_a_secret_and_the_refusal_says_how_to_make_one(tmp_path, shared):
    with pytest.raises(SettingsError, match=r"^server\.secret: must be set with .*openssl rand -hex 32"):
        with_secret(settings(tmp_path, **shared))


def test_a_secret_of_0_2_in_the_data_folder_is_named_with_the_command_that_prints_its_digits(tmp_path):
    tenants = Tenants.of_folder(tmp_path / "data")
    with pytest.raises(SettingsError) as refused:
        with_secret(settings(tmp_path, **REDIS))
    command = str(refused.value).partition("owner-secret: ")[2]
    digits = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    again = create_tenants(settings(tmp_path / "new", server={"secret": digits}))
    assert again.tenant_of(ANNA) == tenants.tenant_of(ANNA)


def test_a_secret_that_0_2_kept_in_the_store_is_still_used_and_the_log_says_how_to_set_it(tmp_path):
    (tmp_path / "shared" / ".meta").mkdir(parents=True)
    (tmp_path / "shared" / ".meta" / "owner-secret").write_bytes(b"s" * 32)
    with capture_logs() as logs:
        found = with_secret(settings(tmp_path, artifacts={"url": f"file://{tmp_path}/shared"}))
    assert create_tenants(found).tenant_of(ANNA) == Tenants(b"s" * 32).tenant_of(ANNA)
    assert [line["event"] for line in logs] == ["secret_not_set"]
    assert b"s".hex() * 32 not in str(logs)
    (tmp_path / "shared" / ".meta" / "owner-secret").write_bytes(b"half")
    with pytest.raises(SettingsError, match="has 4 bytes, not 32"):
        with_secret(settings(tmp_path, artifacts={"url": f"file://{tmp_path}/shared"}))
