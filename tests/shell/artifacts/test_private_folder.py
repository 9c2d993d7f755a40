from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from proxy.shell.artifacts.folder import META
from proxy.shell.artifacts.private_folder import PrivateFolder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "above" / "kept"


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_nothing_is_made_before_something_is_put(path: Path) -> None:
    folder = PrivateFolder(path)
    assert not folder.is_used()
    assert not path.exists()
    folder.put("a", b"1")
    assert folder.is_used()


def test_what_is_made_is_its_users_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        PrivateFolder(path).put("a", b"1")
    finally:
        os.umask(before)
    assert (mode_of(path), mode_of(path / META), mode_of(path / "a")) == (0o700, 0o700, 0o600)


def test_a_folder_that_was_there_keeps_its_mode_and_the_files_in_it_are_private(path: Path) -> None:
    path.mkdir(parents=True)
    path.chmod(0o755)
    PrivateFolder(path).put("a", b"1")
    assert (mode_of(path), mode_of(path / "a")) == (0o755, 0o600)


def test_an_object_is_replaced_as_a_whole_and_nothing_is_left_beside_it(path: Path) -> None:
    folder = PrivateFolder(path)
    folder.put("a", b"first")
    folder.put("a", b"2")
    assert Path(folder.place_of("a")).read_bytes() == b"2"
    assert sorted(os.listdir(path)) == [META, "a"]
    assert os.listdir(path / META) == []


def test_an_object_is_read_whole_or_in_part_and_says_when_it_changed(path: Path) -> None:
    folder = PrivateFolder(path)
    folder.put("a", b"12345")
    os.utime(path / "a", (1_000, 2_000.5))
    assert folder.get("a") == (b"12345", 2_000.5)
    assert folder.stat("a") == ("a", 2_000.5, 5)
    assert (folder.get_range("a", 1, 3), folder.get_range("a", 3, 9)) == (b"23", b"45")
    with pytest.raises(ValueError, match="ends before"):
        folder.get_range("a", 5, 9)


def test_what_is_removed_or_was_never_there_is_not_found(path: Path) -> None:
    folder = PrivateFolder(path)
    folder.put("a", b"1")
    folder.remove("a")
    for asked in (folder.get, folder.stat, folder.remove, lambda key: folder.get_range(key, 0, 1)):
        with pytest.raises(FileNotFoundError):
            asked("a")
    with pytest.raises(FileNotFoundError):
        PrivateFolder(path / "none").get("a")
    assert not (path / "none").exists()


def test_a_file_is_surely_there_when_it_has_its_length(path: Path) -> None:
    folder = PrivateFolder(path)
    folder.put("a", b"12345")
    assert folder.is_surely_there("a", 5)
    assert not folder.is_surely_there("a", 4)
    assert not folder.is_surely_there("b", 5)


def test_files_are_listed_by_their_beginning_and_neither_links_nor_folders_are(path: Path) -> None:
    folder = PrivateFolder(path)
    for key in ("tool_a", "tool_b", f"{META}/tool_a.5eed.json", "other"):
        folder.put(key, b"12")
    (path / "tool_link").symlink_to(path)
    (path / "tool_folder").mkdir()
    assert {found.key for found in folder.listed()} == {"tool_a", "tool_b", f"{META}/tool_a.5eed.json", "other"}
    assert {found.key for found in folder.listed("tool_")} == {"tool_a", "tool_b"}
    assert {found.key for found in folder.listed(f"{META}/")} == {f"{META}/tool_a.5eed.json"}
    assert {found.size for found in folder.listed()} == {2}


def test_what_a_worker_left_half_written_is_removed_once_it_is_old(path: Path) -> None:
    folder = PrivateFolder(path)
    folder.put("a", b"1")
    for name in ("0123abcd.part", "0123abcd.part#1", "notes.part", "kept.json"):
        (path / META / name).write_bytes(b"half")
    folder.remove_staged(time.time() - 3_600)
    assert len(os.listdir(path / META)) == 4
    folder.remove_staged(time.time() + 3_600)
    assert sorted(os.listdir(path / META)) == ["kept.json", "notes.part"]
