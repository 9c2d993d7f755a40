"""The proxy as its users run it: `python -m proxy serve` in a process of its own, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.upstream import ScriptedModel, listening
from support.waiting import PATIENCE_SECONDS
from tools.defects import raise_defects
from tools.ports import held_port

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Proxy:
    """A running proxy, and the port where it looks for its upstream."""

    port: int
    upstream_port: int
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def log(self) -> str:
        return self.log_file.read_text()

    async def logged(self, **members: Any) -> dict[str, Any]:
        """The first log line that has these members, waited for."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for line in self.log().splitlines():
                    event: dict[str, Any] = json.loads(line)
                    if members.items() <= event.items():
                        return event
                await asyncio.sleep(0.01)

    def resident_bytes(self, *, most: bool = False) -> int:
        """Memory now, or the most that it ever was."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:" if most else "VmRSS:")[1].split()[0]) * 1024


Start = Callable[..., Proxy]


@contextlib.contextmanager
def running(folder: Path, *flags: str, upstream_port: int = 0, **settings: str) -> Iterator[Proxy]:
    """A proxy that listens; `settings` are environment variables without their prefix."""
    with running_together([folder], *flags, upstream_port=upstream_port, **settings) as (proxy,):
        yield proxy


@contextlib.contextmanager
def running_before(model: ScriptedModel, folder: Path, *flags: str, **settings: str) -> Iterator[Proxy]:
    """The same before a scripted model."""
    with listening(model) as url, running(folder, *flags, upstream_port=urlsplit(url).port or 0, **settings) as proxy:
        yield proxy


@contextlib.contextmanager
def running_together(
    folders: Sequence[Path],
    *flags: str,
    upstream_port: int = 0,
    program: Sequence[str] = ("-m", "proxy"),
    **settings: str,
) -> Iterator[list[Proxy]]:
    """A proxy with each of these folders; they start at the same time. `program`: what Python runs."""
    proxies: list[Proxy] = []
    with contextlib.ExitStack() as stack:
        for folder in folders:
            ports = {
                "port": stack.enter_context(held_port()),
                "upstream_port": upstream_port or stack.enter_context(held_port()),
            }
            proxies.append(stack.enter_context(_begun(folder, *flags, **ports, program=program, **settings)))
        for proxy in proxies:
            _await_health(proxy)
        yield proxies


@contextlib.contextmanager
def _begun(
    folder: Path, *flags: str, port: int, upstream_port: int, program: Sequence[str], **settings: str
) -> Iterator[Proxy]:
    """A process that may not listen yet."""
    folder.mkdir(exist_ok=True)
    unwanted = ("CONTEXT_PROXY_", "OPENAI_", "UPSTREAM", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    environment = {name: text for name, text in os.environ.items() if not name.upper().startswith(unwanted)}
    environment |= {f"CONTEXT_PROXY_{name}": text for name, text in settings.items()}
    environment["TMPDIR"] = str(folder)  # what a process leaves behind that is killed
    where = ["--upstream", f"http://127.0.0.1:{upstream_port}/v1", "--port", str(port), "--data-dir", str(folder)]
    log_file = folder / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *program, "serve", *where, *flags],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A shell starts what is in its background with SIGINT ignored, and so would be what we start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield Proxy(port, upstream_port, process, log_file)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    raise_defects(log_file.read_text(errors="replace"))


def _await_health(proxy: Proxy) -> None:
    last_try = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < last_try and proxy.process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port), 1) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            if b" 200 " in connection.recv(100):
                return
        time.sleep(0.01)
    raise AssertionError(f"the proxy did not start:\n{proxy.log()}")
