"""The scripted upstream as a process, on all four APIs:

    python -m support.upstream --port 9000 --over prompt=8000 --words vllm --over images=2 --arrives "first event"

Each `--over` is a limit by its name (`prompt`, `reply`, `total`, `bytes`, or one of `measures`); what is said of it
follows: `--words` (a refusal of the face by its name, or a sentence), `--status`, `--arrives`, `--times`. Each request
is printed: path, tokens, and the status that it got.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

from support.upstream.model import ScriptedModel
from support.upstream.replies import Answer
from support.upstream.script import Over, Sent, valid
from support.upstream.sockets import SocketServer
from support.upstream.work import working


class _Limit(argparse.Action):
    """`--over NAME=NUMBER` begins a limit; the options after it are members of that one."""

    def __call__(self, _: Any, given: argparse.Namespace, value: Any, option: str | None = None) -> None:
        if option == "--over":
            what, _, limit = value.partition("=")
            given.limits = [*given.limits, Over(what, float(limit))]
        elif given.limits:
            setattr(given.limits[-1], str(option).removeprefix("--"), value)
        else:
            raise argparse.ArgumentError(self, "it says of which limit: --over comes first")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m support.upstream")
    found.set_defaults(limits=[])
    found.add_argument("--port", type=int, default=0)
    found.add_argument("--steps", type=int, default=1_000, help="of the work that its model does with an agent's tools")
    found.add_argument("--counts", type=float, default=1.0, help="its tokens for one of ours")
    found.add_argument("--cuts-at", type=int, help="tokens at which it leaves out the beginning without a word")
    found.add_argument("--over", action=_Limit, metavar="NAME=NUMBER")
    for name, kind in (("words", str), ("status", int), ("arrives", str), ("times", int)):
        found.add_argument(f"--{name}", action=_Limit, type=kind, default=argparse.SUPPRESS)
    return found


def model_of(given: argparse.Namespace) -> ScriptedModel:
    """The model that a command line describes."""

    def printed(sent: Sent, answer: Answer) -> Answer:
        print(f"{sent.path} {sent.tokens} tokens: {answer.status}{', refused' if sent.refused else ''}", flush=True)
        return answer

    script = [valid, *given.limits], working(given.steps)
    return ScriptedModel(*script, counts=given.counts, cuts_at=given.cuts_at, delivers=printed)


async def main(given: argparse.Namespace) -> None:
    """Serve until it is interrupted."""
    async with SocketServer(model_of(given), given.port) as server:
        print(f"listening on {server.base_url}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser().parse_args()))
