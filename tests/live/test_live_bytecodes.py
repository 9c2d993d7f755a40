"""The cost of a request in bytecodes, whose number does not depend on the machine's speed.

Rule: a change that makes a request dearer says so by a higher figure here, and a gain lowers its figure.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest
from support.upstream.sockets import CHUNKED, LAST_CHUNK, chunk, listening
from support.waiting import PATIENCE_SECONDS, wait_until

from tools.ports import held_port

PROGRAM: Final = Path(__file__).parents[1] / "support" / "bytecodes.py"
FIGURES: Final[dict[tuple[int, int], dict[str, int]]] = {
    (3, 11): {"json": 14_120, "sdk": 14_740, "off": 8_040, "big": 17_170, "stream": 46_760},
}
"""Bytecodes of a request, by version of Python: 2 KB of chat, the same with an SDK's headers and switched off, 200 KB
of a hundred messages again, and 2 KB with a stream of 50 events."""
MOST, LEAST, BROKEN = 1.02, 0.95, 0.5
BATCHES, REQUESTS, EVENTS = 5, 5, 50

TEXT = "The quick brown fox jumps over the lazy dog. " * 40
SDK = (
    b"accept: application/json\r\naccept-encoding: gzip, deflate\r\nconnection: keep-alive\r\n"
    b"user-agent: OpenAI/Python 2.1.0\r\nx-stainless-lang: python\r\nx-stainless-package-version: 2.1.0\r\n"
    b"x-stainless-os: Linux\r\nx-stainless-arch: x64\r\nx-stainless-runtime: CPython\r\n"
    b"x-stainless-runtime-version: 3.11.2\r\nx-stainless-async: false\r\nx-stainless-retry-count: 0\r\n"
    b"x-stainless-read-timeout: 600\r\nopenai-organization: org-x\r\n"
)
HEADERS = {"sdk": SDK, "off": b"x-context-proxy-mode: off\r\n"}
REPLY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 450, "completion_tokens": 8, "total_tokens": 458},
    }
).encode()
EVENT = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"token "}}]}\n\n'


class Upstream:
    """Replies at once, and sends each event of a stream once the reader has confirmed the one before."""

    def __init__(self):
        self.go_on = threading.Semaphore(0)

    async def __call__(self, connection):
        while True:
            request = await connection.asked()
            if b'"stream": true' not in request.body[-100:]:
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                await connection.send(head % len(REPLY) + REPLY)
                continue
            await connection.send(CHUNKED)
            for event in [EVENT] * EVENTS:
                await connection.send(chunk(event))
                await asyncio.to_thread(self.go_on.acquire)
            await connection.send(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)


def body_of(kind, number):
    turns = [{"role": "user", "content": f"{number} {TEXT}"}]
    if kind == "big":
        roles = ("user", "assistant") * 50
        turns = [{"role": role, "content": f"{index} {TEXT}"} for index, role in enumerate(roles)]
        turns.append({"role": "user", "content": f"{number} go"})
    messages = [{"role": "system", "content": "You are helpful."}, *turns]
    streamed = {"stream": True} if kind == "stream" else {}
    return json.dumps({"model": "gpt-4o", "messages": messages, "max_tokens": 100, **streamed}).encode()


class Counted:
    """A proxy whose bytecodes are counted."""

    def __init__(self, folder, port, upstream, upstream_url):
        self._upstream = upstream
        self._result = folder / "count"
        served = ["serve", "--upstream", upstream_url, "--port", str(port)]
        arguments = [*served, "--data-dir", str(folder / "data"), "--context-window", "128000"]
        with (folder / "log").open("wb") as log:
            program = [sys.executable, str(PROGRAM), str(self._result), *arguments]
            self.process = subprocess.Popen(program, stdout=log, stderr=log, cwd=folder)
        self._client = socket.socket()
        wait_until(lambda: self._client.connect_ex(("127.0.0.1", port)) == 0)
        self._client.settimeout(PATIENCE_SECONDS)
        self._replies = self._client.makefile("rb")
        self._number = 0

    def close(self):
        self._client.close()
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)

    def cost(self, kind):
        """Bytecodes of one request: those of the batch with the fewest, as what runs beside requests adds to some."""
        self._ask(kind, 4 * REQUESTS)
        return min(self._batch(kind) for _ in range(BATCHES))

    def _batch(self, kind):
        self.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._told() == "begun")
        self._ask(kind, REQUESTS)
        time.sleep(0.05)  # the end of the last request, whose client has all of it
        self.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: self._told().isdigit())
        return int(self._told()) / REQUESTS

    def _told(self):
        return self._result.read_text() if self._result.exists() else ""

    def _ask(self, kind, count):
        for _ in range(count):
            self._number += 1
            body = body_of(kind, 10_000 + self._number)
            line = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\n"
            described = b"content-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
            self._client.sendall(line + described % (HEADERS.get(kind, b""), len(body)) + body)
            head = self._lines_before(b"\r\n")
            assert head[0].startswith(b"HTTP/1.1 200"), head
            if kind == "stream":
                for _ in range(EVENTS):
                    self._lines_before(EVENT[:-1])
                    self._upstream.go_on.release()
                self._lines_before(b"0\r\n")
                self._lines_before(b"\r\n")
            else:
                (length,) = [line for line in head if line.lower().startswith(b"content-length:")]
                self._replies.read(int(length[15:]))

    def _lines_before(self, end):
        lines = []
        while (line := self._replies.readline()) != end:
            assert line, "the proxy has ended"
            lines.append(line)
        return lines


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    upstream = Upstream()
    with listening(upstream) as upstream_url, held_port() as port:
        found = Counted(tmp_path_factory.mktemp("counted"), port, upstream, upstream_url)
        time.sleep(2)  # what runs once after the start
        yield found
        found.close()


@pytest.mark.skipif(sys.version_info[:2] not in FIGURES, reason="no figures are noted for this Python")
@pytest.mark.skipif("COVERAGE_RUN" in os.environ or sys.gettrace() is not None, reason="something else is tracing")
@pytest.mark.parametrize("kind", ["json", "sdk", "off", "big", "stream"])
def test_a_request_costs_what_is_noted(counted, kind):
    noted, cost = FIGURES[sys.version_info[:2]][kind], counted.cost(kind)
    assert cost >= BROKEN * noted, "the counter is broken"
    assert cost <= MOST * noted, f"dearer than {noted}: {cost:.0f}; make it cheaper, or say in the commit why it is"
    assert cost >= LEAST * noted, f"cheaper than {noted}: note {cost:.0f}"
