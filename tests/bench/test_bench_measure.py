"""What is sent to whom, and what becomes of the answers, with a client that only notes its jobs."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from bench.contenders import DIRECT, NGINX, OFF, OURS, Contender
from bench.load import Job, Seen
from bench.measure import Effort, Session, Wrong
from bench.running import LoadClient, Running

_EFFORT = Effort(rounds=1, sample_cpu_seconds=0.1, first_tokens=3, growths=2, starts=1)

_PORTS = {DIRECT: 1, NGINX: 2, OURS: 3, OFF: 4}


class _Client(LoadClient):
    """Sends nothing; each job has the result that a function makes of it."""

    def __init__(self, answer: Callable[[Job], Seen]) -> None:
        super().__init__(io.BytesIO(), io.BytesIO())
        self.jobs: list[Job] = []
        self._answer = answer

    def send(self, job: Job) -> Seen:
        self.jobs.append(job)
        return self._answer(job)


def _running(name: str) -> Running:
    contender = Contender(name, "1", lambda _, __, ___: [], cuts=name == OURS)
    return Running(contender, _PORTS[name], pid=1, headers={"Authorization": "Bearer sk-bench"}, start_seconds=0.0)


def _session(client: LoadClient) -> Session:
    return Session(client, [_running(name) for name in (NGINX, OURS, OFF)], _running(DIRECT), _EFFORT)


def test_a_first_token_is_compared_with_that_of_the_same_round_without_a_proxy_and_switched_off() -> None:
    waits = {1: [1.0, 1.5, 9.0], 2: [1.6], 3: [2.0, 2.25, 2.5], 4: [2.0]}
    session = _session(_Client(lambda job: Seen(first_byte_ms=waits[job.port])))

    session.first_token(seed=1)

    assert session.results.samples == {
        ("first_token", NGINX): [pytest.approx(0.1)],
        ("first_token", OURS): [0.75],
        ("first_token", OFF): [0.5],
        ("first_token_off", OURS): [0.25],
    }


def test_a_conversation_that_is_written_anew_is_the_plain_one_under_another_key() -> None:
    spent = {"of_an_agent": 2.0, "of_an_agent_clock": 3.0}
    client = _Client(lambda job: Seen(cpu_seconds=[1.0, 1.0 + spent.get(job.workload, 1.0)]))
    session = _session(client)

    session.written_anew()

    assert session.results.samples["anew", OURS] == [2.0, 2.0]
    assert session.results.samples["anew_clock", OURS] == [1.5, 1.5]
    assert session.results.samples["anew_last", OURS] == [0.5, 0.5]
    assert {job.port for job in client.jobs} == {_PORTS[OURS]}
    runs = client.jobs[:5], client.jobs[5:]
    assert [{job.seed for job in run} for run in runs] == [{40_000}, {40_001}]
    for run in runs:
        assert len({job.workload for job in run}) == len({job.headers["Authorization"] for job in run}) == 5
    assert runs[0][0].workload != runs[1][0].workload  # another one comes first


def test_a_wrong_answer_ends_the_bench_unless_a_peer_gave_it() -> None:
    session = _session(_Client(lambda _: Seen(wrong="status 500")))

    with pytest.raises(Wrong, match="status 500"):
        session.written_anew()
