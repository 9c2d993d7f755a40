"""The names that a text holds: paths, symbols, addresses. What an agent needs to find its way back to a text.

Rule: the order is a function of the texts alone; no set is walked, as its order differs from process to process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from proxy.core.text.measures import utf8_length

_NAME: Final = re.compile(r"(?<![\w\u00c0-\u024f])[A-Za-z_][\w\u00c0-\u024f./:-]{5,}", re.ASCII)
"""Words of six characters and more, with what paths, URLs and qualified names are made of. Of letters beyond ASCII only
Latin ones: in Chinese a name stands between others without a blank."""
_BETWEEN_NAMES: Final = re.compile(r"[^\w\u00c0-\u024f./:-]", re.ASCII)
_SLICE_CHARACTERS: Final = 16 * 1024
"""Searched at a time, as no other thread runs during a search: 2 ms."""
_DIGEST: Final = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])[0-9a-f]{7,}(?![0-9A-Za-z])", re.IGNORECASE)
"""A hash, or the part of one: of a commit, a UUID, an artifact of ours. It tells nobody what a text is about."""
_MAX_NAME_CHARACTERS: Final = 80
"""Longer ones are data, such as base64 and hashes joined by slashes."""
_TELLING: Final = re.compile(r"[_./:\d]|[a-z][A-Z]|^[A-Z]")
"""What tells a symbol, a path or a number from an ordinary word."""


def names_in(text: str) -> tuple[str, ...]:
    """The different names of a text, in the order of their first appearance.

    >>> names_in("open src/main.py at line 1234 of 3f2a91bc, then src/main.py")
    ('src/main.py',)
    """
    found = dict.fromkeys(name for piece in _slices(text) for name in _NAME.findall(piece))
    return tuple([name for name in found if len(name) <= _MAX_NAME_CHARACTERS and _DIGEST.search(name) is None])


def _slices(text: str) -> Iterator[str]:
    """A text in pieces, cut where no name stands."""
    start = 0
    while start < len(text):
        border = _BETWEEN_NAMES.search(text, start + _SLICE_CHARACTERS)
        end = len(text) if border is None else border.end()
        yield text[start:end]
        start = end


def most_telling(spread: Mapping[str, int], known: Collection[str], used: Collection[str], max_bytes: int) -> list[str]:
    """The names that are worth `max_bytes`: first those that the assistant used, then those that look like symbols and
    paths, then those that stand in many texts (`spread`). What is `known` anyway is left out.

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
