"""The lines of a text: how many, where each starts, pages of them. The start of a line is found without reading the
text before it.

Rule: only a line feed ends a line, so the numbers are those of sed, grep and every editor. Bytes are UTF-8, including
lone surrogates, and no character is ever cut. Each page names the next one, and following them reads every byte exactly
once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from proxy.core.text.discreet import Discreet
from proxy.errors import BadArtifactQuery, RangeOutside


def count_lines(text: str) -> int:
    """Lines of a text, the last one with or without a line feed.

    >>> count_lines(""), count_lines("a"), count_lines("a\\n"), count_lines("a\\nb")
    (0, 1, 1, 2)
    """
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def utf8_length(text: str) -> int:
    """Bytes of the text in UTF-8; a lone surrogate counts as three bytes.

    >>> utf8_length("é\\ud800")
    5
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def first_bytes(text: str, max_bytes: int) -> str:
    """The longest beginning of a text that has at most `max_bytes` bytes in UTF-8.

    >>> first_bytes("aéz", 2), first_bytes("aéz", 3)
    ('a', 'aé')
    """
    encoded = text[: max(0, max_bytes)].encode("utf-8", "surrogatepass")
    end = max(0, min(max_bytes, len(encoded)))
    while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass")


def last_bytes(text: str, max_bytes: int) -> str:
    """The longest end of a text that has at most `max_bytes` bytes in UTF-8.

    >>> last_bytes("aéz", 2), last_bytes("aéz", 3)
    ('z', 'éz')
    """
    encoded = text[-max_bytes:].encode("utf-8", "surrogatepass") if max_bytes > 0 else b""
    start = max(0, len(encoded) - max_bytes)
    while start < len(encoded) and encoded[start] & 0xC0 == 0x80:
        start += 1
    return encoded[start:].decode("utf-8", "surrogatepass")


BLOCK_BYTES: Final = 64 * 1024
"""Between two entries of an index: 100 MB have 1600 entries of four bytes each."""
PAGE_BYTES: Final = 48_000
"""Limit of a page: with its header it stays under the 51 200 bytes over which a tool result is cut."""

Span: TypeAlias = tuple[int, int]
"""Byte positions, start and exclusive end."""
_WANTED: Final = re.compile(
    r"(?P<first>[0-9]{1,12})(?::(?P<skipped>[0-9]{1,12}))?(?P<open>-(?P<last>[0-9]{1,12})?)?|-(?P<end>[0-9]{1,12})"
)
_FORMS: Final = "`400-480`, `400-`, `400`, `-80` for the last 80, or `5:48000-80` to begin at byte 48000 of line 5"
BytesOf: TypeAlias = Callable[[Span], bytes]
"""Reads a part of a text; may raise TimeoutError where a search ends early."""


class LineRange(Struct, frozen=True):
    """Lines from one to another, both included."""

    first: int
    """Counted from 1; below 0 from the end, so that -80 is the first of the last 80 lines."""
    last: int | None = None
    """None: to the end."""
    skipped_bytes: int = 0
    """Bytes of the first line to skip, for lines longer than a page."""

    @classmethod
    def parse(cls, text: str) -> LineRange:
        """A range as written in a query. Raises BadArtifactQuery.

        >>> LineRange.parse("400-480"), LineRange.parse("-80")
        (LineRange(first=400, last=480, skipped_bytes=0), LineRange(first=-80, last=None, skipped_bytes=0))
        """
        found = _WANTED.fullmatch(text.strip())
        if found is None:
            raise BadArtifactQuery(f"`lines` must be {_FORMS}", param="lines")
        if found["end"] is not None:
            wanted = cls(-int(found["end"]))
        else:
            first = int(found["first"])
            last = first if found["open"] is None else int(found["last"]) if found["last"] else None
            wanted = cls(first, last, int(found["skipped"] or 0))
        if wanted.first == 0 or (wanted.last is not None and wanted.last < wanted.first):
            raise BadArtifactQuery("`lines` counts from 1, and its last line is not before its first", param="lines")
        return wanted

    def within(self, total_lines: int) -> LineRange:
        """The range in a text of `total_lines` lines, counted from its beginning. Raises RangeOutside."""
        first = max(1, total_lines + 1 + self.first) if self.first < 0 else self.first
        if first > total_lines:
            raise RangeOutside(f"there is no line {first:,}: the text has {total_lines:,} lines", param="lines")
        return LineRange(first, total_lines if self.last is None else min(self.last, total_lines), self.skipped_bytes)


