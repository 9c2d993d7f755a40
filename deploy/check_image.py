#!/usr/bin/env python3
"""Runs an unpacked image as a strict cluster would, without a container engine, and says what held.

Rule: what runs is the Dockerfile's own command, as process 1 of its namespaces: read-only root, user 10001 without
capabilities or home, no network but loopback. Needs root and util-linux, nothing else.

    docker build -t context-proxy . && mkdir rootfs && docker export "$(docker create context-proxy)" | tar -x -C rootfs
    sudo python3 deploy/check_image.py rootfs

Where no engine can run, `debootstrap --variant=minbase trixie base` makes the base image, and `buildah bud --isolation
chroot --build-arg BASE=…` builds the same Dockerfile on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MOST_MB = 200
PATIENCE_SECONDS = 90
DOCKERFILE = (Path(__file__).parent.parent / "Dockerfile").read_text()
SHIPPED = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :].replace("\\\n", " ")
"""The last stage, an instruction a line."""


def instruction(pattern: str) -> str:
    found = re.search(pattern, SHIPPED, re.MULTILINE)
    assert found, f"the Dockerfile has no {pattern}"
    return found[1]


COMMAND: list[str] = json.loads(instruction("^ENTRYPOINT (.*)$")) + json.loads(instruction("^CMD (.*)$"))
HEALTHCHECK: list[str] = json.loads(instruction("^HEALTHCHECK .* CMD (.*)$"))
USER, GROUP = instruction(r"^USER (\d+:\d+)$").split(":")
ENVIRONMENT = dict(pair.split("=", 1) for pair in instruction("^ENV (.*)$").split()) | {
    "PATH": "/opt/context-proxy/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "UPSTREAM": "http://127.0.0.1:9000",
    "CONTEXT_PROXY_DEFAULTS__CONTEXT_WINDOW": "8000",
}

ENTER = """
mount --bind {rootfs} {rootfs}; mount --bind {data} {rootfs}/data; mount -t proc proc {rootfs}/proc
for device in null zero urandom random; do
  test ! -e {rootfs}/dev/$device || mount --bind /dev/$device {rootfs}/dev/$device
done
mkdir -p {rootfs}/dev/shm; mount -t tmpfs -o mode=1777,size=64m shm {rootfs}/dev/shm # as every engine does
mount -o remount,bind,ro {rootfs}; ip link set lo up; cd /
exec chroot {rootfs} setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs --bounding-set=-all \\
  --inh-caps=-all "$@"
"""

JOURNEY = """
import http.client, http.server, json, os, pathlib, signal, threading

bodies, asked, answer = [], threading.Event(), threading.Event()
message = {"role": "assistant", "content": "hi"}
reply = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        bodies.append(self.rfile.read(int(self.headers["content-length"])))
        asked.set()
        answer.wait(20)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *_):
        pass

threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Model).serve_forever, daemon=True).start()
proxy = http.client.HTTPConnection("127.0.0.1", 8787, timeout=20)

def ask(content):
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "list"}, said, {"role": "tool", "tool_call_id": "c", "content": content}]
    proxy.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": messages}))

answer.set()
ask("a line of some words\\n" * 6000)
assert proxy.getresponse().read().decode() == reply
assert len(bodies[0]) < 32_000, len(bodies[0])
assert any(file.stat().st_size == 126_000 for file in pathlib.Path("/data/tool-output").iterdir())
answer.clear(), asked.clear()
ask("short")
asked.wait(20)
os.kill(1, signal.SIGTERM)
threading.Timer(1, answer.set).start()
assert proxy.getresponse().read().decode() == reply
"""


class Running:
    """One run of the image."""

    def __init__(self, rootfs: Path, folder: Path, workers: int) -> None:
        self._rootfs = rootfs
        self.complaint = ""
        """Of the last command that `succeeds` ran."""
        data = folder / "data"
        data.mkdir(mode=0o700)
        os.chown(data, int(USER), int(GROUP))
        self.log = folder / "log"
        namespaces = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec"]
        self.outer = subprocess.Popen(
            [*namespaces, ENTER.format(rootfs=rootfs, data=data, user=USER, group=GROUP), "sh", *COMMAND],
            env=ENVIRONMENT | {"CONTEXT_PROXY_SERVER__WORKERS": str(workers)},
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    @property
    def process_1(self) -> int:
        return int(Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()[0])

    def succeeds(self, command: list[str]) -> bool:
        """Run a command beside the proxy, as its user."""
        enter = ["nsenter", f"--target={self.process_1}", "--mount", "--pid", "--net", "--"]
        enter += ["chroot", f"--userspec={USER}:{GROUP}", "--groups=", str(self._rootfs)]
        done = subprocess.run([*enter, *command], env=ENVIRONMENT, capture_output=True, text=True, check=False)
        self.complaint = done.stderr
        return done.returncode == 0

    def started_in(self) -> float:
        """Seconds to the first health check that succeeds, the time of the check included."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE_SECONDS:
            with contextlib.suppress(OSError, IndexError):
                if self.succeeds(HEALTHCHECK):
                    return time.monotonic() - begun
            time.sleep(0.05)
        raise SystemExit(f"it did not start:\n{self.log.read_text()}{self.complaint}")

    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.process_1}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines)


def checks(rootfs: Path) -> Iterator[tuple[str, bool]]:
    """What is claimed, and whether it holds."""
    counted = subprocess.run(
        ["du", "-sx", "--apparent-size", "--block-size=1000000", rootfs], capture_output=True, check=True
    )
    size = int(counted.stdout.split()[0])
    yield f"{size} MB unpacked, under {MOST_MB}", size < MOST_MB
    yield "no pip in what is shipped", not (rootfs / "opt/context-proxy/bin/pip").exists()
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            image = Running(rootfs, Path(folder), workers)
            try:
                yield f"{workers} worker(s): healthy after {image.started_in():.1f} s, without a network", True
                status = image.status()
                yield f"process 1 is of user {USER}", status["Uid"].split() == [USER] * 4
                yield "it has no capabilities", int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
                yield (
                    "/tmp and /opt cannot be written",
                    not image.succeeds(["sh", "-c", "echo > /tmp/x || echo > /opt/x"]),
                )
                journey = image.succeeds(["python", "-c", JOURNEY])
                yield (
                    f"a long result is cut and kept; SIGTERM lets the last answer end {image.complaint[-300:]}",
                    journey,
                )
                yield f"it ended with {image.outer.wait(PATIENCE_SECONDS)}", image.outer.returncode == 0
                levels = {json.loads(line)["level"] for line in image.log.read_text().splitlines()}
                yield f"its log is JSON, with {', '.join(sorted(levels))}", levels == {"info"}
            finally:
                image.outer.kill()


def main() -> int:
    """0 when all held."""
    held = True
    for sentence, holds in checks(Path(sys.argv[1]).resolve()):
        print("ok    " if holds else "FAILED", sentence, flush=True)
        held &= holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
