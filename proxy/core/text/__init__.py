"""Texts: excerpts, lines, identifiers, JSON that keeps its bytes."""

from proxy.core.text import jsontext
from proxy.core.text.discreet import Discreet
from proxy.core.text.excerpt import HEAD_SHARE, MAX_RESCUED_LINES, Direction, Excerpt, ExcerptLimits, excerpt
from proxy.core.text.identifiers import most_telling, names_in, names_of_lines
from proxy.core.text.jsontext import Path, Raw
from proxy.core.text.lines import (
    BLOCK_BYTES,
    PAGE_BYTES,
    BytesOf,
    LineIndex,
    LineRange,
    Page,
    Span,
    begin_of,
    count_lines,
    last_bytes,
    page_of,
    utf8_length,
    whole_characters,
)

__all__ = [
    "BLOCK_BYTES",
    "HEAD_SHARE",
    "MAX_RESCUED_LINES",
    "PAGE_BYTES",
    "BytesOf",
    "Direction",
    "Discreet",
    "Excerpt",
    "ExcerptLimits",
    "LineIndex",
    "LineRange",
    "Page",
    "Path",
    "Raw",
    "Span",
    "begin_of",
    "count_lines",
    "excerpt",
    "jsontext",
    "last_bytes",
    "most_telling",
    "names_in",
    "names_of_lines",
    "page_of",
    "utf8_length",
    "whole_characters",
]
