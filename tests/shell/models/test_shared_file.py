from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from proxy.shell.models.shared_file import SharedFile


def shared(path: Path) -> SharedFile[dict[str, int]]:
    return SharedFile(path / "learned.json", dict[str, int])


def test_what_one_worker_writes_is_news_to_another_once(tmp_path: Path) -> None:
    mine, theirs = shared(tmp_path), shared(tmp_path)
    assert mine.read() is None
    assert not theirs.is_news()
    mine.change(lambda _: {"a": 1})
    assert not mine.is_news()
    assert theirs.is_news()
    assert theirs.read() == {"a": 1}
    assert not theirs.is_news()


def test_a_file_that_is_removed_is_news_to_the_others(tmp_path: Path) -> None:
    mine, theirs = shared(tmp_path), shared(tmp_path)
    mine.change(lambda _: {"a": 1})
    theirs.read()
    mine.remove()
    assert not mine.is_news()
    assert theirs.is_news()
    assert theirs.read() is None
    mine.remove()


def test_changes_are_made_one_after_another_each_of_what_the_one_before_has_left(tmp_path: Path) -> None:
    def counted(found: dict[str, int] | None) -> dict[str, int]:
        return {"count": (found or {"count": 0})["count"] + 1}

    for worker in [shared(tmp_path), shared(tmp_path)] * 3:
        worker.change(counted)
    assert shared(tmp_path).read() == {"count": 6}


def test_a_broken_file_is_replaced_by_the_next_change_and_told_to_who_reads(tmp_path: Path) -> None:
    (tmp_path / "learned.json").write_bytes(b'{"a": ')
    mine = shared(tmp_path)
    with pytest.raises(ValueError, match="truncated"):
        mine.read()
    assert not mine.is_news()
    mine.change(lambda found: {"a": 1 if found is None else 2})
    assert mine.read() == {"a": 1}


def test_a_worker_that_holds_the_lock_for_ever_stops_nobody(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "learned.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = threading.Thread(target=shared(tmp_path).change, args=(lambda _: {"a": 1},))
        done.start()
        done.join(20)
        assert not done.is_alive()
    finally:
        os.close(handle)
    assert shared(tmp_path).read() == {"a": 1}


def test_the_file_and_its_folder_are_its_users_alone(tmp_path: Path) -> None:
    file = shared(tmp_path / "new")
    file.change(lambda _: {})
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
