"""The load process's job and report; both travel as a line of JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

_SDK = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # an SDK accepts gzip, but the words of a response are checked as they arrive
    "Connection": "keep-alive",
    "User-Agent": "OpenAI/Python 2.1.0",
    "X-Stainless-Lang": "python",
    "X-Stainless-Package-Version": "2.1.0",
    "X-Stainless-OS": "Linux",
    "X-Stainless-Arch": "x64",
    "X-Stainless-Runtime": "CPython",
    "X-Stainless-Runtime-Version": "3.11.2",
    "X-Stainless-Async": "false",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Read-Timeout": "600",
}
"""Headers of openai-python, which every request has. https://github.com/openai/openai-python"""


class Manner(StrEnum):
    """How requests share the connections."""

    ONE_BY_ONE = "one by one"
    """On one connection."""
    SCATTERED = "scattered"
    """One by one, each on a connection chosen by the seed. Each connection is opened with a small question, which is
    not measured: workers that share a port then all get some, and have all begun to work."""
    AT_ONCE = "at once"
    """Each connection has its own thread, and takes the next request as soon as it has its answer."""
    STREAMS = "streams"
    """Each request has its own connection, and all responses run at the same time; `streams.py` describes what is
    counted."""


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
    manner: Manner = Manner.ONE_BY_ONE
    warm: int = 0
    """Unmeasured requests of the same series that come first, on the first connection."""
    connections: int = 1
    beside: str = ""
    """The workload that one more connection sends all the while, one by one; only for requests that are sent at
    once."""
    beside_requests: int = 0
    """How many it has; without any left, the job ends."""
    watched_pid: int = 0
    """Whose family's CPU is read before and after; 0 for none."""
    cpu_each_request: bool = False
    settle_seconds: float = 0.03
    """Time for a proxy's work after a response (log, metrics, memory), which still belongs to the request."""

    def request(self, body: bytes) -> bytes:
        """A request as it is sent."""
        headers = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **_SDK, **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


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
    events: int = 0
    """Events counted in streams."""
    seconds: float = 0.0
    """From the first request to the last answer; of streams, the time in which events were counted."""
    answered_beside: int = 0
    """Requests of the connection beside that were answered meanwhile."""
    wrong: str | None = None
    """Why the job was aborted."""
