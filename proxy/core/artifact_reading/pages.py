"""A page of an artifact: some lines, matches, a part of JSON, or a description, under a line that says what it shows.

Rule: the query is checked before anything is read. A page is bounded and begins with one line that says what it shows,
of how much, and names the next page: besides the artifact's name, it holds only numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from proxy.core.artifact_reading.search import CONTEXT, HITS, MAX_POINTER_CHARACTERS, Hits, Search, hits_of
from proxy.core.notices import FOUND, PAGES, Language, headed, say
from proxy.core.text import (
    PAGE_BYTES,
    BytesOf,
    LineIndex,
    LineRange,
    Page,
    page_of,
)
from proxy.errors import BadArtifactQuery


def page_header(page: Page, name: str, language: Language) -> str:
    """The first line of a page of lines."""
    text = say(
        PAGES,
        "page",
        language,
        first=f"{page.first}:{page.skipped_bytes}" if page.skipped_bytes else page.first,
        last=page.last,
        total=page.total_lines,
        name=name,
        shown=len(page.text),
        bytes=page.total_bytes,
    )
    if page.following is not None:
        text += say(PAGES, "cut" if page.cut else "more", language, following=page.following)
    return headed(text, language)


def hits_header(hits: Hits, name: str, language: Language) -> str:
    """The first line of a page of search results."""
    where = {"first": hits.first, "last": hits.last, "total": hits.total_lines}
    text = say(PAGES, "hits", language, count=hits.count, name=name, **where)
    if hits.following is not None:
        text += say(PAGES, "stopped", language, following=hits.following)
    return headed(text, language)


def listing_header(shown: int, total: int, language: Language) -> str:
    """The first line of a list of artifacts."""
    return headed(say(FOUND, "listed", language, shown=shown, total=total), language)


PARAMETERS: Final = ("lines", "grep", "context", "max", "json", "bytes", "stat")
_ALLOWED: Final = (
    "allowed are `lines=400-480`, `grep=REGEX` with `context=2` and `max=50`, `json=/pointer`, these three also "
    "together, with `bytes=8000` at the most, or `stat` alone"
)
_MAX_DIGITS: Final = 6


class Query(Struct, frozen=True):
    """Query for an artifact. `pointer` selects a part; `lines` and `search` read that part, or the whole."""

    lines: LineRange | None = None
    search: Search | None = None
    pointer: str | None = None
    max_bytes: int = PAGE_BYTES
    """Limit of the page, besides its header."""
    stat: bool = False

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Query | None:
        """From parameters by name; None if there are none, which asks for the whole. Raises BadArtifactQuery.

        >>> Query.parse({"lines": "400-", "grep": "ERROR"}).search.pattern
        'ERROR'
        """
        if not parameters:
            return None
        aside = parameters.keys() & {"context", "max"} if "grep" not in parameters else ()
        is_too_long = len(parameters.get("json", "")) > MAX_POINTER_CHARACTERS
        problems = {
            f"there is no such way of reading; {_ALLOWED}": [
                name[:100] for name in parameters if name not in PARAMETERS
            ],
            f"`context` and `max` belong to `grep`; {_ALLOWED}": sorted(aside),
            f"`stat` takes no other parameter; {_ALLOWED}": ["stat"] * ("stat" in parameters and len(parameters) > 1),
            f"`json` must have at most {MAX_POINTER_CHARACTERS:,} characters": ["json"] * is_too_long,
        }
        for problem, wrong in problems.items():
            if wrong:
                raise BadArtifactQuery(problem, param=wrong[0])
        pattern, lines = parameters.get("grep"), parameters.get("lines")
        context, most = _number(parameters, "context", CONTEXT), _number(parameters, "max", HITS)
        if not (max_bytes := _number(parameters, "bytes", PAGE_BYTES)):
            raise BadArtifactQuery("`bytes` must be at least 1", param="bytes")
        return cls(
            None if lines is None else LineRange.parse(lines),
            None if pattern is None else Search(pattern, context, most),
            parameters.get("json"),
            min(max_bytes, PAGE_BYTES),
            "stat" in parameters,
        )


def read(
    index: LineIndex, query: Query, bytes_of: BytesOf, name: str, language: Language, max_bytes: int = PAGE_BYTES
) -> bytes:
    """A page with its header, of about `max_bytes`, of a text whose parts `bytes_of` gives.

    A TimeoutError instead of bytes ends a search. Raises RangeOutside.
    """
    wanted, max_bytes = query.lines or LineRange(1), min(max_bytes, query.max_bytes)
    if query.search is not None:
        hits = hits_of(index, wanted, query.search, bytes_of, max_bytes)
        return hits_header(hits, name, language).encode() + hits.text
    page = page_of(index, wanted, bytes_of, max_bytes)
    return page_header(page, name, language).encode() + page.text


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadArtifactQuery(f"`{name}` must be a whole number", param=name)
    return int(text)
