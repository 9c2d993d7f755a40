"""Records requests: what happens on the way is a log line, and the finished record goes to each of a list of sinks.

Rule: every chat request writes exactly one `request_done`, however it ends; never a key, never content. One line for
each change is computed only if the level is debug.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from proxy.core.compaction import in_model_tokens
from proxy.core.conversation import SYSTEM_ROLES, Edit, MessageReport, Reason
from proxy.core.overflow import AttemptKind, Cure, Verdict, fixed_tokens
from proxy.core.truncation import TruncateToolOutput
from proxy.shell.artifacts import Replacements
from proxy.shell.planning import Planned
from proxy.shell.resources import BoundedMap, logger, write_lines_for
from proxy.shell.telemetry.history import History
from proxy.shell.telemetry.record import FEWER_TOOLS, LARGER_WINDOW, MAX_MODEL_CHARACTERS, RequestRecord, warning_of

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
"""Models and limits whose line has been written; a model's name is foreign input."""


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
        self._sinks: list[Callable[[RequestRecord], None]] = [self._write_line, metrics.finished]
        """Each takes every finished record."""
        if tracer is not None:
            self._sinks.append(tracer.finished)
        if history is not None:
            self._sinks.append(history.add)
        self._reported: BoundedMap[tuple[object, ...], None] = BoundedMap(_MAX_REPORTED)
        """Limits of models that the log has."""

    def plan_made(self, record: RequestRecord) -> None:
        """Log what a plan changes: one line for the plan, one for each new excerpt, and at the level debug one for each
        change."""
        planned = record.planned
        if planned is None:
            return
        self._metrics.planned(record)
        self._tell_limits(record, planned)
        if planned.changed:
            self._log.info("request_planned", request_id=record.request_id, **described_changes(planned))
            self._tell_edits(record, planned)
            self._keep_replacements(record, planned)
            new_edits = planned.new_edits
            self._media_routed(record, new_edits)
            self._results_cut(record, new_edits)
        if planned.known_messages == 0:
            self._tell_fixed_size(record, planned)
        if warning := warning_of(planned):
            self._log.warning(
                warning,
                request_id=record.request_id,
                model=planned.request.model[:MAX_MODEL_CHARACTERS],
                tokens=planned.tokens_after,
                window_tokens=planned.inputs.profile.window_tokens,
                advice=LARGER_WINDOW,
            )

    def _tell_fixed_size(self, record: RequestRecord, planned: Planned) -> None:
        """Log a new conversation whose tools and system text leave too little room."""
        budget = planned.plan.budget
        room = budget.model_tokens(budget.room_tokens)  # of a guessed window, too
        if planned.tokens_before <= room // 2:
            return
        fixed = budget.model_tokens(fixed_tokens(planned.plan))
        if fixed > room and planned.wire.tools(planned.request):
            self._log.warning(
                "agent_too_large",
                request_id=record.request_id,
                client=record.client,
                model=planned.request.model[:MAX_MODEL_CHARACTERS],
                tokens=fixed,
                window_tokens=planned.inputs.profile.window_tokens,
                advice=FEWER_TOOLS,
            )
        elif (system := system_tokens(planned)) > room // 2:
            self._log.warning(
                "system_text_long",
                request_id=record.request_id,
                model=planned.request.model,
                tokens=system,
                room_tokens=room,
            )

    def _keep_replacements(self, record: RequestRecord, planned: Planned) -> None:
        """Now, as the content of a plan may be elsewhere when its request is finished."""
        if self._replacements is None or record.mode == "observe":
            return
        edits = () if record.is_original else planned.plan.edits
        self._replacements.add(record.request_id, planned.tenant, edits, planned.plan.artifacts if edits else ())

    def _tell_edits(self, record: RequestRecord, planned: Planned) -> None:
        if self._log.is_enabled_for(logging.DEBUG):
            for line in edit_lines(planned):
                self._log.debug("edit", request_id=record.request_id, attempt=record.attempts, **line)

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
            prompt_tokens=profile.input_tokens,
            reply_tokens=profile.output_tokens,
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

    def _results_cut(self, record: RequestRecord, edits: Iterable[Edit]) -> None:
        for edit in edits:
            if edit.reason is Reason.TRUNCATE_TOOL_OUTPUT and edit.artifact is not None:
                self._metrics.result_cut(edit.limit)
                self._log.info(
                    "tool_output_truncated",
                    request_id=record.request_id,
                    tool=edit.tool,
                    original_chars=edit.before_chars,
                    kept_chars=edit.after_chars,
                    limit=edit.limit,
                    artifact=edit.artifact.id,
                )

    def _media_routed(self, record: RequestRecord, edits: Iterable[Edit]) -> None:
        for edit in edits:
            if edit.media is not None:
                self._log.info(
                    "media_routed",
                    request_id=record.request_id,
                    kind=edit.media.kind,
                    mime=edit.media.mime,
                    bytes=edit.media.byte_count,
                    route=edit.media.route,
                    reason=edit.media.reason,
                    artifact=edit.artifact.id if edit.artifact is not None else None,
                )

    def overflowed(self, record: RequestRecord, verdict: Verdict) -> None:
        """The upstream says that the request is too long."""
        record.too_long = True
        self._metrics.overflows.labels(verdict.kind.value).inc()
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

    def retried(self, record: RequestRecord, cure: Cure, refused: Verdict) -> None:
        """A second request is sent that the client does not see; `refused`: what the first one met with."""
        if refused.is_suspect and cure.kind is AttemptKind.EMERGENCY:  # silence is taken for a length
            self.overflowed(record, refused)
        self._metrics.attempts.labels(cure.kind.value).inc()
        if cure.kind is AttemptKind.WITHOUT_MEDIA and record.planned is not None:
            self._media_routed(record, record.planned.plan.edits)
        planned, goal = record.planned, cure.goal_tokens
        is_edited = planned is not None and planned.changed and cure.kind is not AttemptKind.ORIGINAL
        line: dict[str, Any] = {
            "cause": cure.cause,
            "limit": refused.limit if refused.limit_bytes is None else refused.limit_bytes,
            "seen": refused.largest_size,
            "cure": cure.kind.value,
            "learned": refused.limit_is_learnable,
            "goal_tokens": goal if planned is None or goal is None else planned.plan.budget.model_tokens(goal),
            "reply_tokens": cure.reply_tokens,
            "refused": sorted(cure.refused),
            "tokens_after": planned.tokens_after if planned is not None else None,
        }
        if planned is not None and is_edited:
            line = {**described_changes(planned), **line}
        self._log.info(_RETRIED.get(cure.kind, "overflow_retried"), request_id=record.request_id, **line)
        if planned is not None:
            self._tell_limits(record, planned)
            self._keep_replacements(record, planned)
        if planned is not None and is_edited:
            self._tell_edits(record, planned)

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
        log("request_done", **vars(record))


