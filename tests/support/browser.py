"""A headless Chromium, driven over its debugging pipe: no library, no port.

Rule: everything that a page says on its console, and every address that it asks for, is on the record.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.waiting import PATIENCE_SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --disable-extensions --no-proxy-server
    --remote-debugging-pipe
"""
_ON_3_AND_4 = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from descriptor 3 and writes to 4."""


@dataclass
class Page:
    """One tab."""

    _to: int
    _from: int
    _session: str = ""
    _number: int = 0
    _rest: bytes = b""
    complaints: list[str] = field(default_factory=list)
    """Console messages, uncaught exceptions, what the browser blocked or could not load."""
    requested: list[str] = field(default_factory=list)
    """Addresses."""

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, answered."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": given}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found
            self._note(message)

    def open(self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true, or an element."""
        last_try = time.monotonic() + PATIENCE_SECONDS
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < last_try, f"{expression} never came true; {self.complaints}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}
        text = {"text": "\r"} if key == "Enter" else {}
        named = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def screenshot(self, file: Path, of: str = "") -> None:
        """Of what is in view, or of one element, half as large again."""
        box = "{ const { x, y, width, height } = document.querySelector('%s').getBoundingClientRect();"
        box += "({ x: x - 8, y: y - 8, width: width + 16, height: height + 16, scale: 1.5 }) }"
        clip = {"clip": self.value(box % of)} if of else {}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_SECONDS)
            piece = os.read(self._from, 1 << 20) if ready else b""
            assert piece, "the browser says nothing any more"
            self._rest += piece
        one, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(one)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(given["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(given))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a browser that starts fresh, its files in `folder`."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian's: chromium)")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    pipes = [str(to_read), str(from_write)]
    command = [sys.executable, "-c", _ON_3_AND_4, *pipes, CHROMIUM, *_FLAGS.split(), f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    try:
        page = Page(to_write, from_read)
        page.attach()
        yield page
    finally:
        process.kill()
        process.wait()
        os.close(to_write)
        os.close(from_read)
