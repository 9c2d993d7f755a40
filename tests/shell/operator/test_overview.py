"""The dashboard's overview: health, savings, and costs only for models with a price."""

import itertools
import json
import urllib.parse
from typing import Any

import pytest

from proxy import __version__
from proxy.config import Settings
from proxy.shell.models import Catalogue, ModelResolver
from proxy.shell.operator import MAX_HOURS, Dollars, Overview
from proxy.shell.telemetry import History, RequestRecord, Table
from tools.build_hooks import index_of

NOW = 1_700_000_000.0
CATALOGUE = {
    "openai": {
        "api": "https://api.openai.com/v1",
        "models": {"gpt-9": {"limit": {"context": 100_000}, "cost": {"input": 2, "output": 8, "cache_read": 1}}},
    }
}


class Stage:
    def __init__(self, path):
        self.problems: dict[str, str] = {}
        self.now = NOW
        self.history = History(path, 5_000, lambda: self.now)
        self.state: str | None = None
        settings = Settings(data_dir=path.parent)
        catalogue = Catalogue(settings.upstream.base_url, lambda: index_of(json.dumps(CATALOGUE).encode()))
        upstreams = {"upstream": ModelResolver(settings, catalogue=catalogue)}
        self.overview = Overview(settings, self.history, self._ask, upstreams, "", lambda: self.state, lambda: NOW)

    async def _ask(self):
        return self.problems

    def served(self, ago=60.0, sent=1000, survived=None, **members):
        line = {"request_id": "r", "outcome": "answered", "status": 200, "model": "gpt-9", "tokens_before": 3_000}
        line |= {"upstream": "api.openai.com", "first_byte_ms": 100.0, **members}
        if survived is False:
            line["outcome"] = "context_length_exceeded"
        record = RequestRecord.of(line)
        record.tokens_sent, record.too_long = sent, survived is not None
        record.complete(0.0)
        self.now = NOW - ago
        self.history.finished(record)
        self.now = NOW


@pytest.fixture
async def stage(tmp_path):
    made = Stage(tmp_path / "decisions.db")
    yield made
    await made.history.close()


async def test_an_unused_proxy_is_well_and_has_saved_nothing(stage):
    found = await stage.overview.of(24)
    assert found.health == []
    assert found.totals.requests == 0
    assert found.usd is None
    (upstream,) = found.upstreams
    assert (upstream.upstream, upstream.requests, upstream.first_byte_ms) == ("api.openai.com", 0, [])


async def test_tokens_cache_hits_and_money_are_summed_for_each_model_and_in_all(stage):
    for _ in range(1_000):
        stage.served(prompt_tokens=1_000, cached_tokens=500, reply_tokens=100)
    stage.served(model="home-made")
    stage.served(model="", sent=None, outcome="refused", status=400)  # it could not be read
    found = await stage.overview.of(24)
    priced, unpriced = found.models
    assert (priced.model, priced.sums.cached_tokens, priced.sums.prompt_tokens) == ("gpt-9", 500_000, 1_000_000)
    assert priced.usd == Dollars(2.3, 0.5)
    assert unpriced.usd is None
    assert found.usd == priced.usd
    assert found.totals.tokens_before - found.totals.tokens_sent == 2_002_000


async def test_one_request_has_its_price(stage):
    counted = {"prompt_tokens": 1_000_000, "cached_tokens": 500_000, "reply_tokens": 100_000}
    stage.served(request_id="priced", **counted)
    assert (await stage.overview.page("priced")).usd == Dollars(2.3, 0.5)
    for name, members in (
        ("not-counted", {}),
        ("no-price", {**counted, "model": "home-made"}),
        ("another", {**counted, "upstream": "elsewhere"}),
    ):
        stage.served(request_id=name, **members)
        assert (await stage.overview.page(name)).usd is None
    assert await stage.overview.page("unknown") is None


