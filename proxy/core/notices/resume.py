"""Where reading continues after a cut, and the calls that read on from there: written into notices, and recognised when
an agent has made them.

Rule: a suggested page is within the limits of a tool result, so it arrives whole. One that has to be cut all the same
is continued in the artifact that it was read from, never in a copy of the page: following notices moves forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.text import PAGE_BYTES, Excerpt, ExcerptLimits, count_lines, jsontext, last_bytes, utf8_length

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

_PLACE: Final = rf"'[^'\n]{{0,4096}}?(?P<name>{ARTIFACT_NAME})'"
_COMMANDS: Final = tuple(
    re.compile(pattern.format(place=_PLACE))
    for pattern in (
        r"sed -n '(?P<line>\d{{1,12}}),(?P<last>\d{{1,12}})p' {place}",
        r"tail -c \+(?P<byte>\d{{1,12}}) {place} \| head -c (?P<bytes>\d{{1,12}})",
        r"tail -n \+(?P<line>\d{{1,12}}) {place} \| tail -c \+(?P<byte>\d{{1,12}}) \| head -c (?P<bytes>\d{{1,12}})",
        r"(?:cat|curl -s(?: -H \"[^\"\n]{{1,99}}\"){{0,3}}) {place}",
    )
)
"""The commands of our own notices, whatever the numbers: agents count on by themselves."""
_PATH: Final = re.compile(rf"[^\n]{{0,4096}}?(?P<name>{ARTIFACT_NAME})")
_FIRST_LINE: Final = ("offset", "start_line", "line_start", "start")
"""Arguments of read tools: Claude Code and OpenCode; Cline and Gemini; others."""
_SEARCHES: Final = frozenset({"pattern", "query", "regex", "grep", "search"})
"""Arguments with which a tool returns something else than a page."""
_MAX_ARGUMENT_CHARACTERS: Final = 5_000
_MAX_LINE: Final = 10**12
_NUMBERED: Final = re.compile(r"\s{0,9}(?P<line>\d{1,12})(?:→|\t|: ?|\| ?)")
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


class PageRead(Struct, frozen=True):
    """A page of an artifact that a call requested, by which its result is recognised."""

    id: str
    """The artifact's name."""
    line: int = 1
    byte: int = 0
    """Counted from the beginning of that line, and perhaps far behind its end."""
    lines: int | None = None
    """How many were requested; None: to the end, or counted in bytes."""
    bytes: int | None = None
    is_numbered: bool = False
    """Whether the tool may number the lines."""

    @property
    def hash(self) -> str:
        """None: who asks by hash reads no pages."""
        return ""

    def without_frame(self, shown: str, whole: str) -> str:
        """The beginning of a result that is shown, without what the tool printed before the page: whatever the result
        has beyond the requested page. Rather too much is taken off, so that reading never skips anything."""
        shown, whole = _unescaped(shown), _unescaped(whole)
        if self.lines is not None:
            more = max(0, count_lines(whole) - self.lines)
            rest = shown.split("\n", more)[-1] if shown.count("\n") >= more else ""
        else:
            more = max(0, utf8_length(whole) - (utf8_length(whole) if self.bytes is None else self.bytes))
            rest = last_bytes(shown, max(0, utf8_length(shown) - more))
        return rest or shown

    def numbered_after(self, shown: str) -> int | None:
        """The number of the first line that is not shown whole, by the numbers that a read tool wrote."""
        rows = shown.split("\n")
        for back in range(2, min(len(rows), 9) + 1):
            found = _NUMBERED.match(rows[-back])
            if found is not None:
                return int(found["line"]) + back - 1
        return None


def page_read(arguments: str) -> PageRead | None:
    r"""The page of an artifact that a call reads, from a known place and in a way that our notices suggest.

    >>> page_read('{"command": "sed -n \'81,161p\' \'/d/tool_sh_0123456789abcdef.txt\'"}')
    PageRead(id='tool_sh_0123456789abcdef.txt', line=81, byte=0, lines=81, bytes=None, is_numbered=False)
    """
    if "tool_" not in arguments or len(arguments) > _MAX_ARGUMENT_CHARACTERS:
        return None
    opened = jsontext.opened(arguments.encode("utf-8", "surrogatepass"))
    values = list(opened.values()) if isinstance(opened, dict) else [arguments]
    for value in values:
        for word in value if isinstance(value, list) else [value]:  # a command may be a list of words
            if isinstance(word, str) and (page := _by_command(word.strip())) is not None:
                return page
    return _by_path(opened) if isinstance(opened, dict) and _SEARCHES.isdisjoint(opened) else None


