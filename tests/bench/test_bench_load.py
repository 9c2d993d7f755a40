"""The client against the real upstream, and against servers that lie."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import msgspec
import pytest

from bench.bodies import STREAM_EVENTS, WORKLOADS
from bench.load import Job, run
from bench.running import Running, load_client, upstream


@pytest.fixture(scope="module")
def model() -> Iterator[Running]:
    with upstream() as running:
        yield running


def _job(port: int, workload: str = "chat_2kb", *, requests: int = 3) -> Job:
    return Job(port, WORKLOADS[workload].api.path, {}, workload, seed=1, requests=requests, verbatim=True)


@pytest.mark.parametrize(
    "workload",
    [
        "chat_2kb",
        "conversation_200kb",
        "first_token",
        "from_start_cut",
        "chat_2kb_messages",
        "chat_2kb_responses",
    ],
)
def test_right_answers_are_timed_and_nothing_is_wrong(model: Running, workload: str) -> None:
    seen = run(_job(model.port, workload))

    assert seen.wrong is None
    assert len(seen.answer_ms) == len(seen.first_byte_ms) == 3
    assert all(0 < first <= last for first, last in zip(seen.first_byte_ms, seen.answer_ms, strict=True))


def test_connections_at_once_share_the_requests(model: Running) -> None:
    seen = run(msgspec.structs.replace(_job(model.port, requests=25), connections=4, warm=2))

    assert seen.wrong is None
    assert len(seen.answer_ms) == 25


def test_each_event_of_a_paced_stream_arrives_on_its_own(model: Running) -> None:
    seen = run(_job(model.port, "stream", requests=1))

    assert seen.wrong is None
    assert seen.reads > STREAM_EVENTS / 2  # a busy machine may lump some together
    assert (
        seen.answer_ms[0] - seen.first_byte_ms[0] > STREAM_EVENTS * 0.8
    )  # a millisecond apart, less what clocks round


def test_requests_before_the_measured_ones_are_sent_and_not_counted(
    model: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[bytes] = []
    monkeypatch.setattr("bench.load.check", lambda _, __, body, **___: checked.append(body))

    seen = run(msgspec.structs.replace(_job(model.port, requests=3), warm=2))

    assert len(seen.answer_ms) == 3
    assert checked == list(islice(WORKLOADS["chat_2kb"].bodies(1), 5))


def test_cpu_is_read_before_after_each_and_at_the_end(model: Running) -> None:
    watched = msgspec.structs.replace(_job(model.port), watched_pid=os.getpid())

    assert len(run(watched).cpu_seconds) == 2
    each = run(msgspec.structs.replace(watched, cpu_each_request=True)).cpu_seconds
    assert len(each) == 5
    assert each == sorted(each)


def test_a_request_that_should_have_been_cut_and_was_not_is_told(model: Running) -> None:
    seen = run(_job(model.port, "growing_2mb_cut", requests=1))

    assert seen.wrong == "growing_2mb_cut: a request over the window was forwarded as it came"


def test_a_path_that_the_upstream_does_not_know_is_told(model: Running) -> None:
    seen = run(msgspec.structs.replace(_job(model.port), path="/v1/other"))

    assert seen.wrong is not None
    assert "status 404" in seen.wrong


@contextmanager
def _lying(answer: bytes) -> Iterator[int]:
    """A server that gives one `answer` to whatever comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "2 bytes instead of"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", "closed in the middle"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy", "status 503: busy"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", "no chunk size"),
    ],
)
def test_a_wrong_answer_ends_the_job_and_is_no_sample(answer: bytes, why: str) -> None:
    with _lying(answer) as port:
        seen = run(_job(port))

    assert seen.wrong is not None
    assert why in seen.wrong
    assert seen.answer_ms == []


def test_nobody_listening_is_told_and_not_raised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    assert "Connection refused" in str(run(_job(port)).wrong)


def test_the_load_process_answers_one_job_after_another(model: Running) -> None:
    with load_client() as client:
        assert [len(client.send(_job(model.port, requests=count)).answer_ms) for count in (1, 4)] == [1, 4]
