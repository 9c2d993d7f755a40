"""The log: the meaning of each event, from which docs/log.md is generated, and the members of the lines about plans.

Rule: exactly the events that the code writes are listed here; a test compares. Never a key, never content. One line for
each change is computed only if the level is debug.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from proxy.core.compaction.budget import in_model_tokens
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.tracked_message import MessageReport
from proxy.core.truncation.tool_output import TruncateToolOutput
from proxy.shell.planning.planned import Planned
from proxy.shell.telemetry.decision import MAX_MODEL_CHARACTERS

MAX_EDIT_LINES: Final = 500
"""For one plan; a last line says how many changes have none."""
MAX_ARTIFACTS: Final = 20
"""Named in a summary: a conversation with more has them in its `edit` lines."""
MAX_RANGES: Final = 40
"""Of message numbers in a summary."""
EVENTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("request_done",),
        "every chat request, however it ended: sizes, edits, times, outcome; `refusal`: what the upstream refused it "
        "for (`prompt`, `auth`, `rate`, …), also in the mode `observe`; and `prefix_kept`: the share (0–1) of the "
        "conversation's previous request, as sent, with which this one begins (from 4 KB on); with "
        "`retrieval_rounds`, `usage`: the tokens of all rounds together; the client sees only the first prompt's; with "
        "several upstreams, `route`: which of them serves it, by its place in the settings (`upstreams[0]`)",
    ),
    (("messages_compressed",), "`/v1/compress` answered a gateway: sizes before and after, edits by reason"),
    (
        ("request_planned",),
        "a request was changed: sizes before and after, edits by reason, the numbers of the messages that were "
        "`changed` and `left_out`, and the `artifacts` that hold what was taken out",
    ),
    (
        ("edit",),
        "at the level debug, one for each change of each send: the `message`, by its number from 0 (to `last_message`, "
        "for neighbours left out together), `reasons`, tokens before and after, `artifacts`",
    ),
    (
        ("model_limits",),
        "the limits that hold for a model, when they are first used and whenever they differ: the window, where it "
        "comes from, and how it is known (`stated`, `learned`, `inferred`, `guessed`); the most lines, bytes and "
        "characters of a tool result, and whether `settings` or the share of the `window` set the bytes",
    ),
    (("tool_output_truncated", "artifact_saved"), "a tool result was cut; all of it is in the file of that name"),
    (("media_routed",), "an image, a sound or a file was moved or described: kind, type, bytes, route"),
    (("media_refused", "media_refusal_learned"), "media were refused and sent as text instead; what is remembered"),
    (
        ("overflow_detected", "overflow_retried", "original_retried"),
        "the upstream refused; what was sent next, with the same members as `request_planned`, and the goal that was "
        "used",
    ),
    (
        ("waiting_request_lost",),
        "a waiting request could not be written to a file, or read back, so it is not sent again: `problem`",
    ),
    (("history_healed",), "the upstream refused the history, which was repaired and sent again"),
    (
        ("limit_learned", "ratio_learned", "image_cost_learned", "tool_refusal_learned"),
        "the upstream taught something: its limits, how it counts texts and images, that it does not accept "
        "`read_artifact`; `context-proxy models --forget` erases it",
    ),
    (
        ("configured_window_corrected",),
        "a refusal printed a window smaller than the configured one; requests are fitted to the smaller one until it "
        "is refuted or forgotten",
    ),
    (("window_tried",), "a learned limit may have grown: to find out, this request is cut less and sent larger"),
    (
        ("upstream_truncated_silently", "cut_retried"),
        "the upstream counted far less than was sent; what it certainly reads whole was sent next",
    ),
    (
        ("window_too_small",),
        "a server that cuts silently has a window smaller than system text and tools; what to set is in `advice`",
    ),
    (("system_text_long",), "the system text alone takes half of the room"),
    (("artifact_store_failed",), "the store cannot be written; requests continue, uncut if they fit"),
    (("artifacts_gone",), "what was kept in a bucket is no longer there; what requests bring again is kept again"),
    (
        ("artifact_read",),
        "somebody read an artifact, or tried to; with a `round`: the model, with the tool that it was offered; with a "
        "`tool`: a client of MCP, with the tool that it called",
    ),
    (
        ("image_fetched", "image_not_fetched"),
        "with `media.fetch_remote_images`: what became of an image on the web; its host, never the whole address",
    ),
    (("artifacts_swept",), "old artifacts were deleted, or the least recently used ones above the size limit"),
    (
        ("request_refused",),
        "a client was cut off before the proxy had the head of its request (too long, too slow, not HTTP, or one "
        "connection too many), or it called by a name that is not in `server.host_names`; the reason is in `problem`",
    ),
    (
        ("wrong_admin_key",),
        "somebody asked for one of the operator's pages with another key than `server.admin_key`: the `client`'s "
        "address, and what `X-Forwarded-For` claims; never the key",
    ),
    (
        ("request_not_read", "passthrough_failed"),
        "a compression that the proxy cannot read; a request to another path without a response",
    ),
    (
        ("decisions_not_kept",),
        "the file with the latest requests is locked, broken or cannot be written: each worker shows its own until the "
        "file works again; a broken one is put aside, and one that was removed is made again",
    ),
    (
        ("learning_not_kept", "learning_not_read", "learning_not_erased"),
        "the data folder cannot be written; only what was learned is lost",
    ),
    (
        ("owner_secret_not_kept",),
        "the secret of tenants cannot be written to the data folder, and lasts as long as the process; or it cannot be "
        "read in a bucket, and until it is, nothing is kept or read there",
    ),
    (
        ("state_not_shared",),
        "replicas with another secret of tenants use the server at `state.url`, too: each group is for itself",
    ),
    (
        ("state_lost", "state_found", "state_failed"),
        "the server at `state.url` is away, or there again, or a defect of the proxy keeps it from what is there; "
        "meanwhile each replica goes by what it knows and learns, and shows the requests that it has",
    ),
    (
        ("catalogue_unavailable", "models_listed", "models_not_listed", "window_allocated"),
        "where the windows of models come from: lists, the catalogue, what a self-hosted server has allocated",
    ),
    (
        ("windows_guessed", "window_guessed"),
        "nobody states a window for this upstream: at the start, and with the first long request to a model; how to "
        "state it is in `advice`",
    ),
    (
        ("planning_failed", "reference_failed", "judging_failed", "request_failed"),
        "a defect of the proxy; the request is sent unchanged if possible",
    ),
    (("mcp_failed",), "the SDK of MCP reports a failure of its own; only its kind, as its words may quote a client"),
    (("metrics_not_shared",), "no folder for temporary files: each worker's `/metrics` reports its own figures"),
    (("listening",), "the port is open"),
    (
        ("settings_reloaded", "settings_not_reloaded"),
        "after SIGHUP or `POST /-/reload`: the outcome; `restart_needed` names what needs a restart; invalid "
        "settings change nothing, and `problem` has a line for each mistake",
    ),
)
"""(Names of events, their meaning), the most frequent ones first."""


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
    told: dict[str, Any] = {}
    if changed:
        told["changed"] = ranges(changed)
    if left_out:
        told["left_out"] = ranges(left_out)
    if kept_in:
        told["artifacts"] = list(kept_in)[:MAX_ARTIFACTS]
    return told


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
    told = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:MAX_RANGES]]
    return ",".join([*told, "…"] if len(runs) > MAX_RANGES else told)


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