@pytest.mark.parametrize(
    ("members", "fitted", "saved"),
    [
        ({"tokens_before": 157_000, "window_tokens": 16_000}, 1, 15_000),
        ({"tokens_before": 12_000, "window_tokens": 16_000}, 0, 11_000),
        ({"tokens_before": 157_000, "window_tokens": 16_000, "window_is_guessed": True}, 0, 15_000),
        ({"tokens_before": 3_000, "window_tokens": None}, 0, 2_000),
        ({"tokens_before": 157_000, "window_tokens": 16_000, "outcome": "refused", "status": 401}, 0, 0),
        ({"tokens_before": 157_000, "window_tokens": 16_000, "outcome": "client_left"}, 0, 0),
        ({"tokens_before": 9_000, "window_tokens": 16_000, "survived": True}, 1, 8_000),
        ({"tokens_before": 157_000, "window_tokens": 16_000, "sent": 157_000}, 0, 0),
    ],
)
async def test_made_to_fit_and_saved_are_only_what_would_have_failed_and_would_have_fitted(
    stage, members, fitted, saved
):
    stage.served(**members)
    totals = (await stage.overview.of(24)).totals
    assert (totals.fitted, totals.tokens_saved) == (fitted, saved)


FAILED: dict[str, Any] = {"outcome": "upstream_error", "status": 502}
LIMITED: dict[str, Any] = {"outcome": "refused", "status": 429}
OURS: dict[str, Any] = {"upstream": "", "outcome": "proxy_error", "status": 500}
TOO_LONG: dict[str, Any] = {"outcome": "context_length_exceeded", "status": 400}


@pytest.mark.parametrize(
    ("served", "levels"),
    [
        ({"troubles": 3, "members": FAILED, "others": 297}, ["bad"]),
        ({"troubles": 2, "members": FAILED, "others": 10}, ["warn"]),
        ({"troubles": 3, "members": FAILED, "others": 298}, ["warn"]),
        ({"troubles": 3, "members": FAILED, "others": 0, "ago": 301}, ["warn"]),
        ({"troubles": 3, "members": FAILED, "others": 0, "ago": 901}, []),
        ({"troubles": 10, "members": LIMITED, "others": 40}, ["bad"]),
        ({"troubles": 9, "members": LIMITED, "others": 0}, ["warn"]),
        ({"troubles": 10, "members": LIMITED, "others": 41}, ["warn"]),
        ({"troubles": 10, "members": LIMITED, "others": 190}, []),
        ({"troubles": 50, "members": {"outcome": "refused", "status": 404}, "others": 0}, []),
        ({"troubles": 1, "members": TOO_LONG, "others": 99}, ["bad"]),
        ({"troubles": 1, "members": {"warning": "window_too_small"}, "others": 99}, ["warn"]),
        ({"troubles": 1, "members": {"window_is_guessed": True, "window_tokens": 5_999}, "others": 99}, ["warn"]),
        ({"troubles": 1, "members": {"window_is_guessed": True, "window_tokens": 6_000}, "others": 99}, []),
        ({"troubles": 5, "members": {"outcome": "client_left", "status": 0}, "others": 0}, []),
        ({"troubles": 1, "members": TOO_LONG, "others": 0, "ago": 3_600}, []),
        ({"troubles": 1, "members": {"survived": True, "attempts": 2}, "others": 0}, []),
    ],
)
async def test_trouble_is_ranked_by_how_much_of_it_is_recent(stage, served, levels):
    for number in range(served["troubles"] + served["others"]):
        is_trouble = number < served["troubles"]
        stage.served(served.get("ago", 60), **(served["members"] if is_trouble else {}))
    assert [one.level for one in (await stage.overview.of(24)).health] == levels


