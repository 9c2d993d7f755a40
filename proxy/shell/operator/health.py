"""What is wrong now. Each finding says since when, and which requests show it.

Rule: a run of problems is over once none has happened for RECENT_SECONDS. Each finding counts the requests of its run,
and its address lists exactly these.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple
from urllib.parse import urlencode

from proxy.shell.telemetry import FAILED, GUESSED, REFUSED, UNNAMED, Table

BURST_SECONDS: Final = 300.0
"""How far back the level `bad` looks."""
RECENT_SECONDS: Final = 900.0
"""How far back the level `warn` looks."""
LONGEST_RUN_SECONDS: Final = 24 * 3600.0
"""A longer one begins here."""


@dataclass
class Health:
    """Something that needs attention."""

    level: Literal["warn", "bad"]
    words: str
    since: float | None = None
    """When it began, Unix time; of a check: when it was first seen to fail. Empty: unknown."""
    requests: int = 0
    """How many requests show it."""
    address: str = ""
    """Which ones: what follows `/#?` in the address of the dashboard. Empty: none."""
    upstream: str = ""
    """The upstream concerned; empty: none."""


class _Rule(NamedTuple):
    """A kind of trouble."""

    of: Literal["upstream", "model"]
    shows: str
    """Whether a request shows it, as SQL."""
    filters: Mapping[str, str]
    """The same, as the page's address has it."""
    words: str
    bad: tuple[int, float] | None = None
    """Least requests, and least share of those of their upstream, for the level `bad`."""
    warn: float = 0.0
    """Share of an upstream's requests above which it is a warning."""


def _refused(status: int, reason: str) -> _Rule:
    words = f"{{name}} refused {{count}} of {{all}} with {status}, for {reason}"
    return _Rule("upstream", f"{REFUSED} AND status = {status}", {"status": str(status)}, words, (10, 0.2), 0.05)


_TOO_LONG: Final = "context_length_exceeded"
_RULES: Final = (
    _Rule("upstream", FAILED, {"status": "failed"}, "{name} failed {count} of {all}: {causes}", (3, 0.01)),
    _refused(401, "a wrong or expired key"),
    _refused(403, "a missing permission"),
    _refused(429, "a rate or a quota"),
    _Rule(
        *("model", f"outcome = '{_TOO_LONG}'", {"status": _TOO_LONG}),
        *("{name}: {these} too long and could not be made to fit", (1, 0.0)),
    ),
    _Rule(
        *("model", "warning IS NOT NULL", {"show": "warned"}),
        "{name}: {these} silently cut by its server; give it a larger window",
    ),
    _Rule(
        *("model", GUESSED, {"show": "guessed"}),
        "{name}: no source states its window; {these} longer than half of the guess",
    ),
)


_ASKED: Final = """
SELECT coalesce(upstream, ''), sum(ended >= :burst), count(*) FROM requests WHERE ended >= :recent GROUP BY 1"""
_RUNS: Final = """
WITH shown AS (
  SELECT coalesce({of}, '') AS name, ended,
    CASE WHEN status < 400 THEN replace(outcome, '_', ' ') ELSE status END AS cause,
    lag(ended) OVER (PARTITION BY {of} ORDER BY ended DESC) - ended > :gap AS begins
  FROM requests WHERE ended >= :since AND {shows}),
dated AS (SELECT *, sum(begins) OVER (PARTITION BY name ORDER BY ended DESC) AS later_runs FROM shown)
SELECT name, sum(ended >= :burst), sum(ended >= :recent), count(*), min(ended), json_group_array(cause) FROM dated
WHERE coalesce(later_runs, 0) = 0 GROUP BY name"""
"""The latest run of requests that show something, of each upstream or model: how many of them in BURST_SECONDS, in
RECENT_SECONDS and altogether, when it began, and how each ended."""


def findings(table: Table, now: float) -> Iterator[Health]:
    """Yield what the requests of the last minutes show."""
    times = {"burst": now - BURST_SECONDS, "recent": now - RECENT_SECONDS}
    run_since = {"since": now - LONGEST_RUN_SECONDS, "gap": RECENT_SECONDS}
    asked = {host: (burst, recent) for host, burst, recent in table.query(_ASKED, **times)}
    for rule in _RULES:
        runs = table.query(_RUNS.format(of=rule.of, shows=rule.shows), **times, **run_since)
        for name, burst, recent, count, began, causes in runs:
            level = _level(rule, (burst, recent), asked.get(name, (0, 0)))
            if level is None:
                continue
            among: dict[str, str | int] = {rule.of: name or UNNAMED, "since": int(began)}
            in_all = table.count(among)
            words = rule.words.format(
                name=name or {"upstream": "The proxy itself", "model": "A request without a model"}[rule.of],
                count=f"{count:,}",
                these="1 request was" if count == 1 else f"{count:,} requests were",
                all="1 request" if in_all == 1 else f"{in_all:,} requests",
                causes=", ".join(f"{n:,} × {cause}" for cause, n in Counter(json.loads(causes)).most_common(2)),
            )
            address = urlencode({**rule.filters, **among})
            yield Health(level, words, int(began), count, address, name if rule.of == "upstream" else "")


def _level(rule: _Rule, shown: tuple[int, int], asked: tuple[int, int]) -> Literal["warn", "bad"] | None:
    """How many requests showed it, and how many their upstream had, in BURST_SECONDS and in RECENT_SECONDS."""
    if rule.bad is not None and shown[0] >= rule.bad[0] and shown[0] >= rule.bad[1] * asked[0]:
        return "bad"
    return "warn" if shown[1] > rule.warn * asked[1] else None


_CHECKS: Final[Mapping[str, tuple[Literal["warn", "bad"], str]]] = {
    "store": ("bad", "Nothing can be taken out of requests: "),
    "state": ("warn", "Replicas share nothing, and each uses only what it knows itself: "),
    "decisions": ("warn", "Decisions are not kept, and you see those of one worker only: "),
}


def failed_checks(problems: Mapping[str, tuple[str, float]], hosts: Mapping[str, str]) -> Iterable[Health]:
    """Yield what the checks have found. `problems`: by the name of the check, why it failed, and since when; `hosts`:
    those of the upstreams, by the names of their checks."""
    for name, (why, since) in problems.items():
        level, words = _CHECKS.get(name) or ("bad", f"{hosts[name]} does not answer: ")
        yield Health(level, words + why, since, upstream=hosts.get(name, ""))
