"""Counts a text piece by piece, and a piece that was counted before not again: excerpts, notes and files that are read
again after an edit share most of their lines with what was counted already, half of all characters in runs of coding
agents.

Rule: memory changes only how long the work takes. A text is cut only where its tokenizer cuts it, too, so that the sum
is its count; of a piece, only a hash is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from proxy.shell.resources.shared_table import KEY_BYTES, SharedTable

PIECE_CHARACTERS: Final = 1_000
"""The least of a piece that others follow; a text that is shorter is counted in 0.1 ms."""

_CUT: Final = re.compile(r"\n(?=[ \t]*[!-.0-~])")
"""A newline before a line that begins in ASCII. In the patterns of `o200k_base` and `cl100k_base`
(tiktoken_ext/openai_public.py), no part goes on behind the last newline of several blanks, except with slashes."""


class CountedPieces:
    """What is known of one tokenizer's counts; may be used from any thread."""

    def __init__(self, count: Callable[[str], int]) -> None:
        """`count`: the tokens of a text."""
        self._count = count
        # Not a dict: it would put thousands of small objects among those that come and go with requests.
        self._known = SharedTable()

    def count(self, text: str) -> int:
        """The tokens of a text."""
        if len(text) < PIECE_CHARACTERS:
            return self._count(text)
        return sum(map(self._of, pieces(text)))

    def _of(self, piece: str) -> int:
        key = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        found = self._known.get(key)
        if found is not None:
            return found[0]
        tokens = self._count(piece)
        self._known.put(key, tokens)
        return tokens


def pieces(text: str) -> Iterator[str]:
    """A text in pieces that a tokenizer takes apart anyway.

    >>> [len(piece) for piece in pieces("a line of the log\\n" * 120)]
    [1008, 1008, 144]
    """
    start = 0
    while len(text) - start > PIECE_CHARACTERS and (cut := _CUT.search(text, start + PIECE_CHARACTERS - 1)):
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]
