"""`context-proxy run`: an agent with a proxy in front of its API, for as long as the agent lives.

Rule: the agent stays in the process group of this terminal and gets every signal as it would without us. The proxy
lives in a session of its own and ends when a pipe from here is closed, however this process ends. Nothing is written to
standard output, which is the agent's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from proxy import ENVIRONMENT
from proxy.commands.agents import Agent, agent_in
from proxy.commands.status import ask, in_words
from proxy.commands.wiring import NoUpstream, Upstream, Wiring, changed_settings, upstream_of, wiring_of
from proxy.config import HERE, IGNORES_ALL, Settings
from proxy.shell.operator import Announcement, announcements

USAGE, NOT_EXECUTABLE, NOT_FOUND = 2, 126, 127
"""Exit statuses; the last two as those of a shell."""
START_SECONDS: Final = 60.0
"""Longest wait for the proxy to listen; it takes a second."""
END_SECONDS: Final = 5.0
"""Longest wait for it to end, and for its sums."""
_LOOK_SECONDS: Final = 0.01
LOG_NAME: Final = "run.log"
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""A longer log is put aside as `run.log.1`, in place of an older one."""
_SHOWN_LINES: Final = 5
"""Of the log, where the proxy did not start."""
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to a process by its number; those of the terminal reach the whole group."""
_OF_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
"""This process does nothing on them: it ends, or stops, when the agent does."""
_DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl(2)."""
_NOT_FOR_PROXY: Final = "OPENAI_API_KEY"
"""Agents send their own keys; a proxy with a key of its own would lend it to every process of this machine."""


class CannotRun(Exception):
    """A sentence, and the exit status."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class _Running(NamedTuple):
    """A proxy that the agent can use."""

    where: Announcement
    served: Mapping[str, int]
    """Its sums before the agent begins."""
    note: str


def run(options: Namespace, settings: Settings) -> int:
    """Run a command behind a proxy; its exit status, 128 + n after a signal, or a status of ours before it starts."""
    words: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        if not words:
            raise CannotRun("name an agent or a command: context-proxy run claude", USAGE)
        agent, taken = agent_in(words)
        if agent is not None and words[0] == agent.name and shutil.which(words[0]) is None:
            words = [agent.command, *words[1:]]
        program = _program(words[0], agent)
        upstream = upstream_of(agent, settings, ENVIRONMENT)
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(_proxy(options, settings, agent, upstream))
            wiring = wiring_of(agent, upstream, running.where.root, ENVIRONMENT)
            wiring = stack.enter_context(_with_file(agent, upstream, running.where.root, wiring))
            _say(f"{running.where.root}/ in front of {upstream.base_url}{running.note}")
            status = _run([program, *words[1:taken], *wiring.flags, *words[taken:]], wiring.variables)
            _say(_sums(running))
            return status
    except NoUpstream as error:
        _say(str(error))
        return USAGE
    except CannotRun as error:
        _say(str(error))
        return error.status


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):  # a closed terminal
        print(f"context-proxy: {sentence}", file=sys.stderr, flush=True)


def _program(command: str, agent: Agent | None) -> str:
    """The file that a command names. Raises CannotRun."""
    if (found := shutil.which(command)) is not None:
        return found
    if os.path.exists(command) and "/" in command:
        raise CannotRun(f"{command} cannot be executed", NOT_EXECUTABLE)
    how = ""
    if agent is not None and agent.package:
        installer, package = agent.package.split(" ", 1)
        how = f"; to install it: {'npm install -g' if installer == 'npm' else 'pipx install'} {package}"
    raise CannotRun(f"{command} is not installed, or not in PATH{how}", NOT_FOUND)


@contextlib.contextmanager
def _proxy(options: Namespace, settings: Settings, agent: Agent | None, upstream: Upstream) -> Iterator[_Running]:
    """A proxy of this user with this upstream; one that is started ends with the block. Raises CannotRun."""
    if upstream.proxy is not None and (status := ask(upstream.proxy)) is not None:
        yield _Running(upstream.proxy, status["served"], " (already running)")
        return
    artifacts = _folder_in_project(settings) if agent is not None and agent.asks_outside == "yes" else None
    is_plain = options.config is None and options.context_window is None
    for one in announcements(settings.data_dir) if is_plain else ():
        if one.shared and options.port in (None, str(one.port)) and (status := ask(one)) is not None:
            wanted = str(artifacts or settings.data_dir.absolute() / "tool-output")
            if status["upstreams"] == [upstream.base_url] and status["artifacts"] == wanted:
                yield _Running(one, status["served"], " (already running)")
                return
    with _started(options, settings, upstream, artifacts) as where:
        yield _Running(where, {}, f", log in {_log(settings)}")


def _folder_in_project(settings: Settings) -> Path | None:
    """The folder for tool output in this one, for an agent that asks before it reads elsewhere; None where settings
    name another, or nothing can be written here."""
    kept = settings.artifacts
    if kept.folder is not None or kept.url is not None or kept.agent_path is not None:
        return None
    try:
        HERE.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError), (HERE / IGNORES_ALL).open("x") as file:
            file.write("*\n")
    except OSError:
        return None
    return HERE.absolute() / "tool-output"


def _log(settings: Settings) -> Path:
    return settings.data_dir.absolute() / LOG_NAME


@contextlib.contextmanager
def _started(
    options: Namespace, settings: Settings, upstream: Upstream, artifacts: Path | None
) -> Iterator[Announcement]:
    """A proxy that ends with the block, or with this process. Raises CannotRun."""
    log = _log(settings)
    stated = {
        **{"--upstream": upstream.base_url, "--host": "127.0.0.1", "--port": options.port or "0", "--workers": "1"},
        **{"--data-dir": settings.data_dir.absolute(), "--config": options.config},
        "--context-window": options.context_window,
    }
    flags = [word for name, text in stated.items() if text is not None for word in (name, str(text))]
    environment = {name: text for name, text in ENVIRONMENT.items() if name != _NOT_FOR_PROXY}
    if artifacts is not None:
        environment["CONTEXT_PROXY_ARTIFACTS__FOLDER"] = str(artifacts)
    reading, writing = os.pipe()
    try:
        with _opened(log) as output:
            begin = output.tell()
            process = subprocess.Popen(  # noqa: S603 - our own program; -P: a folder `proxy` in this one is not ours
                [sys.executable, "-P", "-m", "proxy", "serve", *flags, "--until-closed", str(reading)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=[reading],
                start_new_session=True,
            )
    except OSError as error:
        os.close(writing)
        raise CannotRun(f"the log {log} cannot be written: {error.strerror}") from None
    finally:
        os.close(reading)
    try:
        yield _listening(process, settings, lambda: _end_of(log, begin))
    finally:
        os.close(writing)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _opened(log: Path) -> Any:
    """The log, to be appended to. Raises OSError."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name(f"{LOG_NAME}.1"))
    return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def _end_of(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read(MAX_LOG_BYTES).decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-_SHOWN_LINES:])


