"""Every started process ends with all its children, and leaves nothing behind."""

import sys
import time
from pathlib import Path

import pytest
from support.waiting import wait_until

from tools.bench.accounting import family
from tools.bench.contenders import Contender, with_workers
from tools.bench.running import DidNotStart, child, proxy, upstream


def _alive(pid):
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes while its file is open
        return False


# A parent that has a child, and neither of them minds SIGTERM.
_STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_a_stubborn_child_and_its_child_end_with_the_block(tmp_path, monkeypatch, leaving):
    monkeypatch.setattr("tools.bench.running._LAST_WORDS_SECONDS", 0.1)
    pids = []

    def leave_in_the_middle():
        with child([sys.executable, "-c", _STUBBORN], folder=tmp_path) as process:
            while not (tmp_path / "log").read_text().endswith("\n"):
                time.sleep(0.01)
            pids.extend([process.pid, int((tmp_path / "log").read_text())])
            assert all(map(_alive, pids))
            raise leaving

    with pytest.raises(leaving):
        leave_in_the_middle()
    wait_until(lambda: not any(map(_alive, pids)))  # the kernel may still carry out the signal


def _python(code):
    return lambda port, _, folder: [sys.executable, "-c", code, str(port), str(folder)]


def test_a_proxy_that_ends_at_once_is_reported_with_its_last_words():
    hopeless = Contender("hopeless", "1", _python("print('no such flag')"))
    with upstream() as model, pytest.raises(DidNotStart, match="no such flag"), proxy(hopeless, model.port):
        pass


def test_the_folder_of_a_contender_goes_away_with_it():
    folders: list[Path] = []

    def command(port, _, folder):
        folders.append(folder)
        (folder / "kept").mkdir()
        return [sys.executable, "-m", "tools.bench.upstream", str(port)]

    with proxy(Contender("plain", "1", command), 0) as running:
        assert folders[0].exists()
        assert running.start_seconds > 0
    assert not folders[0].exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_several_workers_are_so_many_processes_behind_one_port(monkeypatch):
    monkeypatch.setattr("tools.bench.running._LAST_WORDS_SECONDS", 0.1)
    one, two = with_workers(1), with_workers(2)
    assert one.name != two.name
    with upstream() as model, proxy(two, model.port) as running:
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family(running.pid)]
        assert sum(b"spawn_main" in command for command in commands) == 2


def test_proxies_of_the_environment_are_not_between_us(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    show = "import os; print(sorted(name for name in os.environ if name.lower().endswith('_proxy')))"
    with child([sys.executable, "-c", show], folder=tmp_path) as process:
        process.wait()
    assert (tmp_path / "log").read_text() == "[]\n"
