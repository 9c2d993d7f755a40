"""Tokens of a text whose tokenizer is unknown.

Rule: the same text always has the same count, on every machine, and joining two texts adds at most one token: the
estimate is the larger of two sums over the bytes, rounded up.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from proxy.core.tokens.byte_weights import GENERAL, Weights

_TURN: Final = (
    bytes(ord("a" if chr(b).islower() else "X" if chr(b).isalnum() else ".") for b in range(128)) + b"." * 128
)
_MIXED_TURN: Final = 1000
"""For each capital or digit directly after a lower-case letter: rare in words, at every fourth byte in base64 and hex.
More than one token here would break the rule about joined texts."""
_PER_TOKEN: Final = 1000
"""Weights are thousandths of a token, because sums of integers are the same on every machine."""


class Counter(Protocol):
    """Counts the tokens of a text; the same text always has the same count."""

    @property
    def name(self) -> str:
        """`o200k_base`, `bytes`: part of memory keys and logs. Two counters with the same name count the same."""
        ...

    @property
    def exact(self) -> bool:
        """Whether this is the model's own tokenizer; otherwise the count is an estimate and needs a wider margin."""
        ...

    def count(self, text: str) -> int:
        """Tokens; 0 for an empty text. Never raises, whatever the text."""
        ...

    def __hash__(self) -> int:
        """Counts are remembered under the counter that made them."""
        ...


class ByteClassCounter(Struct, frozen=True):
    """The estimate for models whose tokenizer is not available: on the safe side, with little waste.

    The larger of two sums: an ordinary one, for code, logs and prose, and a mixed one in which dense text weighs more.
    Base64 has half as many bytes per token, and in Qwen and Tekken each digit is a token. Other characters weigh by
    their script. docs/decisions/0002-counting-tokens.md has the figures.

    >>> [ByteClassCounter().count(text) for text in ("", "def parse(line):", "2024-05-17", "dGhlIHF1aWNr", "令牌")]
    [0, 5, 10, 9, 2]
    """

    weights: Weights = GENERAL
    """Those of no particular vocabulary by default."""

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
        if mixed + _MIXED_TURN * (dense.count(b"A") + dense.count(b"0")) > ordinary:  # otherwise no turn matters
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
