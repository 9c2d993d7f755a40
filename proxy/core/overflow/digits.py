"""Text → its numbers, and a skeleton in which each of them is a `#`.

Rule: what could not be a count of tokens is gone before anything is read: ids, dates, durations, status and error
codes, array indices, model names, bytes and pixels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Final

_MAX_NUMBERS: Final = 64
"""The longest refusal seen prints nine."""

_NOISE: Final = re.compile(
    "|".join(
        (
            r"\b\d{4}-\d\d-\d\d\S{0,30}|\b\d{1,2}:\d\d(?::\d\d)?\b",
            r"\b\d[\d.,]{0,12} ?(?:ms|s|secs?|seconds?|mins?|minutes?|hours?|days?)(?![a-z0-9])|\b\d{1,4}m\d",
            r"\d[\d.]{0,12} ?(?:毫秒|秒|分钟|小时|天)",
            r"\(parameter=[^()]{0,120}\)",
            r"(?:request|session|trace|req|log|organi[sz]ation|project|task|tool_use|请求) ?[_-]?id ?[:=]? ?\S{1,80}",
            r"<\d{3}>",
            r"^[1-5]\d\d(?=\W)(?! ?tokens?)",
            r"\b(?:http|status|error|code|errno|status_?code)(?: code)?(?:[:= ]| is){0,4}"
            r"\[?(?:[1-5]\d\d|\d{4,6})(?=\W|$)(?! ?(?:tokens?|[,.]\d{3}))",
            r"[(\[](?:2013|1261|3051|1039|20015|336103)[)\]]",
            r"\[\d{1,6}\]|\.\d{1,6}\.",
        )
    )
)
"""2013 and 1039 MiniMax, 1261 Zhipu, 3051 Mistral, 20015 SiliconFlow, 336103 Baidu: codes that stand in texts."""
_NUMBER: Final = re.compile(
    r"(?<![a-z0-9_.\-])(?<![^0-9 ]/)"  # not the tail of a name, a version or a path; but "5910/4095"
    r"(?:(?P<grouped>\d{1,3}(?P<by>[,._' \u00a0\u202f])\d{3}(?:(?P=by)\d{3}){0,3})(?!\d|[,._']\d)"
    r"|(?P<plain>\d{1,12}(?:\.\d{1,3})?)(?!\d))"
    r"(?: ?(?P<magnitude>[km](?![a-z0-9])|万|千))?"
    r"(?![a-su-z0-9_]|t(?!okens?))"  # "4096tokens" is a number, "4th" and "70b" are none
)
_RANGE: Final = re.compile(r"\[([01]),(?=\d{1,12}\])")
"""`[1,512]` is no fifteen hundred."""
_MAGNITUDES: Final = {"k": 1_000, "m": 1_000_000, "千": 1_000, "万": 10_000}
_PIECES: Final = re.compile(
    r" ?(?:bytes?|[kmg]i?b\b|pixels?|px|images?|image\(s\)|files?|tools?|pages?|requests?|%|字节|张)"
)
_CHARACTERS: Final = re.compile(rf"{_PIECES.pattern}| ?(?:characters?|chars?|字符)")


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a text."""

    value: int
    is_magnitude: bool
    """256K: anything from 256 000 to 262 144."""


def skeleton(text: str) -> tuple[str, list[Number]]:
    """The normalised text with `#` for each number, and the numbers.

    >>> skeleton("error 400: 5,000 tokens > 4k (request id: 77)")
    (' : # tokens > # ( ', [Number(value=5000, is_magnitude=False), Number(value=4000, is_magnitude=True)])
    """
    text = _RANGE.sub("[\\1, ", _NOISE.sub(" ", text.replace("#", " ")))
    foreign = _CHARACTERS if "token" in text else _PIECES  # characters are a unit only where there are no tokens
    pieces, numbers, end = [], [], 0
    for match in islice(_NUMBER.finditer(text), _MAX_NUMBERS):
        if foreign.match(text, match.end()) is None:
            pieces.append(text[end : match.start()])
            end = match.end()
            numbers.append(Number(_value(match), match["magnitude"] is not None))
    return "#".join([*pieces, text[end:]]), numbers


def _value(match: re.Match[str]) -> int:
    scale = _MAGNITUDES.get(match["magnitude"] or "", 1)
    if (grouped := match["grouped"]) is None:
        return int(float(match["plain"]) * scale)
    if scale > 1 and match["by"] == ".":  # 1.048M
        return int(float(grouped) * scale)
    return int(grouped.replace(match["by"], "")) * scale
