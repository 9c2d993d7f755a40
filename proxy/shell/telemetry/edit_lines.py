"""What a plan changes, for the log: a summary for `request_planned`, and one line for each change.

Rule: sizes, reasons and names, never content. It is computed only when somebody will read it: a line for each change is
written only at the level debug, and nothing at all for a request that nothing is done to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from proxy.core.compaction.budget import in_model_tokens
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.tracked_message import MessageReport
from proxy.shell.planning.planned import Planned

MAX_EDIT_LINES: Final = 500
"""For one plan; a last line says how many changes have none."""
MAX_ARTIFACTS: Final = 20
"""Named in a summary: a conversation with more has them in its `edit` lines."""
MAX_RANGES: Final = 40
"""Of message numbers in a summary."""


def summary_of(planned: Planned) -> dict[str, Any]:
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
        if reason == Reason.CLAMP_REPLY.value and planned.reply_limit is not None:
            asked = planned.request.reply_limit
            line |= {"tokens_before": asked[1] if asked else None, "tokens_after": planned.reply_limit[1]}
        yield line
