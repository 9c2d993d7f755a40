from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from proxy.shell.resources.whole_files import create_file, remove_unfinished, replace_file


def test_a_file_is_replaced_as_a_whole_and_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"old")
    with path.open("rb") as old:
        written = replace_file(path, b"newer")
        assert old.read() == b"old"
    found = path.stat()
    assert path.read_bytes() == b"newer"
    assert (written.st_ino, written.st_size) == (found.st_ino, 5)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert os.listdir(tmp_path) == ["kept.json"]


def test_what_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    (tmp_path / "kept.json").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", broken)
    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(OSError, match="full"):
        replace_file(tmp_path / "kept.json", b"newer")
    with pytest.raises(OSError, match="full"):
        create_file(tmp_path / "other", b"new")
    assert os.listdir(tmp_path) == ["kept.json"]
    assert (tmp_path / "kept.json").read_bytes() == b"old"


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    create_file(tmp_path / "secret", b"first")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "secret", b"second")
    assert os.listdir(tmp_path) == ["secret"]
    assert (tmp_path / "secret").read_bytes() == b"first"


def test_a_link_among_the_unfinished_is_judged_by_itself(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    os.utime(target, (1_000, 1_000))
    (tmp_path / "link.part").symlink_to(target)
    remove_unfinished(tmp_path, re.compile(r".*\.part"), 2_000)
    assert sorted(os.listdir(tmp_path)) == ["link.part", "target"]
    with pytest.raises(FileNotFoundError):
        remove_unfinished(tmp_path / "away", re.compile(""), 2_000)
