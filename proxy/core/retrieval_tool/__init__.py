"""The proxy's own tool, and a model's calls of it."""

from proxy.core.retrieval_tool.tool import (
    RETRIEVAL_TOOL,
    SEARCH,
    SEARCH_SPEC,
    SPEC,
    ArtifactSearch,
    AssistantMessage,
    OwnCall,
    RetrievalPolicy,
    ToolSpec,
    Wanted,
    failed,
    is_offered,
    is_page,
    notice,
    wanted_by,
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
    "notice",
    "wanted_by",
]
