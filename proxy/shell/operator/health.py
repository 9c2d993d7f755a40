"""What is wrong now, the worst first: since when, and which requests show it.

Rule: a run of problems is over once its rule has looked back and found none. Each finding counts the requests of its
run, and its address lists exactly these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple
from urllib.parse import urlencode

from proxy.shell.telemetry import FAULTLESS, NOWHERE, RequestOutcome, Table

BURST_SECONDS: Final = 300.0
"""How far a rule for many requests looks back."""
RECENT_SECONDS: Final = 900.0
"""How far all others do."""
LONGEST_RUN_SECONDS: Final = 24 * 3600.0
"""A longer one begins here."""
_BURST: Final = {"failed": (3, 0.01), "refused": (10, 0.2)}
"""Least requests, and least share of those of their upstream, for the level `bad`."""
_REFUSED_SHARE: Final = 0.05
"""Share of an upstream's recent requests from which refusals are a warning; each failure is one."""
_REFUSED_FOR: Final = {401: "a wrong or expired key", 403: "a missing permission", 429: "a rate or a quota"}
_EVENTS: Final = """
SELECT ended, coalesce(upstream, ''), coalesce(model, ''), status, outcome, warning IS NOT NULL, window_is_guessed
FROM requests WHERE ended >= :since AND (outcome <> 'answered' OR warning IS NOT NULL OR window_is_guessed)
ORDER BY ended DESC"""
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


class _Run(NamedTuple):
    """Problems of one kind, the latest first."""

    kind: Literal["failed", "refused", "too_long", "warned", "guessed"]
    of: str
    """Host of the upstream, or name of the model."""
    status: int
    """Of the kind `refused`."""

    @property
    def is_of_model(self) -> bool:
        return self.kind in ("too_long", "warned", "guessed")

    @property
    def filters(self) -> dict[str, str]:
        """As the page's address has them."""
        if self.is_of_model:
            is_outcome = self.kind == "too_long"
            kind = ("status", RequestOutcome.CONTEXT_LENGTH_EXCEEDED.value) if is_outcome else ("show", self.kind)
            return dict([kind, ("model", self.of)])
        return {"status": str(self.status or "failed"), "upstream": self.of or NOWHERE}

    def words(self, count: str, of: str, statuses: str) -> str:
        name = self.of or ("A request without a model" if self.is_of_model else "The proxy itself")
        match self.kind:
            case "failed":
                return f"{name} failed {count} of {of}: {statuses}"
            case "refused":
                return f"{name} refused {count} of {of} with {self.status}, for {_REFUSED_FOR[self.status]}"
            case "too_long":
                return f"{name}: {count} too long and could not be made to fit"
            case "warned":
                return f"{name}: {count} silently cut by its server; give it a larger window"
        return f"{name}: no source states its window; {count} fitted to a guess"


def findings(table: Table, now: float) -> list[Health]:
    """Return what the requests of the last minutes show."""
    runs = defaultdict[_Run, list[tuple[float, str]]](list)
    for ended, upstream, model, status, outcome, is_warned, is_guessed in table.query(
        _EVENTS, since=now - LONGEST_RUN_SECONDS
    ):
        cause = str(status) if status >= 400 else outcome.replace("_", " ")
        for run in _runs_of(upstream, model, status, outcome, is_warned=is_warned, is_guessed=is_guessed):
            runs[run].append((ended, cause))
    asked = {
        host: (burst, recent)
        for host, burst, recent in table.query(_ASKED, burst=now - BURST_SECONDS, recent=now - RECENT_SECONDS)
    }
    found = [_found(table, run, events, now, asked.get(run.of, (0, 0))) for run, events in runs.items()]
    return ranked(one for one in found if one is not None)


def ranked(found: Iterable[Health]) -> list[Health]:
    """Return the worst first, and of the same level what most requests show."""
    return sorted(found, key=lambda one: (one.level, -one.requests))


def _runs_of(
    upstream: str, model: str, status: int, outcome: str, *, is_warned: bool, is_guessed: bool
) -> Iterable[_Run]:
    """Yield the kinds of trouble that a request shows."""
    if outcome not in FAULTLESS:
        yield _Run("failed", upstream, 0)
    elif outcome == RequestOutcome.REFUSED and status in _REFUSED_FOR:
        yield _Run("refused", upstream, status)
    elif outcome == RequestOutcome.CONTEXT_LENGTH_EXCEEDED:
        yield _Run("too_long", model, 0)
    if is_warned:
        yield _Run("warned", model, 0)
    if is_guessed:
        yield _Run("guessed", model, 0)


def _found(
    table: Table, run: _Run, events: list[tuple[float, str]], now: float, asked: tuple[int, int]
) -> Health | None:
    """Return what a run means now; None if it is over or too small."""
    level = _level(run, [ended for ended, _ in events], now, asked)
    if level is None:
        return None
    gaps = enumerate(pairwise(events), 1)
    length = next((at for at, (later, earlier) in gaps if later[0] - earlier[0] > RECENT_SECONDS), len(events))
    since = int(events[length - 1][0])
    causes = Counter(cause for _, cause in events[:length]).most_common(2)
    of = 0 if run.is_of_model else table.count({"upstream": run.of or NOWHERE, "since": since})
    count = f"{length:,}" if of else "1 request was" if length == 1 else f"{length:,} requests were"
    statuses = ", ".join(f"{times:,} × {cause}" for cause, times in causes)
    words = run.words(count, f"{of:,} request{'s' * (of != 1)}", statuses)
    address = urlencode({**run.filters, "since": since})
    return Health(level, words, since, length, address, "" if run.is_of_model else run.of)


def _level(run: _Run, ended: list[float], now: float, asked: tuple[int, int]) -> Literal["warn", "bad"] | None:
    if now - ended[0] > RECENT_SECONDS:
        return None
    if run.is_of_model:
        return "bad" if run.kind == "too_long" else "warn"
    least, share = _BURST[run.kind]
    burst = sum(now - one <= BURST_SECONDS for one in ended)
    if burst >= least and burst >= share * asked[0]:
        return "bad"
    recent = sum(now - one <= RECENT_SECONDS for one in ended)
    return "warn" if run.kind == "failed" or recent > _REFUSED_SHARE * asked[1] else None


def failed_checks(problems: Mapping[str, tuple[str, float]], hosts: Mapping[str, str]) -> Iterable[Health]:
    """Yield what the checks have found. `problems`: by the name of the check, why it failed, and since when; `hosts`:
    those of the upstreams, by the names of their checks."""
    for name, (why, since) in problems.items():
        if name in hosts:
            yield Health("bad", f"{hosts[name]} does not answer: {why}", since, upstream=hosts[name])
        elif name == "store":
            yield Health("bad", f"Nothing can be taken out of requests: {why}", since)
        elif name == "state":
            yield Health("warn", f"Replicas share nothing, and each uses only what it knows itself: {why}", since)
        elif name == "decisions":
            yield Health("warn", f"Decisions are not kept, and you see those of one worker only: {why}", since)
