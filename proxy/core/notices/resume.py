"""Where reading continues after a cut: the call that reads on from there.

Rule: a suggested page is within the limits of a tool result, so it arrives whole and following notices moves forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, structs

from proxy.core.text import PAGE_BYTES, Excerpt, ExcerptLimits, count_lines, utf8_length

PAGE_LINES: Final = 81
"""Length of a suggested page: what a person would read at a time, after the line in which the excerpt ends."""
_COMMAND_BYTES: Final = 16_000
"""Limit of a suggested page in long lines: the most that this many lines of usual length have."""
_PAGE_SHARE: Final = 0.75
"""Share of the limits of a result. The rest is for what tools put around a page: an exit code, or a number at each
line."""
_NUMBER_BYTES: Final = 8
"""Width of a line's number in the output of a read tool: ` 81→`."""
_SURELY_SERVED_BYTES: Final = PAGE_BYTES + 1_000
"""A limit from which on a full page of the proxy's own is never cut, header included."""

_ESCAPE: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]")


class PageSize(Struct, frozen=True):
    """How much a suggested page may hold."""

    lines: int = PAGE_LINES
    bytes: int = PAGE_BYTES
    served_bytes: int | None = None
    """The `bytes` that a page of the proxy's own must request; None: no full page is over the limits."""

    @classmethod
    def within(cls, *limits: ExcerptLimits) -> PageSize:
        """A page that is admitted by all of these limits, whatever tool reads it.

        >>> PageSize.within(ExcerptLimits(max_bytes=4_000))
        PageSize(lines=81, bytes=3000, served_bytes=3000)
        """
        smallest = min(min(one.max_bytes, one.max_chars or one.max_bytes) for one in limits)
        lines = int(min(one.max_lines for one in limits) * _PAGE_SHARE)
        size = max(1, int(smallest * _PAGE_SHARE))
        return cls(max(1, min(lines, PAGE_LINES)), size, None if smallest >= _SURELY_SERVED_BYTES else size)


class Resume(Struct, frozen=True):
    """Where reading continues after the first part that an excerpt shows."""

    line: int
    """Counted from 1."""
    line_bytes: int
    """The bytes of that line that are shown."""
    shown_bytes: int
    """All bytes before that place."""
    whole_lines: int
    """How many lines from there on, the first one included, one page may hold; 0: not even one."""
    size: PageSize
    pointer: str = ""
    """The part of JSON in which an artifact's queries count lines, and where it continues there."""
    part: str = ""

    @classmethod
    def after(cls, shown: Excerpt, size: PageSize) -> Resume:
        """After the head of an excerpt."""
        return cls.between(shown.head, shown.gap + shown.tail[: size.bytes], size)

    @classmethod
    def between(cls, before: str, following: str, size: PageSize) -> Resume:
        """Between what is shown and what follows."""
        line_start = before.rfind("\n") + 1
        whole_lines = _lines_of_a_page(before[line_start:] + following[: size.bytes], size)
        line_bytes = utf8_length(before[line_start:])
        return cls(1 + before.count("\n"), line_bytes, utf8_length(before), whole_lines, size)

    @classmethod
    def longest(cls, text: str, size: PageSize) -> Iterator[Resume]:
        """At least as long to write as any within this text."""
        lines, length = count_lines(text), utf8_length(text)
        for whole_lines in (0, size.lines):
            yield cls(1 + lines, length, length, whole_lines, size)

    def in_part(self, pointer: str, inside: Resume) -> Resume:
        """The place for queries that count lines in a part of JSON: `inside` is where that part continues."""
        return structs.replace(self, pointer=pointer, part=inside.query()["lines"])

    def query(self) -> Mapping[str, str]:
        """A page, as a query of an artifact asks for it."""
        begin = f"{self.line}:{self.line_bytes}" if self.line_bytes else f"{self.line}"
        lines = self.part or f"{begin}-{self.line + self.size.lines - 1}"
        return ({"json": self.pointer} if self.pointer else {}) | {"lines": lines}

    @property
    def is_by_lines(self) -> bool:
        """Whether a page of whole lines continues there."""
        return self.whole_lines > 0

    def command(self, place: str) -> str:
        """The shell command that reads it."""
        if self.is_by_lines:
            return f"sed -n '{self.line},{self.line + self.whole_lines - 1}p' '{place}'"
        return f"tail -c +{self.shown_bytes + 1} '{place}' | head -c {min(self.size.bytes, _COMMAND_BYTES)}"


def written_length(written: str, characters: int) -> int:
    r"""How many characters of a JSON string, with its first quote, spell that many of its text.

    >>> written_length(r'"a\nb\u00e9c"', 4), written_length(r'"\ud83d\ude00x"', 1)
    (11, 13)
    """
    at = 1
    for escape in _ESCAPE.finditer(written):
        if escape.start() - at >= characters:
            break
        characters -= escape.start() - at + 1
        at = escape.end()
    return at + characters


def _lines_of_a_page(text: str, size: PageSize) -> int:
    """How many lines one page may hold; if the text ends before, as many as there may be in one."""
    left = size.bytes
    for number, line in enumerate(text.split("\n", size.lines)[: size.lines]):
        left -= utf8_length(line) + _NUMBER_BYTES
        if left < 0:
            return number
    return size.lines
