"""Pages of artifacts."""

from proxy.core.artifact_reading.conversation_search import (
    LostMessages,
    Match,
    Searched,
    matches_in,
    page_of_matches,
    patterns_for,
    place,
)
from proxy.core.artifact_reading.pages import Query, listing_header, read
from proxy.core.artifact_reading.search import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
    Hits,
    Search,
    hits_of,
    part_at,
)

__all__ = [
    "CONTEXT",
    "HITS",
    "MAX_CONTEXT",
    "MAX_HITS",
    "MAX_PATTERN_CHARACTERS",
    "MAX_POINTER_CHARACTERS",
    "Hits",
    "LostMessages",
    "Match",
    "Query",
    "Search",
    "Searched",
    "hits_of",
    "listing_header",
    "matches_in",
    "page_of_matches",
    "part_at",
    "patterns_for",
    "place",
    "read",
]
