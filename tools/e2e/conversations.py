"""`python -m tools.e2e.conversations [AGENT…]`: a conversation of each known agent that outgrows the model's window.

Rule: the window is met at a step of the work; neither the agent nor the proxy knows it before. Directly, the row shows
what becomes of the conversation, and fails if nothing was refused. Through `context-proxy run` it must end well, the
agent's exit statuses and Ctrl-C must pass, and nothing may be left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from support.upstream import (
    Call,
    Connection,
    Over,
    OverAtStep,
    Reply,
    Request,
    Rule,
    ScriptedModel,
    Sent,
    SocketServer,
    working,
    works_in,
)
from support.upstream.script import valid

from proxy.commands.agents import Agent
from tools.defects import HasDefect, raise_defects
from tools.e2e.trials import MODEL, Ended, Place, Trial, delivered

STEPS: Final = 8
REFUSED_STEP: Final = 2
"""The first output of a tool does not fit: no memory that an agent gives up by itself helps."""
LOG_LINES: Final = 400
"""18 KB: under what Claude Code puts into a file (30 000 characters), over what Codex leaves whole (10 000 bytes)."""
WINDOW_OF_FILES: Final = 20_000
"""Tokens, for an agent that sends files at once: a quarter of them."""
TASK: Final = "Look at the logs one by one and tell me what they hold."
UNKNOWN_FLAG: Final = "--no-such-flag-of-any-agent"
_GOOD_END: Final = "Done after"


@dataclass(frozen=True)
class Conversation:
    """How one ended."""

    ended: Ended
    model: ScriptedModel
    seconds: float
    defect: str = ""
    """Of the proxy, by its log."""

    @property
    def is_good(self) -> bool:
        """Whether the agent shows the model's last words."""
        return self.ended.exit_code == 0 and _GOOD_END in self.ended.output and not self.defect

    @property
    def cell(self) -> str:
        """How it ended, in short."""
        how = f"{self.seconds:.0f} s, {self.model.refusals} refused of {len(self.model.sent)}"
        if self.is_good:
            return f"[green]ended well[/], {how}"
        lines = [line.strip() for line in self.ended.output.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower() or "context" in line or "too long" in line]
        words = self.defect or (telling or lines or ["without a word"])[-1][:110]
        return f"[red]died[/], exit {self.ended.exit_code}, {how}: {escape(words)}"


def scripted(trial: Trial, *rules: Rule, steps: int = STEPS) -> ScriptedModel:
    """A model that works with the agent's tools, and tells it at the end as that agent wants it."""
    says = working(0 if trial.sends_files else steps)

    def to_the_end(sent: Sent) -> Reply:
        reply = says(sent)
        if reply.calls or not trial.ends_by or not works_in(sent):
            return reply
        return Reply(reply.text, [Call("bash", {"command": f"{trial.ends_by} '{reply.text}'"})])

    return ScriptedModel([valid, *rules], to_the_end, lists=[{"id": MODEL, "object": "model"}])


def window_of(trial: Trial) -> Rule:
    """The limit that a conversation meets."""
    return Over("prompt", WINDOW_OF_FILES) if trial.sends_files else OverAtStep("", REFUSED_STEP)


@contextlib.asynccontextmanager
async def placed(
    trial: Trial, model: ScriptedModel, steps: int = STEPS, lines: int = LOG_LINES
) -> AsyncIterator[Place]:
    """A folder with logs, and a model for the agent."""
    async with SocketServer(model) as upstream:
        with tempfile.TemporaryDirectory(prefix="context-proxy-e2e-", ignore_cleanup_errors=True) as folder:
            place = await asyncio.to_thread(Place, Path(folder), trial, f"http://127.0.0.1:{upstream.port}")
            for number in range(steps):
                log = (f"build {number} line {line}: {line * 7919 % 10007} took {line} ms\n" for line in range(lines))
                (place.work / f"log-{number}.txt").write_text("".join(log))
            (place.work / "notes.txt").write_text("These logs are of one night.\n")
            yield place


async def held(trial: Trial, agent: Agent, *, through: bool) -> Conversation:
    """One conversation."""
    model = scripted(trial, window_of(trial))
    begun = time.monotonic()
    async with placed(trial, model) as place:
        files = [word for number in range(STEPS) for word in ("--read", f"log-{number}.txt")]
        words = trial.words(TASK, *trial.allowing, *trial.tools, *(files if trial.sends_files else ()))
        ended = await place.run(agent, words, through=through)
        defect = ""
        try:
            raise_defects(place.log)
        except HasDefect as error:
            defect = str(error)
    return Conversation(ended, model, time.monotonic() - begun, defect)


async def with_unknown_flag(trial: Trial, agent: Agent, *, through: bool) -> Ended:
    """A run that the agent itself refuses."""
    async with placed(trial, scripted(trial)) as place:
        return await place.run(agent, [UNKNOWN_FLAG], through=through)


async def interrupted(trial: Trial, agent: Agent, *, through: bool) -> Ended:
    """A run that Ctrl-C ends while the model is at work."""
    has_asked = asyncio.Event()

    async def thinks(connection: Connection, _: Request) -> None:
        has_asked.set()
        await connection.until_closed()

    model = scripted(trial, lambda _: thinks)
    async with placed(trial, model) as place:
        return await place.run(agent, trial.words(TASK, *trial.allowing), through=through, interrupted=has_asked)


def judged(direct: Sequence[Ended], through: Sequence[Ended]) -> list[str]:
    """What `run` changes of the ends of the same three runs: exit statuses, and what is left running."""
    found: list[str] = []
    for about, one, other in zip(("conversation", "unknown flag", "Ctrl-C"), direct, through, strict=True):
        if about != "conversation" and one.exit_code != other.exit_code:
            found.append(f"{about}: exit {one.exit_code} directly, {other.exit_code} through")
        own = [words for words in other.left if " -m proxy " in words]
        if own or len(other.left) > len(one.left):
            found.append(f"{about}: left running: {', '.join(own or other.left)}")
    return found


def main(names: list[str]) -> int:
    """How many agents do not end as they should."""
    console = Console(width=max(160, Console().width))
    table = Table("agent", "directly", "through `run`", "exit of an unknown flag, of Ctrl-C", "faults", show_lines=True)
    failed = 0
    for trial, agent in delivered(names, console):
        ends: list[list[Ended]] = []
        talks = []
        for through in (False, True):
            talks.append(asyncio.run(held(trial, agent, through=through)))
            flag = asyncio.run(with_unknown_flag(trial, agent, through=through))
            ends.append([talks[-1].ended, flag, asyncio.run(interrupted(trial, agent, through=through))])
        faults = judged(*ends)
        if not talks[1].is_good:
            faults.append("the conversation died")
        if not talks[0].model.refusals:
            faults.append("directly nothing was refused")
        exits = ", ".join(str(one.exit_code) for one in ends[1][1:])
        table.add_row(trial.name, talks[0].cell, talks[1].cell, exits, escape("\n".join(faults)))
        failed += bool(faults)
    console.print(table)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
