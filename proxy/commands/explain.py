"""`context-proxy explain`: what became of each message, and why; with `--diff`, each message that
changes, before and after side by side.

Rule: for a terminal, so it is bounded: messages with no change or the same change share a line; and nothing from the
request controls the terminal.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from proxy.config import Settings
from proxy.core.conversation import TOOL_ROLES, Message, MessageReport, Reason
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest
from proxy.shell.artifacts import AccessResolver, ArtifactStore, create_folder
from proxy.shell.models import HOW_TO_STATE_A_WINDOW, ModelResolver
from proxy.shell.operator import PROFILE_VALUES, Explainer, Explanation
from proxy.shell.planning import Pipelines, Planner
from proxy.shell.resources import configure_logging

FITS, DOES_NOT_FIT, NOT_READ = 0, 1, 2
"""The exit status."""
MIN_WIDTH: Final = 100
"""Columns if the output is no terminal: a pipe has no width of its own."""
_LABELS: Final = dict(zip(PROFILE_VALUES, ("window", "input limit", "output limit", "reads", "tokenizer"), strict=True))


def create_explainer(settings: Settings) -> Explainer:
    """An explainer that needs no running proxy; nothing is written."""
    folder, kept = create_folder(settings), settings.artifacts
    store = ArtifactStore(folder, retention_days=kept.retention_days, max_bytes=kept.max_bytes)
    here = AccessResolver(kept, folder.place_of("")).here
    each = map(settings.before, settings.named_upstreams.values())
    planners = [Planner(Pipelines(alone), ModelResolver(alone)) for alone in each]
    return Explainer(settings, planners, store.place_of, here)


def explain(settings: Settings, file: str, model: str | None, *, as_json: bool, as_diff: bool) -> int:
    """Explain the request in a file, or in standard input for `-`, with the limits that its upstream states now; the
    exit status."""
    configure_logging(settings.log, sys.stderr)
    explainer, console = create_explainer(settings), create_console()
    try:
        body = _read(file, settings.server.max_body_bytes)
        failure = asyncio.run(explainer.ask(body, model))
        explanation = asyncio.run(explainer.explain(body, model))
    except OSError as error:
        return _complain(f"{file}: {error.strerror}")
    except MalformedRequest as error:
        return _complain(f"{'standard input' if file == '-' else file}: {error.message}")
    where = explanation.base_url
    if as_json:
        upstream = {"base_url": where, "listed": failure is None, "reason": failure}
        console.out(jsontext.dump({**explanation.described(), "upstream": upstream}).decode(), highlight=False)
    else:
        messages = difference(explanation) if as_diff else _messages(explanation.blocks)
        console.print(_page(explanation, messages, several=bool(settings.upstreams)))
        stated = explanation.value_of("window_tokens")["from"] or ""
        if failure is not None and not stated.startswith("config"):
            advice = (
                f"{where} was asked for the window and did not list its models: {failure}. `serve` may learn another."
            )
            console.print(Text(plain(advice), style="yellow"))
    return FITS if explanation.problem is None else DOES_NOT_FIT


def create_console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, MIN_WIDTH)
    return console


def _read(file: str, max_bytes: int) -> bytes:
    """Raises OSError, and MalformedRequest for input that the proxy would not read."""
    if file == "-":
        body = sys.stdin.buffer.read(max_bytes + 1)
    else:
        with Path(file).open("rb") as opened:
            body = opened.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise MalformedRequest(f"more than {max_bytes:,} bytes (server.max_body_bytes)")
    return body


def _complain(problem: str) -> int:
    print(plain(problem), file=sys.stderr)
    return NOT_READ


def _page(explanation: Explanation, messages: RenderableType, *, several: bool) -> Group:
    """`several`: there is more than one upstream, so the page says which one it is about."""
    return Group(_facts(explanation, several=several), Text(), messages, Text(), *_verdict(explanation))


def _facts(explanation: Explanation, *, several: bool) -> Table:
    planned, profile = explanation.planned, explanation.profile
    budget = planned.plan.budget
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row("model", Text(plain(profile.model) or "(none)"))
    if several:
        table.add_row("upstream", Text(explanation.base_url))
    for name, label in _LABELS.items():
        stated = explanation.value_of(name)
        if stated["value"] is not None:
            table.add_row(label, f"{_shown(stated['value'])}  [dim]{_escaped(stated['from'] or '')}[/dim]")
    room = planned.room_tokens
    limits = [f"unknown: {HOW_TO_STATE_A_WINDOW}" if room is None else f"{number(room)} tokens"]
    limits += [f"{number(budget.room_chars)} characters"] if budget.room_chars is not None else []
    limits += [f"{number(budget.room_bytes)} bytes"] if budget.room_bytes is not None else []
    table.add_row("prompt budget", " · ".join(limits))
    requested, sent = planned.request.reply_tokens, planned.reply_tokens
    if requested is not None and sent is not None:
        table.add_row("reply limit", f"{number(requested)} → {number(sent)} tokens")
    ratio, measured = explanation.ratio
    counted = f"by {planned.inputs.counted_by}" + (f", the upstream counts {ratio:.2f} for one" if measured else "")
    table.add_row("counted", _escaped(counted))
    if explanation.mode != "on":
        table.add_row("mode", f"{explanation.mode}: a real request is forwarded unchanged")
    return table


def _messages(blocks: Sequence[MessageReport]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("message", justify="right", no_wrap=True)
    table.add_column("role", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("tool", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("what", ratio=1, overflow="fold")
    for first, run in _runs(blocks):
        last = first + len(run) - 1
        numbers = str(first) if first == last else f"{first}–{last}"
        before, after = sum(b.tokens_before for b in run), sum(b.tokens_after for b in run)
        role, tool = (run[0].role, run[0].tool) if len(run) == 1 else (f"{len(run)} messages", "")
        style = "" if run[0].reasons else "dim"
        table.add_row(
            numbers,
            Text(plain(role)),
            Text(plain(tool)),
            number(before),
            _after(run[0], after),
            _what(run[0]),
            style=style,
        )
    return table


def _runs(blocks: Sequence[MessageReport]) -> Iterator[tuple[int, list[MessageReport]]]:
    """Runs of neighbours with the same change, with the index of the first; a changed message is always alone."""

    def alike(pair: tuple[int, MessageReport]) -> tuple[object, ...]:
        index, block = pair
        together = not block.reasons or not block.tokens_after
        return (block.reasons, block.artifacts, None if together else index)

    for _, run in itertools.groupby(enumerate(blocks), key=alike):
        members = list(run)
        yield members[0][0], [block for _, block in members]


def _after(block: MessageReport, tokens: int) -> str:
    return number(tokens) if block.tokens_after else "–"


def _what(block: MessageReport) -> Text:
    if not block.reasons:
        return Text("unchanged")
    text = Text(", ".join(block.reasons), style="red" if not block.tokens_after else "yellow")
    for artifact in block.artifacts:
        text.append(f"\n{plain(artifact)}", style="dim")
    return text


def _verdict(explanation: Explanation) -> Iterator[Text]:
    before, after = explanation.planned.tokens_before, explanation.planned.tokens_after
    beside = explanation.beside_tokens
    total = f"{number(before)} tokens before, {number(after)} after, {number(beside)} of them besides the messages."
    yield Text(total, style="bold")
    if explanation.problem is not None:
        yield Text(plain(f"It would be refused: {explanation.problem}"), style="bold red")
        return
    if not explanation.planned.plan.fits:
        yield Text("That is more than the prompt budget, by an estimate: the upstream decides.", style="yellow")
    in_messages = {name for block in explanation.planned.plan.blocks for name in block.reasons}
    for reason in Reason:
        if (count := explanation.planned.reasons.get(reason.value)) and reason.value not in in_messages:
            words = reason.one if count == 1 else reason.several.replace("#", str(count))
            yield Text(f"{reason.value}: {words}", style="yellow")
    if not explanation.planned.changed:
        yield Text("It would be forwarded unchanged.", style="green")
    if explanation.places:
        count = len(explanation.places)
        yield Text(f"{count} artifact{'s' if count > 1 else ''} would be kept:", style="dim")
        for place in explanation.places.values():
            yield Text(f"  {plain(place)}", style="dim")


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{number(value)} tokens"
    return _escaped(", ".join(value) if isinstance(value, list) else str(value))


def _escaped(text: str) -> str:
    """Foreign text inside markup."""
    return plain(text).replace("[", r"\[")


def plain(text: str) -> str:
    """Foreign text for a terminal: no control characters, and nothing that changes the direction of writing.

    >>> plain("a\\x1b[31m\\u202eb")
    'a\ufffd[31m\ufffdb'
    """
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def number(count: int) -> str:
    """
    >>> number(12345)
    '12,345'
    """
    return f"{count:,}"


SHOWN_LINES: Final = 12
"""Lines of each differing stretch: half from its beginning, half from its end."""
SAME_LINES: Final = 2
"""Unchanged lines before and after it."""
LINE_CHARS: Final = 400
"""Limit of a line: outputs in one line of 200 KB are common."""


class Pair(Struct, frozen=True):
    """A message as received and as sent."""

    number: int | None
    """Number in the request; None for a message that the proxy inserts."""
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
    """Outcome of a message without a before and after."""
    if pair.after is None and pair.report is not None:
        return f"left out ({', '.join(pair.report.reasons)})"
    is_same = pair.before is not None and pair.after is not None and pair.before.raw == pair.after.raw
    return "unchanged" if is_same else None


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
    parts = [f"message {pair.number}: {plain(report.role)}", *([plain(report.tool)] if report.tool else [])]
    parts += [f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens", ", ".join(report.reasons)]
    return Rule(Text(" · ".join(parts)), align="left", style="yellow")


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