async def test_a_finding_says_since_when_and_its_address_lists_exactly_its_requests(stage):
    for ago, members in (
        (5_000, FAILED),  # another run: nothing failed for 15 minutes after it
        (2_000, FAILED),
        (1_300, {**FAILED, "status": 504}),
        (700, FAILED),
        (650, {**FAILED, "upstream": "elsewhere"}),
        (600, {}),
        (100, FAILED),
        (90, LIMITED),
        (80, FAILED),
        (70, FAILED),
    ):
        stage.served(ago, **members)
    worst, *others = (await stage.overview.of(24)).health
    assert worst.words == "api.openai.com failed 6 of 8 requests: 5 × 502, 1 × 504"
    assert (worst.level, worst.since, worst.requests) == ("bad", NOW - 2_000, 6)
    assert worst.address == f"status=failed&upstream=api.openai.com&since={int(NOW - 2_000)}"
    filters = dict(urllib.parse.parse_qsl(worst.address))
    listed = await stage.history.ask(Table.page, {**filters, "since": float(filters["since"]), "limit": 50})
    assert [one.status for one in listed] == [502, 502, 502, 502, 504, 502]
    assert {one.words.split()[0] for one in others} == {"api.openai.com", "elsewhere"}


async def test_each_model_that_stays_too_long_has_its_own_line(stage):
    for model in ("a", "b", "b"):
        stage.served(model=model, upstream="", **TOO_LONG)
    found = (await stage.overview.of(1)).health
    for one, model, words in zip(found, "ba", ("2 requests were", "1 request was"), strict=True):
        assert one.words == f"{model}: {words} too long and could not be made to fit"
        assert one.address == f"status=context_length_exceeded&model={model}&since={int(NOW - 60)}"


async def test_an_upstream_with_errors_is_not_well(stage):
    for number in range(300):
        stage.served(2_000, **(FAILED if number < 4 else {}))
    (upstream,) = (await stage.overview.of(1)).upstreams
    assert (upstream.level, upstream.unanswered, upstream.requests) == ("warn", 4, 300)
    for _ in range(3):
        stage.served(**FAILED)
    (upstream,) = (await stage.overview.of(1)).upstreams
    assert upstream.level == "bad", "as its line"


async def test_what_was_sent_saved_and_over_the_window_is_the_same_in_the_chart_and_in_all(stage):
    stage.served(60, 12_000, tokens_before=157_000, window_tokens=16_000)
    stage.served(40 * 60, 9_000, tokens_before=12_000, window_tokens=16_000)
    stage.served(40 * 60, 9_000, tokens_before=157_000, window_tokens=16_000, outcome="client_left")
    found = await stage.overview.of(1)
    totals = found.totals
    assert (totals.tokens_sent, totals.tokens_saved, totals.tokens_over) == (30_000, 7_000, 141_000)
    for name in ("tokens_sent", "tokens_saved", "tokens_over", "unanswered"):
        assert sum(getattr(bar.sums, name) for bar in found.bars) == getattr(totals, name)
    assert sum(bar.unanswered for one in found.upstreams for bar in one.bars) == totals.unanswered


@pytest.mark.parametrize(
    ("hours", "ago", "shown", "width"),
    [
        (1, 10, 1, 60),
        (24, 10, 24, 900),
        (None, 50, 1, 1),
        (None, 300, 1, 5),
        (None, 1_300, 1, 15),
        (None, 3_000, 1, 60),
        (None, 5 * 3_600, 24, 300),
        (None, 90_000, 24 * 7, 3_600),
        (None, 200 * 3_600, 24 * 14, 4 * 3_600),
    ],
)
async def test_the_period_follows_the_data_and_a_part_of_the_timeline_lasts_as_it_asks(stage, hours, ago, shown, width):
    assert (await stage.overview.of(None)).hours == 1, "before the first request"
    stage.served(ago)
    found = await stage.overview.of(hours)
    assert (found.hours, found.bar_seconds) == (shown, width)
    assert len(found.bars) <= 97
    assert found.bars[0].at <= NOW - ago


async def test_cache_hits_are_a_share_of_what_reports_them(stage):
    stage.served(prompt_tokens=1_000, cached_tokens=500)
    stage.served(prompt_tokens=9_000)
    totals = (await stage.overview.of(1)).totals
    assert (totals.prompt_tokens, totals.cacheable_tokens, totals.cached_tokens) == (10_000, 1_000, 500)


