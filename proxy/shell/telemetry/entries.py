"""A finished request as an entry of the ledger: what is kept and what the dashboard shows.

Rule: sizes, names and reasons, never a key and never content. A request pays for one `Finished`; what only people need
is computed in the thread that writes it.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, NotRequired

import msgspec
from typing_extensions import TypedDict

from proxy.core.compaction import Budget
from proxy.core.conversation import MessageReport
from proxy.core.overflow import AttemptKind
from proxy.shell.telemetry.record import MAX_MODEL_CHARACTERS, Line, RequestOutcome, RequestRecord, Sum

MAX_BLOCKS: Final = 2_000
"""Messages of one request that are kept: the last ones."""
MAX_UNCHANGED_BLOCKS: Final = 50
"""Messages of a request that nothing was done to: more would cost more CPU than the rest of its entry."""
_OUTCOMES: Final = frozenset(RequestOutcome)
FAILURES: Final = _OUTCOMES - {
    RequestOutcome.ANSWERED,
    RequestOutcome.REFUSED,
    RequestOutcome.CONTEXT_LENGTH_EXCEEDED,
    RequestOutcome.CLIENT_LEFT,
}
"""Outcomes that are the upstream's or the proxy's fault."""


class Block(TypedDict):
    """What becomes of one message. Sizes are in the model's tokens."""

    message: int
    """Its index in the conversation, from 0."""
    role: str
    tool: str
    """The tool whose result it is; empty if it is none."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: Sequence[str]
    """Why it is changed; empty: it is sent unchanged."""
    artifacts: Sequence[str]
    """Where the content taken out of it is stored."""
    limit: NotRequired[str]
    """The limit that it exceeded by itself, and its value: `tool_output.max_lines=2000`; `window=30000`: bytes of its
    share of the window."""


class Shares(TypedDict):
    """Tokens of the messages, by what became of them."""

    kept: int
    cut: int
    left_out: int


class Summary(Line):
    """One finished request: the members of its log line, and what became of its tokens."""

    id: int
    """Equal in all workers, larger for what ended later; 0 while it is running."""
    ended: str
    """ISO 8601, UTC."""
    message_tokens: Shares
    messages_left_out: int
    tool: NotRequired[str]
    """The tool of most of its results; empty if it has none."""


class Detail(Summary):
    """One request, with a block for each of its messages."""

    blocks: Sequence[Block]
    """Empty if the request could not be read, or was long and not edited."""


class Running(TypedDict):
    """A running request."""

    request_id: str
    seconds: float
    attempts: int
    model: NotRequired[str]
    tokens_before: NotRequired[int]
    tokens_after: NotRequired[int]


class Turn(TypedDict):
    """One request of a conversation."""

    request_id: str
    tokens_before: int | None
    """Empty, like the next two, if the request could not be read."""
    tokens_after: int | None
    room_tokens: int | None
    changed: int
    """1: it was edited."""
    troubled: int
    """2: it failed, was refused or came with a warning; 1: a second send has cured it."""


class Conversation(TypedDict):
    """The requests that begin with the same task."""

    conversation: str
    requests: int
    last: int
    """The `id` of its latest request."""
    began: float
    """Unix time."""
    ended: float
    changed: int
    troubled: int
    model: str
    client: str
    tool: str
    """The tool of most results."""
    turns: list[Turn]
    """The latest, the oldest of them first."""


class Entry(msgspec.Struct, frozen=True):
    """The record kept of a finished request."""

    ended: Sum
    """Unix time."""
    summary: Summary
    blocks: list[Block] | None
    """The last messages, one by one; None: they are not kept."""
    sums: dict[str, Sum]
    """Its share of the sums of its five minutes, by name."""
    trouble: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    """2 if it failed or was refused, 1 if that was cured, else 0."""


class Finished(msgspec.Struct, frozen=True):
    """A request as it ended. The entry of it is made later, in another thread."""

    ended: float
    """Unix time."""
    line: Line
    blocks: tuple[MessageReport, ...]
    """Planned messages by our estimate; empty if there was no plan."""
    budget: Budget | None = None
    """The plan's budget."""
    sent_tokens: int | None = None
    """Estimated size of the last send; None if nothing was sent, or nothing was planned."""
    survived: bool | None = None
    """Whether a refusal for length was overcome; None if there was none."""

    def summary(self) -> Summary:
        """The log line, and what became of the messages' tokens: kept, cut, left out."""
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
        tools = Counts(block.tool for block in self.blocks if block.tool)
        convert = self._converter
        shares: Shares = {
            "kept": convert(came) - convert(cut) - convert(left_out),
            "cut": convert(cut),
            "left_out": convert(left_out),
        }
        ended = datetime.datetime.fromtimestamp(self.ended, datetime.UTC).isoformat(timespec="milliseconds")
        return {
            "id": 0,  # the ledger gives it one
            "ended": ended,
            **self.line,
            "message_tokens": shares,
            "messages_left_out": messages_left_out,
            "tool": next((tool for tool, _ in tools.most_common(1)), ""),
        }

    def entry(self) -> Entry:
        """The entry of the request."""
        is_worth_it = bool(self.line.get("edits")) or len(self.blocks) <= MAX_UNCHANGED_BLOCKS
        blocks = self.described_blocks()[-MAX_BLOCKS:] if is_worth_it else None
        return Entry(self.ended, self.summary(), blocks, self._sums(), _trouble_of(self.line))

    def _sums(self) -> dict[str, float]:
        line, is_timed = self.line, "first_byte_ms" in self.line
        went_well = line["outcome"] == RequestOutcome.ANSWERED
        before, sent = (line["tokens_before"], self.sent_tokens) if self.sent_tokens is not None else (0, 0)
        window = line.get("window_tokens") or before
        would_fail = before > window >= sent and not line.get("window_is_guessed")
        return {
            "requests": 1,
            "failed": line["outcome"] in FAILURES,
            "edited": bool(line.get("edits")),
            "overflows": self.survived is not None,
            "survived": self.survived is True,
            "refused": line["outcome"] == RequestOutcome.REFUSED,
            "fitted": went_well and (self.survived is True or would_fail),
            "tokens_saved": max(0, min(before, window) - sent) if went_well else 0,
            "tokens_before": before,
            "tokens_sent": sent,
            "prompt_tokens": line.get("prompt_tokens", 0),
            "cached_tokens": min(line.get("cached_tokens", 0), line.get("prompt_tokens", 0)),
            "reply_tokens": line.get("reply_tokens", 0),
            "waited": is_timed,
            "first_byte_ms": line.get("first_byte_ms", 0.0),
            "followed": "prefix_kept" in line,
            "prefix_kept": line.get("prefix_kept", 0.0),
        }

    def described_blocks(self) -> list[Block]:
        """The messages of the last send, in the model's tokens: an original that was sent in place of a refused plan
        has no edits."""
        blocks: Sequence[MessageReport] = self.blocks
        if self._is_original:
            blocks = [MessageReport(one.role, one.tool, one.tokens_before, one.tokens_before) for one in blocks]
        return described_blocks(blocks, self._converter)

    @property
    def _is_original(self) -> bool:
        return self.line.get("attempt_kind") == AttemptKind.ORIGINAL

    @property
    def _converter(self) -> Callable[[int], int]:
        """Turns our tokens into those of the model."""
        return int if self.budget is None else self.budget.model_tokens


