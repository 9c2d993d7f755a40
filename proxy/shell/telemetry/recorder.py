"""Records requests: a log line for what happens on the way, a list of sinks for the finished record.

Rule: every chat request writes exactly one `request_done`, however it ends; never a key, never content. One line for
each change is computed only if the level is debug.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final

from proxy.core.conversation import SYSTEM_ROLES, Edit, Reason
from proxy.core.overflow import AttemptKind, Cure, Verdict, fixed_tokens
from proxy.core.truncation import TruncateToolOutput
from proxy.shell.artifacts import Replacements
from proxy.shell.planning import Planned
from proxy.shell.resources import BoundedMap, logger, write_lines_for
from proxy.shell.telemetry.history import History
from proxy.shell.telemetry.record import (
    FEWER_TOOLS,
    LARGER_WINDOW,
    MAX_MODEL_CHARACTERS,
    RequestRecord,
    described_blocks,
    warning_of,
)

if TYPE_CHECKING:
    from proxy.shell.telemetry.metrics import Metrics
    from proxy.shell.telemetry.tracing import Tracer
    from proxy.shell.upstream import Headers

_RETRIED: Final = {
    AttemptKind.ORIGINAL: "original_retried",
    AttemptKind.WITHOUT_TOOL: "original_retried",
    AttemptKind.WITHOUT_MEDIA: "media_refused",
    AttemptKind.FITTED: "cut_retried",
    AttemptKind.REPAIRED: "history_healed",
}
"""Events of second sends for reasons other than length."""
_MAX_REPORTED: Final = 1_024
"""Models, limits and conversations whose line has been written; a model's name is foreign input."""
WARNING_SECONDS: Final = 900.0
"""Between two lines of the same warning about the same model."""
_CUTS: Final = frozenset(
    (Reason.LONG_OLD_TEXT, Reason.OLD_RESULT, Reason.OLD_EXCHANGE, Reason.NEWEST_RESULT, Reason.NEWEST_TEXT)
)
"""What a history loses because it no longer fits."""
MAX_EDIT_LINES: Final = 500
"""Most log lines of one plan."""
MAX_ARTIFACTS: Final = 20
"""Named in a summary: a conversation with more has them in its `edit` lines."""
MAX_RANGES: Final = 40
"""Limit of message ranges in a summary."""


