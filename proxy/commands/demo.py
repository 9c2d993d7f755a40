"""`context-proxy demo`: one agent on the same work twice, directly and through the proxy, with no key and no network.

Rule: everything shown about the two runs is taken from their turns, fits in 80 columns, and reads as plain lines where
there is no terminal. It needs no package that the proxy does not need.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from proxy.commands.explain import number
from proxy.demo import (
    FLAVOURS,
    TURNS_BESIDE_HOPS,
    Brief,
    CannotStart,
    Contest,
    HasDefect,
    Report,
    Run,
    Turn,
    hold_contest,
)


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 if both runs took place, however they ended, 1 if the demo itself failed."""
    console = Console(highlight=False)
    brief = Brief(options.window, options.turns, options.seed, FLAVOURS[options.flavour], options.port)
    is_watched = console.is_terminal and sys.stdin.isatty() and not options.once
    introduce(console, brief)
    try:
        with _stopped_in_order(), ExitStack() as running:
            with progress(console, brief.turns) as report:
                contest = running.enter_context(hold_contest(brief, report))
            show(console, contest)
            if is_watched:
                invite(console, contest)
                _until_interrupted()
    except (CannotStart, HasDefect) as error:
        print(f"the demo could not start: {error}", file=sys.stderr)
        return 1
    return 0


def _until_interrupted() -> None:
    """Wait for Ctrl-C, or the end of the input."""
    with suppress(KeyboardInterrupt):
        while sys.stdin.readline():
            pass


@contextmanager
def _stopped_in_order() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that the proxy is stopped, too."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_LABELS = {"direct": "direct", "proxy": "through the proxy"}


def introduce(console: Console, brief: Brief) -> None:
    """Explain what is about to happen."""
    services = brief.turns - TURNS_BESIDE_HOPS
    console.print(
        f"An agent traces a failure through {services} services: {brief.turns} turns, each with a tool output to read. "
        f"Its model has a window of {number(brief.window_tokens)} tokens and refuses what is longer. It works twice; "
        "only its base URL differs. The incident is made up; sockets, tokens and the proxy are real.\n"
    )


@contextmanager
def progress(console: Console, turns: int) -> Iterator[Report]:
    """Two bars on a terminal, otherwise one line a turn; yields the function to call after each turn."""
    if not console.is_terminal:
        yield lambda side, turn: console.print(Text(_line(side, turn)), soft_wrap=True)
        return
    columns = (TextColumn("{task.description:<17}"), BarColumn(24), TextColumn("{task.fields[now]}"))
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {side: bars.add_task(label, total=turns, now="") for side, label in _LABELS.items()}

        def report(side: str, turn: Turn) -> None:
            bars.update(tasks[side], completed=turn.number, now=Text(f"turn {turn.number} {_did(turn)}", no_wrap=True))

        yield report


def show(console: Console, contest: Contest) -> None:
    """The table, the refusal in the server's words, the verdict, and the next step. If lines already reported each
    turn, there is no table to repeat them."""
    if console.is_terminal:
        console.print(_table(contest, console.width))
    for side, run in (("direct", contest.direct), ("through the proxy", contest.proxied)):
        if run.refusal:
            console.print(Text(f"\n{side}, turn {len(run.turns)}: {run.refusal}", style="red"))
        elif run.turns[-1].answer:
            console.print(Text(f"\n{side}, turn {len(run.turns)}: {run.turns[-1].answer}"))
    console.print(Text(f"\n{verdict(contest)}", style="bold"))
    console.print(Text("\n" + NEXT.format(command=_command())), soft_wrap=True)  # a command is copied as one line


def invite(console: Console, contest: Contest) -> None:
    """Say where the requests of the second run can be seen while the proxy still runs."""
    dashboard = contest.proxy_url.removesuffix("v1")
    console.print(Text(f"\nSee what the proxy did to each request: {dashboard}  (Ctrl-C ends it)", style="bold green"))


