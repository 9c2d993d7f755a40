"""Starts and stops the processes of a run; each child has its own process group and its own folder, and both go away.

Every child ends with the context manager that started it, also on Ctrl-C and on SIGTERM (which the command line turns
into SystemExit).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from tools.bench.bodies import WORKLOADS
from tools.bench.contenders import DIRECT, ROOT, Contender
from tools.bench.jobs import Job, Seen
from tools.bench.load import run
from tools.defects import raise_defects
from tools.ports import held_port

_START_PATIENCE_SECONDS = 90.0
"""Some peers need ten seconds on an idle machine."""

_LAST_WORDS_SECONDS = 3.0
"""Between the polite signal and the forced one."""


class DidNotStart(Exception):
    """A child that ended, or never responded; the message ends with the end of its log."""


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that responds."""

    contender: Contender
    port: int
    pid: int
    """0 for the upstream itself, which means "no proxy"."""
    headers: dict[str, str]
    start_seconds: float
    """From the spawn to the first 200."""

    def job(self, workload: str, seed: int) -> Job:
        """One request of `workload`, with this proxy's CPU watched; callers that want more replace fields."""
        return Job(
            port=self.port,
            path=WORKLOADS[workload].api.path,
            headers=self.headers,
            workload=workload,
            seed=seed,
            requests=1,
            verbatim=self.contender.verbatim,
            watched_pid=self.pid,
        )


@contextmanager
def child(
    command: list[str], *, folder: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose whole group ends with the block; its output goes to `log` in `folder`."""
    # Bytecode is kept, as in an installed package: otherwise each start would compile everything.
    unwanted = {name for name in os.environ if name.lower().endswith("_proxy") or name == "PYTHONDONTWRITEBYTECODE"}
    inherited = {name: text for name, text in os.environ.items() if name not in unwanted}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=inherited | {"OPENAI_API_KEY": "sk-bench"} | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


@contextmanager
def upstream() -> Iterator[Running]:
    """The stand-in for a model, which is also "without a proxy". Its CPU is not measured: pid 0."""
    contender = Contender(DIRECT, "", lambda port, _, __: [sys.executable, "-m", "tools.bench.upstream", str(port)])
    with proxy(contender, upstream_port=0) as running:
        yield replace(running, pid=0)


@contextmanager
def proxy(contender: Contender, upstream_port: int) -> Iterator[Running]:
    """A contender that has given its first response."""
    headers = {"Authorization": "Bearer sk-bench", **contender.headers(upstream_port)}
    with _folder() as folder, held_port() as port:
        command = contender.command(port, upstream_port, folder)
        begun = time.perf_counter()
        with child(command, folder=folder, environment=contender.environment) as process:
            running = Running(contender, port, process.pid, headers, start_seconds=0.0)
            _await_answer(running.job("chat_2kb", seed=0), process, folder)
            yield replace(running, start_seconds=time.perf_counter() - begun)
        if not contender.peer:
            raise_defects((folder / "log").read_text(errors="replace"))


class LoadClient:
    """The load process: takes a job, returns what it saw."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def send(self, job: Job) -> Seen:
        self._stdin.write(msgspec.json.encode(job) + b"\n")
        self._stdin.flush()
        return msgspec.json.decode(self._stdout.readline(), type=Seen)


@contextmanager
def load_client() -> Iterator[LoadClient]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.bench.load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield LoadClient(process.stdin, process.stdout)
    finally:
        _end(process)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="context-proxy-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _await_answer(job: Job, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Ask until the first correct response. A wrong one before it may come from a server that is not ready yet."""
    last_try = time.perf_counter() + _START_PATIENCE_SECONDS
    while True:
        wrong = run(job).wrong
        if wrong is None:
            return
        if process.poll() is not None or time.perf_counter() > last_try:
            log = (folder / "log").read_text(errors="replace")[-2000:]
            raise DidNotStart(f"{' '.join(process.args)}: {wrong}\n{log}")  # type: ignore[arg-type] # we gave a list
        time.sleep(0.005)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group: politely, then by force. The leader may be gone already while its children live."""
    for stern in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, stern)
        except ProcessLookupError:
            break
        try:
            process.wait(_LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