def _listening(process: subprocess.Popen[bytes], settings: Settings, told: Callable[[], str]) -> Announcement:
    """Wait until the process serves. Raises CannotRun."""
    last_look = time.monotonic() + START_SECONDS
    while time.monotonic() < last_look and process.poll() is None:
        for one in announcements(settings.data_dir):
            if one.pid == process.pid and ask(one, timeout_seconds=START_SECONDS) is not None:
                return one
        time.sleep(_LOOK_SECONDS)
    raise CannotRun(f"the proxy did not start:\n{told()}")


@contextlib.contextmanager
def _with_file(agent: Agent | None, upstream: Upstream, root: str, wiring: Wiring) -> Iterator[Wiring]:
    """The wiring, with a copy of the agent's own settings if these name the upstream."""
    file = None if agent is None else agent.file
    found = None if file is None else changed_settings(file, upstream.base_url, root, ENVIRONMENT)
    if file is None or found is None:
        if wiring.lines:
            _say(f"{agent.name if agent else ''} goes through the proxy only with this setting: {wiring.lines}")
        yield wiring
        return
    path, content = found
    with tempfile.TemporaryDirectory(prefix="context-proxy-run-") as folder:
        copy = Path(folder, path.name)
        copy.touch(mode=0o600)
        copy.write_text(content, encoding="utf-8")
        if file.holds == "folder":  # what is beside it stays the agent's own, which it may write
            for beside in path.parent.iterdir():
                if beside.name != path.name:
                    Path(folder, beside.name).symlink_to(beside.absolute())
        held = {"content": content, "folder": folder, "path": str(copy)}
        variables = {file.variable: held[file.holds]} if file.variable else {}
        flags = [file.flag, str(copy)] if file.flag else []
        yield Wiring({**wiring.variables, **variables}, [*wiring.flags, *flags])


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the agent until it ends; its exit status as a shell states it."""
    started: list[int] = []
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started[0], number)
        else:
            early.append(number)

    caught = [one for one in (*_FORWARDED, *_OF_TERMINAL) if signal.getsignal(one) is not signal.SIG_IGN]
    for one in caught:  # the others are ignored by the agent, too, as `nohup` wants it
        # Not ignored here: the agent would inherit that.
        signal.signal(one, forward if one in _FORWARDED else lambda *_: None)
    try:
        # With the descriptors that a shell has opened for it, as `<(…)` does; ours do not outlive an exec.
        process = subprocess.Popen(  # noqa: S603 - to run it is the command
            command,
            env={**ENVIRONMENT, **variables},
            close_fds=False,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        raise CannotRun(f"{command[0]} cannot be executed: {error.strerror}", NOT_EXECUTABLE) from None
    started.append(process.pid)
    for number in early:
        os.kill(process.pid, number)
    status = _waited(process.pid)
    process.returncode = status
    started.clear()  # its number may be another's soon
    return status if status >= 0 else 128 - status


def _waited(pid: int) -> int:
    """The exit status of a child. While it is stopped, so is this process, for the shell whose job both are."""
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _die_with_parent() -> Callable[[], None] | None:
    """What makes a child end when this process is killed; Linux only."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_for_it() -> None:
        prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it was quicker
            os._exit(1)

    return ask_for_it


def _sums(running: _Running) -> str:
    """What the proxy has served for the agent."""
    status = ask(running.where, timeout_seconds=END_SECONDS)
    if status is None:
        return "the proxy has ended before the agent; its log says why"
    served = {name: count - running.served.get(name, 0) for name, count in status["served"].items()}
    return in_words(served)
