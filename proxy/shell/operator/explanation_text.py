"""Prints the output of `context-proxy explain`: what became of each message, and why.

Rule: a conversation of hundreds of messages stays readable, as messages with no change or the same change share a line;
nothing from the request controls the terminal.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.config.settings import Settings
from proxy.core.conversation.tracked_message import MessageReport
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest
from proxy.shell.models.discovery import HOW_TO_STATE_A_WINDOW
from proxy.shell.operator.difference import difference
from proxy.shell.operator.explaining import PROFILE_VALUES, Explainer, Explanation
from proxy.shell.operator.plain_text import number, plain

FITS, DOES_NOT_FIT, NOT_READ = 0, 1, 2
"""The exit status."""
MIN_WIDTH: Final = 100
"""Columns if the output is no terminal: a pipe has no width of its own."""
_LABELS: Final = dict(zip(PROFILE_VALUES, ("window", "input limit", "output limit", "reads", "tokenizer"), strict=True))


def explain_file(
    explainer: Explainer,
    settings: Settings,
    file: str,
    model: str | None = None,
    *,
    as_json: bool = False,
    as_diff: bool = False,
    console: Console | None = None,
) -> int:
    """Explain the request in a file, or in standard input for `-`, with the limits that its upstream states now; the
    exit status."""
    console = console or _console()
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
            told = (
                f"{where} was asked for the window and did not list its models: {failure}. `serve` may learn another."
            )
            console.print(Text(plain(told), style="yellow"))
    return FITS if explanation.problem is None else DOES_NOT_FIT


def _console() -> Console:
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
    table.add_row("room", " · ".join(limits))
    reply = planned.reply_limit
    if reply is not None and planned.request.reply_limit is not None:
        table.add_row("reply limit", f"{number(planned.request.reply_limit[1])} → {number(reply[1])} tokens")
    ratio, measured = explanation.ratio
    counted = f"by {planned.inputs.counted_by}" + (f", the upstream counts {ratio:.2f} for one" if measured else "")
    table.add_row("counted", _escaped(counted))
    if explanation.mode != "on":
        table.add_row("mode", f"{explanation.mode}: a real request goes as it came")
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
        return Text("as it came")
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
    if not explanation.planned.changed:
        yield Text("It would be sent as the very bytes that came.", style="green")
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
