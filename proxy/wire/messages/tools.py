"""The tool list of a request, with the proxy's own tool at its end, and the client's choice among tools.

Rule: the client's own entries in the list keep their bytes; ours comes after the client's last cache mark.
https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy, is_offered
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

_FORCES: Final = frozenset({"any", "tool"})
_MAX_NAMES: Final = 1_000
_NO_TOOLS: Final = frozenset((b"null", b"[]"))
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Of a tool list that is read once for all requests of its agent; sixty-four lists are remembered."""
_DEFINITION: Final = jsontext.dump({"name": SPEC.name, "description": SPEC.description, "input_schema": SPEC.schema})


def tool_names(tools: Raw | None) -> list[str]:
    """The names in a tool list; empty for a tool without one.

    >>> tool_names(b'[{"type":"bash_20250124","name":"bash"},{"type":"mcp_toolset"}]')
    ['bash', '']
    """
    found = jsontext.opened(tools)
    return [_name(tool) for tool in found[:_MAX_NAMES]] if isinstance(found, list) else []


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at the end; None if its agent does not have our tool."""
    if policy == "never":
        return None
    tools = bytes(members.get("tools", b"null"))
    if policy == "auto" and tools in _NO_TOOLS:
        return None
    return (_with_tool if len(tools) <= _MAX_REMEMBERED_BYTES else _with_tool.__wrapped__)(tools, policy)


@functools.lru_cache(64)
def _with_tool(tools: bytes, policy: RetrievalPolicy) -> bytes | None:
    if not is_offered(tool_names(tools), policy):
        return None
    if tools == b"null":
        return jsontext.join_array([_DEFINITION])
    if not tools.startswith(b"["):
        return None
    inside = tools[1:-1].strip()
    return b"[" + inside + b"," * bool(inside) + _DEFINITION + b"]"


def forces_a_call(members: Mapping[str, Raw]) -> bool:
    """Whether `tool_choice` demands a call: the model would call ours, round after round, instead of the client's.

    >>> forces_a_call({"tool_choice": b'{"type": "any"}'}), forces_a_call({"tool_choice": b'{"type": "auto"}'})
    (True, False)
    """
    chosen = jsontext.opened(members.get("tool_choice"))
    return isinstance(chosen, dict) and chosen.get("type") in _FORCES
