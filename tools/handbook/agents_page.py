"""`docs/agents.md`: the known agents, generated from the table of `context-proxy run`.

Rule: this module describes no agent; a row says only what the table says, and "unknown" for the rest.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from proxy.commands.agents import AGENTS, VARIABLES_OF, Agent

HEAD: Final = """\
# Agents

Written by `make docs/agents.md` from the table that `context-proxy run` and `context-proxy env` use.

```sh
context-proxy run claude                                     # its own API; ends with it
context-proxy run --upstream http://127.0.0.1:11434 aider    # another API
context-proxy run --upstream URL any-command its-arguments   # any program that reads the variables of an API
eval "$(context-proxy env claude)"                           # the same for this shell; --off undoes it
context-proxy doctor --agent claude --upstream URL           # has it room in the window?
```

`run` uses a running proxy of yours that has the same upstream, or starts one on a free port that ends with the agent.
It sets variables in the agent's environment, adds flags, or gives it a changed copy of its settings, and changes none
of its files. Without `--upstream`, requests go where the agent would send them itself: to the base URL that its
environment names, else to its maker's API.

The variables of what the upstream speaks are always set: {variables}.

## Run with one command

What `run` adds, and what was measured on one machine with one word as the prompt, no MCP server, and a bare receiver in
the upstream's place (`make e2e`): bytes of the first request directly and through the proxy, and its tokens by our
count before the upstream has counted one (0.3 for a byte). Each MCP server adds its whole list. The least window is by
trial, too (`python -m tools.e2e.measures`): the smallest one, in steps of 500 tokens counted in the same way, in which
a turn with one short call of a tool ends well through the proxy; work needs more. Login: whether one with a
subscription, instead of a key, works. Asks: whether it asks before it reads outside its folder, by trial without a
terminal.

| agent | version | added | directly | through | tokens | least window | login | asks |
|---|---|---|---|---|---|---|---|---|
"""
BETWEEN: Final = """
Tool output that was cut is kept in `./.context-proxy` of the project, with a `.gitignore`, for agents that ask before
they read outside their folder, and in the data folder for all others.

### What a proxy changes

| agent | difference, and what cures it |
|---|---|
"""
RECIPES: Final = """
## By a setting

These were not tried here: the names of settings are those of their own documentation. `{base}` is
`http://127.0.0.1:8787/v1`, `{root}` the same without `/v1`.

| agent | setting |
|---|---|
"""
LIBRARIES: Final = """
## Libraries

`make e2e` runs each of them directly and through the proxy; `context-proxy run COMMAND` sets their variables.

| library | version | reads |
|---|---|---|
"""


def render() -> str:
    """The page."""
    variables = "; ".join(f"{', '.join(f'`{name}`' for name in names)}" for names in VARIABLES_OF.values())
    commands = [one for one in AGENTS if one.command and one.version]
    recipes = [one for one in AGENTS if not one.version]
    libraries = [one for one in AGENTS if not one.command and one.version]
    lines = [HEAD.replace("{variables}", variables), *(_row(one) for one in commands), BETWEEN]
    lines += [f"| {one.name} | {one.note} |\n" for one in commands if one.note]
    lines += [RECIPES, *(f"| {one.name} | {one.setting} |\n" for one in recipes)]
    lines += [LIBRARIES, *(f"| {one.name} | {one.version} | {one.setting} |\n" for one in libraries)]
    return "".join(lines)


def _row(agent: Agent) -> str:
    figures = (agent.bytes_direct, agent.bytes_through, agent.prompt_tokens, agent.least_window)
    cells = [f"`{agent.command}`" if agent.command == agent.name else f"{agent.name}, `{agent.command}`"]
    cells += [agent.version or "not tried", "<br>".join(_added(agent)), *map(_figure, figures)]
    return f"| {' | '.join([*cells, agent.subscription, agent.asks_outside])} |\n"


def _added(agent: Agent) -> Iterator[str]:
    yield from (f"`{name}`" for name in agent.variables)
    yield from (f"`{name}={text}` where the upstream is its maker's" for name, text in agent.at_maker.items())
    names = dict.fromkeys(name for variables in agent.by_api.values() for name in variables)
    yield from (f"`{name}`" for name in names)
    if agent.flags:
        yield f"`{agent.command} {shlex.join(agent.flags).replace('|', ' ')}`"
    if agent.file is not None:
        how = f"`{agent.file.variable or agent.file.flag}`"
        yield f"{how} with a copy of `{agent.file.paths[-1]}`, if that names the upstream"
    if not (agent.variables or agent.by_api or agent.flags or agent.file):
        yield "nothing else"


def _figure(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
