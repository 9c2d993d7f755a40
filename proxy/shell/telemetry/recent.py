"""The decisions of this process, the newest first, as objects; `history` has those of all workers.

Rule: bounded in number and in bytes, and lost with the process; sizes, names and reasons, never a key and never
content. A request pays for one entry in a queue; what only people need is computed when somebody looks.
"""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field

from proxy.core.compaction.budget import Budget
from proxy.core.conversation.tracked_message import MessageReport
from proxy.core.overflow.retry import Rung
from proxy.shell.telemetry.decision import MAX_MODEL_CHARACTERS, Decision

MAX_DECISIONS: Final = 500
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of everything remembered, counted as if each decision had its own blocks; most share those of the previous turn."""
_LINE_BYTES: Final = 2_048
"""Approximate memory of a log line's members."""
_BLOCK_BYTES: Final = 320
"""Approximate memory of a block with its names."""


class Recorded(Struct):
    """One finished request; immutable."""

    ended: float
    """Unix time."""
    line: Mapping[str, Any]
    """The members of its log line."""
    blocks: tuple[MessageReport, ...]
    """As planned, by our estimate; empty if there was no plan."""
    budget: Budget | None = None
    """Of the plan."""
    sent_tokens: int | None = None
    """Of the last send, estimated; None if nothing was sent, or nothing was planned."""
    survived: bool | None = None
    """Whether a refusal for length was overcome; None if there was none."""
    _summary: dict[str, Any] | None = None
    """Cached at the first look, as the dashboard looks every other second."""

    @property
    def held_bytes(self) -> int:
        """Its approximate memory."""
        return _LINE_BYTES + len(self.line.get("problem", "")) + _BLOCK_BYTES * len(self.blocks)

    def summary(self) -> dict[str, Any]:
        """The log line, and what became of the messages' tokens: kept, cut, left out."""
        if self._summary is None:
            self._summary = self._summed_up()
        return self._summary

    def _summed_up(self) -> dict[str, Any]:
        came = sum([block.tokens_before for block in self.blocks])
        cut = left_out = messages_left_out = 0
        if self.line.get("edits") and not self._is_original:
            for block in self.blocks:
                before, after = block.tokens_before, block.tokens_after
                if not after:
                    left_out += before
                    messages_left_out += 1
                elif after < before:
                    cut += before - after
        told = self._told
        shares = {"kept": told(came) - told(cut) - told(left_out), "cut": told(cut), "left_out": told(left_out)}
        ended = datetime.datetime.fromtimestamp(self.ended, datetime.UTC).isoformat(timespec="milliseconds")
        return {"ended": ended, **self.line, "message_tokens": shares, "messages_left_out": messages_left_out}

    def detail(self) -> dict[str, Any]:
        """The summary, and a block for each message."""
        return {**self.summary(), "blocks": self.described_blocks()}

    @property
    def trouble(self) -> int:
        """Whether somebody should look at it: 2 if it failed, was refused or comes with a warning, 1 if a second send
        has cured it, else 0."""
        line = self.line
        if line["outcome"] != "answered" or line.get("status", 0) >= 400 or "warning" in line:
            return 2
        return int(line.get("attempts", 1) > 1)

    def described_blocks(self) -> list[dict[str, Any]]:
        """The messages of the last send, in the model's tokens: an original that was sent in place of a refused plan
        has no edits."""
        blocks: Sequence[MessageReport] = self.blocks
        if self._is_original:
            blocks = [MessageReport(one.role, one.tool, one.tokens_before, one.tokens_before) for one in blocks]
        return described_blocks(blocks, self._told)

    @property
    def _is_original(self) -> bool:
        return self.line.get("rung") == Rung.ORIGINAL

    @property
    def _told(self) -> Callable[[int], int]:
        """Turns our tokens into those of the model."""
        return int if self.budget is None else self.budget.model_tokens


