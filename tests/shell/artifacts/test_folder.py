import errno
import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import Clock

from proxy.core.artifact import Artifact
from proxy.shell.artifacts import (
    COOLDOWN_SECONDS,
    META,
    Cooldown,
    PrivateFolder,
    artifact_of,
    finding_key,
    index_key,
    is_artifact,
    metadata_key,
    reason_of,
)

NAMES = st.builds(lambda content, tool: Artifact(content, tool).id, st.binary(max_size=9), st.text(max_size=60))
TENANTS = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=64)
NO_ANSWER = "no answer in time"
NAME = Artifact(b"content", "sh").id


@given(NAMES, TENANTS)
def test_every_object_of_an_artifact_names_the_artifact(name, tenant):
    assert is_artifact(name)
    assert artifact_of(name) == (name, True, "")
    assert artifact_of(metadata_key(name, tenant)) == (name, False, tenant)
    assert artifact_of(index_key(name)) == (name, False, "")


@given(st.binary(min_size=32, max_size=32), TENANTS)
def test_what_became_of_an_address_has_a_key_that_holds_no_address(digest, tenant):
    key = finding_key(digest.hex(), tenant)
    assert artifact_of(key) == (f"url_{digest.hex()[:32]}", False, "")


@pytest.mark.parametrize(
    ("name", "tenant"),
    [
        *((name, "5eed") for name in ("../../etc/passwd", f"{NAME}/..", f"{NAME}\n", "")),
        *((NAME, tenant) for tenant in ("", "../5eed", "a" * 65)),
    ],
)
def test_nothing_but_the_name_of_an_artifact_and_a_tenant_makes_a_key(name, tenant):
    with pytest.raises(ValueError, match="not the name of an artifact"):
        metadata_key(name, tenant)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "SECRET"), "No space left on device"),
        (PermissionError("SECRET"), "PermissionError"),
        (RuntimeError("Generic error: SECRET (os error 13)"), "Permission denied"),
        (RuntimeError("Client error with status code: 403 Forbidden: SECRET"), "RuntimeError (403 Forbidden)"),
        (ValueError("SECRET"), "ValueError"),
        (TimeoutError("SECRET"), "no answer in time"),
    ],
)
def test_a_failure_is_reported_in_the_systems_words(error, reason):
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    ("begun", "now", "why"),
    [
        pytest.param([], 0, None, id="a store that has always answered is queried"),
        pytest.param([0], 0, NO_ANSWER, id="one that gave no answer is left alone"),
        pytest.param([0], COOLDOWN_SECONDS - 1, NO_ANSWER, id="for a while"),
        pytest.param([0], COOLDOWN_SECONDS, None, id="and no longer"),
        pytest.param([0, 9], COOLDOWN_SECONDS, NO_ANSWER, id="each time without an answer counts from itself"),
        pytest.param([0], -100_000, None, id="a clock that is set back does not leave it alone for ever"),
    ],
)
def test_a_store_without_an_answer_has_its_cooldown(begun, now, why):
    clock = Clock()
    cooldown = Cooldown(clock)
    for clock.now in begun:
        cooldown.begin()
    clock.now = now
    assert cooldown.why == why


@pytest.fixture
def path(tmp_path):
    return tmp_path / "above" / "kept"


def mode_of(path):
    return path.stat().st_mode & 0o777


def test_nothing_is_made_before_something_is_put(path):
    folder = PrivateFolder(path)
    assert not folder.is_used()
    assert not path.exists()
    folder.put("a", b"1")
    assert folder.is_used()


def test_what_is_made_is_its_users_alone_whatever_the_umask(path):
    before = os.umask(0)
    try:
        PrivateFolder(path).put("a", b"1")
    finally:
        os.umask(before)
    assert [mode_of(made) for made in (path.parent, path, path / META, path / "a")] == [0o700, 0o700, 0o700, 0o600]


def test_a_folder_that_was_there_keeps_its_mode_and_the_files_in_it_are_private(path):
    path.mkdir(parents=True)
    path.chmod(0o755)
    PrivateFolder(path).put("a", b"1")
    assert (mode_of(path), mode_of(path / "a")) == (0o755, 0o600)


def test_an_object_is_replaced_as_a_whole_and_nothing_is_left_beside_it(path):
    folder = PrivateFolder(path)
    folder.put("a", b"first")
    folder.put("a", b"2")
    assert Path(folder.place_of("a")).read_bytes() == b"2"
    assert sorted(os.listdir(path)) == [META, "a"]
    assert os.listdir(path / META) == []


def test_an_object_is_read_whole_or_in_part_and_says_when_it_changed(path):
    folder = PrivateFolder(path)
    folder.put("a", b"12345")
    os.utime(path / "a", (1_000, 2_000.5))
    assert folder.get("a") == (b"12345", 2_000.5)
    assert folder.stat("a") == ("a", 2_000.5, 5)
    assert (folder.get_range("a", 1, 3), folder.get_range("a", 3, 9)) == (b"23", b"45")
    with pytest.raises(ValueError, match="ends before"):
        folder.get_range("a", 5, 9)


def test_what_is_removed_or_was_never_there_is_not_found(path):
    folder = PrivateFolder(path)
    folder.put("a", b"1")
    folder.remove("a")
    for call in (folder.get, folder.stat, folder.remove, lambda key: folder.get_range(key, 0, 1)):
        with pytest.raises(FileNotFoundError):
            call("a")
    with pytest.raises(FileNotFoundError):
        PrivateFolder(path / "none").get("a")
    assert not (path / "none").exists()


def test_a_file_is_surely_there_when_it_has_its_length(path):
    folder = PrivateFolder(path)
    folder.put("a", b"12345")
    assert folder.is_surely_there("a", 5)
    assert not folder.is_surely_there("a", 4)
    assert not folder.is_surely_there("b", 5)


def test_files_are_listed_by_their_beginning_and_neither_links_nor_folders_are(path):
    folder = PrivateFolder(path)
    for key in ("tool_a", "tool_b", f"{META}/tool_a.5eed.json", "other"):
        folder.put(key, b"12")
    (path / "tool_link").symlink_to(path)
    (path / "tool_folder").mkdir()
    assert {found.key for found in folder.listed()} == {"tool_a", "tool_b", f"{META}/tool_a.5eed.json", "other"}
    assert {found.key for found in folder.listed("tool_")} == {"tool_a", "tool_b"}
    assert {found.key for found in folder.listed(f"{META}/")} == {f"{META}/tool_a.5eed.json"}
    assert {found.size for found in folder.listed()} == {2}
