"""What is wrong now. Each finding says since when, and which requests show it.

Rule: a run of problems is over once none has happened for RECENT_SECONDS. Each finding counts the requests of its run,
and its address lists exactly these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple
from urllib.parse import urlencode

from proxy.shell.telemetry import FAILED, GUESSED, REFUSED, UNNAMED, Table

BURST_SECONDS: Final = 300.0
"""How far back the level `bad` looks."""
RECENT_SECONDS: Final = 900.0
"""How far back the level `warn` looks."""
LONGEST_RUN_SECONDS: Final = 24 * 3600.0
"""A longer one begins here."""
_ASKED: Final = """
SELECT coalesce(upstream, ''), sum(ended >= :burst), count(*) FROM requests WHERE ended >= :recent GROUP BY 1"""


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


def findings(table: Table, now: float) -> list[Health]:
    """Return what the requests of the last minutes show."""
    rows = table.query(_ASKED, burst=now - BURST_SECONDS, recent=now - RECENT_SECONDS)
    asked = {host: (burst, recent) for host, burst, recent in rows}
    found = []
    for rule in _RULES:
        query = f"""
        SELECT coalesce({rule.of}, ''), ended, CASE WHEN status < 400 THEN replace(outcome, '_', ' ') ELSE status END
        FROM requests WHERE ended >= :since AND {rule.shows} ORDER BY ended DESC"""  # noqa: S608 - constants
        events = defaultdict[str, list[tuple[float, str]]](list)
        for name, *event in table.query(query, since=now - LONGEST_RUN_SECONDS):
            events[name].append((event[0], event[1]))
        for name, run in events.items():
            level = _level(rule, [now - ended for ended, _ in run], asked.get(name, (0, 0)))
            if level is not None:
                found.append(_finding(table, rule, name, level, run))
    return found


def _level(rule: _Rule, ages: Sequence[float], asked: tuple[int, int]) -> Literal["warn", "bad"] | None:
    """`asked`: how many requests their upstream had in BURST_SECONDS and in RECENT_SECONDS."""
    burst, recent = (sum(age <= seconds for age in ages) for seconds in (BURST_SECONDS, RECENT_SECONDS))
    if rule.bad is not None and burst >= rule.bad[0] and burst >= rule.bad[1] * asked[0]:
        return "bad"
    return "warn" if recent > rule.warn * asked[1] else None


def _finding(
    table: Table, rule: _Rule, name: str, level: Literal["warn", "bad"], events: Sequence[tuple[float, str]]
) -> Health:
    """`events`: when requests of this upstream or model showed it, and how they ended; the latest first."""
    gaps = enumerate(pairwise(events), 1)
    length = next((at for at, (later, earlier) in gaps if later[0] - earlier[0] > RECENT_SECONDS), len(events))
    since = int(events[length - 1][0])
    among: dict[str, str] = {rule.of: name or UNNAMED}
    causes = Counter(cause for _, cause in events[:length]).most_common(2)
    in_all = table.count({**among, "since": since})
    words = rule.words.format(
        name=name or {"upstream": "The proxy itself", "model": "A request without a model"}[rule.of],
        count=f"{length:,}",
        these="1 request was" if length == 1 else f"{length:,} requests were",
        all="1 request" if in_all == 1 else f"{in_all:,} requests",
        causes=", ".join(f"{times:,} × {cause}" for cause, times in causes),
    )
    address = urlencode({**rule.filters, **among, "since": since})
    return Health(level, words, since, length, address, name if rule.of == "upstream" else "")


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