class Totals(Struct):
    """Since the process started."""

    requests: int = 0
    tokens_before: int = 0
    """Of the requests sent, before edits."""
    tokens_saved: int = 0
    """Of these, tokens that the upstream did not have to read."""
    overflows: int = 0
    """Requests that the upstream refused as too long."""
    overflows_survived: int = 0
    """Of these, those that succeeded with a second send."""
    followed: int = 0
    """Requests that continued a conversation whose previous request is known."""
    prefix_kept: float = 0.0
    """Sum over these of the share that stayed the same."""

    def described(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "requests": self.requests,
            "tokens_before": self.tokens_before,
            "tokens_saved": self.tokens_saved,
            "overflows": self.overflows,
            "overflows_survived": self.overflows_survived,
            "prefix_kept": round(self.prefix_kept / self.followed, 4) if self.followed else None,
        }

    def count(self, *, tokens_before: int, tokens_saved: int, survived: bool | None, prefix_kept: float | None) -> None:
        """A request is finished. `survived`: whether a refusal for length was overcome; None if there was none."""
        self.requests += 1
        self.tokens_before += tokens_before
        self.tokens_saved += tokens_saved
        if survived is not None:
            self.overflows += 1
            self.overflows_survived += survived
        if prefix_kept is not None:
            self.followed += 1
            self.prefix_kept += prefix_kept


class RecentDecisions(Struct):
    """Remembers decisions; the oldest go first."""

    max_decisions: int = MAX_DECISIONS
    max_bytes: int = MAX_BYTES
    totals: Totals = field(default_factory=Totals)
    started: float = field(default_factory=time.time)
    under_way: dict[int, Decision] = field(default_factory=dict)
    """Running requests, by identity; a client may use an id twice."""
    added: int = 0
    """Since the process started."""
    _held_bytes: int = 0
    _decisions: deque[Recorded] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._decisions)

    def add(self, recorded: Recorded) -> None:
        """Add a finished request."""
        self.added += 1
        self._decisions.append(recorded)
        self._held_bytes += recorded.held_bytes
        while len(self._decisions) > self.max_decisions or self._held_bytes > self.max_bytes:
            self._held_bytes -= self._decisions.popleft().held_bytes

    def newest(self, limit: int) -> Iterator[Recorded]:
        """At most this many, the newest first."""
        return islice(reversed(self._decisions), limit)

    def find(self, request_id: str) -> Recorded | None:
        """The newest with this id, which a client may use twice."""
        return next((one for one in reversed(self._decisions) if one.line["request_id"] == request_id), None)

    def running(self, limit: int) -> list[dict[str, Any]]:
        """The requests under way, the newest first."""
        return [_described(decision) for decision in islice(reversed(self.under_way.values()), limit)]

    def find_running(self, request_id: str) -> dict[str, Any] | None:
        """A request under way, as far as it is known, with its blocks."""
        decision = next((one for one in self.under_way.values() if one.request_id == request_id), None)
        if decision is None:
            return None
        plan = decision.planned.plan if decision.planned is not None else None
        line = {**decision.described(time.perf_counter()), "outcome": "running"}
        return Recorded(time.time(), line, plan.blocks if plan else (), plan.budget if plan else None).detail()


def _described(decision: Decision) -> dict[str, Any]:
    """A running request, as far as its outcome is known."""
    seconds = round(time.perf_counter() - decision.started, 1)
    line: dict[str, Any] = {"request_id": decision.request_id, "seconds": seconds, "attempts": decision.attempts}
    if decision.planned is not None:
        line["model"] = decision.planned.request.model[:MAX_MODEL_CHARACTERS]
        line["tokens_before"] = decision.planned.tokens_before
        line["tokens_after"] = decision.sent_tokens
    return line


def described_blocks(blocks: Iterable[MessageReport], told: Callable[[int], int] = int) -> list[dict[str, Any]]:
    """Blocks as JSON, with sizes as they are to be told. Its members are named here one by one: an edited conversation
    of a thousand messages comes this way at each turn, and `_asdict` would take a millisecond."""
    return [
        {
            "message": index,
            "role": role,
            "tool": tool,
            "tokens_before": told(before),
            "tokens_after": told(after),
            "reasons": reasons,
            "artifacts": artifacts,
        }
        for index, (role, tool, before, after, reasons, artifacts) in enumerate(blocks)
    ]
