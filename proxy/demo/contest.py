"""The demo itself: one incident, one agent, twice; the second time its base URL is the proxy's. And what a person sees
of it: progress while it runs, then a table, a verdict, and what to do next.

Rule: both runs get the same model server, the same tools and the same code. Everything reported about them is taken
from their turns, fits in 80 columns, and reads as plain lines if nobody watches a terminal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from proxy.demo.agent import Toolbox, Turn, investigate
from proxy.demo.incident import Incident, detective, make_incident
from proxy.demo.model_server import create_model_server
from proxy.demo.refusals import Flavour
from proxy.demo.servers import proxy_in_front_of, serving

TURNS_BESIDE_HOPS: Final = 4
"""The start, the source, the tests, the answer; each of the other turns reads one service's log."""
PATIENCE: Final = 3
"""An agent gives up after this many times the turns that the work takes if everything is visible."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one run went."""

    turns: tuple[Turn, ...]
    expected: str
    """The right answer."""

    @property
    def refusal(self) -> str:
        """The error that ended it, or nothing."""
        return self.turns[-1].refusal

    @property
    def solved(self) -> bool:
        """Whether it ended with the right answer."""
        return self.turns[-1].answer.endswith(self.expected)


@dataclass(frozen=True, slots=True)
class Brief:
    """The parameters of the demo."""

    window_tokens: int
    turns: int
    """Turns that the work takes if everything is visible."""
    seed: int
    flavour: Flavour
    port: int
    """The proxy's; 0 for any free one."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Both runs."""

    brief: Brief
    direct: Run
    proxied: Run
    proxy_url: str
    """Its base URL, which ends in `/v1`."""


Report = Callable[[str, Turn], None]
"""Called after each turn: ("direct" or "proxy", the turn)."""


@contextmanager
def hold_contest(brief: Brief, report: Report) -> Iterator[Contest]:
    """Start both servers and let the agent work twice; the servers run until the block ends. Raises CannotStart."""
    incident = make_incident(brief.turns - TURNS_BESIDE_HOPS, brief.seed)
    model = create_model_server(brief.window_tokens, brief.flavour, detective)
    with ExitStack() as stopped_at_the_end:
        enter = stopped_at_the_end.enter_context
        folder = Path(enter(tempfile.TemporaryDirectory(prefix="context-proxy-demo-")))
        model_url = enter(serving(model))
        proxy_url = enter(proxy_in_front_of(model_url, brief.window_tokens, folder, brief.port))
        toolbox = Toolbox(incident, folder)
        direct = _run(model_url, incident, toolbox, brief.turns, lambda turn: report("direct", turn))
        proxied = _run(proxy_url, incident, toolbox, brief.turns, lambda turn: report("proxy", turn))
        yield Contest(brief, direct, proxied, proxy_url)


def _run(base_url: str, incident: Incident, toolbox: Toolbox, turns: int, report: Callable[[Turn], None]) -> Run:
    return Run(investigate(base_url, incident.task, toolbox, PATIENCE * turns, report), str(incident.answer))


_LABELS = {"direct": "direct", "proxy": "through the proxy"}


def introduce(console: Console, brief: Brief) -> None:
    """Explain what is about to happen."""
    services = brief.turns - TURNS_BESIDE_HOPS
    console.print(
        f"An agent traces a failure through {services} services: {brief.turns} turns, each with a tool output to read. "
        f"Its model has a window of {_number(brief.window_tokens)} tokens and refuses what is longer. It works twice; "
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
    console.print(Text("\n" + NEXT))


def invite(console: Console, contest: Contest) -> None:
    """Say where the requests of the second run can be seen while the proxy still runs."""
    dashboard = contest.proxy_url.removesuffix("v1")
    console.print(Text(f"\nSee what the proxy did to each request: {dashboard}  (Ctrl-C ends it)", style="bold green"))


NEXT = """\
Do the same for your agent:
  context-proxy serve --upstream https://api.openai.com/v1
  export OPENAI_BASE_URL=http://127.0.0.1:8787/v1"""


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
    sizes = f"{_number(most)} of {_number(contest.brief.window_tokens)} tokens"
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
    for number, (direct, proxied) in enumerate(zip_longest(contest.direct.turns, contest.proxied.turns), 1):
        deeds = [_deeds(proxied)] if wide else []
        table.add_row(str(number), _cell(direct), _cell(proxied), _sent(proxied or direct), _saw(proxied), *deeds)
    return table


def _cell(turn: Turn | None) -> Text:
    if turn is None:
        return Text()
    if turn.refusal:
        return Text(f"refused: {turn.refusal.split(':')[0].split()[0]}", style="bold red")
    return Text("answer", style="bold green") if turn.answer else Text(_did(turn))


def _sent(turn: Turn) -> Text:
    return Text(_number(turn.conversation_tokens))


def _saw(turn: Turn | None) -> Text:
    """Tokens that reached the model; yellow if the proxy made the request shorter."""
    if turn is None or turn.refusal:
        return Text("-")
    return Text(_number(turn.prompt_tokens), style="yellow" if turn.prompt_tokens < turn.conversation_tokens else "")


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
    saw = f"model saw {_number(turn.prompt_tokens):>7}" if not turn.refusal else "refused"
    sent = f"sent {_number(turn.conversation_tokens):>7}"
    return f"{side:<6} turn {turn.number:>2}  {_did(turn):<24} {sent}, {saw}"


def _number(tokens: int) -> str:
    """
    >>> _number(12345)
    '12 345'
    """
    return f"{tokens:,}".replace(",", " ")
