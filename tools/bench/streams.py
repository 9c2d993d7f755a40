"""Many streams at a time, in one thread that only takes bytes while they run and checks each stream when all have
ended: the machine is left to the proxy.

What is counted lies between the moment when all have begun and the end of the first one, so that no cost of a request,
of a connection or of an end is in it.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

from tools.bench.accounting import cpu_seconds
from tools.bench.answers import WrongAnswer, check
from tools.bench.bodies import WORKLOADS
from tools.bench.http1 import Reader
from tools.bench.jobs import Job, Seen

_BEGINNING_AT_ONCE = 16
"""Streams whose first event has not come yet; more of them would only wait for each other."""

_PATIENCE_SECONDS = 60.0
"""Without a byte of any stream, or for one to be accepted."""

_END_OF_EVENT = b"\n\n"
_LAST_CHUNK = b"0\r\n\r\n"
"""No chunk before it ends like this: the events end with a newline."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One connection with one request."""

    socket: socket.socket
    body: bytes
    pieces: list[bytes] = field(default_factory=list)
    """Pieces as they were read, with head and chunk framing."""
    tail: bytes = b""
    """The last bytes, as many as the last chunk has."""
    begun: bool = False
    """Its first event is there."""

    def take(self) -> None:
        received = self.socket.recv(65_536)
        if not received:
            raise WrongAnswer("the connection was closed in the middle of a stream")
        self.pieces.append(received)
        self.tail = (self.tail + received)[-len(_LAST_CHUNK) :]
        if not self.begun:
            self.begun = _END_OF_EVENT in b"".join(self.pieces)

    @property
    def ended(self) -> bool:
        return self.tail == _LAST_CHUNK

    @property
    def events(self) -> int:
        return b"".join(self.pieces).count(_END_OF_EVENT)


class _Streams:
    """All streams of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._selector = selectors.DefaultSelector()
        self._streams: list[_Stream] = []
        self.beginning = 0
        """Those that have not begun."""
        self.ended = 0

    def begin(self, body: bytes) -> None:
        connection = socket.create_connection(("127.0.0.1", self._job.port), timeout=_PATIENCE_SECONDS)
        stream = _Stream(connection, body)
        self._streams.append(stream)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(self._job.request(body))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, stream)
        self.beginning += 1

    def take(self) -> None:
        """Wait for bytes, and take what there is."""
        ready = self._selector.select(_PATIENCE_SECONDS)
        if not ready:
            raise WrongAnswer(f"no byte of any stream in {_PATIENCE_SECONDS:.0f} seconds")
        for key, _ in ready:
            stream: _Stream = key.data
            begun = stream.begun
            stream.take()
            self.beginning -= stream.begun - begun
            if stream.ended:
                self.ended += 1
                self._selector.unregister(stream.socket)

    @property
    def running(self) -> bool:
        return self.ended < len(self._streams)

    @property
    def events(self) -> int:
        return sum(stream.events for stream in self._streams)

    @property
    def reads(self) -> int:
        return sum(len(stream.pieces) for stream in self._streams)

    def check(self) -> None:
        """Raise WrongAnswer or HttpParserError unless each stream is what the upstream sent."""
        workload = WORKLOADS[self._job.workload]
        for stream in self._streams:
            message = Reader().feed(b"".join(stream.pieces))
            if message is None:
                raise WrongAnswer("a stream without an end")
            check(
                message.status,
                message.body,
                stream.body,
                events=workload.events,
                verbatim=self._job.verbatim,
                fits=workload.fits,
                api=workload.api,
            )

    def close(self) -> None:
        self._selector.close()
        for stream in self._streams:
            stream.socket.close()


def run_streams(job: Job, bodies: Iterable[bytes], seen: Seen) -> None:
    """Have a stream for each body, all at the same time; raises OSError, WrongAnswer or HttpParserError.

    Nothing is counted if one ended before all had begun.
    """
    with closing(_Streams(job)) as streams:
        for body in bodies:
            streams.begin(body)
            while streams.beginning >= _BEGINNING_AT_ONCE:
                streams.take()
        while streams.beginning:
            streams.take()
        _count(job, streams, seen)
        while streams.running:
            streams.take()
        streams.check()


def _count(job: Job, streams: _Streams, seen: Seen) -> None:
    """Note what happens until the first stream ends."""
    start, cpu = time.perf_counter(), _cpu(job)
    events, reads = streams.events, streams.reads
    while not streams.ended:
        streams.take()
    seen.cpu_seconds = [*cpu, *_cpu(job)]  # before the events, whose counting takes milliseconds
    seen.seconds = time.perf_counter() - start
    seen.events = streams.events - events
    seen.reads = streams.reads - reads


def _cpu(job: Job) -> list[float]:
    return [cpu_seconds(job.watched_pid)] if job.watched_pid else []
