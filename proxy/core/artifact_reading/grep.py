"""Lines of a text that match a pattern, each with its number and its context.

Rule: the text is read piece by piece and never held as a whole; a match is within one line; and whatever ends a search
early, the page says from which line to continue.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from proxy.core.artifact_reading.grep_listing import Listing
from proxy.core.artifact_reading.patterns import Search
from proxy.core.text.discreet import Discreet
from proxy.core.text.lines import PAGE_BYTES, LineIndex, LineRange, Span, begin_of
from proxy.errors import RangeOutside

_READ_BYTES: Final = 256 * 1024
"""At a time; a search can be stopped between two reads."""
_OVERLAP_BYTES: Final = 4 * 1024
"""Between two pieces of a line longer than one read: a match of up to this length across them is found."""


class Hits(Discreet, frozen=True):
    """The hits of a search."""

    text: bytes
    """As `grep -n` prints it; for a line that is too long, `line:byte:…`."""
    count: int
    first: int
    last: int
    """The last line that was searched, perhaps not to its end."""
    following: str | None
    """The `lines` to ask for to continue; None if everything asked for has been searched."""
    total_lines: int


def hits_of(
    index: LineIndex, wanted: LineRange, search: Search, max_bytes: int = PAGE_BYTES
) -> Generator[Span, bytes, Hits]:
    """The hits in a range of lines: yields the spans that it has to read, is sent their bytes, and returns the hits.

    A TimeoutError instead of bytes ends the search there. Raises RangeOutside.
    """
    wanted = wanted.within(index.total_lines)
    first, last = wanted.first, wanted.last or wanted.first
    (start, _), end = (yield from begin_of(index, first, 0)), index.size
    if last < index.total_lines:
        end, _ = yield from begin_of(index, last + 1, 0)
    line, offset, held = first, wanted.skipped_bytes, b""
    at = start + offset
    if at > end:
        raise RangeOutside(f"line {first:,} has no byte {offset:,}", param="lines")
    fresh = 1 if offset else 0  # the byte before shows that no line begins here
    at, offset = at - fresh, offset - fresh
    listing = Listing(search, max_bytes)
    while at < end and listing.stopped is None:
        try:
            read = yield at, min(end, at + _READ_BYTES)
        except TimeoutError:
            listing.stopped = line, offset + fresh
            break
        at += len(read)
        held += read
        whole = held.rfind(b"\n") + 1 if at < end else len(held)
        piece = held[: whole or len(held)]
        fresh = listing.add(piece, line, offset, fresh, is_part=not whole)
        again = 0 if whole else _OVERLAP_BYTES
        line += piece.count(b"\n")
        offset = 0 if whole else offset + len(piece) - again
        fresh = 0 if whole else max(1, fresh - len(piece) + again)
        held = held[len(piece) - again :]
    stopped = listing.stopped
    if stopped is None or stopped[0] > last:
        return Hits(listing.text, listing.count, first, last, None, index.total_lines)
    following = f"{stopped[0]}:{stopped[1]}-{last}" if stopped[1] else f"{stopped[0]}-{last}"
    searched = max(first, stopped[0] if stopped[1] else stopped[0] - 1)
    return Hits(listing.text, listing.count, first, searched, following, index.total_lines)
