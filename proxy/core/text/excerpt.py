"""A long text → the part of it that is worth keeping. Knows texts and limits, not messages.

Rule: a cut is at a line end where there is one, and always at a character boundary; an excerpt never exceeds its
limits, and states exactly how much of the text it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final

from msgspec import Struct, structs

from proxy.core.text.lines import count_lines, first_bytes, last_bytes, utf8_length

MAX_RESCUED_LINES: Final = 40
"""Error-like lines rescued from the gap: enough for a stack of failures, too few to fill the excerpt."""
_RESCUED_SHARE: Final = 0.2
"""The largest share of the room for such lines; the beginning and the end get what they do not use."""
_RESCUED_LINE_CHARACTERS: Final = 300
_BEFORE_HIT_CHARACTERS: Final = 100
"""Shown of a longer line before the words that report the failure."""
_MAX_HITS: Final = 2_000
"""Examined at most: where every line reports a failure, the first ones are enough."""
HEAD_SHARE: Final = 0.4
"""Share of what `both` keeps. The end gets more, because programs report last what went wrong."""
_SPARED_FOR_A_LINE_END: Final = 1 / 24
"""Share of the kept part: a cut moves to a line end if that gives up no more than this; otherwise it is inside the
line."""
_BASE64_CHARACTERS: Final = 256
"""A run of at least this many characters is data. Shorter ones may be a path or a long identifier."""
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=_-]")
_TELLS_OF_FAILURE: Final = re.compile(
    r"\b(?:error|errors|fatal|failed|failure|exception|traceback|panic|critical|segmentation fault|segfault|denied)\b"
    r"|\bnpm err!|(?-i:[a-z](?:Error|Exception)\b)(?!\()|错误|失败|异常|致命|\[context-proxy: ",
    re.IGNORECASE | re.ASCII,
)
"""`ValueError: …` and `NullPointerException` are the last words of a program; in source code, a bracket follows them.
ASCII, because Chinese has no spaces: 发生error。
The notice of another proxy that this text came through is the only way to what that one has cut."""
_STEMS: Final = (
    *("err", "fatal", "fail", "exception", "traceback", "panic", "critical", "segmentation", "segfault", "denied"),
    *("错误", "失败", "异常", "致命", "[context-proxy: "),
)
"""In lower case; a text without any of them reports no failure. Looking for each of them takes a thirtieth of the time
of the pattern."""
_SLICE_CHARACTERS: Final = 8 * 1024
"""Searched at a time, because no other thread runs during a search: at most 2 ms."""
_LONGEST_HIT_CHARACTERS: Final = 32
"""`segmentation fault` and the character that follows it, with room to spare."""


class Direction(StrEnum):
    """Which part of a text is kept."""

    HEAD = "head"
    TAIL = "tail"
    BOTH = "both"


class ExcerptLimits(Struct, frozen=True):
    """How much of a text may stay."""

    max_lines: int = 2_000
    max_bytes: int = 51_200
    """UTF-8."""
    max_chars: int | None = None
    direction: Direction = Direction.BOTH
    head_share: float = HEAD_SHARE
    """The beginning's share of what `both` keeps."""

    def admit(self, text: str) -> bool:
        """Whether the text may stay as it is.

        >>> ExcerptLimits(max_lines=2).admit("a\\nb"), ExcerptLimits(max_lines=2).admit("a\\nb\\nc")
        (True, False)
        """
        if self.max_chars is not None and len(text) > self.max_chars:
            return False
        if len(text) > self.max_bytes or count_lines(text) > self.max_lines:
            return False
        return len(text) * 4 <= self.max_bytes or utf8_length(text) <= self.max_bytes

    def previewed(self, preview_chars: int | None) -> ExcerptLimits:
        """Limit an excerpt to `preview_chars` characters; None changes nothing."""
        if preview_chars is None:
            return self
        return structs.replace(
            self, max_chars=preview_chars if self.max_chars is None else min(preview_chars, self.max_chars)
        )


