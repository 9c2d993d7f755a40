"""Searching and paging in artifacts."""

from proxy.core.artifact_reading.conversation_search import (
    LostMessages,
    Match,
    Searched,
    any_word_of,
    is_any_of_words,
    matches_in,
    page_of_matches,
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
    "any_word_of",
    "hits_of",
    "is_any_of_words",
    "listing_header",
    "matches_in",
    "page_of_matches",
    "part_at",
    "place",
    "read",
]