class Recorder:
    """Tells what happens to requests."""

    def __init__(
        self,
        metrics: Metrics,
        tracer: Tracer | None = None,
        history: History | None = None,
        replacements: Replacements | None = None,
    ) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._replacements = replacements
        self._under_way: dict[int, RequestRecord] = {} if history is None else history.under_way
        metrics.under_way = self._under_way
        self._log = logger().bind()  # bound only once, as every request writes a line
        told = [one.finished for one in (metrics, tracer, history) if one is not None]
        self._sinks: Sequence[Callable[[RequestRecord], None]] = [self._write_line, *told]
        """Each takes every finished record."""
        self._reported: BoundedMap[tuple[object, ...], None] = BoundedMap(_MAX_REPORTED)
        """Limits of models that the log has."""
        self._cut: BoundedMap[str, None] = BoundedMap(_MAX_REPORTED)
        """Conversations whose first cut the log has."""
        self._warned: BoundedMap[tuple[str, str], tuple[float, int]] = BoundedMap(_MAX_REPORTED)
        """Event and model → when it was last written, and how often it came since."""

    def plan_made(self, record: RequestRecord, planned: Planned) -> None:
        """Log what a plan changes: one line for the plan, one for each new excerpt, and at the level debug one for each
        message."""
        for reason, count in planned.reasons.items():
            self._metrics.counters["edits"].labels(reason).inc(count)
        self._tell_limits(record, planned)
        if planned.changed:
            self._log.info("request_planned", request_id=record.request_id, **described_changes(planned))
            self._note_edits(record, planned)
            self._tell_new_edits(record, planned.new_edits)
            self._tell_first_cut(record, planned)
        if planned.known_messages == 0:
            self._tell_fixed_size(record, planned)
        if warning := warning_of(planned):
            self._warn(record, warning, planned, tokens=planned.tokens_after, advice=LARGER_WINDOW)

    def _tell_first_cut(self, record: RequestRecord, planned: Planned) -> None:
        """Log that the history of a conversation no longer fits: once for each, as the next turns keep the cut."""
        conversation = planned.last_sent.conversation
        if _CUTS.isdisjoint(planned.reasons) or not conversation or conversation in self._cut:
            return
        self._cut.put(conversation, None)
        self._log.info(
            "conversation_cut",
            request_id=record.request_id,
            client=record.client,
            key=record.key,
            model=planned.request.model[:MAX_MODEL_CHARACTERS],
            conversation=conversation,
            turn=1 + sum(one.role == "assistant" for one in planned.plan.blocks),
            tokens_before=planned.tokens_before,
            tokens_after=planned.tokens_after,
            room_tokens=planned.room_tokens,
            edits={reason: count for reason, count in planned.reasons.items() if reason in _CUTS},
        )

    def _tell_fixed_size(self, record: RequestRecord, planned: Planned) -> None:
        """Log a new conversation whose tools and system text leave too little room."""
        budget = planned.plan.budget
        room = budget.model_tokens(budget.room_tokens)  # of a guessed window, too
        if planned.tokens_before <= room // 2:
            return
        texts = (one for one in planned.plan.blocks if one.role in SYSTEM_ROLES and not one.tool)  # never shortened
        system = budget.model_tokens(sum(one.tokens_after for one in texts))
        fixed = budget.model_tokens(fixed_tokens(planned.plan))
        if fixed > room and planned.wire.tools(planned.request):
            self._warn(record, "agent_too_large", planned, tokens=fixed, advice=FEWER_TOOLS)
        elif system > room // 2:
            self._warn(record, "system_text_long", planned, tokens=system, room_tokens=room)

    def _warn(self, record: RequestRecord, event: str, planned: Planned, **found: object) -> None:
        """Log a warning about a model at once, and how often it came again every WARNING_SECONDS."""
        model, now = planned.request.model[:MAX_MODEL_CHARACTERS], time.monotonic()
        told, times = self._warned.get((event, model)) or (float("-inf"), 0)
        is_due = now - told >= WARNING_SECONDS
        self._warned.put((event, model), (now, 0) if is_due else (told, times + 1))
        if is_due:
            about = {"request_id": record.request_id, "client": record.client, "model": model, "times": times + 1}
            window_tokens = planned.inputs.profile.window_tokens
            self._log.warning(event, **about, **found, window_tokens=window_tokens)

    def _note_edits(self, record: RequestRecord, planned: Planned) -> None:
        """Keep what is sent in place of artifacts, as the content of a plan may be elsewhere when its request is
        finished."""
        plan, edits = planned.plan, () if record.is_original else planned.plan.edits
        if self._replacements is not None and record.mode != "observe":
            self._replacements.add(record.request_id, planned.tenant, edits, plan.artifacts if edits else ())
        if edits and self._log.is_enabled_for(logging.DEBUG):
            blocks = described_blocks(plan.blocks, plan.budget)
            for block in islice((one for one in blocks if one.reasons), MAX_EDIT_LINES):
                self._log.debug("edit", request_id=record.request_id, attempt=record.attempts, **vars(block))

    def _tell_limits(self, record: RequestRecord, planned: Planned) -> None:
        """Log the limits that hold for a model when they are first used, and again when others do."""
        profile = planned.inputs.profile
        limits = (profile.model, profile.window_tokens, profile.input_tokens, profile.output_tokens, profile.modalities)
        if limits in self._reported:
            return
        self._reported.put(limits, None)
        self._log.info(
            "model_limits",
            request_id=record.request_id,
            model=profile.model[:MAX_MODEL_CHARACTERS],
            window_tokens=profile.window_tokens,
            window_from=profile.sources.get("window_tokens", ""),
            window_is=profile.certainty.value,
            input_limit=profile.input_tokens,
            output_limit=profile.output_tokens,
            room_tokens=planned.room_tokens,
            reads=None if profile.modalities is None else sorted(profile.modalities),
            counted_by=planned.inputs.counted_by,
            **result_limits(planned),
        )

    def cut(self, record: RequestRecord, estimate_tokens: int, prompt_tokens: int) -> None:
        """The upstream has silently cut the prompt."""
        model = record.planned.request.model if record.planned is not None else ""
        self._log.warning(
            "upstream_truncated_silently",
            request_id=record.request_id,
            model=model[:MAX_MODEL_CHARACTERS],
            estimate_tokens=estimate_tokens,
            prompt_tokens=prompt_tokens,
            window_tokens=record.cut_to_tokens,
            advice=LARGER_WINDOW,
        )

    def _tell_new_edits(self, record: RequestRecord, edits: Iterable[Edit]) -> None:
        for edit in edits:
            artifact = None if edit.artifact is None else edit.artifact.id
            if edit.media is not None:
                self._log.info(
                    "media_routed",
                    request_id=record.request_id,
                    kind=edit.media.kind,
                    mime=edit.media.mime,
                    bytes=edit.media.byte_count,
                    route=edit.media.route,
                    reason=edit.media.reason,
                    artifact=artifact,
                )
            elif edit.reason is Reason.TRUNCATE_TOOL_OUTPUT and artifact is not None:
                self._metrics.result_cut(edit.limit)
                self._log.info(
                    "tool_output_truncated",
                    request_id=record.request_id,
                    tool=edit.tool,
                    original_chars=edit.before_chars,
                    kept_chars=edit.after_chars,
                    limit=edit.limit,
                    artifact=artifact,
                )

    def overflowed(self, record: RequestRecord, verdict: Verdict) -> None:
        """The upstream says that the request is too long."""
        record.too_long = True
        self._metrics.counters["overflows"].labels(verdict.kind.value).inc()
        self._log.warning(
            "overflow_detected",
            request_id=record.request_id,
            status=record.status,
            kind=verdict.kind.value,
            limit=verdict.limit,
            limit_scope=verdict.limit_scope.value,
            requested=verdict.requested,
            prompt=verdict.prompt,
            exactness=verdict.exactness.value,
            evidence=verdict.evidence,
            confidence=verdict.confidence,
        )

    def retried(self, record: RequestRecord, planned: Planned, cure: Cure, refused: Verdict) -> None:
        """The request is sent once more, which the client does not see; `refused`: what the send before met with."""
        record.note_attempt(cure, planned)
        if refused.is_suspect and cure.kind is AttemptKind.EMERGENCY:  # silence is taken for a length
            self.overflowed(record, refused)
        self._metrics.counters["attempts"].labels(cure.kind.value).inc()
        if cure.kind is AttemptKind.WITHOUT_MEDIA:
            self._tell_new_edits(record, [edit for edit in planned.plan.edits if edit.media is not None])
        is_edited = planned.changed and cure.kind is not AttemptKind.ORIGINAL
        named, limit, seen = refused.stated
        line = {
            **(described_changes(planned) if is_edited else {}),
            "cause": cure.cause,
            "named": named,
            "limit": limit,
            "seen": seen,
            "cure": cure.kind.value,
            "learned": refused.limit_is_learnable,
            "goal_tokens": None if cure.goal_tokens is None else planned.plan.budget.model_tokens(cure.goal_tokens),
            "reply_limit": cure.reply_tokens,
            "refused": sorted(cure.refused),
            "tokens_after": planned.tokens_after,
        }
        self._log.info(_RETRIED.get(cure.kind, "overflow_retried"), request_id=record.request_id, **line)
        self._tell_limits(record, planned)
        self._note_edits(record, planned)

    def artifact_read(self, record: RequestRecord, artifact: str, read_bytes: int) -> None:
        """The model has called the proxy's own tool."""
        self._log.info(
            "artifact_read",
            request_id=record.request_id,
            artifact=artifact,
            bytes=read_bytes,
            round=record.retrieval_rounds,
        )

    def begin(self, request_id: str, headers: Headers | None = None) -> RequestRecord:
        """The record of a request that has just arrived; from now on, all log lines of its task carry its id."""
        write_lines_for(request_id)
        record = RequestRecord(request_id, started=time.perf_counter())
        self._under_way[id(record)] = record
        if self._tracer is not None:
            record.parent = self._tracer.parent_of(headers or [])
        return record

    def finish(self, record: RequestRecord) -> None:
        """The request is finished."""
        self._under_way.pop(id(record), None)
        record.complete(time.perf_counter())
        for sink in self._sinks:
            sink(record)

    def _write_line(self, record: RequestRecord) -> None:
        log = self._log.warning if record.is_problem else self._log.info
        log("request_done", **record.in_order())


