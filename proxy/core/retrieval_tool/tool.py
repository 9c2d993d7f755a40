"""The proxy's own tool, `read_artifact`: when a request is offered it, and what a call of it asks for.

Rule: whether an agent has it depends on the tool list and on settings alone, so notices, hidden calls and cuts, and
with them the bytes of every message, are the same in all turns. Only a turn whose `tool_choice` forces a call goes up
without it: that call has to be the client's. Such a turn misses the prompt cache, as its tool list is another one; the
turns around it do not. What the client wrote of its list keeps its bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.models.agent_tools import AgentFileAccess, reach_with, tool_names
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

RetrievalPolicy: TypeAlias = Literal["auto", "always", "never"]

DEFINITION: Final = jsontext.dump(
    {
        "type": "function",
        "function": {
            "name": RETRIEVAL_TOOL,
            "description": "Reads what was cut from a tool result or left out of this conversation, a page at a time. "
            "The notices that begin with [context-proxy: name it by its id.",
            "parameters": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "As the notice names it: tool_bash_0123456789abcdef.txt"},
                    "lines": {"type": "string", "description": "400-480, or -80 for the last 80"},
                    "grep": {"type": "string", "description": "A regular expression: only lines that match, numbered"},
                    "context": {"type": "integer", "description": "With grep: lines around each match"},
                },
                "required": ["id"],
            },
        },
    }
)
"""About 130 tokens; English whatever the language of the notices, as the names in it are."""

MAX_TOOLS: Final = 128
"""In one list, ours among them: "A max of 128 functions are supported."
https://platform.openai.com/docs/api-reference/chat/create"""
_LEAVES_THE_CHOICE: Final = (None, "auto", "none")
"""Values of `tool_choice` that force nothing. With `none` the tool stays in the list: nobody calls it, and the prompt's
head is the same."""
_ID: Final = re.compile(ARTIFACT_NAME)
_NO_TOOLS: Final = frozenset((b"null", b"[]"))
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Of a tool list that is read once for all requests of its agent; sixty-four are remembered."""
_MAX_ARGUMENT_CHARACTERS: Final = 2_000
_BETWEEN: Final = re.compile(r"(?<=\d)\s*(?:-|,|–|\.\.+|to)\s*(?=\d)")
"""Models write 400-480, and 400,480, 400..480, 400 to 480 and L400-L480, too."""


def with_tool(members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
    """The `tools` of a request with ours at their end; None when its agent does not have it.

    Never beside a tool of the same name or as one too many, nor where several answers are asked for: in one of them
    nobody could answer a call.
    """
    if policy == "never" or "functions" in members or ("n" in members and _answers_asked_for(members) > 1):
        return None
    tools = bytes(members.get("tools", b"null"))
    if policy == "auto" and tools in _NO_TOOLS:
        return None
    return (_with_tool if len(tools) <= _MAX_REMEMBERED_BYTES else _with_tool.__wrapped__)(tools, policy)


@functools.lru_cache(64)
def _with_tool(tools: bytes, policy: RetrievalPolicy) -> bytes | None:
    names = tool_names(tools)
    if RETRIEVAL_TOOL in names or len(names) >= MAX_TOOLS:
        return None
    if policy == "auto" and (not names or reach_with(names) is not AgentFileAccess.NOTHING):
        return None
    if tools == b"null":
        return jsontext.join_array([DEFINITION])
    if not tools.startswith(b"["):
        return None
    inside = tools[1:-1].strip()
    return b"[" + inside + b"," * bool(inside) + DEFINITION + b"]"


def forces_a_call(members: Mapping[str, Raw]) -> bool:
    """Whether a request's `tool_choice` demands a call or names the tools that may be called.

    A model that must call something would call ours, round after round, and the client would wait for a call of its own
    in vain. What is not known is taken for a demand: `required`, `any` (Mistral), a named function, `allowed_tools`.

    >>> forces_a_call({"tool_choice": b'"auto"'}), forces_a_call({"tool_choice": b'"required"'}), forces_a_call({})
    (False, True, False)
    """
    return "tool_choice" in members and jsontext.opened(members["tool_choice"]) not in _LEAVES_THE_CHOICE


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call asks for."""

    artifact: str
    """A name that an artifact can have."""
    asked: Mapping[str, str]
    """How to read it, by the names of `GET /artifacts/ID`."""


def wanted_by(arguments: str) -> Wanted | None:
    """What a model means by its arguments; None when it names no artifact.

    It may name it by its path or its URL, and say `lines` in any way that can be understood.

    >>> wanted_by('{"id": "/d/tool_sh_0123456789abcdef.txt", "lines": [400, 480]}')
    Wanted(artifact='tool_sh_0123456789abcdef.txt', asked={'lines': '400-480'})
    """
    try:
        found = jsontext.value(arguments.encode("utf-8", "replace"))
    except jsontext.NotJson:
        found = arguments
    if isinstance(found, str):
        found = {"id": found}
    named = _ID.findall(_text(found.get("id"))) if isinstance(found, dict) else []
    if not named:
        return None
    lines, grep, context = _lines(found.get("lines")), _text(found.get("grep")), _text(found.get("context")).strip()
    asked = {"lines": lines, "grep": grep, "context": context if grep else ""}
    return Wanted(named[-1], {name: text for name, text in asked.items() if text})


def _lines(found: Any) -> str:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        found = "-".join(str(part) for part in found[:2])
    return _BETWEEN.sub("-", _text(found).replace("L", "").strip())


def _text(found: Any) -> str:
    """A text or a number as a text of bounded length; nothing else is one."""
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    return found[:_MAX_ARGUMENT_CHARACTERS] if isinstance(found, str) else ""


def _answers_asked_for(members: Mapping[str, Raw]) -> int:
    try:
        found = jsontext.value(members.get("n", b"1"))
    except jsontext.NotJson:
        return 1
    return found if isinstance(found, int) else 1
