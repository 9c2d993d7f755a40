"""Tokens of a text whose tokenizer is unknown, and of an image.

Rule: the same text has the same count for ever and on every machine, and joining two texts adds at most one token: the
estimate is the larger of two sums over the bytes, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.core.tokens.byte_weights import GENERAL, Weights
from proxy.core.tokens.image_size import image_size

__all__ = ["ByteClassCounter", "Counter", "image_size", "image_tokens"]

_LOW_DETAIL_TOKENS: Final = 85
_TILE_TOKENS: Final = 170
_TILE_PIXELS: Final = 512
_LONGEST_SIDE_PIXELS: Final = 2048
_SHORTEST_SIDE_PIXELS: Final = 768
_UNKNOWN_IMAGE_TOKENS: Final = 765
"""A picture of 1024 x 1024, the example of OpenAI's guide: 85 and four tiles."""


_TURN: Final = (
    bytes(ord("a" if chr(b).islower() else "X" if chr(b).isalnum() else ".") for b in range(128)) + b"." * 128
)
_MIXED_TURN: Final = 1000
"""For each capital or digit right behind a lower-case letter: rare in words, at every fourth byte in base64 and hex.
More than a token here would break the rule about joined texts."""
_PER_TOKEN: Final = 1000
"""Weights are thousandths of a token: sums of whole numbers are the same on every machine."""


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
    """The estimate for models whose tokenizer is not here: on the safe side, for little waste.

    The larger of two sums: an ordinary one, of code, logs and prose, and a mixed one in which dense text weighs more.
    Base64 has half as many bytes a token, and digits have one each in Qwen and Tekken. Other characters weigh by their
    script. docs/decisions/0002-counting-tokens.md has the figures.

    >>> [ByteClassCounter().count(text) for text in ("", "def parse(line):", "2024-05-17", "dGhlIHF1aWNr", "令牌")]
    [0, 5, 10, 9, 2]
    """

    weights: Weights = GENERAL
    """Of nobody's vocabulary, unless told otherwise."""

    @property
    def name(self) -> str:
        return self.weights.name

    @property
    def exact(self) -> bool:
        return False

    def count(self, text: str) -> int:
        if not text:
            return 0
        weights = self.weights
        utf8 = text.encode("utf-8", "surrogatepass")  # a lone surrogate becomes U+FFFD upstream: three bytes as well
        dense = utf8.translate(weights.classes, weights.loose)
        other, other_chars = (0, 0) if len(utf8) == len(text) else _beyond_ascii(utf8, dense, weights)
        ascii_chars, dense_chars = len(text) - other_chars, len(dense) - other_chars
        ordinary = weights.each[0] * ascii_chars + weights.dense[0] * dense_chars
        mixed = weights.each[1] * ascii_chars + weights.dense[1] * dense_chars
        for pattern, in_ordinary, in_mixed in weights.more:
            found = dense.count(pattern)
            ordinary += found * in_ordinary
            mixed += found * in_mixed
        if mixed + _MIXED_TURN * (dense.count(b"A") + dense.count(b"0")) > ordinary:  # else all of them do not tell
            mixed += _MIXED_TURN * utf8.translate(_TURN).count(b"aX")
        return -(-(max(ordinary, mixed) + other) // _PER_TOKEN)


def _beyond_ascii(utf8: bytes, dense: bytes, weights: Weights) -> tuple[int, int]:
    """Thousandths of a token for the characters beyond ASCII, and their number."""
    weight, chars = 0, 0
    for _, letter, thousandths in weights.scripts:
        found = dense.count(letter)
        weight += found * thousandths
        chars += found
    for lead, less in weights.better_known:
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
