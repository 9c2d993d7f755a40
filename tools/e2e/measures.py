"""`python -m tools.e2e.measures [AGENT…]`: what the table of agents says of windows and of reading, by trial.

Rule: a least window is the smallest, in steps of 500 tokens, in which a turn with one call of a tool ends well through
`context-proxy run`, with the first request as whole as in a large one; the proxy is told it, and the server refuses a
prompt and reply over it. An agent asks before it reads outside its folder if it reads a file inside and not
one that the proxy keeps in the data folder, without a terminal and a flag that allows it. Both are written into the
table by hand; `make e2e` tries only whether the window still suffices.
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
TOKENS_PER_BYTE: Final = 0.3
"""As the proxy counts agents' first requests before the upstream has told it better."""
LINES: Final = 40
"""Of the one log: 2 KB, so that the window need not be larger for its sake."""
WHOLE: Final = 0.98
"""Share of a request, for the dates and folders in it."""
TOO_LONG: Final = (
    "input length and `max_tokens` exceed context limit: {prompt} + {reply} > {limit}, decrease input length or "
    "`max_tokens` and try again"
)
"""Anthropic's words for a prompt and a reply that are too much together."""
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
"""How each reads a file by its own means; an agent without any does not read, so it does not ask."""


async def turn_in(trial: Trial, agent: Agent, window_tokens: int) -> int:
    """Tokens in which the first request of a turn with one call reaches the model through the proxy; 0: the turn does
    not end well."""
    model = scripted(trial, Over("total", window_tokens, TOO_LONG if trial.api == "anthropic" else ""), steps=1)
    model.counts = lambda _, body: int(len(body) * TOKENS_PER_BYTE)
    async with placed(trial, model, steps=1, lines=LINES) as place:
        files = ("--read", "log-0.txt") if trial.sends_files else ()
        words = trial.words(TASK, *trial.allowing, *trial.tools, *files)
        ended = await place.run(agent, words, through=True, flags=("--context-window", str(window_tokens)))
    first = [sent.tokens for sent in model.accepted if works_in(sent) or trial.sends_files]
    return first[0] if first and Conversation(ended, model, 0.0).is_good else 0


def least_window(trial: Trial, agent: Agent) -> int | None:
    """The least window in which it works; None: it works in none."""

    def works(steps: int) -> bool:
        return asyncio.run(turn_in(trial, agent, steps * STEP_TOKENS)) >= WHOLE * whole

    if not (whole := asyncio.run(turn_in(trial, agent, MOST_TOKENS))):
        return None
    too_few = int(WHOLE * whole) // STEP_TOKENS  # the request alone is larger
    enough = too_few + 1
    while not works(enough):
        too_few, enough = enough, enough + 2 * (enough - too_few)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if works(middle):
            enough = middle
        else:
            too_few = middle
    return enough * STEP_TOKENS


async def asks_outside(trial: Trial, agent: Agent) -> Known:
    """Whether it reads a file inside its folder, and not one of the proxy's data folder."""
    reads = READS.get(trial.name)
    if reads is None:
        return "no"
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


def too_small(names: list[str]) -> int:
    """How many agents do not work any more in the window that the table says, and one step more."""
    console = Console(width=max(120, Console().width))
    found = 0
    for trial, agent in delivered(names, console):
        window = (agent.least_window or 0) + STEP_TOKENS
        if not asyncio.run(turn_in(trial, agent, window)):
            console.print(f"{trial.name}: no turn ends well in a window of {window} tokens", style="red")
            found += 1
    return found


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