def system_tokens(planned: Planned) -> int:
    """The model's tokens in system and developer text, which can never be shortened."""
    tokens = sum(block.tokens_after for block in planned.plan.blocks if block.role in SYSTEM_ROLES and not block.tool)
    return planned.plan.budget.model_tokens(tokens)


MAX_EDIT_LINES: Final = 500
"""Most log lines of one plan; a last line says how many changes have none."""
MAX_ARTIFACTS: Final = 20
"""Named in a summary: a conversation with more has them in its `edit` lines."""
MAX_RANGES: Final = 40
"""Limit of message ranges in a summary."""


def result_limits(planned: Planned) -> dict[str, Any]:
    """The most that a tool result may have when it arrives, and what sets it; nothing while nothing can be kept."""
    steps = (step for step in planned.inputs.pipeline.local if isinstance(step, TruncateToolOutput))
    return {
        name: value
        for step in steps
        for name, value in (
            ("result_lines", step.limits.max_lines),
            ("result_bytes", step.limits.max_bytes),
            ("result_chars", step.limits.max_chars),
            ("result_bound_by", step.bound_by),
        )
    }


def described_changes(planned: Planned) -> dict[str, Any]:
    """The members of a line for a plan: sizes before and after, edits by reason, and the messages concerned."""
    plan, counts = planned.plan, planned.reasons
    return {
        "model": planned.request.model[:MAX_MODEL_CHARACTERS],
        "tokens_before": planned.tokens_before,
        "tokens_after": planned.tokens_after,
        "chars_before": plan.before.chars,
        "chars_after": plan.after.chars,
        "messages_before": planned.message_count,
        "messages_dropped": counts.get(Reason.OLD_EXCHANGE.value, 0),
        "truncated": any(edit.artifact is not None for edit in plan.edits),
        "reasons": counts,
        **_messages_of(planned),
    }


