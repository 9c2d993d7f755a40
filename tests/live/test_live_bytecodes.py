"""The cost of a request in bytecodes, whose number does not depend on the machine's speed.

Rule: a change that makes a request dearer says so by a higher figure here, and a gain lowers its figure.
"""

import contextlib
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
from support.waiting import PATIENCE_SECONDS

from tools.ports import held_port

PROGRAM: Final = Path(__file__).parents[1] / "support" / "bytecodes.py"
FIGURES: Final[dict[tuple[int, int], dict[str, int]]] = {
    (3, 11): {"json": 14_250, "sdk": 14_870, "off": 8_100, "big": 17_350, "stream": 47_160},
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
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.go_on = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Listen no longer; connections end when the proxy closes them."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):  # the end
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            self._reply(connection)

    def _reply(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (head := received(connection, b"\r\n\r\n")) is not None:
            if not head.startswith(b"POST"):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                continue
            body = exactly(connection, length_in(head))
            if b'"stream": true' not in body[-100:]:
                reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                connection.sendall(reply % (len(REPLY), REPLY))
                continue
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for event in [EVENT] * EVENTS:
                connection.sendall(b"%x\r\n%b\r\n" % (len(event), event))
                self.go_on.acquire()
            connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def received(connection, until):
    """Everything up to these bytes; None at the end. Later bytes stay unread."""
    found = b""
    while not found.endswith(until):
        piece = connection.recv(1)
        if not piece:
            return None
        found += piece
    return found


def exactly(connection, count):
    found = b""
    while len(found) < count:
        found += connection.recv(count - len(found))
    return found


def length_in(head):
    return next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))


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

    def __init__(self, folder, port):
        self.upstream = Upstream()
        self._result = folder / "count"
        served = ["serve", "--upstream", f"http://127.0.0.1:{self.upstream.port}/v1", "--port", str(port)]
        arguments = [*served, "--data-dir", str(folder / "data"), "--context-window", "128000"]
        with (folder / "log").open("wb") as log:
            program = [sys.executable, str(PROGRAM), str(self._result), *arguments]
            self.process = subprocess.Popen(program, stdout=log, stderr=log, cwd=folder)
        self._client = connected(port)
        self._number = 0

    def close(self):
        """End the proxy and its upstream."""
        self._client.close()
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self.upstream.close()

    def cost(self, kind):
        """Bytecodes of one request: those of the batch with the fewest, as what runs beside requests adds to some."""
        self._ask(kind, 4 * REQUESTS)
        return min(self._batch(kind) for _ in range(BATCHES))

    def _batch(self, kind):
        self.process.send_signal(signal.SIGUSR1)
        self._wait_for("begun")
        self._ask(kind, REQUESTS)
        time.sleep(0.05)  # the end of the last request, whose client has all of it
        self.process.send_signal(signal.SIGUSR2)
        return self._wait_for("") / REQUESTS

    def _wait_for(self, word):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            text = self._result.read_text() if self._result.exists() else ""
            if text == word or (not word and text.isdigit()):
                return int(text or 0) if text.isdigit() else 0
            time.sleep(0.005)
        raise AssertionError("the proxy does not count")

    def _ask(self, kind, count):
        for _ in range(count):
            self._number += 1
            body = body_of(kind, 10_000 + self._number)
            line = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\n"
            described = b"content-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
            self._client.sendall(line + described % (HEADERS.get(kind, b""), len(body)) + body)
            head = received(self._client, b"\r\n\r\n") or b""
            assert head.startswith(b"HTTP/1.1 200"), head
            if kind == "stream":
                for _ in range(EVENTS):
                    received(self._client, EVENT)
                    self.upstream.go_on.release()
                received(self._client, b"\r\n0\r\n\r\n")
            else:
                exactly(self._client, length_in(head))


def connected(port):
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port))
        except OSError:
            assert time.monotonic() < end, "the proxy does not listen"
            time.sleep(0.1)
        else:
            found.settimeout(PATIENCE_SECONDS)
            return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    with held_port() as port:
        found = Counted(tmp_path_factory.mktemp("counted"), port)
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
