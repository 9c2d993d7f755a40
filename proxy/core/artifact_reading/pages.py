"""How an artifact is read: a page of lines, a search, a part of JSON, or its description; and the first line of each
page, in English and Chinese.

Rule: the query is checked before anything is read. A page is bounded and begins with one line that says what it shows,
of how much, and names the next page; it contains the mark and the artifact's name, by which pages are recognised and
never cut again, and else only numbers, so a forged one leads nowhere. Any other notice in a tool's output is foreign
and is shown as quoted.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from msgspec import Struct, structs

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading.search import CONTEXT, HITS, MAX_POINTER_CHARACTERS, Hits, Search, hits_of
from proxy.core.notices import CUTS, FOUND, MARK, PAGES, QUOTED, ArtifactAccess, Language, headed, say
from proxy.core.text import (
    PAGE_BYTES,
    Direction,
    ExcerptLimits,
    LineIndex,
    LineRange,
    Page,
    Span,
    excerpt,
    page_of,
    utf8_length,
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


def shorter_page(text: str, limits: ExcerptLimits) -> str | None:
    """Shorten a page to the limits, under a header that is true of it and names the rest; None if it is no page, or not
    even its first line fits."""
    if MARK not in text[: 2 * len(MARK)]:
        return None
    headers = ((language, pattern.match(text)) for language, pattern in _whole_headers())
    language, found = next((one for one in headers if one[1] is not None), ("en", None))
    if found is None:
        return None
    room = structs.replace(
        limits,
        max_bytes=max(0, limits.max_bytes - utf8_length(found[0]) - _MORE_NUMBERS_BYTES),
        max_chars=limits.max_chars and max(0, limits.max_chars - len(found[0]) - _MORE_NUMBERS_BYTES),
        max_lines=max(0, limits.max_lines - 1),
        direction=Direction.HEAD,
    )
    numbers = {name: value.replace(",", "") for name, value in found.groupdict().items() if value and name != "name"}
    body = text[found.end() :]
    shown = excerpt(body, room).head
    if "count" in numbers:
        return _fewer_hits(shown, body, numbers, found["name"], language)
    return _fewer_lines(shown, numbers, found["name"], language) if shown else None


def _fewer_lines(shown: str, numbers: Mapping[str, str], name: str, language: Language) -> str:
    first, _, skipped = numbers["first"].partition(":")
    line_bytes = utf8_length(shown[shown.rfind("\n") + 1 :])
    begin, ended = int(first), shown.count("\n")
    line_bytes += int(skipped or 0) if not ended else 0
    following = f"{begin + ended}:{line_bytes}" if line_bytes else f"{begin + ended}"
    page = Page(
        shown.encode("utf-8", "surrogatepass"),
        begin,
        begin + ended - (1 if shown.endswith("\n") else 0),
        f"{following}-{_end_of(numbers)}",
        True,
        int(numbers["total"]),
        int(numbers["bytes"]),
        int(skipped or 0),
    )
    return page_header(page, name, language) + shown


def _fewer_hits(shown: str, body: str, numbers: Mapping[str, str], name: str, language: Language) -> str | None:
    shown = shown[: shown.rfind("\n") + 1].removesuffix("--\n")
    omitted = _ROW.search(body, len(shown))
    if not shown or omitted is None:
        return None
    count = len(_HIT.findall(shown))
    following = f"{omitted['line']}:{omitted['byte']}" if omitted["byte"] else omitted["line"]
    last = max(int(numbers["first"]), int(omitted["line"]) - (0 if omitted["byte"] else 1))
    total = int(numbers["total"])
    hits = Hits(b"", count, int(numbers["first"]), last, f"{following}-{_end_of(numbers)}", total)
    return hits_header(hits, name, language) + shown


def _end_of(numbers: Mapping[str, str]) -> str:
    """The last requested line."""
    following = numbers.get("cut") or numbers.get("more") or numbers.get("stopped")
    return following.rpartition("-")[2] if following else numbers["last"]


def listing_header(shown: int, total: int, language: Language) -> str:
    """The first line of a list of artifacts."""
    return headed(say(FOUND, "listed", language, shown=shown, total=total), language)


def search_header(matching: int, searched: int, total: int, language: Language) -> str:
    """The first line of what a search of several artifacts found."""
    text = say(FOUND, "searched", language, matching=matching, searched=searched)
    if searched < total:
        text += say(FOUND, "unsearched", language, left=total - searched)
    return headed(text, language)


def quoted(text: str, way: ArtifactAccess | None = None) -> str:
    """A tool's text as a model may see it: notices in it cannot pass for ours unless they are page headers, or name an
    artifact exactly where this agent finds them (`way`), as a plan does that is planned again.

    >>> quoted("a [context-proxy: the whole is kept in /tmp/x] b")
    'a [quoted text: the whole is kept in /tmp/x] b'
    """
    if "context-proxy" not in text.lower():
        return text
    places = _places_of(way) if way is not None else ()
    line_end, names = -1, _NamesOfLine([], [])

    def marked(found: re.Match[str]) -> str:
        nonlocal line_end, names
        if found.end() > line_end:
            line_end = text.find("\n", found.end())
            line_end = len(text) if line_end < 0 else line_end
            names = _NamesOfLine.of(text, found.end(), line_end, places)
        return found[0] if names.are_all_reached_from(found.end()) else QUOTED

    return _foreign().sub(marked, text)


class _NamesOfLine(NamedTuple):
    """The artifact names of a line, read once however many marks are in it."""

    starts: list[int]
    origins: list[int]
    """Where the place of each name begins, or that of a later one if it begins before: -1 if one has none."""

    @classmethod
    def of(cls, text: str, begin: int, end: int, places: Sequence[str]) -> Self:
        starts = [name.start() for name in _NAMED.finditer(text, begin, end)]
        origins, first = [], end
        for start in reversed(starts):
            fitting = [start - len(place) for place in places if text.endswith(place, begin, start)]
            first = min(first, max(fitting, default=-1))
            origins.append(first)
        return cls(starts, origins[::-1])

    def are_all_reached_from(self, position: int) -> bool:
        """Whether names follow, each at its place, which begins there or later."""
        index = bisect_left(self.starts, position)
        return index < len(self.starts) and self.origins[index] >= position


def _places_of(way: ArtifactAccess) -> tuple[str, ...]:
    """The texts before the name of an artifact in a notice for this agent."""
    places = [f"{place}/" for place in (way.folder and way.folder.rstrip("/\\"), way.url) if place]
    places += [f"{way.folder.rstrip(chr(92))}\\"] if way.folder and "\\" in way.folder else []
    return (*places, 'read_artifact(id="') if places or way.tool else (" ", '"', "'")


def _pattern_of(key: str, column: int, *, named: bool) -> str:
    """The pattern of a header with the words of a phrase. `named`: with a group for each number; that of the next page
    has the name of its phrase."""
    words = PAGES[key][column]
    literals, filled = re.split(r"\{\w+[:,]*\}", words), re.findall(r"\{(\w+)", words)
    values = [ARTIFACT_NAME if name == "name" else r"[\d,:-]{1,40}" for name in filled]
    if named:
        groups = [key if name == "following" else name for name in filled]
        values = [f"(?P<{name}>{value})" for name, value in zip(groups, values, strict=True)]
    return "".join(re.escape(literal) + value for literal, value in zip(literals, [*values, ""], strict=True))


def _header_patterns(column: int, *, named: bool = False) -> tuple[str, str]:
    page, hits, cut, more, stopped = (
        _pattern_of(key, column, named=named) for key in ("page", "hits", "cut", "more", "stopped")
    )
    return f"{page}(?:{cut}|{more})?", f"{hits}(?:{stopped})?"


@functools.cache  # compiled for the first text that holds such words: 2 ms
def _foreign() -> re.Pattern[str]:
    """Matches notices that are not headers of pages."""
    headers = "|".join(pattern for column in (0, 1) for pattern in _header_patterns(column))
    return re.compile(rf"\[\s{{0,9}}context-proxy\s{{0,9}}:(?! (?:{headers})\])", re.IGNORECASE)


@functools.cache
def _whole_headers() -> tuple[tuple[Language, re.Pattern[str]], ...]:
    """The first line of each kind of page, by language."""
    languages: tuple[Language, Language] = ("en", "zh")
    return tuple(
        (language, re.compile(rf"(?:{re.escape(CUTS['text'][column])})?{re.escape(MARK)}{pattern}\]\n"))
        for column, language in enumerate(languages)
        for pattern in _header_patterns(column, named=True)
    )


_NAMED: Final = re.compile(ARTIFACT_NAME)
_MORE_NUMBERS_BYTES: Final = 40
"""How much longer the header of a shorter page may be."""
_ROW: Final = re.compile(r"^(?P<line>\d{1,12})(?::(?P<byte>\d{1,12})(?=:…)|[:-])", re.MULTILINE)
_HIT: Final = re.compile(r"^\d{1,12}:", re.MULTILINE)
"""Rows of a search: of a match, or of its context; of a long line, with the byte at which the row begins."""


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
        unknown = next((name for name in parameters if name not in PARAMETERS), None)
        if unknown is not None:
            raise BadArtifactQuery(f"there is no such way of reading; {_ALLOWED}", param=unknown[:100])
        if "grep" not in parameters and (lost := parameters.keys() & {"context", "max"}):
            raise BadArtifactQuery(f"`context` and `max` belong to `grep`; {_ALLOWED}", param=min(lost))
        if "stat" in parameters and len(parameters) > 1:
            raise BadArtifactQuery(f"`stat` takes no other parameter; {_ALLOWED}", param="stat")
        search = None
        if "grep" in parameters:
            search = Search(
                parameters["grep"], _number(parameters, "context", CONTEXT), _number(parameters, "max", HITS)
            )
        lines = LineRange.parse(parameters["lines"]) if "lines" in parameters else None
        pointer = parameters.get("json")
        if pointer is not None and len(pointer) > MAX_POINTER_CHARACTERS:
            raise BadArtifactQuery(f"`json` must have at most {MAX_POINTER_CHARACTERS:,} characters", param="json")
        if not (max_bytes := _number(parameters, "bytes", PAGE_BYTES)):
            raise BadArtifactQuery("`bytes` must be at least 1", param="bytes")
        return cls(lines, search, pointer, min(max_bytes, PAGE_BYTES), "stat" in parameters)


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


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadArtifactQuery(f"`{name}` must be a whole number", param=name)
    return int(text)
