"""The tool list of a request, with the proxy's own tool at its end, and the client's choice among tools.

Rule: the client's own entries in the list keep their bytes; ours comes after the client's last cache mark.
https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.tool_list import MAX_NAMES, OwnTool

_FORCES: Final = frozenset({"any", "tool"})
_DEFINITION: Final = jsontext.dump({"name": SPEC.name, "description": SPEC.description, "input_schema": SPEC.schema})


def tool_names(tools: Raw | None) -> list[str]:
    """The names in a tool list; empty for a tool without one.

    >>> tool_names(b'[{"type":"bash_20250124","name":"bash"},{"type":"mcp_toolset"}]')
    ['bash', '']
    """
    found = jsontext.opened(tools)
    return [_name(tool) for tool in found[:MAX_NAMES]] if isinstance(found, list) else []


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


_OWN: Final = OwnTool(_DEFINITION, tool_names)


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at the end; None if its agent does not have our tool."""
    return _OWN.appended(members, policy)


def forces_a_call(members: Mapping[str, Raw]) -> bool:
    """Whether `tool_choice` demands a call: the model would call ours, round after round, instead of the client's.

    >>> forces_a_call({"tool_choice": b'{"type": "any"}'}), forces_a_call({"tool_choice": b'{"type": "auto"}'})
    (True, False)
    """
    chosen = jsontext.opened(members.get("tool_choice"))
    return jsontext.string_in(chosen, "type") in _FORCES