def _by_command(command: str) -> PageRead | None:
    for pattern in _COMMANDS:
        if (found := pattern.fullmatch(command)) is not None:
            numbers = {name: int(number) for name, number in found.groupdict().items() if name != "name"}
            line = max(1, numbers.get("line", 1))
            lines = numbers["last"] - line + 1 if "last" in numbers else None
            return PageRead(found["name"], line, max(0, numbers.get("byte", 1) - 1), lines, numbers.get("bytes"))
    return None


def _by_path(arguments: Mapping[str, Any]) -> PageRead | None:
    """The page that a call of a read tool asks for."""
    paths = [value for name, value in arguments.items() if "path" in name or "file" in name]
    found = next((match for path in paths if isinstance(path, str) and (match := _PATH.fullmatch(path))), None)
    view = arguments.get("view_range")
    firsts = [arguments.get(name) for name in _FIRST_LINE] + (view[:1] if isinstance(view, list) else [])
    line = next((one for one in firsts if isinstance(one, int) and 0 < one < _MAX_LINE), 1)
    return None if found is None else PageRead(found["name"], line, is_numbered=True)


class Resume(Struct, frozen=True):
    """Where reading continues after the first part that an excerpt shows."""

    line: int
    """Counted from 1; 0: unknown, as the page was read by bytes."""
    line_bytes: int
    """The bytes of that line that are shown."""
    base: int
    """A line, counted from 1, and the bytes from its beginning to that place: the same place for a shell."""
    base_bytes: int
    whole_lines: int
    """How many lines from there on, the first one included, one page may hold; 0: not even one."""
    size: PageSize
    pointer: str = ""
    """The part of JSON in which an artifact's queries count lines, and where it continues there."""
    part: str = ""

    @classmethod
    def after(cls, shown: Excerpt, size: PageSize, read: PageRead | None = None) -> Resume:
        """After the head of an excerpt of an artifact, or of a page that was read from one."""
        return cls.between(shown.head, shown.gap + shown.tail[: size.bytes], size, read)

    @classmethod
    def between(cls, before: str, following: str, size: PageSize, read: PageRead | None = None) -> Resume:
        """Between what is shown and what follows."""
        if read is not None and read.byte:
            return cls(0, 0, read.line, read.byte + utf8_length(before), 0, size)
        begin = read.line if read is not None else 1
        line_start = before.rfind("\n") + 1
        line, line_bytes = begin + before.count("\n"), utf8_length(before[line_start:])
        if read is not None and read.is_numbered:
            line = read.numbered_after(before) or line
            number = _NUMBERED.match(before, line_start)
            line_bytes = max(0, line_bytes - utf8_length(number[0] if number else ""))
        # The same page of lines would be cut at the same place again if not one of them could be shown whole.
        is_within_a_line = read is not None and not line_start
        whole_lines = 0 if is_within_a_line else _lines_of_a_page(before[line_start:] + following[: size.bytes], size)
        return cls(line, line_bytes, begin, utf8_length(before), whole_lines, size)

    @classmethod
    def longest(cls, text: str, size: PageSize, read: PageRead | None = None) -> Iterator[Resume]:
        """At least as long to write as any within this text."""
        lines, length = count_lines(text), utf8_length(text)
        begin, skipped = (read.line, read.byte) if read is not None else (1, 0)
        for whole_lines in (0, size.lines):
            yield cls(begin + lines, length, begin, skipped + length, whole_lines, size)

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
        count = min(self.size.bytes, _COMMAND_BYTES)
        if self.base == 1:
            return f"tail -c +{self.base_bytes + 1} '{place}' | head -c {count}"
        return f"tail -n +{self.base} '{place}' | tail -c +{self.base_bytes + 1} | head -c {count}"


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


def _unescaped(text: str) -> str:
    """The text inside a tool's JSON output, exact in length though not in every character."""
    if text[:1] not in ("{", "["):
        return text
    return _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    """A character as long as the escaped one, in UTF-8; a line feed for itself."""
    code = escape[0][2:6]
    if code:
        return "\U0001f600" if len(escape[0]) > len(r"\u0000") else chr(int(code, 16))
    return "\n" if escape[0] == r"\n" else "?"
