"""The output of a search, as `grep -n` prints it: matches with their line numbers, and their context.

Rule: no more bytes and matches than asked for; if a limit ends the search, the place to continue from is known to the
byte.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final

from proxy.core.artifact_reading.patterns import Search
from proxy.core.text.lines import Span, whole_characters

SHOWN_BYTES: Final = 600
"""Of a line. Of a longer one, the text around the match is shown, and the search continues after it in the same line:
JSON is often one line."""


class Listing:
    """The output, line by line."""

    def __init__(self, search: Search, max_bytes: int) -> None:
        self._pattern = search.compiled()
        self._search = search
        self._left_bytes = max_bytes
        self._printed: list[bytes] = []
        self._last_printed = 0
        self._owed = 0
        """Lines that still have to be printed after the last match."""
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=search.context)
        """The last lines that were not printed, and their numbers."""
        self.count = 0
        self.stopped: tuple[int, int] | None = None
        """The line to continue from, and the byte in it."""

    @property
    def text(self) -> bytes:
        """The whole output."""
        return b"".join(self._printed)

    def add(self, piece: bytes, line: int, offset: int, fresh: int, *, is_part: bool) -> int:
        """Search whole lines, or part of one; they begin in `line` at its byte `offset`, and everything before `fresh`
        has been searched. Returns where in the piece the search ended."""
        windows, searched = self._windows(piece, offset, fresh)
        if not windows and not self._owed:
            self._remember(piece, line, offset)
            return searched
        rows = piece.split(b"\n")
        if piece.endswith(b"\n"):
            rows.pop()
        for row, text in enumerate(rows):
            number, skipped = line + row, 0 if row else offset
            if row in windows:
                room = self._print_match(number, skipped, text, windows[row])
                if self.count == self._search.max_hits and self.stopped is None:
                    self.stopped = _place(piece, line, offset, searched, is_part=is_part)
            else:
                room = skipped > 0 or self._pass(number, text)
            if not room:
                self.stopped = self.stopped or (number, skipped)
            if self.stopped is not None and (not room or not self._owed):
                break
        return searched

    def _windows(self, piece: bytes, offset: int, fresh: int) -> tuple[Mapping[int, list[Span]], int]:
        """The spans to show of each row, and where the search ended."""
        found: defaultdict[int, list[Span]] = defaultdict(list)
        at, row, counted = fresh, 0, 0
        left = self._search.max_hits - self.count
        while left and at <= len(piece) and (match := self._pattern.search(piece, at)) is not None:
            start = match.start()
            if start == len(piece) and piece.endswith(b"\n"):
                break  # after the last line
            begin, end = piece.rfind(b"\n", 0, start) + 1, piece.find(b"\n", start)
            end = len(piece) if end < 0 else end
            row += piece.count(b"\n", counted, begin)
            counted = begin
            if end - begin <= SHOWN_BYTES and not (begin == 0 and offset):
                found[row].append((0, end - begin))
                at = end + 1
            else:
                shown = max(begin, start - SHOWN_BYTES // 2)
                until = min(end, shown + SHOWN_BYTES)
                found[row].append((shown - begin, until - begin))
                at = max(until, match.end())
                at = end + 1 if at == end else at
            left -= 1
        return found, at

    def _print_match(self, number: int, skipped: int, text: bytes, windows: list[Span]) -> bool:
        while self._recent:
            if not self._print(b"%d-%b" % (self._recent[0][0], _shortened(self._recent[0][1])), self._recent[0][0]):
                return False
            self._recent.popleft()
        for start, end in windows:
            whole = start == 0 and end == len(text) and not skipped
            shown = b"%d:%b" % (number, text) if whole else _part(number, skipped, text, start, end)
            if not self._print(shown, number):
                self.stopped = number, skipped + start
                return False
            self.count += 1
        self._owed = self._search.context
        return True

    def _pass(self, number: int, text: bytes) -> bool:
        """A line without a match; returns whether there was room for it."""
        if not self._owed:
            self._recent.append((number, text))
            return True
        self._owed -= 1
        return self._print(b"%d-%b" % (number, _shortened(text)), number)

    def _print(self, shown: bytes, number: int) -> bool:
        gap = b"--\n" if self._last_printed and number > self._last_printed + 1 else b""
        self._left_bytes -= len(gap) + len(shown) + 1
        if self._left_bytes < 0:
            return False
        self._printed += [gap, shown, b"\n"]
        self._last_printed = number
        return True

    def _remember(self, piece: bytes, line: int, offset: int) -> None:
        """Keep the last lines of a piece without a match."""
        if not self._search.context or offset:
            return
        closed = piece.removesuffix(b"\n")
        rows = closed.rsplit(b"\n", self._search.context)[-self._search.context :]
        number = line + closed.count(b"\n") + 1 - len(rows)
        self._recent.extend(enumerate(rows, number))


def _part(number: int, skipped: int, text: bytes, start: int, end: int) -> bytes:
    """The text around a match in a long line."""
    while start < end and start and text[start] & 0xC0 == 0x80:
        start += 1
    before, behind = b"\xe2\x80\xa6" * (start > 0), b"\xe2\x80\xa6" * (end < len(text))
    return b"%d:%d:%b%b%b" % (number, skipped + start, before, whole_characters(text[start:end]), behind)


def _shortened(text: bytes) -> bytes:
    return text if len(text) <= SHOWN_BYTES else whole_characters(text[:SHOWN_BYTES]) + b"\xe2\x80\xa6"


def _place(piece: bytes, line: int, offset: int, at: int, *, is_part: bool) -> tuple[int, int]:
    """The line, and the byte in it, at a position of a piece."""
    if at > len(piece) and not is_part:
        return line + piece.count(b"\n") + 1, 0  # after a last line without a line feed
    at = min(at, len(piece))
    begin = piece.rfind(b"\n", 0, at) + 1
    return line + piece.count(b"\n", 0, at), at - begin + (0 if begin else offset)
