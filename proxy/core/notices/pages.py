"""The first line of a page that was read from an artifact, in English and Chinese; foreign notices are marked.

Rule: the line contains the mark and the artifact's name, by which pages are recognised and never cut again, and the
concrete next call. It contains only numbers and that name, so a forged one leads nowhere; any other notice in a tool's
output is somebody else's and is shown as quoted.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading.grep import Hits
from proxy.core.notices.artifact_access import ArtifactAccess
from proxy.core.notices.catalogue import FOUND, PAGES, QUOTED, Language, framed, say
from proxy.core.text.lines import Page


def page_header(page: Page, name: str, language: Language) -> str:
    """The first line of a page of lines."""
    said = say(
        PAGES,
        "page",
        language,
        first=page.first,
        last=page.last,
        total=page.total_lines,
        name=name,
        shown=len(page.text),
        bytes=page.total_bytes,
    )
    if page.following is not None:
        said += say(PAGES, "cut" if page.cut else "more", language, following=page.following)
    return framed(said) + "\n"


def hits_header(hits: Hits, name: str, language: Language) -> str:
    """The first line of a page of search results."""
    where = {"first": hits.first, "last": hits.last, "total": hits.total_lines}
    said = say(PAGES, "hits", language, count=hits.count, name=name, **where)
    if hits.following is not None:
        said += say(PAGES, "stopped", language, following=hits.following)
    return framed(said) + "\n"


def listing_header(shown: int, total: int, language: Language) -> str:
    """The first line of a list of artifacts."""
    return framed(say(FOUND, "listed", language, shown=shown, total=total)) + "\n"


def search_header(matching: int, searched: int, total: int, language: Language) -> str:
    """The first line of what a search of several artifacts found."""
    said = say(FOUND, "searched", language, matching=matching, searched=searched)
    if searched < total:
        said += say(FOUND, "unsearched", language, left=total - searched)
    return framed(said) + "\n"


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


def _pattern_of(words: str) -> str:
    """The pattern of a header with these words."""
    literals, filled = re.split(r"\{\w+[:,]*\}", words), re.findall(r"\{(\w+)", words)
    values = [ARTIFACT_NAME if name == "name" else r"[\d,:-]{1,40}" for name in filled]
    return "".join(re.escape(literal) + value for literal, value in zip(literals, [*values, ""], strict=True))


def _header_patterns(column: int) -> str:
    page, hits, cut, more, stopped = (
        _pattern_of(PAGES[name][column]) for name in ("page", "hits", "cut", "more", "stopped")
    )
    return f"{page}(?:{cut}|{more})?|{hits}(?:{stopped})?"


@functools.cache  # compiled for the first text that holds such words: 2 ms
def _foreign() -> re.Pattern[str]:
    """What looks like a notice and is no header of a page."""
    headers = "|".join(_header_patterns(column) for column in (0, 1))
    return re.compile(rf"\[\s{{0,9}}context-proxy\s{{0,9}}:(?! (?:{headers})\])", re.IGNORECASE)


_NAMED: Final = re.compile(ARTIFACT_NAME)
