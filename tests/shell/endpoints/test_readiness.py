import asyncio
import os

import pytest
from support.waiting import Clock

from proxy.shell.artifacts import ArtifactStore, PrivateFolder
from proxy.shell.endpoints import NOT_READY_SECONDS, READY_SECONDS, Readiness


class Check:
    """Returns the given results, and counts the calls."""

    def __init__(self, problem=None):
        self.problem = problem
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self):
        self.calls += 1
        await self.gate.wait()
        return self.problem


async def looked(readiness):
    """Whether it is ready, and what is wrong."""
    problems = await readiness.problems()
    return readiness.is_ready(problems), problems


@pytest.mark.parametrize(
    ("problems", "is_ready"),
    [
        ((None, None, None), True),
        (("gone", None, None), True),
        ((None, "gone", None), True),
        (("gone", "gone", None), False),
        ((None, None, "full"), False),
        (("gone", None, "full"), False),
    ],
)
async def test_one_of_several_upstreams_is_enough_and_the_store_is_always_needed(problems, is_ready):
    named = dict(zip(("upstreams[0]", "upstream", "store"), problems, strict=True))
    checks = {name: Check(why) for name, why in named.items()}
    found = Readiness({name: checks[name] for name in ("upstreams[0]", "upstream")}, {"store": checks["store"]})
    assert await looked(found) == (is_ready, {name: why for name, why in named.items() if why})


@pytest.mark.parametrize("upstream", [None, "gone"])
async def test_what_is_noted_is_named_and_takes_no_replica_out(upstream):
    found = Readiness({"upstream": Check(upstream)}, {"store": Check("expired")}, noted=["store"])
    assert await looked(found) == (
        upstream is None,
        {"store": "expired"} if upstream is None else {"upstream": "gone", "store": "expired"},
    )


async def test_a_storm_of_probes_is_one_look():
    check = Check()
    check.gate.clear()
    found = Readiness({"upstream": check}, {})
    probes = [asyncio.create_task(looked(found)) for _ in range(500)]
    await asyncio.sleep(0)
    check.gate.set()
    assert await asyncio.gather(*probes) == [(True, {})] * 500
    assert check.calls == 1


async def test_a_result_counts_for_a_while_and_a_bad_one_for_less():
    check, clock = Check(), Clock()
    found = Readiness({"upstream": check}, {}, clock)
    await looked(found)
    clock.now = READY_SECONDS - 0.1
    await looked(found)
    assert check.calls == 1
    clock.now, check.problem = READY_SECONDS, "gone"
    assert await looked(found) == (False, {"upstream": "gone"})
    assert check.calls == 2
    clock.now += NOT_READY_SECONDS
    check.problem = None
    assert await looked(found) == (True, {})


async def test_a_check_that_hangs_is_a_reason(monkeypatch):
    monkeypatch.setattr("proxy.shell.endpoints.services.LOOK_SECONDS", 0.01)
    check = Check()
    check.gate.clear()
    found = Readiness({"upstream": check}, {"store": Check()})
    assert await looked(found) == (False, {"upstream": "no answer within 0.01 s"})


async def test_a_probe_that_is_given_up_stops_no_other():
    check = Check()
    check.gate.clear()
    found = Readiness({"upstream": check}, {})
    first, second = (asyncio.create_task(looked(found)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    check.gate.set()
    assert await second == (True, {})


async def test_a_writable_store_is_ready_and_the_trial_write_leaves_no_trace(tmp_path):
    store = ArtifactStore(PrivateFolder(tmp_path / "kept"), retention_days=1, max_bytes=1_000_000)
    assert await store.trouble() is None
    assert await store.trouble() is None
    store._sweep_once()
    assert os.listdir(tmp_path / "kept") == [".meta"]
    assert os.listdir(tmp_path / "kept" / ".meta") == ["trial"]
    assert os.stat(tmp_path / "kept" / ".meta" / "trial").st_mode & 0o777 == 0o600
    await store.close()
