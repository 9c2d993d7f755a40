"""What the dashboard says first: whether all is well, what was saved, and in money only what is priced."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.shell.models.catalogue import Catalogue, Prices
from proxy.shell.operator.overview import BARS, MAX_HOURS, Overview, Priced
from proxy.shell.telemetry.entries import Finished
from proxy.shell.telemetry.history import History

NOW = 1_700_000_000.0
CATALOGUE = {
    "openai": {
        "api": "https://api.openai.com/v1",
        "models": {"gpt-9": {"limit": {"context": 100_000}, "cost": {"input": 2, "output": 8, "cache_read": 1}}},
    }
}


class Stage:
    def __init__(self, path: Path) -> None:
        self.problems: dict[str, str] = {}
        self.history = History(path, 1_000, lambda: NOW)
        self.state: str | None = None
        upstreams = [self.upstream("api.openai.com", "upstream")]
        self.overview = Overview(self.history, self._ask, upstreams, lambda: NOW, lambda: self.state)

    def upstream(self, host: str, check: str) -> Priced:
        def read() -> bytes:
            return json.dumps(CATALOGUE).encode()

        return Priced(host, check, Prices(Catalogue(f"https://{host}/v1", read), read))

    async def _ask(self) -> dict[str, str]:
        return self.problems

    def served(self, ago: float = 60.0, sent: int = 1_000, survived: bool | None = None, **members: Any) -> None:
        line = {
            "request_id": "r",
            "outcome": "answered",
            "status": 200,
            "model": "gpt-9",
            "upstream": "api.openai.com",
            "tokens_before": 3_000,
            "first_byte_ms": 100.0,
            **members,
        }
        one = Finished(NOW - ago, line, (), None, sent, survived)
        self.history.add(one)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path / "decisions.db")
    yield made
    await made.history.close()


async def test_a_proxy_that_nobody_has_used_is_well_and_has_saved_nothing(stage: Stage) -> None:
    found = await stage.overview.of(24)
    assert found["health"] == []
    assert found["totals"]["requests"] == 0
    assert found["totals"]["usd"] is None
    (upstream,) = found["upstreams"]
    assert (upstream["upstream"], upstream["requests"], upstream["first_byte_ms"]) == ("api.openai.com", 0, None)


async def test_tokens_cache_hits_and_money_are_told_for_each_model_and_in_all(stage: Stage) -> None:
    for _ in range(1_000):
        stage.served(prompt_tokens=1_000, cached_tokens=500, reply_tokens=100)
    stage.served(model="home-made")
    found = await stage.overview.of(24)
    priced, unpriced = found["models"]
    assert (priced["model"], priced["cached_tokens"], priced["prompt_tokens"]) == ("gpt-9", 500_000, 1_000_000)
    assert priced["usd"] == {"spent": 2.3, "not_sent": 3.0, "by_cache": 0.5}
    assert unpriced["usd"] is None
    assert found["totals"]["usd"] == priced["usd"]
    assert found["totals"]["unpriced_models"] == 1
    assert found["totals"]["tokens_before"] - found["totals"]["tokens_sent"] == 2_002_000


async def test_one_request_has_its_price_and_what_was_not_sent_of_it(stage: Stage) -> None:
    line = {"upstream": "api.openai.com", "model": "gpt-9", "tokens_before": 3_000_000, "tokens_after": 1_000_000}
    counted = {**line, "prompt_tokens": 1_000_000, "cached_tokens": 500_000, "reply_tokens": 100_000}
    assert (await stage.overview.priced(counted))["usd"] == {"spent": 2.3, "not_sent": 3.0, "by_cache": 0.5}
    for whole in ({"mode": "observe"}, {"attempt_kind": "original"}):
        assert (await stage.overview.priced({**counted, **whole}))["usd"]["not_sent"] == 0
    for unpriced in (line, {**counted, "model": "home-made"}, {**counted, "upstream": "elsewhere"}):
        assert await stage.overview.priced(unpriced) == {**unpriced, "usd": None}


async def test_the_time_line_has_a_bar_for_each_time_also_where_nothing_came(stage: Stage) -> None:
    stage.served(ago=10)
    stage.served(ago=5 * 3_600, outcome="upstream_timeout", status=504)
    for hours in (1, 24, MAX_HOURS):
        found = await stage.overview.of(hours)
        bars = found["bars"]
        assert len(bars) <= BARS + 1
        assert {later["at"] - bar["at"] for bar, later in itertools.pairwise(bars)} == {found["bar_seconds"]}
        assert sum(bar["requests"] for bar in bars) == (1 if hours == 1 else 2)
        assert sum(bar["failed"] for bar in bars) == (0 if hours == 1 else 1)


async def test_latency_is_told_as_most_requests_and_as_the_slow_ones_have_it(stage: Stage) -> None:
    for number in range(100):
        stage.served(first_byte_ms=float(number))
    (upstream,) = (await stage.overview.of(1))["upstreams"]
    assert (upstream["first_byte_ms"], upstream["slow_first_byte_ms"]) == (50.0, 95.0)


@pytest.mark.parametrize(
    ("problems", "members", "level", "word"),
    [
        ({"upstream": "refused"}, {}, "bad", "api.openai.com does not answer: refused"),
        ({"store": "disk full"}, {}, "bad", "disk full"),
        ({}, {"survived": False}, "bad", "1 request was too long"),
        ({}, {"outcome": "upstream_timeout", "status": 504}, "warn", "1 of 1 requests failed"),
    ],
)
async def test_what_is_wrong_is_said_in_words(
    stage: Stage, problems: dict[str, str], members: dict[str, Any], level: str, word: str
) -> None:
    stage.problems = problems
    stage.served(**members)
    (said,) = (await stage.overview.of(24))["health"]
    assert said["level"] == level
    assert word in said["words"]


async def test_what_went_wrong_an_hour_ago_is_history(stage: Stage) -> None:
    stage.served(ago=3_600, survived=False, outcome="context_length_exceeded", status=400)
    stage.served(survived=True, attempts=2)
    assert (await stage.overview.of(24))["health"] == []


async def test_it_is_said_that_replicas_share_nothing_and_no_more_once_they_do(stage: Stage) -> None:
    stage.state = "Connection refused"
    (said,) = (await stage.overview.of(1))["health"]
    assert said["level"] == "warn"
    assert said["words"].endswith("shows what it has: Connection refused")
    stage.state = None
    assert (await stage.overview.of(1))["health"] == []


async def test_a_history_that_is_not_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    stage = Stage(tmp_path / "file" / "decisions.db")
    stage.served()
    (said,) = (await stage.overview.of(1))["health"]
    assert said["level"] == "warn"
    assert "File exists" in said["words"]
    await stage.history.close()
