"""An agent behind `context-proxy run`, in real processes and on pseudo-terminals."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.live_proxy import running
from support.serving import serving
from support.waiting import PATIENCE_SECONDS, wait_until

from proxy.shell.operator import FOLDER, Announcement, announced, announcements

NOTE = re.compile(r"context-proxy: (http://127\.0\.0\.1:(\d+))/ in front of (\S+?),? (.*)")
SUMS = "context-proxy: 0 requests, 0 made to fit, 0 cured after a refusal, 0 tokens saved\n"


class Place:
    """A folder for the work, and a home; nothing of this user's is read or written."""

    def __init__(self, folder):
        self.work, self.home = folder / "work", folder / "home"
        self.bin, self.data = folder / "bin", folder / "home/.local/share/context-proxy"
        for one in (self.work, self.home, self.bin):
            one.mkdir()

    def environment(self, variables):
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8", **variables}

    def agent(self, name, script):
        """A command of this name that is a Python script."""
        path = self.bin / name
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(script)}")
        path.chmod(0o755)
        return path

    def run(self, *words, **variables):
        return self.ran(sys.executable, "-m", "proxy", "run", *words, **variables)

    def ran(self, *command, **variables):
        return subprocess.run(
            command,
            cwd=self.work,
            env=self.environment(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def seen_by(self, *words, **variables):
        """The environment of the agent."""
        done = self.run(*words, **variables)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


SHOW = ("-c", "import json, os; print(json.dumps(dict(os.environ)))")
UPSTREAM = ("--upstream", "http://127.0.0.1:9/v1")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_gets_the_address_and_its_exit_status_passes_and_nothing_is_left(place):
    script = 'echo "$OPENAI_BASE_URL"; cat "$HOME"/.local/share/context-proxy/running/*.json; exit 7'
    done = place.run(*UPSTREAM, "sh", "-c", script)
    address, announcement = done.stdout.splitlines()
    assert done.returncode == 7
    first, last = done.stderr.splitlines(keepends=True)
    assert (note := NOTE.match(first)) is not None
    assert (f"{note[1]}/v1", note[3]) == (address, "http://127.0.0.1:9/v1")
    assert last == SUMS
    told = json.loads(announcement)
    assert (told["port"], told["shared"]) == (int(note[2]), False)
    assert not is_alive(told["pid"])
    assert list((place.data / FOLDER).iterdir()) == []


def test_the_status_of_a_signal_is_as_in_a_shell(place):
    assert place.run(*UPSTREAM, "sh", "-c", "kill -KILL $$").returncode == 128 + 9


def test_two_dashes_end_the_options_and_those_of_the_agent_are_its_own(place):
    place.agent("agent", "import sys; print(sys.argv[1:])")
    assert place.run(*UPSTREAM, "--", "agent", "--port", "-x", "--").stdout == "['--port', '-x', '--']\n"
    assert place.run(*UPSTREAM, "agent", "--upstream", "x").stdout == "['--upstream', 'x']\n"


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ((), 2, "name an agent or a command"),
        (("no-such-command",), 127, "no-such-command is not installed, or not in PATH\n"),
        (("aider",), 127, "to install it: pipx install aider-chat"),
        (("./plain",), 126, "./plain cannot be executed"),
        (("true",), 2, "name the API with --upstream"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(place, words, status, sentence):
    (place.work / "plain").write_text("no program")
    done = place.run(*words, PATH=f"{place.bin}:/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert not place.data.exists()


def test_a_proxy_that_does_not_start_is_said_with_the_end_of_its_log(place):
    place.data.mkdir(parents=True)
    (place.data / "tool-output").touch()
    done = place.run(*UPSTREAM, "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the proxy did not start:\nnothing can be kept in " in done.stderr


def test_the_proxy_has_no_key_to_lend(place):
    script = """
        import json, os, pathlib
        (told,) = pathlib.Path(os.environ["HOME"], ".local/share/context-proxy/running").glob("*.json")
        print(pathlib.Path("/proc", str(json.loads(told.read_text())["pid"]), "environ").read_text())
        """
    place.agent("agent", script)
    shown = place.run(*UPSTREAM, "agent", OPENAI_API_KEY="sk-canary", OTHER="seen").stdout
    assert "OTHER=seen" in shown
    assert "sk-canary" not in shown


def test_this_machine_is_not_asked_through_a_proxy_for_the_network_and_nothing_of_ours_is_set(place):
    seen = place.seen_by(*UPSTREAM, sys.executable, *SHOW, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="a.example")
    assert seen["NO_PROXY"] == seen["no_proxy"] == "a.example,127.0.0.1,localhost"
    assert "PYDANTIC_DISABLE_PLUGINS" not in seen


def test_descriptors_that_a_shell_has_opened_for_the_agent_stay_open(place):
    words = " ".join([sys.executable, "-m proxy run", *UPSTREAM])
    assert place.ran("bash", "-c", f"{words} cat <(echo passed)").stdout == "passed\n"


def test_the_output_of_tools_stays_in_the_project_for_an_agent_that_asks_before_it_reads_elsewhere(place):
    place.agent("claude", "import os; print(os.path.isdir('.context-proxy/tool-output'))")
    for _ in range(2):  # the folder is no data folder afterwards
        assert place.run(*UPSTREAM, "claude").stdout == "True\n"
        assert (place.work / ".context-proxy/.gitignore").read_text() == "*\n"
        assert (place.data / "owner-secret").exists()
    assert place.run(*UPSTREAM, "true").returncode == 0
    assert not (place.work / ".context-proxy/owner-secret").exists()


def test_a_settings_file_of_the_agent_that_names_the_upstream_is_given_as_a_changed_copy(place):
    codex = place.home / ".codex"
    codex.mkdir()
    written = '[model_providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\nname = "x"\n'
    (codex / "config.toml").write_text(written)
    (codex / "auth.json").write_text("secret")
    place.agent(
        "codex",
        """
        import os, pathlib
        home = pathlib.Path(os.environ["CODEX_HOME"])
        print(home, (home / "auth.json").resolve(), os.environ["OPENAI_BASE_URL"])
        print((home / "config.toml").read_text())
        """,
    )
    shown = place.run(*UPSTREAM, "codex").stdout
    copy, beside, address = shown.splitlines()[0].split()
    assert f'base_url = "{address}"' in shown
    assert 'name = "x"' in shown
    assert beside == str(codex / "auth.json")
    assert not Path(copy).exists()
    assert (codex / "config.toml").read_text() == written
    assert (codex / "auth.json").read_text() == "secret"


def test_an_agent_that_only_a_file_configures_gets_the_lines_to_write_where_no_file_names_the_upstream(place):
    place.agent("cline", "")
    shown = place.run(*UPSTREAM, "cline").stderr
    assert "cline goes through the proxy only with this setting: cline auth " in shown
    assert re.search(r"--baseurl http://127\.0\.0\.1:\d+/v1\n", shown)


# A running proxy ------------------------------------------------------------------------------------------------------


def test_a_running_proxy_with_this_upstream_is_used_and_stays(place):
    place.data.mkdir(parents=True)
    with running(place.data) as proxy:
        same = ("--upstream", f"http://127.0.0.1:{proxy.upstream_port}/v1")
        assert place.seen_by(*same, sys.executable, *SHOW)["OPENAI_BASE_URL"] == proxy.base_url
        assert place.seen_by(*UPSTREAM, sys.executable, *SHOW)["OPENAI_BASE_URL"] != proxy.base_url
        assert place.seen_by(*same, "--port", "0", sys.executable, *SHOW)["OPENAI_BASE_URL"] != proxy.base_url
        named = place.run("true", OPENAI_BASE_URL=proxy.base_url)  # the environment names the proxy already
        assert named.stderr.endswith(SUMS)
        assert f" in front of http://127.0.0.1:{proxy.upstream_port}/v1 (already running)" in named.stderr
        assert proxy.process.poll() is None


def test_a_port_that_cannot_prove_to_be_the_proxy_gets_nothing(place):
    asked: list[tuple[str, Mapping[str, str]]] = []

    async def impostor(request):
        asked.append((request.url.path, dict(request.headers)))
        told = {"upstreams": [UPSTREAM[1]], "artifacts": str(place.data / "tool-output"), "served": {}}
        given = request.headers.get("x-context-proxy-proof", "")
        return JSONResponse(told, headers={"x-context-proxy-proof": given})

    with serving(Starlette(routes=[Route("/{path:path}", impostor)])) as url:
        port = urlsplit(url).port
        with announced(place.data, Announcement(os.getpid(), "127.0.0.1", port, "token")):
            seen = place.seen_by(*UPSTREAM, sys.executable, *SHOW)
    assert seen["OPENAI_BASE_URL"] != f"http://127.0.0.1:{port}/v1"
    assert asked
    assert "token" not in str(asked)


# On a terminal --------------------------------------------------------------------------------------------------------

SHELL = """
import os, signal, sys
report, words = open(sys.argv[1], "w", buffering=1), sys.argv[2:]
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(words[0], words)
print("job", job, file=report)
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", file=report)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
print("ended", os.waitstatus_to_exitcode(status), file=report)
"""
"""A shell with one job."""


class Terminal:
    """A shell on a pseudo-terminal, which runs `context-proxy run` with an agent as its job."""

    def __init__(self, place, *words):
        self.place, self.report = place, place.work / "report"
        self.shell, self.keys = pty.fork()
        if not self.shell:
            os.chdir(place.work)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may have them ignored, as nohup does
            command = [sys.executable, "-m", "proxy", "run", *UPSTREAM, *words]
            os.execve(sys.executable, [sys.executable, "-c", SHELL, str(self.report), *command], place.environment({}))
        os.set_blocking(self.keys, False)
        self._is_closed = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        """Not in a call that would keep it open."""
        while not self._is_closed.wait(0.01):
            with contextlib.suppress(OSError):
                os.read(self.keys, 4096)

    def types(self, keys):
        os.write(self.keys, keys)

    def wait_for(self, words):
        wait_until(lambda: self.report.exists() and words in self.report.read_text())
        return self.report.read_text()

    def wait_for_agent(self, name="ready"):
        """The number of the agent, which has written a file."""
        path = self.place.work / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return int(path.read_text())

    def hang_up(self):
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._reading.join()
            os.close(self.keys)

    def close(self):
        self.hang_up()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.shell, signal.SIGKILL)
        os.waitpid(self.shell, 0)


AGENT = """
import os, pathlib, signal, sys, time
def leave(number, _):
    pathlib.Path("got").write_text(f"{number}\\n")
    sys.exit(5)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, leave)
def go_on(number, _):
    pathlib.Path("continued").write_text(f"{os.getpid()}\\n")
signal.signal(signal.SIGCONT, go_on)
pathlib.Path("ready").write_text(f"{os.getpid()}\\n")
while True:
    time.sleep(60)
"""


@pytest.fixture
def terminal(place):
    place.agent("agent", AGENT)
    found = Terminal(place, "agent")
    yield found
    found.close()


def proxy_of(place):
    (found,) = announcements(place.data)
    return found.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_a_signal_to_the_process_are_the_agents_and_its_exit_status_passes(place, terminal, number):
    terminal.wait_for_agent()
    proxy = proxy_of(place)
    if number == signal.SIGINT:
        terminal.types(b"\x03")
    else:
        os.kill(int(terminal.wait_for("job").split()[1]), number)
    assert "ended 5\n" in terminal.wait_for("ended")
    assert (place.work / "got").read_text() == f"{int(number)}\n"
    assert not is_alive(proxy)


def test_ctrl_z_stops_the_job_but_not_the_proxy_and_it_goes_on_later(place, terminal):
    terminal.wait_for_agent()
    terminal.types(b"\x1a")
    terminal.wait_for("stopped")
    assert Path(f"/proc/{proxy_of(place)}/stat").read_text().rpartition(")")[2].split()[0] != "T"
    terminal.types(b"\n")
    terminal.wait_for_agent("continued")
    terminal.types(b"\x03")
    assert "ended 5\n" in terminal.wait_for("ended")


def test_an_agent_that_stops_itself_gives_the_terminal_back_to_the_shell(place, terminal):
    os.kill(terminal.wait_for_agent(), signal.SIGSTOP)
    terminal.wait_for("stopped")
    terminal.types(b"\n")
    terminal.wait_for_agent("continued")
    terminal.types(b"\x03")
    assert "ended 5\n" in terminal.wait_for("ended")


def test_a_closed_terminal_ends_all_of_it(place, terminal):
    agent = terminal.wait_for_agent()
    proxy, job = proxy_of(place), int(terminal.wait_for("job").split()[1])
    terminal.hang_up()
    wait_until(lambda: not any(map(is_alive, (agent, proxy, job))))
    assert (place.work / "got").read_text() == f"{int(signal.SIGHUP)}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has been killed")
def test_when_it_is_killed_agent_and_proxy_end_as_well(place, terminal):
    agent = terminal.wait_for_agent()
    proxy = proxy_of(place)
    os.kill(int(terminal.wait_for("job").split()[1]), signal.SIGKILL)
    wait_until(lambda: not is_alive(agent) and not is_alive(proxy))
    assert not (place.work / "got").exists()
