"""The client against the real upstream, and against servers that lie."""

import os
import socket
import threading
from contextlib import contextmanager
from itertools import islice

import msgspec
import pytest

from tools.bench.bodies import STREAM_EVENTS, WORKLOADS
from tools.bench.jobs import Job, Manner
from tools.bench.load import Connection, run
from tools.bench.running import load_client, upstream
from tools.ports import held_port


@pytest.fixture(scope="module")
def model():
    with upstream() as running:
        yield running


def _job(port, workload="chat_2kb", *, requests=3):
    return Job(port, WORKLOADS[workload].api.path, {}, workload, seed=1, requests=requests, verbatim=True)


@pytest.mark.parametrize(
    "workload",
    ["chat_2kb", "conversation_200kb", "first_token", "from_start_cut", "chat_2kb_messages", "chat_2kb_responses"],
)
def test_right_answers_are_timed_and_nothing_is_wrong(model, workload):
    seen = run(_job(model.port, workload))
    assert seen.wrong is None
    assert len(seen.answer_ms) == len(seen.first_byte_ms) == 3
    assert all(0 < first <= last for first, last in zip(seen.first_byte_ms, seen.answer_ms, strict=True))


def test_connections_at_once_share_the_requests(model):
    seen = run(msgspec.structs.replace(_job(model.port, requests=25), manner=Manner.AT_ONCE, connections=4, warm=2))
    assert seen.wrong is None
    assert len(seen.answer_ms) == 25


def _noted(monkeypatch):
    """The connection, by its number, and the body of each exchange from now on."""
    made: list[Connection] = []
    noted: list[tuple[int, bytes]] = []

    def exchange(connection, body, *_):
        if connection not in made:
            made.append(connection)
        noted.append((made.index(connection), body))

    monkeypatch.setattr(Connection, "exchange", exchange)
    return noted


def test_scattered_requests_come_in_order_on_connections_that_each_were_opened_with_a_question(model, monkeypatch):
    noted = _noted(monkeypatch)
    scattered = msgspec.structs.replace(
        _job(model.port, "from_start_cut", requests=20), manner=Manner.SCATTERED, connections=4
    )
    for _ in range(2):
        assert run(scattered).wrong is None
    opened, sent = noted[:4], noted[4:24]
    assert [number for number, _ in opened] == [0, 1, 2, 3]
    assert len({body for _, body in opened}) == 4
    assert [body for _, body in sent] == list(islice(WORKLOADS["from_start_cut"].bodies(1), 20))
    assert {number for number, _ in sent} == {0, 1, 2, 3}
    chosen, again = ([number % 4 for number, _ in part] for part in (sent, noted[28:]))
    assert chosen == again


def _beside(port, workload="chat_2kb", *, requests, most):
    job = _job(port, requests=requests)
    return msgspec.structs.replace(
        job, manner=Manner.AT_ONCE, connections=2, beside=workload, beside_requests=most, seed=2
    )


def test_small_requests_are_all_answered_beside_others_that_are_not_counted_with_them(model):
    seen = run(_beside(model.port, requests=30, most=5_000))
    assert seen.wrong is None
    assert len(seen.answer_ms) == 30
    assert 1 <= seen.answered_beside < 5_000  # it ends with them
    assert seen.seconds > max(seen.answer_ms) / 1e3


def test_small_requests_end_with_the_last_one_beside_them(model):
    seen = run(_beside(model.port, requests=5_000, most=3))
    assert seen.wrong is None
    assert seen.answered_beside == 3
    assert len(seen.answer_ms) < 5_000


def test_a_wrong_answer_beside_is_reported(model):
    seen = run(_beside(model.port, "growing_2mb_cut", requests=5_000, most=1))
    assert seen.wrong == "growing_2mb_cut: a request over the window was forwarded as it came"


def test_each_event_of_a_paced_stream_arrives_on_its_own(model):
    seen = run(_job(model.port, "stream", requests=1))
    assert seen.wrong is None
    assert seen.reads > STREAM_EVENTS / 20  # a busy machine lumps some together; a buffered stream comes in a few reads
    assert (
        seen.answer_ms[0] - seen.first_byte_ms[0] > STREAM_EVENTS * 0.8
    )  # a millisecond apart, less what clocks round


def test_requests_before_the_measured_ones_are_sent_and_not_counted(model, monkeypatch):
    checked: list[bytes] = []
    monkeypatch.setattr("tools.bench.load.check", lambda _, __, body, **___: checked.append(body))
    seen = run(msgspec.structs.replace(_job(model.port, requests=3), warm=2))
    assert len(seen.answer_ms) == 3
    assert checked == list(islice(WORKLOADS["chat_2kb"].bodies(1), 5))


def test_cpu_is_read_before_after_each_and_at_the_end(model):
    watched = msgspec.structs.replace(_job(model.port), watched_pid=os.getpid())
    assert len(run(watched).cpu_seconds) == 2
    each = run(msgspec.structs.replace(watched, cpu_each_request=True)).cpu_seconds
    assert len(each) == 5
    assert each == sorted(each)


@contextmanager
def _lying(answer):
    """A server that gives one `answer` to whatever comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
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
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", "chunk size"),
    ],
)
def test_a_wrong_answer_ends_the_job_and_is_no_sample(answer, why):
    with _lying(answer) as port:
        seen = run(_job(port))
    assert seen.wrong is not None
    assert why in seen.wrong
    assert seen.answer_ms == []


def test_a_refused_connection_is_reported_and_not_raised():
    with held_port() as port:
        assert "Connection refused" in str(run(_job(port)).wrong)


def test_the_load_process_answers_one_job_after_another(model):
    with load_client() as client:
        assert [len(client.send(_job(model.port, requests=count)).answer_ms) for count in (1, 4)] == [1, 4]
