"""What a running proxy says about itself to commands of its user: `context-proxy status` and `context-proxy run`.

Rule: names, sizes and times; never a key and never content. Without `full`, nothing is asked of anybody: `run` waits
for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from proxy import __version__
from proxy.shell.models import ModelResolver, stated_by
from proxy.shell.operator.overview import Health, Overview
from proxy.shell.telemetry import History, RequestRecord, Table, Wanted

MAX_WINDOWS: Final = 50
MAX_PROBLEMS: Final = 5


@dataclass
class Window:
    """The context window of a model."""

    model: str
    upstream: str
    window_tokens: int
    source: str
    """Who states it."""


@dataclass
class Served:
    """What this process has served since its start; with several workers, the one that responds."""

    requests: int
    fitted: int
    """Made to fit: answered requests that the upstream would have refused or cut silently for their length."""
    cured: int
    """Of these, those that the upstream had refused for their length."""
    tokens_saved: int


@dataclass
class Status:
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
    windows: Sequence[Window] | None = None
    """This and what follows only with `full`."""
    health: Sequence[Health] | None = None
    """What needs attention; empty: nothing."""
    problems: Sequence[RequestRecord] | None = None
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
        found = Status(
            __version__,
            os.getpid(),
            self.workers,
            round(time.time() - self.history.started),
            self.mode,
            self.data_dir,
            self.artifacts,
            list(self.upstreams),
            Served(**await self.history.served()),
        )
        if full:
            found.windows = await self._windows()
            found.health = (await self.overview.of(1)).health
            found.problems = await self.history.ask(Table.page, Wanted(limit=MAX_PROBLEMS, troubled=True))
        return found

    async def _windows(self) -> list[Window]:
        """Of the models that upstreams list or requests have named."""
        used = await self.history.ask(Table.windows, 0.0)
        found: list[Window] = []
        for address, resolver in self.upstreams.items():
            asked = [model for model, host in used if host == resolver.upstream.host]
            for name in dict.fromkeys((*asked, *resolver.learning.models, *resolver.discovery.names)):
                profile = resolver.profile(name)
                source = stated_by(profile, "window_tokens") or ""
                found.append(Window(name, address, profile.window_tokens, source))
        return found[:MAX_WINDOWS]
