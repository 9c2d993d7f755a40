"""A long body in pieces: as it arrived, or as it goes on from an earlier body that is still held.

Rule: pieces are compared, kept and sent as they are, and joined only for a reader who needs them in one. Joining 2 MB
takes as long as comparing them, 0.4 ms, because it writes to memory that no cache holds; in a conversation that goes
on, each turn would do it for a few new bytes at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

_PROBE_BYTES: Final = 16
"""Compared first: three times as fast as comparing the whole of bodies that differ anyway."""
_MOST_PIECES: Final = 16
"""What is shared with an earlier body; so many are followed in microseconds."""
_MOST_HELD: Final = 1.25
"""Times its length: what a body may hold because it shares pieces with an earlier one, which may have been longer."""


class Rope:
    """Bytes in several pieces. It is sliced like `bytes`; `bytes(rope)` joins it, once for all its holders."""

    __slots__ = ("_length", "_pieces")

    def __init__(self, contents: Sequence[bytes], lengths: Sequence[int] | None = None) -> None:
        """`lengths`: how many of the first bytes of each content belong to it; all, if there are none."""
        if lengths is None:
            lengths = [len(content) for content in contents]
        self._pieces = contents, lengths  # read and replaced together, as several threads may hold it
        self._length = sum(lengths)

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        contents, _ = self._pieces
        if len(contents) != 1 or len(contents[0]) != self._length:
            contents = [b"".join(self.views())]
            self._pieces = contents, [self._length]  # else it would be held twice, in one piece and in several
        return contents[0]

    def __getitem__(self, place: slice) -> bytes:
        start, stop, step = place.indices(self._length)
        if step != 1:
            raise ValueError(f"the step of a slice of a rope must be 1, not {step}")
        contents, lengths = self._pieces
        if lengths and stop <= lengths[0]:
            return contents[0][start:stop]
        taken: list[bytes] = []
        at, after = len(contents), self._length
        while after > start:  # from the end, because nearly all other slices are there
            at -= 1
            before = after - lengths[at]
            if before < stop:
                taken.append(contents[at][max(0, start - before) : min(after, stop) - before])
            after = before
        return taken[0] if len(taken) == 1 else b"".join(reversed(taken))

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Its contents, and how many of the first bytes of each belong to it."""
        return zip(*self._pieces, strict=True)

    def views(self) -> list[memoryview]:
        """Its pieces, for one who writes them."""
        return [memoryview(content)[:length] for content, length in self.pieces()]


Body: TypeAlias = bytes | Rope
"""A body, in one piece or in several."""


def views_of(body: Body) -> Sequence[bytes | memoryview]:
    """The pieces of a body, for one who writes them."""
    return body.views() if isinstance(body, Rope) else (body,)


def begins_like(body: Body, other: Body, end: int) -> bool:
    """Whether a body begins with the first `end` bytes of another.

    >>> begins_like(Rope([b"ab", b"cd"]), Rope([b"a", b"bce"]), 3), begins_like(b"abcd", b"abce", 4)
    (True, False)
    """
    if isinstance(body, bytes) and isinstance(other, bytes):
        probe = max(0, end - _PROBE_BYTES)
        return body[probe:end] == other[probe:end] and body.startswith(memoryview(other)[:end])
    pieces = _pieces(body, len(body))
    content, length, at = b"", 0, 0
    for known, known_length in _pieces(other, end):
        view, start = memoryview(known)[:known_length], 0
        while start < len(view):
            if at == length:
                content, length = next(pieces, (b"", -1))
                if length < 0:
                    return False
                at = 0
            step = min(length - at, len(view) - start)
            # Two views would be compared byte by byte, in thirty times the time.
            if not content.startswith(view[start : start + step], at):
                return False
            start, at = start + step, at + step
    return True


def held_with(known: Body, body: Body, end: int) -> Body:
    """The same body; its first `end` bytes, with which `known` begins, too, are held once for both. In one piece if
    together they would hold much more than it is long."""
    contents: list[bytes] = []
    lengths: list[int] = []
    for content, length in _pieces(known, end):
        contents.append(content)
        lengths.append(length)
    if len(contents) > _MOST_PIECES:  # the first is the longest, as a rule; the others were added turn by turn
        contents = [contents[0], Rope(contents, lengths)[lengths[0] :]]
        lengths = [lengths[0], end - lengths[0]]
    new = body[end:]
    contents.append(new)
    lengths.append(len(new))
    if sum([len(content) for content in contents]) > _MOST_HELD * len(body):
        return bytes(body)
    return Rope(contents, lengths)


def _pieces(body: Body, end: int) -> Iterator[tuple[bytes, int]]:
    """The pieces of its first `end` bytes: contents, and how many bytes of each belong to it."""
    for content, length in body.pieces() if isinstance(body, Rope) else ((body, len(body)),):
        if end <= 0:
            return
        yield content, min(length, end)
        end -= length
