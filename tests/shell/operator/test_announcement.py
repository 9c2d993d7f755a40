import os

from proxy.shell.operator import FOLDER, Announcement, announced, announcements

HERE = Announcement(1, "127.0.0.1", 8787, "token")


def test_while_a_proxy_runs_only_its_user_can_read_where_and_afterwards_nothing_is_left(tmp_path):
    with announced(tmp_path, HERE):
        assert announcements(tmp_path) == [HERE]
        (file,) = (tmp_path / FOLDER).iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert announcements(tmp_path) == []
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_several_proxies_announce_themselves_beside_each_other_and_the_latest_is_first(tmp_path):
    other = Announcement(1, "127.0.0.1", 8788, "another")
    with announced(tmp_path, HERE), announced(tmp_path, other):
        for latest in (HERE, other):
            for file in (tmp_path / FOLDER).iterdir():
                os.utime(file, (0, 2_000 if file.name.startswith(f"{latest.port}-") else 1_000))
            found = announcements(tmp_path)
            assert (found[0], len(found)) == (latest, 2)


def test_what_a_killed_proxy_has_left_is_removed(tmp_path):
    with announced(tmp_path, HERE):
        (file,) = (tmp_path / FOLDER).iterdir()
        left = file.read_bytes()
    file.write_bytes(left)
    file.chmod(0o600)
    assert announcements(tmp_path) == []
    assert not file.exists()


def test_a_file_that_others_can_read_or_that_is_broken_is_none(tmp_path):
    with announced(tmp_path, HERE):
        (file,) = (tmp_path / FOLDER).iterdir()
        file.chmod(0o644)
        assert announcements(tmp_path) == []
        file.chmod(0o600)
        os.truncate(file, 5)
        assert announcements(tmp_path) == []
    assert announcements(tmp_path / "nowhere") == []
