import errno
import fcntl
import os
import re
import stat
import threading
from unittest.mock import Mock

import pytest

from proxy.shell.resources import SharedFile, create_file, remove_unfinished, replace_file


def test_a_file_is_replaced_as_a_whole_and_is_its_users_alone(tmp_path):
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


def test_what_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    broken = Mock(side_effect=OSError(errno.ENOSPC, "full"))
    (tmp_path / "kept.json").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", broken)
    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(OSError, match="full"):
        replace_file(tmp_path / "kept.json", b"newer")
    with pytest.raises(OSError, match="full"):
        create_file(tmp_path / "other", b"new")
    assert os.listdir(tmp_path) == ["kept.json"]
    assert (tmp_path / "kept.json").read_bytes() == b"old"


def test_a_file_that_is_there_is_not_created_again(tmp_path):
    create_file(tmp_path / "secret", b"first")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "secret", b"second")
    assert os.listdir(tmp_path) == ["secret"]
    assert (tmp_path / "secret").read_bytes() == b"first"


def test_an_unfinished_link_is_judged_by_its_own_age_not_its_targets(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"")
    os.utime(target, (1_000, 1_000))
    (tmp_path / "link.part").symlink_to(target)
    remove_unfinished(tmp_path, re.compile(r".*\.part"), 2_000)
    assert sorted(os.listdir(tmp_path)) == ["link.part", "target"]
    with pytest.raises(FileNotFoundError):
        remove_unfinished(tmp_path / "away", re.compile(""), 2_000)


def shared(path):
    return SharedFile(path / "learned.json", dict[str, int])


def test_what_one_worker_writes_is_news_to_another_once(tmp_path):
    mine, theirs = shared(tmp_path), shared(tmp_path)
    assert mine.read() is None
    assert not theirs.is_news()
    mine.change(lambda _: {"a": 1})
    assert not mine.is_news()
    assert theirs.is_news()
    assert theirs.read() == {"a": 1}
    assert not theirs.is_news()


def test_two_changes_within_one_tick_of_the_clock_are_both_news(tmp_path):
    mine, theirs = shared(tmp_path), shared(tmp_path)
    for number in range(20):
        mine.change(lambda _, number=number: {"a": number})
        os.utime(mine.path, ns=(0, 0))
        assert theirs.is_news()
        assert theirs.read() == {"a": number}


def test_a_file_that_is_removed_is_news_to_the_others(tmp_path):
    mine, theirs = shared(tmp_path), shared(tmp_path)
    mine.change(lambda _: {"a": 1})
    theirs.read()
    mine.path.unlink()
    assert theirs.is_news()
    assert theirs.read() is None
    assert not theirs.is_news()


def test_changes_are_made_one_after_another_each_of_what_the_one_before_has_left(tmp_path):
    def counted(found):
        return {"count": (found or {"count": 0})["count"] + 1}

    for worker in [shared(tmp_path), shared(tmp_path)] * 3:
        worker.change(counted)
    assert shared(tmp_path).read() == {"count": 6}


def test_a_broken_file_is_reported_to_readers_and_replaced_by_the_next_change(tmp_path):
    (tmp_path / "learned.json").write_bytes(b'{"a": ')
    mine = shared(tmp_path)
    with pytest.raises(ValueError, match="truncated"):
        mine.read()
    assert not mine.is_news()
    mine.change(lambda found: {"a": 1 if found is None else 2})
    assert mine.read() == {"a": 1}


def test_a_worker_that_holds_the_lock_for_ever_stops_no_other(tmp_path):
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


def test_the_file_and_its_folder_are_its_users_alone(tmp_path):
    file = shared(tmp_path / "new")
    file.change(lambda _: {})
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
