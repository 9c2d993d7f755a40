"""`context-proxy demo`: one agent on the same work twice, directly and through the proxy, with no key and no network.

Rule: the top layer; nothing in the proxy imports it. It needs no package that the proxy does not need. Importing it
costs nothing: its own imports happen when it runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NoReturn

from proxy.demo.refusals import FLAVOURS, OPENAI


def add_flags(command: argparse.ArgumentParser) -> None:
    """Add the demo's flags to its parser in the command line."""
    flag = command.add_argument
    flag(
        "--window",
        type=_between(4_000, 200_000),
        default=16_000,
        metavar="N",
        help="the model's window (default 16000)",
    )
    flag("--turns", type=_between(6, 44), default=30, metavar="N", help="turns that the work takes (default 30)")
    flag("--seed", type=int, default=1, metavar="N", help="another seed, another incident (default 1)")
    flag("--flavour", choices=FLAVOURS, default=OPENAI.name, help="whose refusals the model server speaks")
    flag("--port", type=_between(0, 65_535), default=0, metavar="N", help="the proxy's port (default: any free one)")
    flag("--once", action="store_true", help="end after the work, as always when no person watches a terminal")


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 if both runs took place, however they ended, 1 if the demo itself failed."""
    from rich.console import Console  # noqa: PLC0415 - these only when the demo runs

    from proxy.demo.contest import Brief, hold_contest, introduce, invite, progress, show  # noqa: PLC0415 - as above
    from proxy.demo.servers import CannotStart, HasDefect  # noqa: PLC0415 - as above

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
        print(f"the demo could not be held: {error}", file=sys.stderr)
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


def _between(least: int, most: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, found {text[:20]!a}")
        return int(text)

    return whole_number
