"""Many streams at a time, against the real upstream and against a server that hangs up."""

import os
import socket
import threading
import time
from dataclasses import replace

import msgspec
import pytest

from tools.bench.bodies import WORKLOADS, streams_together
from tools.bench.jobs import Job, Manner
from tools.bench.load import run
from tools.bench.running import upstream

_COUNT, _EVENTS, _PACE_MS = 40, 10, 30


@pytest.fixture(scope="module")
def model():
    with upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setitem(WORKLOADS, "few", streams_together(_COUNT, pace_ms=_PACE_MS, events=_EVENTS))


def _job(port, workload="few", *, requests=_COUNT):
    path = WORKLOADS[workload].api.path
    return Job(port, path, {}, workload, seed=1, requests=requests, verbatim=True, manner=Manner.STREAMS)


def test_what_comes_between_the_last_beginning_and_the_first_end_is_counted(model):
    seen = run(msgspec.structs.replace(_job(model.port), watched_pid=os.getpid()))
    assert seen.wrong is None
    assert _COUNT * _EVENTS / 2 < seen.events <= _COUNT * _EVENTS  # a busy machine may take some with the first ones
    assert 0 < seen.reads <= seen.events
    assert seen.seconds > _EVENTS / 2 * _PACE_MS / 1e3
    before, after = seen.cpu_seconds
    assert before < after


def test_streams_start_their_rhythm_once_the_requested_number_is_open(model):
    first = msgspec.structs.replace(_job(model.port, requests=_COUNT - 1), seed=2)
    others: list[str | None] = []
    waiting = threading.Thread(target=lambda: others.append(run(first).wrong))
    waiting.start()
    time.sleep(2 * _EVENTS * _PACE_MS / 1e3)
    assert waiting.is_alive()
    assert run(_job(model.port, requests=1)).wrong is None
    waiting.join()
    assert others == [None]


def test_without_a_watched_process_no_cpu_is_read(model):
    assert run(_job(model.port)).cpu_seconds == []


def test_nothing_is_counted_if_a_stream_ends_before_the_last_one_has_begun(model):
    seen = run(_job(model.port, "first_token", requests=150))
    assert (seen.wrong, seen.events) == (None, 0)


def test_each_stream_is_checked_as_a_whole(model, monkeypatch):
    checked: list[tuple[int, bytes]] = []
    monkeypatch.setattr("tools.bench.streams.check", lambda status, _, body, **__: checked.append((status, body)))
    assert run(_job(model.port)).wrong is None
    assert len({body for _, body in checked}) == len(checked) == _COUNT
    assert {status for status, _ in checked} == {200}


def test_a_stream_that_lacks_an_event_is_reported(model, monkeypatch):
    workload = streams_together(1, pace_ms=_PACE_MS, events=_EVENTS)
    monkeypatch.setitem(WORKLOADS, "more", replace(workload, events=_EVENTS + 1))
    assert "bytes instead of" in str(run(_job(model.port, "more", requests=1)).wrong)


def test_a_truncated_stream_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        seen = run(_job(listening.getsockname()[1], requests=1))
        thread.join()
    assert "closed in the middle" in str(seen.wrong)
