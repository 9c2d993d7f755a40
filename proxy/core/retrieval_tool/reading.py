"""How an artifact is read: a page of lines, a search, a part of JSON, or its description.

Rule: the query is checked before anything is read; a page is bounded, begins with one line that says what it shows and
of how much, and names the next page.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from msgspec import Struct

from proxy.core.artifact_reading.grep import Hits, hits_of
from proxy.core.artifact_reading.patterns import CONTEXT, HITS, Search
from proxy.core.artifact_reading.pointer import MAX_POINTER_CHARACTERS
from proxy.core.notices.catalogue import Language
from proxy.core.notices.pages import hits_header, page_header
from proxy.core.text.lines import PAGE_BYTES, LineIndex, LineRange, Page, Span, page_of
from proxy.errors import BadArtifactQuery

PARAMETERS: Final = ("lines", "grep", "context", "max", "json", "bytes", "stat")
_ALLOWED: Final = (
    "allowed are `lines=400-480`, `grep=REGEX` with `context=2` and `max=50`, `json=/pointer`, these three also "
    "together, with `bytes=8000` at the most, or `stat` alone"
)
_MAX_DIGITS: Final = 6


class Query(Struct, frozen=True):
    """What to read. `pointer` selects a part; `lines` and `search` read that part, or the whole."""

    lines: LineRange | None = None
    search: Search | None = None
    pointer: str | None = None
    max_bytes: int = PAGE_BYTES
    """Of the page, besides its header."""
    stat: bool = False

    @classmethod
    def parse(cls, asked: Mapping[str, str]) -> Query | None:
        """From parameters by name; None if there are none, which asks for the whole. Raises BadArtifactQuery.

        >>> Query.parse({"lines": "400-", "grep": "ERROR"}).search.pattern
        'ERROR'
        """
        if not asked:
            return None
        unknown = next((name for name in asked if name not in PARAMETERS), None)
        if unknown is not None:
            raise BadArtifactQuery(f"there is no such way of reading; {_ALLOWED}", param=unknown[:100])
        if "grep" not in asked and (lost := asked.keys() & {"context", "max"}):
            raise BadArtifactQuery(f"`context` and `max` belong to `grep`; {_ALLOWED}", param=min(lost))
        if "stat" in asked and len(asked) > 1:
            raise BadArtifactQuery(f"`stat` stands alone; {_ALLOWED}", param="stat")
        search = None
        if "grep" in asked:
            search = Search(asked["grep"], _number(asked, "context", CONTEXT), _number(asked, "max", HITS))
        lines = LineRange.parse(asked["lines"]) if "lines" in asked else None
        pointer = asked.get("json")
        if pointer is not None and len(pointer) > MAX_POINTER_CHARACTERS:
            raise BadArtifactQuery(f"`json` must have at most {MAX_POINTER_CHARACTERS:,} characters", param="json")
        if not (max_bytes := _number(asked, "bytes", PAGE_BYTES)):
            raise BadArtifactQuery("`bytes` must be at least 1", param="bytes")
        return cls(lines, search, pointer, min(max_bytes, PAGE_BYTES), "stat" in asked)


def read(
    index: LineIndex, query: Query, name: str, language: Language, max_bytes: int = PAGE_BYTES
) -> Generator[Span, bytes, bytes]:
    """A page with its header, of about `max_bytes`: yields the spans of the text that it has to read, is sent their
    bytes, and returns the page.

    A TimeoutError instead of bytes ends a search. Raises RangeOutside.
    """
    wanted, max_bytes = query.lines or LineRange(1), min(max_bytes, query.max_bytes)
    if query.search is not None:
        hits: Hits = yield from hits_of(index, wanted, query.search, max_bytes)
        return hits_header(hits, name, language).encode() + hits.text
    page: Page = yield from page_of(index, wanted, max_bytes)
    return page_header(page, name, language).encode() + page.text


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadArtifactQuery(f"`{name}` must be a whole number", param=name)
    return int(text)
