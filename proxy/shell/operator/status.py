"""What a running proxy says about itself to commands of its user: `context-proxy status` and `context-proxy run`.

Rule: names, sizes and times; never a key and never content. Without `full`, nothing is asked of anybody: `run` waits
for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final, NotRequired

from msgspec import Struct
from typing_extensions import TypedDict

from proxy import __version__
from proxy.shell.models import ModelResolver, stated_by
from proxy.shell.operator.overview import Health, Overview
from proxy.shell.telemetry import History, Ledger, Wanted

MAX_WINDOWS: Final = 50
MAX_PROBLEMS: Final = 5


class Window(TypedDict):
    """The context window of a model."""

    model: str
    upstream: str
    window_tokens: int
    source: str
    """Who states it."""


class Problem(TypedDict):
    """A request that failed, was refused, or was sent twice."""

    ended: str
    """ISO 8601, UTC."""
    request_id: str
    model: str
    outcome: str
    status: int | None
    problem: str


class Served(TypedDict):
    """What this process has served since its start; with several workers, the one that responds."""

    requests: int
    fitted: int
    """Made to fit: answered requests that the upstream would have refused or cut silently for their length."""
    cured: int
    """Of these, those that the upstream had refused for their length."""
    tokens_saved: int


class Status(TypedDict):
    """A running proxy."""

    version: str
    pid: int
    workers: int
    seconds: int
    """Since its start."""
    mode: str
    data_dir: str
    artifacts: str
    """Folder or bucket of what was taken out of requests."""
    upstreams: Sequence[str]
    """Base URLs, by the order in which they are tried."""
    served: Served
    windows: NotRequired[list[Window]]
    health: NotRequired[list[Health]]
    """What needs attention; empty: nothing."""
    problems: NotRequired[list[Problem]]
    """The latest requests that went wrong."""


class StatusReport(Struct, frozen=True):
    """Describes this process."""

    mode: str
    workers: int
    data_dir: str
    artifacts: str
    upstreams: Mapping[str, ModelResolver]
    """By base URL."""
    history: History
    overview: Overview

    async def described(self, *, full: bool) -> Status:
        """The status; `full`: with windows and problems, for which upstreams are asked."""
        sums = await self.history.sums()
        found: Status = {
            "version": __version__,
            "pid": os.getpid(),
            "workers": self.workers,
            "seconds": round(time.time() - self.history.started),
            "mode": self.mode,
            "data_dir": self.data_dir,
            "artifacts": self.artifacts,
            "upstreams": list(self.upstreams),
            "served": {
                "requests": sums["requests"],
                "fitted": sums["fitted"],
                "cured": sums["survived"],
                "tokens_saved": sums["tokens_saved"],
            },
        }
        if full:
            found["windows"] = await self._windows()
            found["health"] = (await self.overview.of(1))["health"]
            found["problems"] = await self._problems()
        return found

    async def _windows(self) -> list[Window]:
        """Of the models that upstreams list or requests have named."""
        used = await self.history.ask(Ledger.windows, 0.0)
        found: list[Window] = []
        for address, resolver in self.upstreams.items():
            asked = [model for model, host, *_ in used if host == resolver.upstream.host]
            for name in dict.fromkeys((*asked, *resolver.learning.models, *resolver.discovery.names)):
                profile = resolver.profile(name)
                found.append(
                    {
                        "model": name,
                        "upstream": address,
                        "window_tokens": profile.window_tokens,
                        "source": stated_by(profile, "window_tokens") or "",
                    }
                )
        return found[:MAX_WINDOWS]

    async def _problems(self) -> list[Problem]:
        rows = await self.history.ask(Ledger.page, Wanted(limit=MAX_PROBLEMS, troubled=True))
        return [
            {
                "ended": row["ended"],
                "request_id": row["request_id"],
                "model": row.get("model", ""),
                "outcome": row["outcome"],
                "status": row.get("status"),
                "problem": row.get("problem", ""),
            }
            for row in rows
        ]
