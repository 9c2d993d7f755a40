"""The client: `python -m bench.load` takes jobs as JSON lines and answers each with its result, also in one line.

Plain blocking sockets, kept alive, one thread for each connection: the client's side costs almost nothing. Every
response is checked in full; the first wrong one ends the job.
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from bench.accounting import cpu_seconds
from bench.answers import WrongAnswer, check
from bench.bodies import WORKLOADS, Workload
from bench.http1 import MalformedMessage, Reader

_PATIENCE_SECONDS = 60.0
"""Longer than the slowest contender needs for the largest body; a response that takes longer is a hang."""

_SETTLE_SECONDS = 0.03
"""Time for a proxy's work after a response (log, metrics, memory), which still belongs to the request."""


class Job(msgspec.Struct, frozen=True):
    """Requests to send to one contender."""

    port: int
    path: str
    headers: dict[str, str]
    workload: str
    """A key of `bodies.WORKLOADS`."""
    seed: int
    requests: int
    verbatim: bool
    warm: int = 0
    """Unmeasured requests of the same series that come first."""
    connections: int = 1
    watched_pid: int = 0
    """Whose family's CPU is read before and after; 0 for none."""
    cpu_each_request: bool = False


class Seen(msgspec.Struct):
    """The result of a job."""

    answer_ms: list[float] = []
    """From the first byte sent to the last one read, per request."""
    first_byte_ms: list[float] = []
    """From the first byte sent to the first one of the body, per request."""
    cpu_seconds: list[float] = []
    """Readings of the watched family's CPU: before the first request, after each if requested, after the last."""
    reads: int = 0
    """How often pieces of a body arrived: a stream's events divided by this say how much was lumped together."""
    wrong: str | None = None
    """Why the job was aborted."""


class Connection:
    """A kept-alive connection that sends exact bytes and reads whole responses."""

    def __init__(self, job: Job) -> None:
        self._socket = socket.create_connection(("127.0.0.1", job.port), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader()
        lines = {"Host": f"127.0.0.1:{job.port}", "Content-Type": "application/json", **job.headers}
        self._head = f"POST {job.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._verbatim = job.verbatim

    def exchange(self, body: bytes, workload: Workload, seen: Seen) -> None:
        """Send `body`, read and check the response, and add to `seen`."""
        request = f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        first_byte = 0.0
        reads = 0
        start = time.perf_counter()
        self._socket.sendall(request)
        message = None
        while message is None:
            received = self._socket.recv(262_144)
            if not received:
                raise WrongAnswer("the connection was closed in the middle of an answer")
            message = self._reader.feed(received)
            if self._reader.message.pieces:
                reads += 1
                first_byte = first_byte or time.perf_counter()
        end = time.perf_counter()
        check(
            message.status,
            message.body,
            body,
            events=workload.events,
            verbatim=self._verbatim,
            fits=workload.fits,
            api=workload.api,
        )
        seen.answer_ms.append((end - start) * 1e3)
        seen.first_byte_ms.append((first_byte - start) * 1e3)
        seen.reads += reads

    def close(self) -> None:
        self._socket.close()


def run(job: Job) -> Seen:
    """Send the job's requests; errors are reported in `Seen.wrong`, never raised."""
    workload = WORKLOADS[job.workload]
    # All made before the first is sent: a client that works between requests would let the proxy's caches go cold.
    bodies = iter(list(itertools.islice(workload.bodies(job.seed), job.warm + job.requests)))
    seen = Seen()
    connections: list[Connection] = []
    try:
        connections += [Connection(job) for _ in range(job.connections)]
        for _ in range(job.warm):
            connections[0].exchange(next(bodies), workload, Seen())
        if job.connections == 1:
            _one_by_one(job, connections[0], bodies, seen)
        else:
            _at_once(job, connections, bodies, seen)
    except (OSError, WrongAnswer, MalformedMessage) as wrong:
        seen.wrong = f"{job.workload}: {wrong or type(wrong).__name__}"
    finally:
        for connection in connections:
            connection.close()
    return seen


def _one_by_one(job: Job, connection: Connection, bodies: Iterator[bytes], seen: Seen) -> None:
    workload = WORKLOADS[job.workload]
    _settle_and_read_cpu(job, seen)
    for _ in range(job.requests):
        connection.exchange(next(bodies), workload, seen)
        if job.cpu_each_request:
            _read_cpu(job, seen)
    _settle_and_read_cpu(job, seen)


def _at_once(job: Job, connections: list[Connection], bodies: Iterator[bytes], seen: Seen) -> None:
    """The connections share the bodies; each has its own thread and its own notes, joined at the end."""
    notes = [Seen() for _ in connections]
    taking = threading.Lock()
    left = iter(range(job.requests))

    def work(connection: Connection, note: Seen) -> None:
        while True:
            with taking:
                if next(left, None) is None:
                    return
                body = next(bodies)
            try:
                connection.exchange(body, WORKLOADS[job.workload], note)
            except (OSError, WrongAnswer, MalformedMessage) as wrong:
                note.wrong = f"{job.workload}: {wrong or type(wrong).__name__}"
                return

    threads = [threading.Thread(target=work, args=pair) for pair in zip(connections, notes, strict=True)]
    _settle_and_read_cpu(job, seen)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _settle_and_read_cpu(job, seen)
    for note in notes:
        seen.answer_ms += note.answer_ms
        seen.first_byte_ms += note.first_byte_ms
        seen.reads += note.reads
        seen.wrong = seen.wrong or note.wrong


def _settle_and_read_cpu(job: Job, seen: Seen) -> None:
    if job.watched_pid:
        time.sleep(_SETTLE_SECONDS)
        _read_cpu(job, seen)


def _read_cpu(job: Job, seen: Seen) -> None:
    if job.watched_pid:
        seen.cpu_seconds.append(cpu_seconds(job.watched_pid))


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(run(msgspec.json.decode(line, type=Job))) + b"\n")
        sys.stdout.buffer.flush()