def _messages_of(planned: Planned) -> dict[str, Any]:
    """Which messages are changed, which are left out, and where the originals are kept."""
    blocks = planned.plan.blocks
    changed = [index for index, block in enumerate(blocks) if block.reasons and block.tokens_after]
    left_out = [index for index, block in enumerate(blocks) if block.reasons and not block.tokens_after]
    kept_in = dict.fromkeys(name for block in blocks for name in block.artifacts)
    found: dict[str, Any] = {}
    if changed:
        found["changed"] = ranges(changed)
    if left_out:
        found["left_out"] = ranges(left_out)
    if kept_in:
        found["artifacts"] = list(kept_in)[:MAX_ARTIFACTS]
    return found


def edit_lines(planned: Planned) -> Iterator[dict[str, Any]]:
    """The members of one line for each change, in the order of the messages; neighbours that are left out into the same
    artifact share a line. Sizes are in the model's tokens."""
    runs = [*_runs(in_model_tokens(planned.plan.blocks, planned.plan.budget))]
    for index, run in runs[:MAX_EDIT_LINES]:
        yield _line_of(index, run)
    yield from _beside_messages(planned)
    if len(runs) > MAX_EDIT_LINES:
        yield {"not_told": len(runs) - MAX_EDIT_LINES}


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as people write them.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3,7,9-10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:MAX_RANGES]]
    return ",".join([*shown, "…"] if len(runs) > MAX_RANGES else shown)


def _runs(blocks: Sequence[MessageReport]) -> Iterator[tuple[int, list[MessageReport]]]:
    """Index of the first message, and the changed messages that share a line."""
    run: list[MessageReport] = []
    for index, block in enumerate(blocks):
        joins = bool(run) and not block.tokens_after and not run[0].tokens_after
        if run and not (joins and (block.reasons, block.artifacts) == (run[0].reasons, run[0].artifacts)):
            yield index - len(run), run
            run = []
        if block.reasons:
            run.append(block)
    if run:
        yield len(blocks) - len(run), run


def _line_of(index: int, run: Sequence[MessageReport]) -> dict[str, Any]:
    first = run[0]
    line: dict[str, Any] = {"message": index}
    if len(run) > 1:
        line |= {"last_message": index + len(run) - 1}
    else:
        line |= {"role": first.role, "tool": first.tool}
    return line | {
        "reasons": first.reasons,
        "tokens_before": sum(block.tokens_before for block in run),
        "tokens_after": sum(block.tokens_after for block in run),
        "artifacts": first.artifacts,
    }


def _beside_messages(planned: Planned) -> Iterator[dict[str, Any]]:
    """Changes of the request itself, which no message shows."""
    shown = {reason for block in planned.plan.blocks for reason in block.reasons}
    for reason, count in planned.reasons.items():
        if reason in shown:
            continue
        line: dict[str, Any] = {"reasons": (reason,), "count": count}
        if reason == Reason.CLAMP_REPLY.value and planned.reply_tokens is not None:
            line |= {"tokens_before": planned.request.reply_tokens, "tokens_after": planned.reply_tokens}
        yield line
