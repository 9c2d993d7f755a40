"""The tool list of a request, with the proxy's own tool at its end, and the client's choice among tools.

Rule: the client's own entries in the list keep their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy, ToolSpec
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.calls import name_of
from proxy.wire.tool_list import MAX_NAMES, OwnTool

_LEAVES_THE_CHOICE: Final = (None, "auto", "none")
"""Values of `tool_choice` that force nothing. With `none` the tool stays in the list: the model does not call it, and
the beginning of the prompt stays the same."""


def tool_for(spec: ToolSpec) -> bytes:
    """A tool as an item of the list."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return jsontext.dump({"type": "function", "function": function})


def tool_names(tools: Raw | None) -> list[str]:
    """The names in a tool list; empty for a tool without one."""
    try:
        found = jsontext.value(tools) if tools is not None else None
    except jsontext.NotJson:
        return []
    listed = found[:MAX_NAMES] if isinstance(found, list) else []
    return [name_of(tool) if isinstance(tool, dict) else "" for tool in listed]


_OWN: Final = OwnTool(tool_for(SPEC), tool_names)


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at the end; None if its agent does not have our tool.

    It is never added if several choices are requested: nobody could answer a call in one of them.
    """
    if "functions" in members or ("n" in members and _answers_asked_for(members) > 1):
        return None
    return _OWN.appended(members, policy)


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