def described_running(record: RequestRecord) -> Running:
    """A running request, as far as its outcome is known."""
    seconds = round(time.perf_counter() - record.started, 1)
    line: Running = {"request_id": record.request_id, "seconds": seconds, "attempts": record.attempts}
    if record.planned is not None:
        line["model"] = record.planned.request.model[:MAX_MODEL_CHARACTERS]
        line["tokens_before"] = record.planned.tokens_before
        line["tokens_after"] = record.sent_tokens
    return line


def running_detail(record: RequestRecord) -> Detail:
    """A running request as far as it is known, with its messages."""
    plan = record.planned.plan if record.planned is not None else None
    line: Line = {**record.described(time.perf_counter()), "outcome": "running"}
    found = Finished(time.time(), line, plan.blocks if plan else (), plan.budget if plan else None)
    return {**found.summary(), "blocks": found.described_blocks()}


def _trouble_of(line: Line) -> int:
    if line["outcome"] != RequestOutcome.ANSWERED or "warning" in line:
        return 2
    return int(line.get("attempts", 1) > 1)


def outcome_of(line: Line) -> str:
    """The outcome in a line of any version: until 0.2.0, `answered` had any status, and an error its own code."""
    outcome, status = line["outcome"], line.get("status", 0)
    if outcome in _OUTCOMES and (outcome != RequestOutcome.ANSWERED or status < 400):
        return outcome
    return RequestOutcome.of_status(status).value


def described_blocks(blocks: Iterable[MessageReport], convert: Callable[[int], int] = int) -> list[Block]:
    """Blocks as JSON, with sizes converted by `convert`."""
    described: list[Block] = []
    for index, one in enumerate(blocks):
        block: Block = {
            "message": index,
            "role": one.role,
            "tool": one.tool,
            "tokens_before": convert(one.tokens_before),
            "tokens_after": convert(one.tokens_after),
            "reasons": one.reasons,
            "artifacts": one.artifacts,
        }
        if one.limit:
            block["limit"] = one.limit
        described.append(block)
    return described
