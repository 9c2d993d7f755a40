"""The proxy's own tools, `read_artifact` for models, `search_artifacts` for clients of MCP. Which requests may be
offered one, what a call of it asks for, and the texts of its results besides the pages.

Rule: a call belongs to the proxy if it names the proxy's tool, which is offered only where no tool of the client has
that name; every call keeps its bytes, because they may carry what an upstream wants back (Gemini's thought signatures).
The client never sees one. Whatever went wrong, a result says what is allowed and what to do next; a model without an
answer calls again. Results are recognised when they arrive, and not cut, routed or kept again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from proxy.core.artifact import ARTIFACT_NAME, beginning_of
from proxy.core.artifact_reading import MAX_CONTEXT, MAX_PATTERN_CHARACTERS, Query
from proxy.core.conversation import TOOL_ROLES, Message
from proxy.core.models import AgentFileAccess, reach_with
from proxy.core.notices import (
    BAD_QUERIES,
    MARK,
    NOT_READ,
    READING,
    SEARCH_TOOL,
    TOOL,
    Language,
    headed,
    say,
)
from proxy.core.text import Discreet, jsontext
from proxy.errors import BadArtifactQuery, ProxyError

RETRIEVAL_TOOL: Final = "read_artifact"
"""The proxy's own tool."""


class OwnCall(Discreet, frozen=True):
    """A call of the proxy's own tool."""

    id: str
    arguments: str
    """The model's text: JSON, or an attempt at it."""


class AssistantMessage(Discreet, frozen=True):
    """A model's message in one round."""

    message: bytes
    """The message sent back upstream, with all calls."""
    own: tuple[OwnCall, ...]
    others: tuple[bytes, ...]
    """The client's calls, in order."""
    texts: Mapping[str, str]
    """The parts that a person may read, by the wire's name for each: text and reasoning."""


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
            "context": {"type": "integer"},
            "json": {"type": "string", "description": TOOL["json"]},
        },
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
    """Whether an agent with tools of these names may get ours: never beside a tool of the same name, and never beyond
    the maximum number of tools; `auto`: if none of its tools is a shell. A tool that reads files sees only those on its
    machine, and of a long line only the beginning."""
    if policy == "never" or RETRIEVAL_TOOL in names or len(names) >= MAX_TOOLS:
        return False
    return policy == "always" or reach_with(names, sees_files=False) is AgentFileAccess.NOTHING


class Wanted(Struct, frozen=True):
    """Parsed arguments of a call."""

    artifact: str
    """A valid name of an artifact; empty for a search through all."""
    parameters: Mapping[str, str]
    """How to read it, by the parameter names of `GET /artifacts/ID`."""


def wanted_by(arguments: str) -> Wanted | None:
    """Parse a model's arguments; None if they name no artifact, nor something to search for in all of them.

    A model may give the path or URL of the artifact, and write `lines` in any form that can be understood.

    >>> wanted_by('{"id": "/d/tool_sh_0123456789abcdef.txt", "lines": [400, 480]}')
    Wanted(artifact='tool_sh_0123456789abcdef.txt', parameters={'lines': '400-480'})
    """
    try:
        found = jsontext.value(arguments.encode("utf-8", "replace"))
    except jsontext.NotJson:
        found = arguments
    if isinstance(found, str):
        found = {"id": found}
    if not isinstance(found, dict):
        return None
    named = _ID.findall(_text(found.get("id")))
    if not named and (_text(found.get("id")) or not _text(found.get("grep"))):
        return None
    lines, grep, context = _lines(found.get("lines")), _text(found.get("grep")), _text(found.get("context")).strip()
    parameters = {
        "lines": lines,
        "grep": grep,
        "context": context if grep else "",
        "json": _text(found.get("json")).strip(),
    }
    return Wanted(named[-1] if named else "", {name: text for name, text in parameters.items() if text})


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


SEARCH: Final = "search_artifacts"
"""Its name."""
SEARCH_SPEC: Final = ToolSpec(
    SEARCH,
    SEARCH_TOOL["what"],
    {
        "type": "object",
        "properties": {
            "grep": {"type": "string", "description": SEARCH_TOOL["grep"]},
            "tool": {"type": "string", "description": SEARCH_TOOL["tool"]},
            "context": {"type": "integer", "description": SEARCH_TOOL["context"]},
        },
    },
)


class ArtifactSearch(Struct, frozen=True):
    """Parsed arguments of a search for artifacts."""

    query: Query | None
    """None: everything."""
    beginning: str
    """Prefix of the names of the artifacts to search."""

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> ArtifactSearch:
        """Parse a model's arguments; null and an empty text count as missing. Raises BadArtifactQuery.

        >>> ArtifactSearch.parse({"grep": None, "tool": "Bash"})
        ArtifactSearch(query=None, beginning='tool_Bash_')
        """
        pattern, tool, context = (arguments.get(name) or "" for name in ("grep", "tool", "context"))
        for param, text in (("grep", pattern), ("tool", tool)):
            if not isinstance(text, str):
                raise BadArtifactQuery(f"`{param}` must be a text", param=param)
        query = Query.parse({"grep": pattern, "context": str(context or 0)}) if pattern else None
        return cls(query, beginning_of(tool) if tool else "tool_")


_ALLOWED: Final = {"grep": MAX_PATTERN_CHARACTERS, "context": MAX_CONTEXT}
"""The maximum of a parameter, where the text states it."""


def failed(name: str, error: ProxyError, language: Language) -> str:
    """The result of a call whose artifact cannot be read, or not in this way. `name`: empty for a search."""
    param = (error.param or "") if isinstance(error, BadArtifactQuery) else ""
    if param in BAD_QUERIES:
        problem = say(BAD_QUERIES, param, language, message=error.message, most=_ALLOWED.get(param))
    else:
        kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in NOT_READ), "other")
        problem = say(NOT_READ, kind, language, message=error.message, code=error.code or "")
    return notice("failed" if name else "unsearched", language, name=name, problem=problem)


def notice(kind: str, language: Language, /, **values: object) -> str:
    """A result without a page, or what is added to one: by its kind in the catalogue, with the values in its phrase."""
    return headed(say(READING, kind, language, **values), language)


def is_page(message: Message, tool: str) -> bool:
    """Whether a message is such a result; `tool` is the name of the tool that was called."""
    if tool != RETRIEVAL_TOOL or message.role not in TOOL_ROLES:
        return False
    return any(MARK in text for _, text in message.texts())
