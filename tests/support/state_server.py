"""A server of Valkey or Redis on a socket of its own, as far as one is installed."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from support.waiting import PATIENCE_SECONDS
from tools.ports import held_port

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
needs_state_server = pytest.mark.skipif(PROGRAM is None, reason="neither valkey-server nor redis-server is installed")


class StateServer:
    """It keeps nothing on the disk, so each start begins with nothing."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._held = held_port()  # as long as this object is there
        self.port = self._held.__enter__()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *settings]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "state-server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)
        last_try = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < last_try:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise AssertionError("the server of the state does not listen")

    def pause(self) -> None:
        """It keeps its connections, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