async def test_waits_are_shown_over_time_and_windows_for_each_model(stage):
    for number in range(100):
        stage.served(first_byte_ms=float(number), own_ms=number / 10, window_tokens=8_000 + number)
    stage.served(model="other", window_tokens=9, window_is_guessed=True, client="codex")
    found = await stage.overview.of(1)
    ((bar,),) = [one.bars for one in found.upstreams]
    assert (bar.requests, bar.first_byte_ms) == (101, [50.0, 95.0])
    assert found.own_ms == [5.0, 9.5]
    reported = {model.model: (model.window_tokens, model.window_is_guessed) for model in found.models}
    assert reported == {"gpt-9": (8_099, False), "other": (9, True)}
    assert found.clients == ["codex"]
    assert found.proxy.version == __version__


async def test_the_overview_of_many_requests_reads_no_record(stage, monkeypatch):
    """Its cost is that of the sums, and of five numbers of each row."""
    read: list[str] = []
    for number in range(1_000):
        stage.served(ago=number)
    await stage.overview.of(24)
    query = Table.query
    monkeypatch.setattr(Table, "query", lambda table, sql, **given: read.append(sql) or query(table, sql, **given))
    await stage.overview.of(24)
    assert len(read) >= 8
    assert not [sql for sql in read if "blocks" in sql or "record" in sql]


async def test_the_time_line_has_a_bar_for_each_time_also_where_nothing_came(stage):
    stage.served(ago=10)
    stage.served(ago=5 * 3_600, outcome="upstream_timeout", status=504)
    for hours in (1, 24, MAX_HOURS):
        found = await stage.overview.of(hours)
        bars = found.bars
        assert len(bars) <= 97
        assert {later.at - bar.at for bar, later in itertools.pairwise(bars)} == {found.bar_seconds}
        assert sum(bar.sums.requests for bar in bars) == (1 if hours == 1 else 2)
        assert sum(bar.sums.unanswered for bar in bars) == (0 if hours == 1 else 1)


async def test_latency_is_shown_as_median_and_95th_percentile(stage):
    for number in range(300):
        stage.served(ago=400 - number, first_byte_ms=float(number % 100 if number >= 100 else 9_000))
    (upstream,) = (await stage.overview.of(1)).upstreams
    assert upstream.first_byte_ms == [50.0, 95.0]


@pytest.mark.parametrize(
    ("problems", "members", "level", "word"),
    [
        ({"upstream": "refused"}, {}, "bad", "api.openai.com does not answer: refused"),
        ({"store": "disk full"}, {}, "bad", "disk full"),
        ({}, {"survived": False}, "bad", "gpt-9: 1 request was too long"),
        ({}, {"outcome": "upstream_timeout", "status": 504}, "warn", "api.openai.com failed 1 of 1 request: 1 × 504"),
        ({}, OURS, "warn", "The proxy itself failed 1 of 1 request: 1 × 500"),
    ],
)
async def test_errors_are_reported_in_words(stage, problems, members, level, word):
    stage.problems = problems
    stage.served(**members)
    (finding,) = (await stage.overview.of(24)).health
    assert (finding.level, finding.since is not None) == (level, True)
    assert word in finding.words
    assert finding.address.startswith("status=failed&upstream=-&since=") == (members.get("upstream") == "")


async def test_a_warning_that_replicas_share_nothing_ends_once_they_do(stage):
    stage.state = "Connection refused"
    (finding,) = (await stage.overview.of(1)).health
    assert finding.level == "warn"
    assert finding.words.endswith("it knows itself: Connection refused")
    stage.state = None
    assert (await stage.overview.of(1)).health == []


async def test_a_history_that_is_not_stored_is_reported(tmp_path):
    (tmp_path / "file").write_text("no folder")
    stage = Stage(tmp_path / "file" / "decisions.db")
    stage.served()
    (finding,) = (await stage.overview.of(1)).health
    assert finding.level == "warn"
    assert "File exists" in finding.words
    await stage.history.close()
