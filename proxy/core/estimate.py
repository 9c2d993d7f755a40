"""Tokens of a text whose tokenizer is unknown, and of an image.

Rule: the same text has the same count for ever and on every machine, and joining two texts adds at most one token: the
estimate is the larger of two sums over the bytes, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.core.imagesize import image_size

__all__ = ["ByteClassCounter", "Counter", "image_size", "image_tokens"]

_LOW_DETAIL_TOKENS: Final = 85
_TILE_TOKENS: Final = 170
_TILE_PIXELS: Final = 512
_LONGEST_SIDE_PIXELS: Final = 2048
_SHORTEST_SIDE_PIXELS: Final = 768
_UNKNOWN_IMAGE_TOKENS: Final = 765
"""A picture of 1024 x 1024, the example of OpenAI's guide: 85 and four tiles."""


_PER_TOKEN: Final = 1000
"""The weights below are thousandths of a token: sums of whole numbers are the same on every machine."""

_ORDINARY: Final = 306
"""Any ASCII character. 1 / 3.3 and one percent; median over messages of coding agents: Qwen 3.7 bytes a token."""
_MIXED_ANY: Final = 120
_MIXED_DENSE: Final = 480
"""On top of it, for what is neither lower case nor blank: capitals, digits, signs, newlines."""
_MIXED_DIGIT: Final = 400
"""On top of both: 1.0 in all, a token for each digit."""
_MIXED_TURN: Final = 1000
"""For each capital or digit right behind a lower-case letter: rare in words, at every fourth byte in base64 and hex.
More than a token here would break the rule about joined texts."""

_SCRIPTS: Final = (
    # leading bytes, class, thousandths a character; no script is under 306 a byte
    (b"\xc2\xc3", b"w", 1200),  # accented letters of Western Europe
    (bytes(range(0xC4, 0xCE)), b"l", 2000),  # other Latin letters, phonetics, combining marks; split into bytes by many
    (b"\xce\xcf", b"g", 1000),  # Greek
    (b"\xd0\xd1\xd2\xd3", b"c", 650),  # Cyrillic
    (b"\xd4\xd5\xd6\xd7", b"h", 1200),  # Armenian, Hebrew
    (b"\xd8\xd9\xda\xdb", b"r", 750),  # Arabic
    (b"\xdc\xdd\xde\xdf", b"s", 2000),  # Syriac, Thaana, N'Ko
    (b"\xe0", b"i", 1900),  # India and South-East Asia
    (b"\xe1", b"e", 2900),  # Georgian, Ethiopic, Khmer, Mongolian
    (b"\xe2\xee\xef", b"p", 1000),  # typographic signs, arrows, box drawing, full-width forms, U+FFFD
    (bytes(range(0xE3, 0xEE)), b"k", 920),  # kana, Han, Hangul
    (bytes(range(0xF0, 0xF5)), b"m", 3000),  # emoji and everything else past the BMP
)
"""The larger of the medians of Llama 3, Qwen, Tekken and DeepSeek, rounded, per script."""
_BETTER_KNOWN: Final = (
    # first two bytes, thousandths less than their class
    (b"\xe0\xb8", 980),  # Thai
    (b"\xe0\xb9", 980),
    (b"\xe0\xa4", 780),  # Devanagari
    (b"\xe0\xa5", 780),
    (b"\xe1\xba", 1900),  # Vietnamese
    (b"\xe1\xbb", 1900),
)

_LOOSE: Final = b"abcdefghijklmnopqrstuvwxyz \t" + bytes(range(0x80, 0xC0))
"""Lower case, blanks, and the bytes inside a character beyond ASCII."""


def _class_of(byte: int) -> int:
    for leads, letter, _ in _SCRIPTS:
        if byte in leads:
            return letter[0]
    return ord("0" if 0x30 <= byte <= 0x39 else ".")


_CLASS: Final = bytes(map(_class_of, range(256)))
_TURN: Final = (
    bytes(ord("a" if chr(b).islower() else "X" if chr(b).isalnum() else ".") for b in range(128)) + b"." * 128
)


