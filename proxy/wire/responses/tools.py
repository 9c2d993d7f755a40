"""The tool list of a request, with the proxy's own tool at its end, and the client's choice among tools.

Rule: the client's own entries in the list keep their bytes. https://platform.openai.com/docs/guides/function-calling
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy, ToolSpec
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.tool_list import MAX_NAMES, OwnTool

PREVIOUS: Final = "previous_response_id"
NONE: Final = frozenset({b"", b"null", b'""'})
"""What a member says that says nothing."""
_LEAVES_THE_CHOICE: Final = (None, "auto", "none")


def tool_for(spec: ToolSpec) -> bytes:
    """A tool as an item of the list. By default a tool is `strict`, and all its properties would be required."""
    said = {"name": spec.name, "description": spec.description, "parameters": spec.schema, "strict": False}
    return jsontext.dump({"type": "function", **said})


def tool_names(tools: Raw) -> list[str]:
    """The names in a tool list, including those inside namespaces; a tool of the server is named by its type.

    >>> tool_names(b'[{"type":"function","name":"ls"},{"type":"web_search"},{"tools":[{"name":"cat"}]}]')
    ['ls', 'web_search', 'cat']
    """
    return list(_names(jsontext.opened(tools) if tools else None))[:MAX_NAMES]


def _names(tools: Any, depth: int = 0) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("tools"), list) and depth < 4:
            yield from _names(tool["tools"], depth + 1)
        else:
            yield _name(tool)


def _name(tool: Any) -> str:
    found = (tool.get("name") or tool.get("type")) if isinstance(tool, Mapping) else None
    return found if isinstance(found, str) else ""


_OWN: Final = OwnTool(tool_for(SPEC), tool_names)


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at the end; None if its agent does not have our tool.

    It is never added if the upstream itself adds each round to a conversation, or takes items from it, or if the client
    fetches the response later. Nor is it added to a request that continues from a response but keeps none: it is the
    last of its chain.
    """
    if is_there(members, "conversation") or cuts_itself(members) or is_true(members.get("background")):
        return None
    if is_there(members, PREVIOUS) and not is_kept(members):
        return None
    return _OWN.appended(members, policy)


def is_kept(members: Mapping[str, Raw]) -> bool:
    """Whether the upstream keeps the response to a request with these members, so that another may continue from it.
    By default, it does."""
    return bytes(members.get("store", b"true")) != b"false"


def is_there(members: Mapping[str, Raw], name: str) -> bool:
    """Whether a member says something."""
    return name in members and bytes(members[name]) not in NONE


def cuts_itself(members: Mapping[str, Raw]) -> bool:
    """Whether the upstream is asked to leave out items that do not fit."""
    return "truncation" in members and jsontext.opened(members["truncation"]) == "auto"


def is_true(raw: Raw | None) -> bool:
    """Whether a member exists and is true."""
    return raw is not None and bytes(raw) == b"true"


def forces_a_call(members: Mapping[str, Raw]) -> bool:
    """Whether a request's `tool_choice` demands a call or names the tools that may be called: `required`, a function,
    a hosted tool, `allowed_tools`.

    >>> forces_a_call({"tool_choice": b'"auto"'}), forces_a_call({"tool_choice": b'{"type":"allowed_tools"}'})
    (False, True)
    """
    return "tool_choice" in members and jsontext.opened(members["tool_choice"]) not in _LEAVES_THE_CHOICE
