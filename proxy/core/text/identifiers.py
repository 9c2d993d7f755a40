"""The names in a text: paths, symbols, addresses. An agent needs them to find its way back to the text.

Rule: the order depends on the texts alone; no set is iterated, because its order differs between processes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from proxy.core.text.lines import utf8_length

_NAME: Final = re.compile(r"(?<![\w\u00c0-\u024f])[A-Za-z_][\w\u00c0-\u024f./:-]{5,}", re.ASCII)
"""Words of at least six characters, including those that paths, URLs and qualified names are made of. Of the letters
beyond ASCII only Latin ones: Chinese has no spaces around a name."""
_BETWEEN_NAMES: Final = re.compile(r"[^\w\u00c0-\u024f./:-]", re.ASCII)
_RUN: Final = re.compile(r"[\w\u00c0-\u024f./:-]{6,}", re.ASCII)
_TO_BLANKS: Final = {code: " " if _BETWEEN_NAMES.match(chr(code)) else chr(code) for code in range(128)}
"""ASCII only, which is most text: translating and splitting takes an eighth of the time of a search."""
_TO_BLANKS_OF_LINES: Final = _TO_BLANKS | {ord("\n"): "\n"}
_SLICE_CHARACTERS: Final = 16 * 1024
"""Searched at a time, because no other thread runs during a search: 0.2 ms in ASCII, otherwise 1 ms."""
_DIGEST: Final = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])[0-9a-f]{7,}(?![0-9A-Za-z])", re.IGNORECASE)
"""A hash or part of one: of a commit, a UUID, one of our artifacts. It says nothing about the subject of a text."""
_MIN_NAME_CHARACTERS: Final = 6
_MAX_NAME_CHARACTERS: Final = 80
"""Longer ones are data, such as base64 and hashes joined by slashes."""
_TELLING: Final = re.compile(r"[_./:\d]|[a-z][A-Z]|^[A-Z]")
"""Distinguishes a symbol, a path or a number from an ordinary word."""


def names_in(text: str) -> tuple[str, ...]:
    """The distinct names of a text, in the order of their first appearance.

    >>> names_in("open src/main.py at line 1234 of 3f2a91bc, then src/main.py")
    ('src/main.py',)
    """
    runs = dict.fromkeys(chain.from_iterable(map(_runs, _slices(text))))
    return tuple(dict.fromkeys(filter(None, map(_name_in, runs))))


def names_of_lines(lines: Sequence[str]) -> list[frozenset[str]]:
    """The names of each of many lines. As most lines name the same things, this takes a quarter of the time of reading
    them one by one, and each name is held once.

    >>> names_of_lines(["def parse_args():", ""]) == [{"parse_args"}, set()]
    True
    """
    names = _NamesOfRuns()
    plain = "\n".join([line for line in lines if line.isascii()]).translate(_TO_BLANKS_OF_LINES).split("\n")
    next_plain = iter(plain)
    runs_of_lines = (next(next_plain).split() if line.isascii() else _runs(line) for line in lines)
    return [frozenset(filter(None, map(names.__getitem__, runs))) for runs in runs_of_lines]


class _NamesOfRuns(dict[str, str]):
    """The name in each run that was examined, or an empty text."""

    def __missing__(self, run: str) -> str:
        self[run] = name = _name_in(run)
        return name


def _name_in(run: str) -> str:
    """The name in a run of the characters that names are made of: at most one, because it extends to the end."""
    if len(run) < _MIN_NAME_CHARACTERS:
        return ""
    if run.isalpha() and run.isascii():
        return run if len(run) <= _MAX_NAME_CHARACTERS else ""
    found = _NAME.search(run)
    if found is None or len(name := found[0]) > _MAX_NAME_CHARACTERS or _DIGEST.search(name) is not None:
        return ""
    return name


def _runs(text: str) -> list[str]:
    """The text between characters that no name contains. Runs shorter than a name may be missing."""
    return text.translate(_TO_BLANKS).split() if text.isascii() else _RUN.findall(text)


def _slices(text: str) -> Iterator[str]:
    """A text in pieces, never cut inside a name."""
    start = 0
    while start < len(text):
        border = _BETWEEN_NAMES.search(text, start + _SLICE_CHARACTERS)
        end = len(text) if border is None else border.end()
        yield text[start:end]
        start = end


def most_telling(spread: Mapping[str, int], known: Collection[str], used: Collection[str], max_bytes: int) -> list[str]:
    """The names that are worth `max_bytes`: first those that the assistant used, then those that look like symbols and
    paths, then those that occur in many texts (`spread`). Names that are `known` anyway are left out.

    >>> most_telling({"because": 2, "src/main.py": 1, "parse_args": 1}, {"parse_args"}, (), 15)
    ['src/main.py']
    """
    ranked = [name for name in spread if name not in known]
    ranked.sort(key=spread.__getitem__, reverse=True)
    ranked.sort(key=lambda name: 2 * (name not in used) + (_TELLING.search(name) is None))
    chosen, left = [], max_bytes
    for name in ranked:
        left -= utf8_length(name) + 1
        if left < 0:
            break
        chosen.append(name)
    return chosen