class Counter(Protocol):
    """Counts the tokens of a text; the same text always has the same count."""

    @property
    def name(self) -> str:
        """`o200k_base`, `bytes`: part of memory keys and logs. Two counters of one name count the same."""
        ...

    @property
    def exact(self) -> bool:
        """Whether this is the model's own tokenizer; else the count is an estimate and needs a wider margin."""
        ...

    def count(self, text: str) -> int:
        """Tokens; 0 for no text. Never raises, whatever the text."""
        ...

    def __hash__(self) -> int:
        """What was counted is remembered by who counted."""
        ...


@dataclass(frozen=True, slots=True)
class ByteClassCounter:
    """The estimate for models whose tokenizer is unknown: on the safe side of the common ones, for little waste.

    ASCII counts as the larger of two sums: 3.27 bytes a token, which ordinary code, logs and prose do not reach, and a
    sum in which dense text weighs more. Base64 has half as many bytes a token, and digits have one each in Qwen and
    Tekken. Other characters weigh by their script. docs/decisions/0002-counting-tokens.md has the figures.

    >>> [ByteClassCounter().count(text) for text in ("", "def parse(line):", "2024-05-17", "dGhlIHF1aWNr", "令牌")]
    [0, 5, 10, 9, 2]
    """

    @property
    def name(self) -> str:
        return "bytes"

    @property
    def exact(self) -> bool:
        return False

    def count(self, text: str) -> int:
        if not text:
            return 0
        utf8 = text.encode("utf-8", "surrogatepass")  # a lone surrogate becomes U+FFFD upstream: three bytes as well
        dense = utf8.translate(_CLASS, _LOOSE)  # what is neither lower case nor blank: a fifth of ordinary text
        other, other_chars = (0, 0) if len(utf8) == len(text) else _beyond_ascii(utf8, dense)
        ascii_chars = len(text) - other_chars
        ordinary = _ORDINARY * ascii_chars
        mixed = (
            _MIXED_ANY * ascii_chars
            + _MIXED_DENSE * (len(dense) - other_chars)
            + _MIXED_DIGIT * dense.count(b"0")
            + _MIXED_TURN * utf8.translate(_TURN).count(b"aX")
        )
        return -(-(max(ordinary, mixed) + other) // _PER_TOKEN)


def _beyond_ascii(utf8: bytes, dense: bytes) -> tuple[int, int]:
    """Thousandths of a token for the characters beyond ASCII, and their number."""
    weight, chars = 0, 0
    for _, letter, thousandths in _SCRIPTS:
        found = dense.count(letter)
        weight += found * thousandths
        chars += found
    for lead, less in _BETTER_KNOWN:
        if lead[:1] in utf8:
            weight -= utf8.count(lead) * less
    return weight, chars


def image_tokens(width: int | None, height: int | None, detail: str | None) -> int:
    """Tokens of an image, from its size in pixels and the `detail` of its part (`low`, `high`, `auto`, None).

    OpenAI's rule for gpt-4o and gpt-4.1: scaled down into 2048 x 2048, then to 768 on the shortest side, 85 tokens and
    170 for each tile of 512 x 512; `low` is 85. Other models take less or about as much (gpt-4o-mini aside, whose bill
    multiplies both). https://platform.openai.com/docs/guides/images-vision#calculating-costs

    >>> image_tokens(1024, 1024, "high"), image_tokens(2048, 4096, None), image_tokens(4096, 8192, "low")
    (765, 1105, 85)
    """
    if detail == "low":
        return _LOW_DETAIL_TOKENS
    if not width or not height or width < 0 or height < 0:
        return _UNKNOWN_IMAGE_TOKENS
    width, height = _at_most(_LONGEST_SIDE_PIXELS, max(width, height), width, height)
    width, height = _at_most(_SHORTEST_SIDE_PIXELS, min(width, height), width, height)
    return _LOW_DETAIL_TOKENS + _TILE_TOKENS * math.ceil(width / _TILE_PIXELS) * math.ceil(height / _TILE_PIXELS)


def _at_most(limit: int, side: int, width: int, height: int) -> tuple[int, int]:
    """Scaled down so that `side`, one of the two, is `limit`; never up, and never to nothing."""
    if side <= limit:
        return width, height
    return max(1, width * limit // side), max(1, height * limit // side)