def result_limits(planned: Planned) -> dict[str, Any]:
    """The most that a tool result may have when it arrives, and what sets it; nothing while nothing can be kept."""
    step = next((one for one in planned.inputs.pipeline.local if isinstance(one, TruncateToolOutput)), None)
    return (
        {}
        if step is None
        else {
            "result_lines": step.limits.max_lines,
            "result_bytes": step.limits.max_bytes,
            "result_chars": step.limits.max_chars,
            "result_bound_by": step.bound_by,
        }
    )


def described_changes(planned: Planned) -> dict[str, Any]:
    """The members of a line for a plan: sizes before and after, edits by reason, which messages are changed, which are
    left out, and where the originals are kept."""
    plan, counts = planned.plan, planned.reasons
    edited = [(index, block) for index, block in enumerate(plan.blocks) if block.reasons]
    return {
        "model": planned.request.model[:MAX_MODEL_CHARACTERS],
        "tokens_before": planned.tokens_before,
        "tokens_after": planned.tokens_after,
        "chars_before": plan.before.chars,
        "chars_after": plan.after.chars,
        "messages_before": planned.message_count,
        "messages_dropped": counts.get(Reason.OLD_EXCHANGE.value, 0),
        "truncated": any(edit.artifact is not None for edit in plan.edits),
        "edits": counts,
        "changed": ranges(index for index, block in edited if block.tokens_after),
        "left_out": ranges(index for index, block in edited if not block.tokens_after),
        "artifacts": [*dict.fromkeys(name for _, block in edited for name in block.artifacts)][:MAX_ARTIFACTS],
    }


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as people write them.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3,7,9-10'
    """
    neighbours = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in run] for _, run in neighbours]
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:MAX_RANGES]]
    return ",".join([*shown, "…"] if len(runs) > MAX_RANGES else shown)
