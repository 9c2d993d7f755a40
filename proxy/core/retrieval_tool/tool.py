"""The proxy's own tool, `read_artifact`: when a request is offered it, and what a call of it asks for.

Rule: whether an agent has the tool depends only on its tool list and on settings, so notices, hidden calls and cuts,
and with them the bytes of every message, are the same in all turns. Only a turn whose `tool_choice` forces a call is
sent without the tool: that call has to be the client's. Such a turn misses the prompt cache, because its tool list
differs; the turns around it do not. The client's own entries in the list keep their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.models.agent_tools import AgentFileAccess, reach_with
from proxy.core.notices.catalogue import TOOL
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL
from proxy.core.text import jsontext

RetrievalPolicy: TypeAlias = Literal["auto", "always", "never"]


class ToolSpec(Struct, frozen=True):
    """A tool as it is described to a model, independent of the wire."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of the arguments."""


SPEC: Final = ToolSpec(
    RETRIEVAL_TOOL,
    TOOL["what"],
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": TOOL["id"]},
            "lines": {"type": "string", "description": TOOL["lines"]},
            "grep": {"type": "string", "description": TOOL["grep"]},
            "context": {"type": "integer", "description": TOOL["context"]},
            "json": {"type": "string", "description": TOOL["json"]},
        },
        "required": ["id"],
    },
)

MAX_TOOLS: Final = 128
"""In one list, including ours: "A max of 128 functions are supported."
https://platform.openai.com/docs/api-reference/chat/create"""
_ID: Final = re.compile(ARTIFACT_NAME)
_MAX_ARGUMENT_CHARACTERS: Final = 2_000
_BETWEEN: Final = re.compile(r"(?<=\d)\s*(?:-|,|–|\.\.+|to)\s*(?=\d)")
"""Models also write 400,480, 400..480, 400 to 480 and L400-L480 for 400-480."""


def is_offered(names: Sequence[str], policy: RetrievalPolicy) -> bool:
    """Whether an agent with tools of these names also gets ours: never beside a tool of the same name, and never beyond
    the maximum number of tools; `auto`: if the agent has tools, and none of them is a shell. A tool that reads
    files sees only those on its machine, and of a long line only the beginning."""
    if policy == "never" or RETRIEVAL_TOOL in names or len(names) >= MAX_TOOLS:
        return False
    return policy == "always" or (bool(names) and reach_with(names, sees_files=False) is AgentFileAccess.NOTHING)


class Wanted(Struct, frozen=True):
    """What a call asks for."""

    artifact: str
    """A valid name of an artifact."""
    asked: Mapping[str, str]
    """How to read it, by the parameter names of `GET /artifacts/ID`."""


def wanted_by(arguments: str) -> Wanted | None:
    """What a model means by its arguments; None if they name no artifact.

    A model may give the path or URL of the artifact, and write `lines` in any form that can be understood.

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
    asked = {"lines": lines, "grep": grep, "context": context if grep else "", "json": _text(found.get("json")).strip()}
    return Wanted(named[-1], {name: text for name, text in asked.items() if text})


def _lines(found: Any) -> str:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        found = "-".join(str(part) for part in found[:2])
    return _BETWEEN.sub("-", _text(found).replace("L", "").strip())


def _text(found: Any) -> str:
    """A text or a number as a text of bounded length; an empty text for anything else."""
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    return found[:_MAX_ARGUMENT_CHARACTERS] if isinstance(found, str) else ""
