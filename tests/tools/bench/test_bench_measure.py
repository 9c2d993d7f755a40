"""Which requests are sent where, and how answers are processed, with a client that only records its jobs."""

import io

import pytest

from tools.bench.bodies import GROWTH_TURNS
from tools.bench.contenders import DIRECT, NGINX, OFF, OURS, Contender
from tools.bench.jobs import Job, Seen
from tools.bench.measure import Effort, Session, Wrong
from tools.bench.running import LoadClient, Running

_EFFORT = Effort(rounds=2, sample_cpu_seconds=0.1, first_tokens=3, growths=1, starts=1)

_PORTS = {DIRECT: 1, NGINX: 2, OURS: 3, OFF: 4}


class _Client(LoadClient):
    """Sends nothing; each job has the result that a function makes of it."""

    def __init__(self, answer):
        super().__init__(io.BytesIO(), io.BytesIO())
        self.jobs: list[Job] = []
        self._answer = answer

    def send(self, job):
        self.jobs.append(job)
        return self._answer(job)


def _running(name):
    contender = Contender(name, "1", lambda _, __, ___: [], cuts=name == OURS)
    return Running(contender, _PORTS[name], pid=1, headers={"Authorization": "Bearer sk-bench"}, start_seconds=0.0)


def _session(client):
    return Session(client, [_running(name) for name in (NGINX, OURS, OFF)], _running(DIRECT), _EFFORT)


def test_a_first_token_is_compared_with_that_of_the_same_round_without_a_proxy_and_switched_off():
    waits = {1: [1.0, 1.5, 9.0], 2: [1.6], 3: [2.0, 2.25, 2.5], 4: [2.0]}
    session = _session(_Client(lambda job: Seen(first_byte_ms=waits[job.port])))
    session.first_token(seed=1)
    assert session.results.samples == {
        ("first_token", NGINX): [pytest.approx(0.1)],
        ("first_token", OURS): [0.75],
        ("first_token", OFF): [0.5],
        ("first_token_off", OURS): [0.25],
    }


def test_a_conversation_that_is_written_anew_is_of_other_words_and_under_another_key():
    spent = {"of_an_agent": 2.0, "of_an_agent_clock": 3.0}
    client = _Client(lambda job: Seen(cpu_seconds=[1.0, 1.0 + spent.get(job.workload, 1.0)]))
    session = _session(client)
    session.written_anew()
    assert session.results.samples["anew", OURS] == [2.0, 2.0]
    assert session.results.samples["anew_clock", OURS] == [1.5, 1.5]
    assert session.results.samples["anew_last", OURS] == [0.5, 0.5]
    assert {job.port for job in client.jobs} == {_PORTS[OURS]}
    runs = client.jobs[:5], client.jobs[5:]
    assert sorted(job.seed for job in client.jobs) == list(range(40_000, 40_010))
    for run in runs:
        assert len({job.workload for job in run}) == len({job.headers["Authorization"] for job in run}) == 5
    assert runs[0][0].workload != runs[1][0].workload  # another one comes first


def test_small_requests_beside_large_ones_are_reported_by_their_99th_percentile():
    waits = {1: [1.0] * 200, 2: [1.0] * 190 + [2.0] * 10, 3: [1.0] * 99 + [9.0] * 101, 4: [1.0] * 99}
    client = _Client(lambda job: Seen(answer_ms=waits[job.port], answered_beside=50, seconds=2.0))
    session = _session(client)
    session.beside_large(seed=1)
    found = {name: session.results.median("p99_beside", name) for name in (DIRECT, NGINX, OURS)}
    assert found == {DIRECT: 1.0, NGINX: 2.0, OURS: 9.0}
    assert session.results.samples["beside_a_second", OURS] == [25.0]
    assert "only 99 were answered" in session.results.failures["p99_beside", OFF]
    assert len({(job.seed, job.workload, job.beside, job.connections, job.requests) for job in client.jobs}) == 1


def test_an_event_of_many_streams_costs_the_cpu_over_what_was_counted():
    seen = {2: (1_000, 0.01), 3: (1_000, 0.03), 4: (0, 0.02)}

    def answer(job):
        events, seconds = seen[job.port]
        return Seen(cpu_seconds=[1.0, 1.0 + seconds], events=events, reads=500, seconds=2.0)

    session = _session(_Client(answer))
    session.streams(seed=1)
    assert session.results.samples == {
        ("streams", NGINX): [pytest.approx(10.0)],
        ("streams", OURS): [pytest.approx(30.0)],
        **{("streams_a_second", name): [500.0] for name in (NGINX, OURS)},
        **{("streams_a_read", name): [2.0] for name in (NGINX, OURS)},
    }
    assert session.results.failures == {("streams", OFF): "a stream had ended before the last one began"}


def test_several_workers_are_compared_with_one_in_the_same_run_but_the_first():
    spent = iter([9.0, 99.0, 1.0, 1.5, 2.0, 2.5])
    client = _Client(lambda _: Seen(cpu_seconds=[1.0, 1.0 + next(spent)]))
    session = _session(client)
    session.workers(_running(OURS), _running(OFF))
    assert session.results.samples["workers", OURS] == [1.5, 1.25]
    assert [job.port for job in client.jobs] == [3, 4] * 3
    assert [job.requests == GROWTH_TURNS for job in client.jobs] == [False, False, True, True, True, True]
    assert [job.seed for job in client.jobs] == [50_000, 50_000, 50_001, 50_001, 50_002, 50_002]


def test_a_wrong_answer_ends_the_bench_unless_a_peer_gave_it():
    session = _session(_Client(lambda _: Seen(wrong="status 500")))
    with pytest.raises(Wrong, match="status 500"):
        session.written_anew()
