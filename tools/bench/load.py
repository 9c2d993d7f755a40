"""The client: `python -m tools.bench.load` takes jobs as JSON lines and answers each with its result, also in one line.

Plain blocking sockets, kept alive, one thread for each connection: the client's side costs almost nothing. Every
response is checked in full; the first wrong one ends the job.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
from httptools import HttpParserError

from tools.bench.accounting import cpu_seconds
from tools.bench.answers import WrongAnswer, check
from tools.bench.bodies import WORKLOADS, Workload
from tools.bench.http1 import Reader
from tools.bench.jobs import Job, Manner, Seen
from tools.bench.streams import run_streams

_PATIENCE_SECONDS = 60.0
"""Longer than the slowest contender needs for the largest body; a response that takes longer is a hang."""


class Connection:
    """A kept-alive connection that sends exact bytes and reads whole responses."""

    def __init__(self, job: Job) -> None:
        self._socket = socket.create_connection(("127.0.0.1", job.port), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader()
        self._job = job

    def exchange(self, body: bytes, workload: Workload, seen: Seen) -> None:
        """Send `body`, read and check the response, and add to `seen`."""
        request = self._job.request(body)
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
            verbatim=self._job.verbatim,
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
        if job.manner is Manner.STREAMS:
            run_streams(job, bodies, seen)
            return seen
        for _ in range(job.connections):
            connections.append(Connection(job))
            if job.manner is Manner.SCATTERED:
                _ask(job, connections[-1], len(connections))
        for _ in range(job.warm):
            connections[0].exchange(next(bodies), workload, Seen())
        if job.manner is Manner.AT_ONCE:
            _at_once(job, connections, bodies, seen)
        else:
            _one_by_one(job, connections, bodies, seen)
    except (OSError, WrongAnswer, HttpParserError) as wrong:
        seen.wrong = _described(job.workload, wrong)
    finally:
        for connection in connections:
            connection.close()
    return seen


def _described(workload: str, wrong: Exception) -> str:
    return f"{workload}: {wrong or type(wrong).__name__}"


def _ask(job: Job, connection: Connection, number: int) -> None:
    """A small question that is not measured."""
    question = WORKLOADS["chat_2kb"]
    connection.exchange(next(question.bodies(job.seed * 100 + number)), question, Seen())


def _one_by_one(job: Job, connections: list[Connection], bodies: Iterator[bytes], seen: Seen) -> None:
    workload = WORKLOADS[job.workload]
    source = random.Random(job.seed)
    _settle_and_read_cpu(job, seen)
    for _ in range(job.requests):
        source.choice(connections).exchange(next(bodies), workload, seen)
        if job.cpu_each_request:
            _read_cpu(job, seen)
    _settle_and_read_cpu(job, seen)


def _at_once(job: Job, connections: list[Connection], bodies: Iterator[bytes], seen: Seen) -> None:
    """The connections share the bodies; each has its own thread and its own notes, joined at the end."""
    notes = [Seen() for _ in connections]
    taking = threading.Lock()
    left = iter(range(job.requests))
    ended = threading.Event()

    def work(connection: Connection, note: Seen) -> None:
        while not ended.is_set():
            with taking:
                if next(left, None) is None:
                    return
                body = next(bodies)
            try:
                connection.exchange(body, WORKLOADS[job.workload], note)
            except (OSError, WrongAnswer, HttpParserError) as wrong:
                note.wrong = _described(job.workload, wrong)
                return

    threads = [threading.Thread(target=work, args=pair) for pair in zip(connections, notes, strict=True)]
    _settle_and_read_cpu(job, seen)
    with _Beside(job, ended, seen):
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen.seconds = time.perf_counter() - start
    _settle_and_read_cpu(job, seen)
    for note in notes:
        seen.answer_ms += note.answer_ms
        seen.first_byte_ms += note.first_byte_ms
        seen.reads += note.reads
        seen.wrong = seen.wrong or note.wrong


@functools.lru_cache(1)
def _made(workload: str, seed: int, count: int) -> tuple[bytes, ...]:
    """Bodies that take a second to make, for all contenders of a round."""
    return tuple(itertools.islice(WORKLOADS[workload].bodies(seed), count))


class _Beside:
    """One more connection that sends its own requests while the block runs, with never a pause.

    Rule: no request of the block begins without one of these under way, so when they have run out, `ended` is set.
    """

    def __init__(self, job: Job, ended: threading.Event, seen: Seen) -> None:
        self._job = job
        self._ended = ended
        self._seen = seen
        self._left: list[bytes] = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> None:
        if self._job.beside:
            self._left = list(_made(self._job.beside, self._job.seed, self._job.beside_requests))
            self._thread.start()
            self._begun.wait()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._job.beside:
            self._thread.join()

    def _send(self) -> None:
        job = self._job
        try:
            with contextlib.closing(Connection(job)) as connection:
                while self._left and not self._ended.is_set():
                    body = self._left.pop()
                    if not self._left:
                        self._ended.set()
                    self._begun.set()
                    connection.exchange(body, WORKLOADS[job.beside], Seen())
                    self._seen.answered_beside += 1
        except (OSError, WrongAnswer, HttpParserError) as wrong:
            self._seen.wrong = _described(job.beside, wrong)
        finally:
            self._ended.set()
            self._begun.set()


def _settle_and_read_cpu(job: Job, seen: Seen) -> None:
    if job.watched_pid:
        time.sleep(job.settle_seconds)
        _read_cpu(job, seen)


def _read_cpu(job: Job, seen: Seen) -> None:
    if job.watched_pid:
        seen.cpu_seconds.append(cpu_seconds(job.watched_pid))


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(run(msgspec.json.decode(line, type=Job))) + b"\n")
        sys.stdout.buffer.flush()
