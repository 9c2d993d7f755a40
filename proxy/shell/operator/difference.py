"""`context-proxy explain --diff`: each message that changes, before and after side by side, with the reasons.

Rule: for a terminal, so it is bounded and nothing in it controls the terminal; what stays the same gets one line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from proxy.core.conversation.edit import Reason
from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.conversation.tracked_message import MessageReport
from proxy.shell.operator.explaining import Explanation
from proxy.shell.operator.plain_text import number, plain

SHOWN_LINES: Final = 12
"""Of each differing stretch: half from its beginning, half from its end."""
SAME_LINES: Final = 2
"""Of the unchanged lines before and after it."""
LINE_CHARS: Final = 400
"""Of a line: outputs in one line of 200 KB are common."""


class Pair(Struct, frozen=True):
    """A message as received and as sent."""

    number: int | None
    """Of the request; None for a message that the proxy inserts."""
    report: MessageReport | None
    before: Message | None
    after: Message | None
    """None: it is left out."""


def pairs(explanation: Explanation) -> Iterator[Pair]:
    """Every message of the request and every inserted one, in the order in which they are sent."""
    plan, conversation = explanation.planned.plan, explanation.planned.request.conversation.messages
    sent = plan.sent
    put_in = len(sent) - sum(1 for report in plan.blocks if report.tokens_after)
    has_routed, position = False, 0
    for index, (message, report, shown) in enumerate(zip(conversation, plan.blocks, explanation.blocks, strict=True)):
        if has_routed and put_in and message.role not in TOOL_ROLES:
            count = _put_in_at(sent[position:], message)
            yield from (Pair(None, None, None, one) for one in sent[position : position + count])
            position, put_in, has_routed = position + count, put_in - count, False
        if not report.tokens_after:
            yield Pair(index, shown, message, None)
            continue
        yield Pair(index, shown, message, sent[position])
        position += 1
        if message.role in TOOL_ROLES:
            has_routed = has_routed or Reason.ROUTE_MEDIA.value in report.reasons
    yield from (Pair(None, None, None, one) for one in sent[position:])


def _put_in_at(sent: Sequence[Message], following: Message) -> int:
    """How many messages precede the one that holds the media of a batch: a user message, in some cases between messages
    of the assistant."""
    if not sent or sent[0].raw == following.raw:
        return 0
    if sent[0].role != "assistant":
        return 1
    return 3 if following.role == "user" and len(sent) > 2 and sent[2].role == "assistant" else 2


def difference(explanation: Explanation) -> Group:
    """The whole difference, for printing; neighbours without anything to compare share a line."""
    shown: list[RenderableType] = []
    for fate, run in itertools.groupby(pairs(explanation), key=_fate):
        together = list(run)
        if fate is None:
            for pair in together:
                shown += [_title(pair), _sides(pair)]
        else:
            shown.append(_told_together(together, fate))
    return Group(*shown)


def _fate(pair: Pair) -> str | None:
    """What became of a message that does not have two sides."""
    if pair.after is None and pair.report is not None:
        return f"left out ({', '.join(pair.report.reasons)})"
    is_same = pair.before is not None and pair.after is not None and pair.before.raw == pair.after.raw
    return "as it came" if is_same else None


def _told_together(run: Sequence[Pair], fate: str) -> Text:
    first, last = run[0].number, run[-1].number
    numbers = f"message {first}" if first == last else f"messages {first}–{last}"
    tokens = sum(pair.report.tokens_before for pair in run if pair.report is not None)
    return Text(f"{numbers}: {fate}, {number(tokens)} tokens", style="dim" if run[0].after is not None else "red")


def _title(pair: Pair) -> Rule:
    report = pair.report
    if report is None:
        assert pair.after is not None
        return Rule(Text(f"put in: {plain(pair.after.role)}"), align="left", style="green")
    told = [f"message {pair.number}: {plain(report.role)}", *([plain(report.tool)] if report.tool else [])]
    told += [f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens", ", ".join(report.reasons)]
    return Rule(Text(" · ".join(told)), align="left", style="yellow")


def _sides(pair: Pair) -> Table:
    table = Table(box=None, show_header=False, expand=True, padding=(0, 1, 0, 0))
    table.add_column(ratio=1, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    before, after = _lines(pair.before), _lines(pair.after)
    begin, end = _same_ends(before, after)
    if begin:
        same = _cut(
            [
                *([f"… {begin - SAME_LINES:,} lines"] if begin > SAME_LINES else []),
                *before[max(0, begin - SAME_LINES) : begin],
            ]
        )
        table.add_row(_text(same, "dim"), _text(same, "dim"))
    removed, added = before[begin : len(before) - end], after[begin : len(after) - end]
    is_elsewhere = not added and not removed
    right = Text("(other members of the message differ)", style="dim") if is_elsewhere else _text(_cut(added), "green")
    table.add_row(_text(_cut(removed), "red"), right)
    if end:
        tail = before[len(before) - end :]
        same = _cut([*tail[:SAME_LINES], *([f"… {end - SAME_LINES:,} lines"] if end > SAME_LINES else [])])
        table.add_row(_text(same, "dim"), _text(same, "dim"))
    return table


def _lines(message: Message | None) -> list[str]:
    return [] if message is None else message.text().splitlines()


def _same_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning, and how many of the rest at the end.

    >>> _same_ends(["a", "b", "c", "d"], ["a", "x", "d"])
    (1, 1)
    """
    most = min(len(before), len(after))
    begin = next((index for index in range(most) if before[index] != after[index]), most)
    rest = most - begin
    return begin, next((index for index in range(rest) if before[-1 - index] != after[-1 - index]), rest)


def _cut(lines: Sequence[str]) -> list[str]:
    """The lines that are shown, each cut at its limit."""
    if len(lines) > SHOWN_LINES:
        half = SHOWN_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - SHOWN_LINES:,} lines", *lines[-half:]]
    return [
        line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} … {len(line) - LINE_CHARS:,} characters"
        for line in lines
    ]


def _text(lines: Sequence[str], style: str) -> Text:
    return Text("\n".join(plain(line) for line in lines), style=style)
