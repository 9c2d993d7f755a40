"""What a user sees who starts the proxy on a terminal."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_on_a_terminal_the_address_of_the_dashboard_is_shown(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "proxy", "serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0"]
    command += ["--data-dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        seen = b""
        while (address := re.search(rb"The dashboard: (http://127\.0\.0\.1:\d+/) ", seen)) is None:
            seen += os.read(ours, 1_000)
        page = httpx.get(address[1].decode(), trust_env=False, timeout=PATIENCE_SECONDS)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
    os.close(ours)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