class Excerpt(Struct, frozen=True):
    """Parts of a text, in order."""

    head: str
    rescued: tuple[str, ...]
    """Single lines from the gap."""
    tail: str
    gap: str
    """The text between head and tail, including the rescued lines."""
    total_lines: int
    total_bytes: int
    kept_lines: int
    """Lines that are shown at least in part."""
    kept_bytes: int
    """Bytes of the text that are shown, in UTF-8."""


class _Room(Struct, frozen=True):
    """Room for a part of an excerpt."""

    bytes: int
    chars: int
    lines: int

    def share(self, share: float) -> _Room:
        return _Room(int(self.bytes * share), int(self.chars * share), int(self.lines * share))

    def __sub__(self, other: _Room) -> _Room:
        return _Room(self.bytes - other.bytes, self.chars - other.chars, self.lines - other.lines)


def excerpt(text: str, limits: ExcerptLimits) -> Excerpt:
    """The part of `text` that fits the limits."""
    if limits.admit(text):
        head, gap, tail = ("", "", text) if limits.direction is Direction.TAIL else (text, "", "")
        rescued: dict[int, str] = {}
    else:
        head, gap, tail, rescued = _cut(text, limits)
    return Excerpt(
        head=head,
        rescued=tuple(rescued.values()),
        tail=tail,
        gap=gap,
        total_lines=count_lines(text),
        total_bytes=utf8_length(text),
        kept_lines=_lines_shown(head, gap, tail, rescued),
        kept_bytes=sum(map(utf8_length, (head, *rescued.values(), tail))),
    )


def _cut(text: str, limits: ExcerptLimits) -> tuple[str, str, str, dict[int, str]]:
    """Beginning, gap and end of a text that is over its limits, and the lines rescued from the gap."""
    max_chars = limits.max_bytes if limits.max_chars is None else limits.max_chars
    room = _Room(max(0, limits.max_bytes), max(0, max_chars), max(0, limits.max_lines))
    head, gap, tail = _ends(text, room, limits)
    if limits.direction is not Direction.BOTH:
        return head, gap, tail, {}
    allowed = room.share(_RESCUED_SHARE)
    rescued = _rescued(gap, structs.replace(allowed, lines=min(MAX_RESCUED_LINES, allowed.lines)))
    if not rescued:
        return head, gap, tail, rescued
    # Beginning and end make room, and what they give up may report failures too, so the search is repeated.
    lines = list(rescued.values())
    taken = _Room(sum(map(utf8_length, lines)) + len(lines), sum(map(len, lines)) + len(lines), len(lines))
    head, gap, tail = _ends(text, room - taken, limits)
    return head, gap, tail, _rescued(gap, taken)


def _ends(text: str, room: _Room, limits: ExcerptLimits) -> tuple[str, str, str]:
    """Beginning, gap and end; the end gets what the beginning leaves."""
    shares = {Direction.HEAD: 1.0, Direction.TAIL: 0.0, Direction.BOTH: limits.head_share}
    head = _taken(text, room.share(shares[limits.direction]))
    rest, left = text[len(head) :], room - _Room(utf8_length(head), len(head), count_lines(head))
    tail = "" if limits.direction is Direction.HEAD else _taken_from_end(rest, left)
    return head, rest[: len(rest) - len(tail)], tail


def _taken(text: str, room: _Room) -> str:
    """The beginning of a text that exceeds the room: whole lines, or part of the last line where leaving it out would
    waste the room."""
    kept = first_bytes(text[: room.chars], room.bytes)
    position = 0
    for _ in range(room.lines):
        position = kept.find("\n", position) + 1
        if position == 0:
            break
    else:
        return kept[:position]
    last_line_start = kept.rfind("\n") + 1
    if len(kept) - last_line_start <= len(kept) * _SPARED_FOR_A_LINE_END:
        return kept[:last_line_start]
    return kept[: len(kept) - _base64_before(kept, text[len(kept) : len(kept) + _BASE64_CHARACTERS])]


