import itertools
import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from proxy.shell.models import Price
from proxy.shell.telemetry.collectors import USAGE, Spending, Spread, forget_the_dead


@pytest.mark.parametrize("labels", [[], ["client"]])
def test_a_histogram_of_one_process_reads_like_prometheus_clients_own(labels):
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    described, buckets = ("context_proxy_some_seconds", "Some time.", labels), (0.001, 0.5, 1, 30)
    for one in (
        Histogram(*described, buckets=buckets, registry=theirs),
        Spread(*described, buckets=buckets, registry=ours),
    ):
        for client, value in zip(itertools.cycle(("codex", "crush", "codex")), (0.0, 0.001, 0.4, 0.5, 7.25, 30, 31)):
            (one.labels(client) if labels else one).observe(value)
    lines = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert sorted(generate_latest(ours).decode().splitlines()) == sorted(lines)


def test_only_files_of_processes_that_are_gone_are_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine, theirs, first, odd, kept = (
        tmp_path / name
        for name in (
            f"gauge_livesum_{os.getpid()}.db",
            f"gauge_livesum_{gone.pid}.db",
            "gauge_livesum_1.db",
            "gauge_livesum_x.db",
            f"counter_{gone.pid}.db",
        )
    )
    for file in (mine, theirs, first, odd, kept):
        file.touch()
    forget_the_dead(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, first, odd, kept])


def test_a_worker_that_is_read_while_it_counts_costs_what_it_has_counted_so_far():
    usage = Counter(USAGE, "Tokens.", ["usage", "client", "model", "upstream"], registry=None)
    spending = Spending(usage)
    spending.follow({"api.test": lambda _: Price(2.0, 1.0, 8.0)})
    usage.labels("prompt", "codex", "m", "api.test").inc(1_000_000)
    spending.collect()
    spending.look_up()
    (family,) = spending.collect()
    assert [sample.value for sample in family.samples] == [2.0]