NEXT = """\
Do the same for your agent:
  {command} serve --upstream https://api.openai.com/v1
  export OPENAI_BASE_URL=http://127.0.0.1:8787/v1"""


def _command() -> str:
    """The command as it can be typed in this folder."""
    called = Path(sys.argv[0])
    if called.name != "context-proxy":
        return f"{sys.executable} -m proxy"
    if shutil.which(called.name) == str(called):
        return called.name
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)


def verdict(contest: Contest) -> str:
    """One sentence on how far each run came."""
    direct, proxied = (_end(run, contest.brief.turns) for run in (contest.direct, contest.proxied))
    return f"Directly the agent {direct}; through the proxy it {proxied}{_size(contest)}."


def _end(run: Run, turns: int) -> str:
    if run.refusal:
        return f"died at turn {len(run.turns)}" + (f" of {turns}" if len(run.turns) <= turns else "")
    if run.solved:
        return f"found the answer in {len(run.turns)} turns"
    if run.turns[-1].answer:
        return f"ended after {len(run.turns)} turns without the right answer"
    return f"was still searching after {len(run.turns)} turns"


def _size(contest: Contest) -> str:
    most = max(turn.conversation_tokens for turn in contest.proxied.turns)
    if contest.proxied.refusal or most <= contest.brief.window_tokens:
        return ""
    times = most / contest.brief.window_tokens
    sizes = f"{number(most)} of {number(contest.brief.window_tokens)} tokens"
    return f", with a conversation {times:.1f} times the window ({sizes})"


def _table(contest: Contest, width: int) -> Table:
    """Turn by turn; sizes in tokens. There is a column for what the proxy did from 110 columns on."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("Turn", justify="right", min_width=4)
    table.add_column("Direct", width=22, no_wrap=True)
    table.add_column("Through the proxy", width=22, no_wrap=True)
    table.add_column("Agent sent", justify="right", min_width=10)
    table.add_column("Model saw", justify="right", min_width=9)
    wide = width >= 110
    if wide:
        table.add_column("What the proxy did")
    for turn, (direct, proxied) in enumerate(zip_longest(contest.direct.turns, contest.proxied.turns), 1):
        deeds = [_deeds(proxied)] if wide else []
        table.add_row(str(turn), _cell(direct), _cell(proxied), _sent(proxied or direct), _saw(proxied), *deeds)
    return table


def _cell(turn: Turn | None) -> Text:
    if turn is None:
        return Text()
    if turn.refusal:
        return Text(f"refused: {turn.refusal.split(':')[0].split()[0]}", style="bold red")
    return Text("answer", style="bold green") if turn.answer else Text(_did(turn))


def _sent(turn: Turn) -> Text:
    return Text(number(turn.conversation_tokens))


def _saw(turn: Turn | None) -> Text:
    """Tokens that reached the model; yellow if the proxy made the request shorter."""
    if turn is None or turn.refusal:
        return Text("-")
    return Text(number(turn.prompt_tokens), style="yellow" if turn.prompt_tokens < turn.conversation_tokens else "")


def _deeds(turn: Turn | None) -> Text:
    if turn is None:
        return Text()
    twice = ["asked twice"] if turn.attempts > 1 else []
    return Text(", ".join([edit.strip() for edit in turn.edits.split(";") if edit.strip()] + twice))


def _did(turn: Turn) -> str:
    """The purpose of the turn, in short: the last call, on which the next step depends."""
    if turn.refusal:
        return "refused"
    if not turn.steps:
        return "answer"
    tool, _, about = turn.steps[-1].partition(" ")
    return f"{tool} {about.rpartition('/')[2]}".strip()


def _line(side: str, turn: Turn) -> str:
    saw = f"model saw {number(turn.prompt_tokens):>7}" if not turn.refusal else "refused"
    sent = f"sent {number(turn.conversation_tokens):>7}"
    return f"{side:<6} turn {turn.number:>2}  {_did(turn):<24} {sent}, {saw}"