def _taken_from_end(text: str, room: _Room) -> str:
    """The end of a text, in the same way."""
    kept = last_bytes(text[max(0, len(text) - room.chars) :], room.bytes)
    position = len(kept) - 1 if kept.endswith("\n") else len(kept)
    for _ in range(room.lines):
        position = kept.rfind("\n", 0, position)
        if position < 0:
            break
    else:
        return kept[position + 1 :] if room.lines else ""
    start = len(text) - len(kept)
    first_line_end = 0 if text[start - 1] == "\n" else kept.find("\n") + 1 or len(kept)
    if first_line_end <= len(kept) * _SPARED_FOR_A_LINE_END:
        return kept[first_line_end:]
    before = text[max(0, start - _BASE64_CHARACTERS) : start]
    return kept[_base64_before(kept[::-1], before[::-1]) :]


def _base64_before(kept: str, following: str) -> int:
    """How many characters at the end of `kept` begin a run of base64 that continues in `following`: half of an encoded
    file is worth less than none of it."""
    border = _NOT_BASE64.search(kept[::-1])
    inside = len(kept) if border is None else border.start()
    border = _NOT_BASE64.search(following)
    beyond = len(following) if border is None else border.start()
    if inside == 0 or beyond == 0 or inside + beyond < _BASE64_CHARACTERS:
        return 0
    run = kept[len(kept) - inside :][-_BASE64_CHARACTERS:] + following[:beyond]
    kinds = (str.islower, str.isupper, str.isdigit)
    return inside if all(any(map(is_kind, run)) for is_kind in kinds) else 0


def _rescued(gap: str, room: _Room) -> dict[int, str]:
    """Lines that report failures, by their start in the gap; of a long line, the part around its first hit."""
    kept: dict[int, str] = {}
    seen: set[str] = set()
    left_bytes, left_chars, end = room.bytes, room.chars, 0
    for hit in islice(_hits(gap), _MAX_HITS if room.bytes > 0 else 0):
        if hit.start() < end:
            continue
        start, end = gap.rfind("\n", 0, hit.start()) + 1, gap.find("\n", hit.end())
        end = len(gap) if end < 0 else end
        if end - start > _RESCUED_LINE_CHARACTERS:
            start = max(start, hit.start() - _BEFORE_HIT_CHARACTERS)
        line = gap[start : min(end, start + _RESCUED_LINE_CHARACTERS)].strip()
        if line in seen:
            continue
        if len(kept) >= room.lines:
            break
        line_bytes, line_chars = utf8_length(line) + 1, len(line) + 1
        if line_bytes > left_bytes or line_chars > left_chars:
            continue
        left_bytes, left_chars = left_bytes - line_bytes, left_chars - line_chars
        kept[start] = line
        seen.add(line)
    return kept


def _hits(text: str) -> Iterator[re.Match[str]]:
    """The words that report failures, in order."""
    for start in range(0, len(text), _SLICE_CHARACTERS):
        end = start + _SLICE_CHARACTERS
        lower = text[start : end + _LONGEST_HIT_CHARACTERS].lower()
        if any(stem in lower for stem in _STEMS):
            for hit in _TELLS_OF_FAILURE.finditer(text, start, end + _LONGEST_HIT_CHARACTERS):
                if hit.start() < end:
                    yield hit


def _lines_shown(head: str, gap: str, tail: str, rescued: Iterable[int]) -> int:
    """Lines that are shown at least in part; a line shown in two parts counts once."""
    gap_line = head.count("\n")
    tail_line = gap_line + gap.count("\n")
    shown = {gap_line + gap.count("\n", 0, start) for start in rescued}
    shown.update(range(count_lines(head)), range(tail_line, tail_line + count_lines(tail)))
    return len(shown)
