"""`search_artifacts`, the tool for artifacts whose names a model does not know: what a call of it asks for.

Rule: it is checked before anything is read, and says what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from proxy.core.artifact import beginning_of
from proxy.core.artifact_reading.patterns import Search
from proxy.core.notices.catalogue import SEARCH_TOOL
from proxy.core.retrieval_tool.tool import ToolSpec
from proxy.errors import BadArtifactQuery

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
MAX_HITS_OF_ONE: Final = 20
"""Matches shown of one artifact; its first line says how to continue."""


class ArtifactSearch(Struct, frozen=True):
    """What to find."""

    search: Search | None
    """None: everything."""
    beginning: str
    """Of the names of the artifacts to look at."""

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> ArtifactSearch:
        """What a model means by its arguments; null and an empty text mean nothing. Raises BadArtifactQuery.

        >>> ArtifactSearch.parse({"grep": None, "tool": "Bash"})
        ArtifactSearch(search=None, beginning='tool_Bash_')
        """
        pattern, tool, context = (arguments.get(name) or "" for name in ("grep", "tool", "context"))
        if not isinstance(pattern, str):
            raise BadArtifactQuery("`grep` must be a text: a regular expression", param="grep")
        if not isinstance(tool, str):
            raise BadArtifactQuery("`tool` must be a text: the name of a tool", param="tool")
        around = str(context or 0)
        if not (around.isascii() and around.isdigit() and len(around) < 4):
            raise BadArtifactQuery("`context` must be a whole number of lines", param="context")
        search = Search(pattern, int(around), MAX_HITS_OF_ONE) if pattern else None
        return cls(search, beginning_of(tool) if tool else "tool_")
