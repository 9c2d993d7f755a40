"""Searching and paging in artifacts."""

from proxy.core.artifact_reading.pages import Query, listing_header, read, search_header
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
    "Query",
    "Search",
    "hits_of",
    "listing_header",
    "part_at",
    "read",
    "search_header",
]
