"""The proxy's own tool, and a model's calls of it."""

from proxy.core.retrieval_tool.calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.retrieval_tool.tool import (
    SEARCH,
    SEARCH_SPEC,
    SPEC,
    ArtifactSearch,
    RetrievalPolicy,
    ToolSpec,
    Wanted,
    failed,
    is_offered,
    is_page,
    lacking_result,
    not_searched,
    notice,
    stopped,
    wanted_by,
    withheld,
)

__all__ = [
    "RETRIEVAL_TOOL",
    "SEARCH",
    "SEARCH_SPEC",
    "SPEC",
    "ArtifactSearch",
    "AssistantMessage",
    "OwnCall",
    "RetrievalPolicy",
    "ToolSpec",
    "Wanted",
    "failed",
    "is_offered",
    "is_page",
    "lacking_result",
    "not_searched",
    "notice",
    "stopped",
    "wanted_by",
    "withheld",
]
