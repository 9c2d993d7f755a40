"""Searching and paging in artifacts."""

from proxy.core.artifact_reading.pages import Query, listing_header, quoted, read, search_header, shorter_page
from proxy.core.artifact_reading.search import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
    Search,
    part_at,
)

__all__ = [
    "CONTEXT",
    "HITS",
    "MAX_CONTEXT",
    "MAX_HITS",
    "MAX_PATTERN_CHARACTERS",
    "MAX_POINTER_CHARACTERS",
    "Query",
    "Search",
    "listing_header",
    "part_at",
    "quoted",
    "read",
    "search_header",
    "shorter_page",
]
