"""What the tools of a request can do, by their names and parameters.

Rule: a function of the tool list alone, so it is the same in every turn of a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

_SHELL: Final = re.compile(
    r"bash|shell|terminal|powershell|(?:run|exec|execute)_?(?:command|cmd)|^exec$|^cmd$", re.IGNORECASE
)
_READER: Final = re.compile(
    r"(?:read|view|open|cat)_?(?:many_?)?files?|^read$|^view$|str_replace.*edit|grep|search_?files?", re.IGNORECASE
)
_SUBAGENT: Final = re.compile(r"^(?:task|agent)$|sub_?agent|dispatch_?agent|delegate|spawn_?agent", re.IGNORECASE)
"""Names as they stand in the tool lists of Claude Code, Codex, opencode, qwen-code, Cline and OpenHands. Claude Code
has called it Agent since 2.1.63, and Task before: https://code.claude.com/docs/en/sub-agents"""
_MAX_TOOLS: Final = 1_000


class AgentFileAccess(StrEnum):
    """How the agent can get at a file; the values name the words for it."""

    NOTHING = "nothing"
    SUBAGENT = "subagent"
    PAGE = "page"
    SHELL = "shell"


def reach_of(tools: Raw | None, *, sees_files: bool = True) -> AgentFileAccess:
    """The best way to an artifact that these tools offer: a sub-agent spares the context, a reader pages, a shell can
    all. `sees_files`: whether the agent has the folder before it; a shell alone gets at it without.

    >>> reach_of(b'[{"type":"function","function":{"name":"run_command"}}]')
    <Reach.SHELL: 'shell'>
    """
    return reach_with(tool_names(tools), sees_files=sees_files)


def reach_with(names: Sequence[str], *, sees_files: bool = True) -> AgentFileAccess:
    """As `reach_of`, for tools of these names."""
    for pattern, reach in (
        (_SUBAGENT, AgentFileAccess.SUBAGENT),
        (_READER, AgentFileAccess.PAGE),
        (_SHELL, AgentFileAccess.SHELL),
    ):
        if (sees_files or reach is AgentFileAccess.SHELL) and any(pattern.search(name) for name in names):
            return reach
    return AgentFileAccess.NOTHING


def offers_subagent(tools: Raw | None) -> bool:
    """Whether work can be handed to a sub-agent, which may run on another model, whatever files the proxy shares.

    >>> offers_subagent(b'[{"type":"function","function":{"name":"Task"}}]'), offers_subagent(None)
    (True, False)
    """
    return reach_of(tools) is AgentFileAccess.SUBAGENT


def tool_names(tools: Raw | None) -> list[str]:
    """The names in a tool list; empty where a tool has none."""
    try:
        found = jsontext.value(tools) if tools is not None else None
    except jsontext.NotJson:
        return []
    return [_name(tool) for tool in found[:_MAX_TOOLS]] if isinstance(found, list) else []


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else ""
