"""The tool list of a request, with the proxy's own tool at its end, and the client's choice among tools.

Rule: the client's own entries in the list keep their bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy, ToolSpec, is_offered
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.message import name_of

_LEAVES_THE_CHOICE: Final = (None, "auto", "none")
"""Values of `tool_choice` that force nothing. With `none` the tool stays in the list: the model does not call it, and
the beginning of the prompt stays the same."""
_MAX_NAMES: Final = 1_000
_NO_TOOLS: Final = frozenset((b"null", b"[]"))
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Of a tool list that is read once for all requests of its agent; sixty-four lists are remembered."""


def tool_for(spec: ToolSpec) -> bytes:
    """A tool as an item of the list."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return jsontext.dump({"type": "function", "function": function})


_DEFINITION: Final = tool_for(SPEC)


def tool_names(tools: Raw | None) -> list[str]:
    """The names in a tool list; empty for a tool without one."""
    try:
        found = jsontext.value(tools) if tools is not None else None
    except jsontext.NotJson:
        return []
    listed = found[:_MAX_NAMES] if isinstance(found, list) else []
    return [name_of(tool) if isinstance(tool, dict) else "" for tool in listed]


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at the end; None if its agent does not have our tool.

    It is never added beside a tool of the same name or beyond the maximum, nor if several choices are requested: nobody
    could answer a call in one of them.
    """
    if policy == "never" or "functions" in members or ("n" in members and _answers_asked_for(members) > 1):
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
    """Whether a request's `tool_choice` demands a call or names the tools that may be called.

    A model that must call something would call ours, round after round, and the client would wait in vain for a call of
    its own. Unknown values count as a demand: `required`, `any` (Mistral), a named function, `allowed_tools`.

    >>> forces_a_call({"tool_choice": b'"auto"'}), forces_a_call({"tool_choice": b'"required"'}), forces_a_call({})
    (False, True, False)
    """
    return "tool_choice" in members and jsontext.opened(members["tool_choice"]) not in _LEAVES_THE_CHOICE


def _answers_asked_for(members: Mapping[str, Raw]) -> int:
    try:
        found = jsontext.value(members.get("n", b"1"))
    except jsontext.NotJson:
        return 1
    return found if isinstance(found, int) else 1
