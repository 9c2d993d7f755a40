"""`context-proxy demo`: one agent on the same work twice, directly, then through the proxy. No key and no network are
needed.

Rule: everything shown about the two runs is taken from their turns, and fits in 80 columns. It needs no package that
the proxy does not need.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from proxy.commands.screen import complain
from proxy.demo import (
    TURNS_BESIDE_HOPS,
    Brief,
    CannotStart,
    Contest,
    Run,
    Turn,
    hold_contest,
)

NEXT: Final = "Do the same for your agent (claude, codex, opencode, aider, any command):\n  {command} run claude"


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 if both runs took place, however they ended, 1 if the demo itself failed."""
    brief = Brief(options.window, options.turns, options.seed, options.port)
    is_watched = sys.stdout.isatty() and sys.stdin.isatty() and not options.once
    say(
        f"An agent traces a failure through {brief.turns - TURNS_BESIDE_HOPS} services: {brief.turns} turns, each with "
        f"a tool output to read. Its model has a window of {brief.window_tokens:,} tokens and refuses what is "
        "longer. It works twice; only its base URL differs. The incident is made up; sockets, tokens and the proxy are "
        "real.\n"
    )
    try:
        with _stopped_in_order(), ExitStack() as running:
            contest = running.enter_context(hold_contest(brief, lambda side, turn: print(line(side, turn), flush=True)))
            show(contest)
            if is_watched:
                say(f"\nBoth runs in one picture; Ctrl-C ends it: {picture(contest)}")
                with suppress(KeyboardInterrupt):
                    while sys.stdin.readline():
                        pass
    except CannotStart as error:
        return complain(f"the demo could not start: {error}")
    return 0


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


def say(paragraph: str) -> None:
    """Print it in lines of 80 columns."""
    print("\n".join(textwrap.fill(one, 80) for one in paragraph.split("\n")), flush=True)


def line(side: str, turn: Turn) -> str:
    """One turn in a line: the last call, on which the next step depends, and the sizes in tokens."""
    tool, _, about = turn.steps[-1].partition(" ") if turn.steps else ("answer", "", "")
    did = "refused" if turn.refusal else f"{tool} {about.rpartition('/')[2]}".strip()
    saw = "" if turn.refusal else f", model saw {turn.prompt_tokens:>7,}"
    sent = f"sent {turn.conversation_tokens:>7,}"
    return f"{side:<6} turn {turn.number:>2}  {did:<24} {sent}{saw}{' (twice)' if turn.attempts > 1 else ''}"


def show(contest: Contest) -> None:
    """The refusal in the server's words, or the answer, the verdict, and the next step."""
    for side, run in (("directly", contest.direct), ("through the proxy", contest.proxied)):
        last = run.turns[-1]
        if words := run.refusal or last.answer:
            say(f"\n{side}, turn {last.number}: {words}")
    say(f"\n{verdict(contest)}\n")
    print(NEXT.format(command=_command()))  # a command is copied as one line


def _command() -> str:
    """The command as it can be typed in this folder."""
    called = Path(sys.argv[0])
    if called.name != "context-proxy":
        return f"{sys.executable} -m proxy"
    if shutil.which(called.name) == str(called):
        return called.name
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)


def picture(contest: Contest) -> str:
    """Where the dashboard shows the run through the proxy, and the turn at which the direct one was refused."""
    page = contest.proxy_url.removesuffix("v1")
    return f"{page}#?direct={len(contest.direct.turns)}" if contest.direct.refusal else page


def verdict(contest: Contest) -> str:
    """One sentence on how far each run came."""
    window, direct, proxied = contest.brief.window_tokens, contest.direct, contest.proxied
    ends = [_end(run, contest.brief.turns) for run in (direct, proxied)]
    most = max(turn.conversation_tokens for turn in proxied.turns)
    sizes = f"{most / window:.1f} times the window ({most:,} of {window:,} tokens)"
    size = "" if proxied.refusal or most <= window else f", with a conversation {sizes}"
    return f"Directly the agent {ends[0]}; through the proxy it {ends[1]}{size}."


def _end(run: Run, turns: int) -> str:
    if run.refusal:
        return f"died at turn {len(run.turns)}" + (f" of {turns}" if len(run.turns) <= turns else "")
    if run.solved:
        return f"found the answer in {len(run.turns)} turns"
    if run.turns[-1].answer:
        return f"ended after {len(run.turns)} turns without the right answer"
    return f"was still searching after {len(run.turns)} turns"
