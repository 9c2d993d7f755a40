"""A long text → the part of it that is worth keeping. Knows texts and limits, no messages.

Rule: cuts stand at line ends where there are any and at character boundaries always; an excerpt is never longer than
its limits allow, and says exactly what it shows of how much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from proxy.core.measures import count_lines, first_bytes, last_bytes, utf8_length

MAX_RESCUED_LINES: Final = 40
"""Error-like lines that are saved from the gap: enough for a stack of failures, too few to fill the excerpt."""
_RESCUED_SHARE: Final = 0.2
"""Of the room, for such lines."""
_RESCUED_LINE_CHARACTERS: Final = 300
_BEFORE_HIT_CHARACTERS: Final = 100
"""Shown of a longer line in front of what tells of the failure."""
_MAX_HITS: Final = 2_000
"""Looked at: where every line tells of a failure, the first ones tell enough."""
MAX_LINE_CHARACTERS: Final = 2_000
"""Longer lines are cut in their middle: minified code, JSON in one line."""
HEAD_SHARE: Final = 0.4
"""Of what `both` keeps; the end gets more, as programs say last what went wrong."""
_TELLS_OF_FAILURE: Final = re.compile(
    r"\b(?:error|errors|fatal|failed|failure|exception|traceback|panic|critical|segmentation fault|segfault|denied)\b"
    r"|\bnpm err!|(?-i:[a-z](?:Error|Exception)\b)(?!\()|错误|失败|异常|致命",
    re.IGNORECASE | re.ASCII,
)
"""`ValueError: …` and `NullPointerException` are what programs say last; behind either, a bracket opens in source code.
ASCII, as Chinese has no blanks: 发生error。"""


class Direction(StrEnum):
    """Which part of a text is kept."""

    HEAD = "head"
    TAIL = "tail"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a text may stay."""

    max_lines: int = 2_000
    max_bytes: int = 51_200
    """UTF-8."""
    max_chars: int | None = None
    direction: Direction = Direction.BOTH
    head_share: float = HEAD_SHARE
    """Of what `both` keeps, for the beginning."""

    def admit(self, text: str) -> bool:
        """Whether the text may stay as it is.

        >>> Limits(max_lines=2).admit("a\\nb"), Limits(max_lines=2).admit("a\\nb\\nc")
        (True, False)
        """
        if self.max_chars is not None and len(text) > self.max_chars:
            return False
        if len(text) > self.max_bytes or count_lines(text) > self.max_lines:
            return False
        return len(text) * 4 <= self.max_bytes or utf8_length(text) <= self.max_bytes

    def previewed(self, preview_chars: int | None) -> Limits:
        """The same with at most so many characters; None: as they are."""
        if preview_chars is None:
            return self
        return replace(self, max_chars=preview_chars if self.max_chars is None else min(preview_chars, self.max_chars))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Parts of a text, in order."""

    head: str
    rescued: tuple[str, ...]
    """Single lines out of the gap."""
    tail: str
    gap: str
    """What is left out between head and tail, the rescued lines included."""
    missing_from: int
    """The byte from which on the last line of the head, or else the gap, is not shown."""
    total_lines: int
    total_bytes: int
    kept_lines: int
    """Lines of which at least a part is shown."""
    kept_bytes: int
    """Bytes of UTF-8 of the text that are shown; the mark in the middle of a long line is not of it."""


@dataclass(frozen=True, slots=True)
class _Room:
    """What a part of an excerpt may take up."""

    bytes: int
    chars: int
    lines: int

    def share(self, share: float) -> _Room:
        return _Room(int(self.bytes * share), int(self.chars * share), int(self.lines * share))

    def __sub__(self, other: _Room) -> _Room:
        return _Room(self.bytes - other.bytes, self.chars - other.chars, self.lines - other.lines)


def excerpt(text: str, limits: Limits) -> Excerpt:
    """The part of `text` that fits the limits."""
    max_chars = limits.max_bytes if limits.max_chars is None else limits.max_chars
    room = _Room(max(0, limits.max_bytes), max(0, max_chars), max(0, limits.max_lines))
    for_rescued = room.share(_RESCUED_SHARE if limits.direction is Direction.BOTH else 0.0)
    for_rescued = replace(for_rescued, lines=min(MAX_RESCUED_LINES, for_rescued.lines))
    for_ends = room - for_rescued
    shares = {Direction.HEAD: 1.0, Direction.TAIL: 0.0, Direction.BOTH: limits.head_share}
    for_head = for_ends.share(shares[limits.direction])
    head = _taken(text, for_head)
    if limits.admit(text):
        head = "" if limits.direction is Direction.TAIL else text
    rest = text[len(head) :]
    tail = rest if limits.admit(text) else _taken_from_end(rest, for_ends - for_head)
    gap = rest[: len(rest) - len(tail)]
    rescued = _rescued(gap, for_rescued)
    shown_head, head_bytes = _shortened_lines(head)
    shown_tail, tail_bytes = _shortened_lines(tail)
    return Excerpt(
        head=shown_head,
        rescued=tuple(rescued.values()),
        tail=shown_tail,
        gap=gap,
        missing_from=_missing_from(head),
        total_lines=count_lines(text),
        total_bytes=utf8_length(text),
        kept_lines=_lines_shown(head, gap, tail, rescued),
        kept_bytes=head_bytes + sum(map(utf8_length, rescued.values())) + tail_bytes,
    )


def _taken(text: str, room: _Room) -> str:
    """The beginning of a text in whole lines; in half lines where whole ones would waste half of the room."""
    kept = first_bytes(text[: room.chars], room.bytes)
    position = 0
    for _ in range(room.lines):
        position = kept.find("\n", position) + 1
        if position == 0:
            break
    else:
        return kept[:position]
    last_line_start = kept.rfind("\n") + 1
    return kept if len(kept) == len(text) or last_line_start <= len(kept) // 2 else kept[:last_line_start]


def _taken_from_end(text: str, room: _Room) -> str:
    """The end of a text, likewise."""
    kept = last_bytes(text[max(0, len(text) - room.chars) :], room.bytes)
    position = len(kept) - 1 if kept.endswith("\n") else len(kept)
    for _ in range(room.lines):
        position = kept.rfind("\n", 0, position)
        if position < 0:
            break
    else:
        return kept[position + 1 :] if room.lines else ""
    first_line_end = kept.find("\n") + 1
    return kept if len(kept) == len(text) or first_line_end > len(kept) // 2 else kept[first_line_end:]


def _shortened_lines(text: str) -> tuple[str, int]:
    """The text with its long lines cut in their middle, and the bytes of it that are left."""
    if len(text) <= MAX_LINE_CHARACTERS:
        return text, utf8_length(text)
    lines = text.split("\n")
    middles = [_middle(line) for line in lines]
    shown = (
        f"{line[: middle.start]} […{middle.stop - middle.start:,} characters…] {line[middle.stop :]}"
        if middle
        else line
        for line, middle in zip(lines, middles, strict=True)
    )
    cut_bytes = sum(utf8_length(line[m.start : m.stop]) for line, m in zip(lines, middles, strict=True))
    return "\n".join(shown), utf8_length(text) - cut_bytes


def _middle(line: str) -> range:
    """What is left out of a line; nothing of one that is not too long."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return range(0)
    half = MAX_LINE_CHARACTERS // 2 - 30  # the mark in the middle has less than 60 characters
    return range(half, len(line) - half)


