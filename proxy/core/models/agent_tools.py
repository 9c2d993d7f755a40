"""What the tools of a request can do, by their names and parameters.

Rule: a function of the tool list alone, so it is the same in every turn of a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

_SHELL: Final = re.compile(
    r"bash|shell|terminal|powershell|(?:run|exec|execute)_?(?:command|cmd)|^exec$|^cmd$", re.IGNORECASE
)
_READER: Final = re.compile(
    r"(?:read|view|open|cat)_?(?:many_?)?files?|^read$|^view$|str_replace.{0,40}edit|grep|search_?files?", re.IGNORECASE
)
_SUBAGENT: Final = re.compile(r"^(?:task|agent)$|sub_?agent|dispatch_?agent|delegate|spawn_?agent", re.IGNORECASE)
"""Names in the tool lists of Claude Code, Codex, opencode, qwen-code, Cline and OpenHands. Claude Code has called it
Agent since 2.1.63, and Task before: https://code.claude.com/docs/en/sub-agents"""


class AgentFileAccess(StrEnum):
    """How the agent can read a file; the values name the texts about it."""

    NOTHING = "nothing"
    SUBAGENT = "subagent"
    PAGE = "page"
    SHELL = "shell"


def reach_with(names: Sequence[str], *, sees_files: bool = True) -> AgentFileAccess:
    """The best way to an artifact that tools with these names offer: a sub-agent saves context, a reader pages, a shell
    does everything. `sees_files`: whether the agent sees the folder; only a shell can read artifacts without it.

    >>> reach_with(["run_command"])
    <AgentFileAccess.SHELL: 'shell'>
    """
    for pattern, reach in (
        (_SUBAGENT, AgentFileAccess.SUBAGENT),
        (_READER, AgentFileAccess.PAGE),
        (_SHELL, AgentFileAccess.SHELL),
    ):
        if (sees_files or reach is AgentFileAccess.SHELL) and any(pattern.search(name) for name in names):
            return reach
    return AgentFileAccess.NOTHING


def offers_subagent(names: Sequence[str]) -> bool:
    """Whether work can be handed to a sub-agent, which may run on another model, whatever files the proxy shares.

    >>> offers_subagent(["Task"]), offers_subagent([])
    (True, False)
    """
    return reach_with(names) is AgentFileAccess.SUBAGENT
