"""`python -m tools.e2e.measures [AGENT…]`: what the table of agents says of windows and of reading, by trial.

Rule: a least window is the smallest, in steps of 500 tokens, in which a turn with one call of a tool ends well through
`context-proxy run`; the server states it in its list of models, and refuses a prompt and reply over it. An agent asks
before it reads outside its folder if, without a terminal and without a flag that allows it, it reads a file inside and
not one that the proxy keeps in the data folder. Both are written into the table by hand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from support.upstream import Call, Over, Reply, ScriptedModel, Sent, works_in

from proxy.commands.agents import Agent, Known
from tools.e2e.conversations import TASK, Conversation, placed, scripted
from tools.e2e.trials import MODEL, Trial, delivered

STEP_TOKENS: Final = 500
MOST_TOKENS: Final = 64_000
LINES: Final = 40
"""Of the one log: 2 KB, so that the window need not be larger for its sake."""
_INSIDE, _OUTSIDE = "canary-inside-5c1e", "canary-outside-77d0"
_KEPT: Final = ".local/share/context-proxy/tool-output/log.txt"


def _shell(name: str, member: str = "command", **more: Any) -> Callable[[str], Call]:
    return lambda path: Call(name, {member: f"cat {path}", **more})


READS: Final[Mapping[str, Callable[[str], Call]]] = {
    "claude": lambda path: Call("Read", {"file_path": path}),
    "codex": lambda path: Call("exec", f"text((await tools.exec_command({{cmd: 'cat {path}'}})).output);"),
    "copilot": lambda path: Call("view", {"path": path}),
    "opencode": lambda path: Call("read", {"filePath": path}),
    "qwen-code": lambda path: Call("read_file", {"file_path": path}),
    "cline": lambda path: Call("read_files", {"files": [{"path": path}]}),
    "cn": lambda path: Call("Read", {"filepath": path}),
    "pi": lambda path: Call("read", {"path": path}),
    "mini-swe-agent": _shell("bash"),
}
"""How each reads a file by its own means; who has none is not listed."""


async def ends_well(trial: Trial, agent: Agent, window_tokens: int) -> bool:
    """Whether a turn with one call does in this window, through the proxy."""
    model = scripted(trial, Over("total", window_tokens), steps=1)
    model.lists = [{"id": MODEL, "object": "model", "max_model_len": window_tokens}]
    async with placed(trial, model, steps=1, lines=LINES) as place:
        files = ("--read", "log-0.txt") if trial.sends_files else ()
        ended = await place.run(agent, trial.words(TASK, *trial.allowing, *trial.tools, *files), through=True)
    return Conversation(ended, model, 0.0).is_good


def least_window(trial: Trial, agent: Agent) -> int | None:
    """The least window in which it works, by halving; None: it works in none."""
    too_small, enough = 0, MOST_TOKENS // STEP_TOKENS
    if not asyncio.run(ends_well(trial, agent, enough * STEP_TOKENS)):
        return None
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        if asyncio.run(ends_well(trial, agent, middle * STEP_TOKENS)):
            enough = middle
        else:
            too_small = middle
    return enough * STEP_TOKENS


async def asks_outside(trial: Trial, agent: Agent) -> Known:
    """Whether it reads a file inside its folder, and not one of the proxy's data folder."""
    reads = READS.get(trial.name)
    if reads is None:
        return "unknown"
    files: list[Path] = []

    def says(sent: Sent) -> Reply:
        done = sum(mark in sent.text for mark in ("Step 1.", "Step 2."))
        if done == len(files) or not (works_in(sent) or sent.json.get("tools")):
            return Reply("Done after 2 steps.")
        return Reply(f"Step {done + 1}.", [reads(str(files[done]))])

    model = ScriptedModel([], says, lists=[{"id": MODEL, "object": "model"}])
    async with placed(trial, model) as place:
        files += [place.work / "inside.txt", place.home / _KEPT]
        files[1].parent.mkdir(parents=True)
        for path, canary in zip(files, (_INSIDE, _OUTSIDE), strict=True):
            path.write_text(f"{canary}\n")
        await place.run(agent, trial.words(TASK, *trial.tools), through=False)
    seen = "".join(sent.text for sent in model.sent)
    if _INSIDE not in seen:
        return "unknown"
    return "no" if _OUTSIDE in seen else "yes"


def main(names: list[str]) -> int:
    """How many agents the table describes otherwise."""
    console = Console(width=max(120, Console().width))
    table = Table("agent", "least window", "in the table", "asks", "in the table", show_lines=True)
    differing = 0
    for trial, agent in delivered(names, console):
        window = least_window(trial, agent)
        asks = asyncio.run(asks_outside(trial, agent))
        table.add_row(trial.name, str(window), str(agent.least_window), asks, agent.asks_outside)
        differing += (window, asks) != (agent.least_window, agent.asks_outside)
    console.print(table)
    return differing


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