class LineIndex(Discreet, frozen=True):
    """Where lines begin, to within one block."""

    size: int
    """Bytes of the text."""
    feeds: Sequence[int]
    """Line feeds from the beginning to the end of each block."""
    closed: bool
    """Whether the text ends with a line feed."""

    @classmethod
    def of(cls, blocks: Iterable[bytes]) -> LineIndex:
        """The index of a text that arrives in pieces of `BLOCK_BYTES`; the last piece may be shorter."""
        feeds: list[int] = []
        size, count, last = 0, 0, b"\n"
        for block in blocks:
            count += block.count(b"\n")
            size += len(block)
            feeds.append(count)
            last = block[-1:] or last
        return cls(size, feeds, last == b"\n")

    @classmethod
    def of_text(cls, text: bytes) -> LineIndex:
        """The index of a text in memory."""
        return cls.of(text[start : start + BLOCK_BYTES] for start in range(0, len(text), BLOCK_BYTES))

    @property
    def total_lines(self) -> int:
        """Lines, the last one with or without its line feed."""
        return (self.feeds[-1] if self.feeds else 0) + (0 if self.closed else 1)

    def block_of(self, line: int) -> tuple[int, int]:
        """Where the block begins in which the line begins, and how many line feeds that block has before the line.

        A line after the last one is looked for in the last block, too.
        """
        block = bisect_left(self.feeds, line - 1)
        return block * BLOCK_BYTES, line - 1 - (self.feeds[block - 1] if block else 0)


class Page(Discreet, frozen=True):
    """Some lines of a text."""

    text: bytes
    first: int
    """Number of its first line."""
    last: int
    """Number of its last line, which may continue after the page."""
    following: str | None
    """The `lines` to ask for next; None at the end of the text."""
    cut: bool
    """Whether it shows less than was requested."""
    total_lines: int
    total_bytes: int
    skipped_bytes: int = 0
    """Bytes of its first line before the page."""


def page_of(index: LineIndex, wanted: LineRange, bytes_of: BytesOf, max_bytes: int = PAGE_BYTES) -> Page:
    """A page of a text whose parts `bytes_of` gives. Raises RangeOutside.

    It reads at most one span of a block and a page, whatever the size of the text.
    """
    wanted = wanted.within(index.total_lines)
    first, last = wanted.first, wanted.last or wanted.first
    start, window = begin_of(index, first, bytes_of, max_bytes)
    if wanted.skipped_bytes:
        end = index.size
        if first < index.total_lines:
            end, _ = begin_of(index, first + 1, bytes_of)
        if start + wanted.skipped_bytes >= end:
            raise RangeOutside(f"line {first:,} has only {end - start:,} bytes", param="lines")
        start += wanted.skipped_bytes
        window = bytes_of((start, min(index.size, start + max_bytes)))
    text = _first_lines(window[:max_bytes], last - first + 1)
    stop = start + len(text)
    if not text.endswith(b"\n") and stop < index.size:
        text = _cut(text)
        stop = start + len(text)
    ended = text.count(b"\n")
    shown_last = first + ended - (1 if text.endswith(b"\n") else 0)
    cut = stop < index.size and (shown_last < last or not text.endswith(b"\n"))
    following = None
    if stop < index.size:
        until = last if cut else last + (last - first + 1)
        inside = "" if text.endswith(b"\n") else f":{wanted.skipped_bytes + len(text)}"
        following = f"{first + ended}{inside}-{min(until, index.total_lines)}"
    return Page(text, first, shown_last, following, cut, index.total_lines, index.size, wanted.skipped_bytes)


def begin_of(index: LineIndex, line: int, bytes_of: BytesOf, more_bytes: int = 0) -> tuple[int, bytes]:
    """Where a line begins, and the bytes from there on: at least `more_bytes` if there are as many."""
    block, before = index.block_of(line)
    window = bytes_of((block, min(index.size, block + BLOCK_BYTES + more_bytes)))
    at = 0
    for _ in range(before):
        at = window.index(b"\n", at) + 1
    return block + at, window[at:]


def whole_characters(text: bytes) -> bytes:
    """A piece without an incomplete character at its end; invalid UTF-8 stays as it is.

    >>> whole_characters("aé".encode()), whole_characters("aé".encode()[:-1])
    (b'a\\xc3\\xa9', b'a')
    """
    for back in range(1, min(4, len(text))):
        lead = text[-back]
        if lead & 0xC0 == 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return text if back >= length else text[:-back]
        if lead < 0x80:
            break
    return text


def _first_lines(text: bytes, count: int) -> bytes:
    at = 0
    for _ in range(count):
        at = text.find(b"\n", at) + 1
        if at == 0:
            return text
    return text[:at]


def _cut(text: bytes) -> bytes:
    """The whole lines that fit on a page; of a line longer than a page, its beginning."""
    return text[: text.rfind(b"\n") + 1] or whole_characters(text)
