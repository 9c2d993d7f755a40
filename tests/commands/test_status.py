import json
import os
import re
import subprocess
import sys

from support.live_proxy import running
from support.waiting import PATIENCE_SECONDS

from proxy.commands import status
from proxy.config import Settings
from proxy.shell.operator import Announcement, announced, announcements


def shown(folder, *flags, **variables):
    return subprocess.run(
        [sys.executable, "-m", "proxy", "status", *flags],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def test_it_describes_each_running_proxy_also_one_with_a_key(tmp_path):
    with running(tmp_path, SERVER__ADMIN_KEY="operator-key-0123456789") as proxy:
        done = shown(tmp_path, "--data-dir", str(tmp_path))
        lines = dict(re.findall(r"^(\w+) +(.+)$", done.stdout, re.MULTILINE))
        assert (done.returncode, done.stderr) == (0, "")
        assert lines["url"] == f"http://127.0.0.1:{proxy.port}/"
        assert lines["upstreams"] == f"http://127.0.0.1:{proxy.upstream_port}/v1"
        assert lines["data_dir"] == str(tmp_path)
        (found,) = json.loads(shown(tmp_path, "--data-dir", str(tmp_path), "--json").stdout)
        assert (found["process"]["pid"], found["process"]["workers"]) == (proxy.process.pid, 1)


def test_where_none_runs_it_says_for_which_folder(tmp_path):
    done = shown(tmp_path, XDG_DATA_HOME=str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tmp_path / "data" / "context-proxy") in done.stderr
    (tmp_path / ".context-proxy").mkdir()
    assert f"data folder {tmp_path / '.context-proxy'};" in shown(tmp_path, XDG_DATA_HOME="/nowhere").stderr


def test_a_port_where_nobody_listens_is_no_proxy(tmp_path, capsys):
    with announced(tmp_path, Announcement(1, "127.0.0.1", 1, "token")):
        assert announcements(tmp_path) != []
        assert status.status(Settings(data_dir=tmp_path), as_json=False) == status.RUNS_NOT
    assert "no proxy of yours runs" in capsys.readouterr().err