def _missing_from(head: str) -> int:
    """Bytes of a head that are shown without a break at its end."""
    last_line_start = head.rfind("\n") + 1
    middle = _middle(head[last_line_start:])
    return utf8_length(head[: last_line_start + middle.start] if middle else head)


def _rescued(gap: str, room: _Room) -> dict[int, str]:
    """Lines that tell of failures, by where in the gap they begin; of a long one, what stands around its first hit."""
    kept: dict[int, str] = {}
    seen: set[str] = set()
    left_bytes, left_chars, end = room.bytes, room.chars, 0
    for hit in islice(_TELLS_OF_FAILURE.finditer(gap), _MAX_HITS if room.bytes > 0 else 0):
        if hit.start() < end:
            continue
        start, end = gap.rfind("\n", 0, hit.start()) + 1, gap.find("\n", hit.end())
        end = len(gap) if end < 0 else end
        if end - start > _RESCUED_LINE_CHARACTERS:
            start = max(start, hit.start() - _BEFORE_HIT_CHARACTERS)
        line = gap[start : min(end, start + _RESCUED_LINE_CHARACTERS)].strip()
        if line in seen:
            continue
        left_bytes, left_chars = left_bytes - utf8_length(line) - 1, left_chars - len(line) - 1
        if left_bytes < 0 or left_chars < 0 or len(kept) >= room.lines:
            break
        kept[start] = line
        seen.add(line)
    return kept


def _lines_shown(head: str, gap: str, tail: str, rescued: Iterable[int]) -> int:
    """Lines of which at least a part is shown; one that is shown in two parts is one line."""
    gap_line = head.count("\n")
    tail_line = gap_line + gap.count("\n")
    shown = {gap_line + gap.count("\n", 0, start) for start in rescued}
    shown.update(range(count_lines(head)), range(tail_line, tail_line + count_lines(tail)))
    return len(shown)
