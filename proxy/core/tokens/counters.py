"""Tokens of a text whose tokenizer is unknown.

Rule: the same text always has the same count, on every machine, and joining two texts adds at most one token: the
estimate is the larger of two sums over the bytes, rounded up. No character has a negative weight, so a longer text
never has fewer tokens; each weight is measured. docs/decisions/0002-counting-tokens.md has the figures; `python -m
tools.bench.tokens` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

_Script: TypeAlias = tuple[bytes, bytes, int]

_SCRIPTS: Final[tuple[_Script, ...]] = (
    # leading bytes, class, thousandths per character; no script is under 306 per byte
    (b"\xc2\xc3", b"w", 1200),  # accented letters of Western Europe
    (bytes(range(0xC4, 0xCE)), b"l", 2000),  # other Latin letters, phonetics, combining marks; many split them to bytes
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
_BETTER_KNOWN: Final[tuple[tuple[bytes, int], ...]] = (
    # first two bytes, thousandths less than their class
    (b"\xe0\xb8", 980),  # Thai
    (b"\xe0\xb9", 980),
    (b"\xe0\xa4", 780),  # Devanagari
    (b"\xe0\xa5", 780),
    (b"\xe1\xba", 1900),  # Vietnamese
    (b"\xe1\xbb", 1900),
)

_LOWER: Final = b"abcdefghijklmnopqrstuvwxyz"
_BLANKS: Final = b" \t"
_INNER: Final = bytes(range(0x80, 0xC0))
"""The bytes inside a character beyond ASCII."""
_FULL_WIDTH: Final = 1300
"""A comma or a full stop in Chinese text: one token plus a third, because prose, which has more of them than news, has
shorter words."""


_MIXED_TURN: Final = 1000
"""Cost of each capital or digit directly after a lower-case letter: rare in words, at every fourth byte in base64 and
hex. More than one token here would break the rule about joined texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights of the bytes of a text, in thousandths of a token: each pair is (the ordinary sum, the mixed one)."""

    name: str
    each: tuple[int, int]
    """Any ASCII character."""
    dense: tuple[int, int]
    """Added for a character that is not `loose`."""
    more: tuple[tuple[bytes, int, int], ...]
    """Added for each of these among the dense ones. A pair may add at most one token: the rule about joined texts."""
    loose: bytes
    """The bytes that are not dense."""
    scripts: tuple[_Script, ...] = _SCRIPTS
    better_known: tuple[tuple[bytes, int], ...] = _BETTER_KNOWN
    classes: bytes = field(init=False)
    most_dense: int | None = field(init=False)
    """The most that a dense character adds to the mixed sum; None if it may add to the ordinary one, too."""

    def __post_init__(self) -> None:
        letters = {lead: letter[0] for leads, letter, _ in self.scripts for lead in leads}
        only_mixed = all(in_ordinary == 0 for _, in_ordinary, _ in self.more)
        most = self.dense[1] + sum(max(0, in_mixed) for _, _, in_mixed in self.more) + _MIXED_TURN
        object.__setattr__(self, "most_dense", most if only_mixed else None)
        object.__setattr__(self, "classes", bytes(letters.get(byte) or _ascii_class(byte) for byte in range(256)))


def _ascii_class(byte: int) -> int:
    """`0` for a digit, `A` for a capital, spaces, tabs and newlines as they are, and `.` for the rest."""
    character = chr(byte)
    if character.isascii() and character.isalnum():
        return ord("0" if character.isdigit() else "A" if character.isupper() else ".")
    return byte if character in " \t\n" else ord(".")


GENERAL: Final = Weights(
    "bytes",
    each=(306, 120),  # 1 / 3.3 and one percent; median over messages of coding agents: Qwen has 3.7 bytes per token
    dense=(0, 480),  # capitals, digits, signs, newlines
    more=((b"0", 0, 400),),  # 1.0 in all, one token per digit
    loose=_LOWER + _BLANKS + _INNER,
)


def _of_family(name: str, *, capital: int, digit: int, newline: int, sign: int, han: int) -> Weights:
    """The weights of one vocabulary; those of lower case and spaces are the same in all that were measured.

    Spaces cost little, because a word absorbs the space before it and an indent is one token; a digit absorbs none.
    """
    lower, blank, tab, mixed_lower, mixed_sign = 245, 30, 250, 120, 600
    as_for_all = (script for script in _SCRIPTS if script[1] not in b"kp")
    return Weights(
        name,
        each=(lower, mixed_lower),
        dense=(sign - lower, mixed_sign - mixed_lower),
        more=(
            (b" ", blank - sign, -mixed_sign),
            (b"\t", tab - sign, 0),
            (b"A", capital - sign, 0),
            (b"\n", newline - sign, 0),
            (b"0", digit - sign, max(0, digit - mixed_sign)),
            (b" 0", 1000, 0),
        ),
        loose=_LOWER + _INNER,
        scripts=(
            *as_for_all,
            (b"\xe3" + bytes(range(0xEA, 0xEE)), b"k", 920),  # kana, Hangul
            (bytes(range(0xE4, 0xEA)), b"x", han),
            (b"\xe2\xee", b"p", 1000),
            (b"\xef", b"f", _FULL_WIDTH),
        ),
        better_known=(*_BETTER_KNOWN, (b"\xe3\x80", 920 - _FULL_WIDTH)),
    )


QWEN: Final = _of_family("bytes:qwen", capital=330, digit=1000, newline=860, sign=520, han=605)
DEEPSEEK: Final = _of_family("bytes:deepseek", capital=300, digit=600, newline=920, sign=650, han=570)
GLM: Final = _of_family("bytes:glm", capital=330, digit=600, newline=920, sign=600, han=590)
KIMI: Final = _of_family("bytes:kimi", capital=330, digit=600, newline=920, sign=600, han=590)
"""No package has GLM's and Kimi's vocabularies: Qwen's weights, with DeepSeek's digits, because both take up to three
digits per token; signs between the two."""


_TURN: Final = (
    bytes(ord("a" if chr(b).islower() else "X" if chr(b).isalnum() else ".") for b in range(128)) + b"." * 128
)
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
    """The default belongs to no particular vocabulary."""

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
        (ordinary_each, mixed_each), (ordinary_dense, mixed_dense) = weights.each, weights.dense
        utf8 = text.encode("utf-8", "surrogatepass")  # a lone surrogate becomes U+FFFD upstream: three bytes as well
        dense = utf8.translate(weights.classes, weights.loose)
        ascii_chars, dense_chars, other = len(text), len(dense), 0
        if len(utf8) != ascii_chars:
            other, other_chars = _beyond_ascii(utf8, dense, weights)
            ascii_chars, dense_chars = ascii_chars - other_chars, dense_chars - other_chars
        ordinary = ordinary_each * ascii_chars + ordinary_dense * dense_chars
        most_dense = weights.most_dense
        if most_dense is not None and mixed_each * ascii_chars + most_dense * dense_chars <= ordinary:
            return -(-(ordinary + other) // _PER_TOKEN)  # like prose and code; nothing that is counted below matters
        mixed = mixed_each * ascii_chars + mixed_dense * dense_chars
        for pattern, in_ordinary, in_mixed in weights.more:
            found = dense.count(pattern)
            ordinary += found * in_ordinary
            mixed += found * in_mixed
        if mixed + _MIXED_TURN * dense_chars > ordinary and (
            mixed + _MIXED_TURN * (dense.count(b"A") + dense.count(b"0")) > ordinary
        ):  # otherwise no turn matters
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
