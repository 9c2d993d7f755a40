"""`python -m tools.e2e.captures [AGENT…]`: the first request of known agents, directly and through `context-proxy run`.

Rule: both roads end in the same bare receiver, which keeps what it gets and answers in the words of each API; the agent
gets the same variables, flags and settings on both. Where a request differs, or a call beside it appears on one road
only, the row says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from support.upstream import Over, SocketServer, worker

from proxy.commands.agents import Agent
from tools.e2e.tap import Exchange, Tap
from tools.e2e.trials import MODEL, Place, Trial, delivered

HELLO: Final = "hello"
WINDOW_TOKENS: Final = 1_000_000
_DRIFT: Final = 0.06
"""Share by which sizes may differ from the table: names of folders, dates, programs on the machine (`cn` has one more
tool, 470 bytes of 9,356, where there is ripgrep)."""
_OWN: Final = ("content-length", "connection", "host", "x-context-proxy-loop")


@dataclass(frozen=True)
class Capture:
    """What a receiver got from one run."""

    exchanges: Sequence[Exchange]
    output: str
    tokens: int = 0
    """Of its largest request, by the proxy's count; 0: it was not there."""

    @property
    def first(self) -> Exchange | None:
        """The first request for a reply to the prompt: the largest of those that ask for one."""
        asking = [one for one in self.exchanges if one.method == "POST" and HELLO.encode() in one.sent]
        return max(asking, key=lambda one: len(one.sent), default=None)

    @property
    def beside(self) -> list[str]:
        """What else was asked."""
        return sorted({f"{one.method} {one.path}" for one in self.exchanges if one is not self.first})


async def captured(trial: Trial, agent: Agent, *, through: bool) -> Capture:
    """One run in a folder and a home of its own."""
    async with contextlib.AsyncExitStack() as stack:
        kept = tempfile.TemporaryDirectory(prefix="context-proxy-e2e-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(kept))
        model = worker(Over("total", WINDOW_TOKENS), steps=0)
        model.lists = [{"id": MODEL, "object": "model"}]
        upstream = await stack.enter_async_context(SocketServer(model))
        tap = await stack.enter_async_context(Tap(f"http://127.0.0.1:{upstream.port}"))
        place = await asyncio.to_thread(Place, folder, trial, tap.root)
        ended = await place.run(agent, trial.words(HELLO, *trial.allowing), through=through)
        asked = [
            one for one in tap.exchanges if one.asked.get("user-agent") != "context-proxy"
        ]  # who looks for a window
        lines = place.log.splitlines()
    done = [json.loads(line) for line in lines if '"event":"request_done"' in line]
    return Capture(asked, ended.output, max((line.get("tokens_before", 0) for line in done), default=0))


def differences(direct: Capture, through: Capture) -> list[str]:
    """How the two requests differ, in words."""
    one, other = direct.first, through.first
    for capture, road in ((direct, "directly"), (through, "through the proxy")):
        if capture.first is None:
            return [f"no request {road}: {capture.output.strip()[-300:]}"]
    assert one is not None
    assert other is not None
    found: list[str] = []
    before, after = one.body, other.body
    if len(other.sent) > 1.02 * len(one.sent):
        found.append(f"{len(one.sent)} → {len(other.sent)} bytes")
    found += [f"`{name}` only on one road" for name in sorted(before.keys() ^ after.keys())]
    tools, others = _tools(before), _tools(after)
    if tools != others:
        found.append(f"tools: {sorted(set(tools) ^ set(others))}")
    if one.sent.count(b"cache_control") != other.sent.count(b"cache_control"):
        found.append("cache marks")
    names = {name for name in one.asked.keys() ^ other.asked.keys() if name not in _OWN}
    found += [f"header `{name}`" for name in sorted(names)]
    return found


def _tools(body: Mapping[str, Any]) -> list[str]:
    return [
        str(one.get("name") or one.get("function", {}).get("name") or one.get("type"))
        for one in body.get("tools") or ()
    ]


def main(names: list[str]) -> int:
    """How many agents send anything else through the proxy than directly, or than the table says."""
    console = Console(width=max(160, Console().width))
    table = Table("agent", "directly", "through", "tokens", "calls on one road only", "differs", show_lines=True)
    failed = 0
    for trial, agent in delivered(names, console):
        direct = asyncio.run(captured(trial, agent, through=False))
        through = asyncio.run(captured(trial, agent, through=True))
        sizes = [len(one.first.sent) if one.first else 0 for one in (direct, through)]
        differs = differences(direct, through)
        for said, size in ((agent.bytes_direct, sizes[0]), (agent.bytes_through, sizes[1])):
            if said is None or abs(size - said) > _DRIFT * said:
                differs.append(f"the table says {said} bytes, found {size}")
        beside = sorted(set(direct.beside) ^ set(through.beside))
        table.add_row(trial.name, *map(str, sizes), str(through.tokens), "\n".join(beside), "\n".join(differs))
        failed += bool(differs)
    console.print(table)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
