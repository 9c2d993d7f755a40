"""What of a refusal may be the client's own words, which some upstreams repeat in their errors.

Rule: what a client may have written is no evidence of what a model takes: other clients would pay for it.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from proxy.core.overflow.verdict import Verdict

_BESIDE: Final = r"[^\s\d]{1,40}"
"""A word beside a number: alone, a number such as 4096 stands in many a conversation."""
_TOKENS: Final = re.compile(r"[!-~]+|[^\x00-\x7f]")
"""Words; of scripts without blanks, characters."""
_LEAST_CHARS: Final = 16
"""Of a run that is taken for an echo: shorter ones stand in both by chance."""
_LEAST_OWN_LETTERS: Final = 8
"""Of what an upstream says beside an echo; under it, it says nothing but what the request holds."""


class SentText(Protocol):
    """A request as it was written, to be searched."""

    @property
    def hides_letters(self) -> bool:
        """Whether letters or digits are written in it in a way in which they are not found."""
        ...

    def holds(self, text: str) -> bool:
        """Whether a text stands in it."""
        ...


def may_be_echoed(verdict: Verdict, request: SentText) -> bool:
    """Whether the limit or the count of a refusal, with the word before or after it, stands in the request as well."""
    numbers = [number for number in (verdict.limit, verdict.prompt, verdict.requested) if number is not None]
    snippets = [snippet for number in numbers for snippet in _snippets(verdict.upstream_message, number)]
    return bool(snippets) and (request.hides_letters or any(map(request.holds, snippets)))


def own_words(message: str, request: SentText) -> str:
    """A message without what stands in the request as well."""
    tokens = [(found.start(), found.end()) for found in _TOKENS.finditer(message)]
    own, position, start = [], 0, 0
    while start < len(tokens):
        stop = _echoed_up_to(message, tokens, start, request)
        if stop is None:
            start += 1
            continue
        own.append(message[position : tokens[start][0]])
        position, start = tokens[stop - 1][1], stop
    return "".join([*own, message[position:]])


def says_something(words: str) -> bool:
    """Whether an upstream says anything beside an echo. A refusal that is nothing but words of the request is one that
    its conversation tells of: they are the upstream's, too.

    >>> says_something("Invalid value:  you'."), says_something(" you'.")
    (True, False)
    """
    return sum(map(str.isalpha, words)) >= _LEAST_OWN_LETTERS


def _echoed_up_to(message: str, tokens: list[tuple[int, int]], start: int, request: SentText) -> int | None:
    """Behind which token the longest run from this one ends that the request holds; None when it holds none."""
    begin = tokens[start][0]
    least = next((stop for stop in range(start + 1, len(tokens) + 1) if tokens[stop - 1][1] - begin >= _LEAST_CHARS), 0)
    if not least or not request.holds(message[begin : tokens[least - 1][1]]):
        return None
    low, high = least, len(tokens)  # what holds a run holds what it begins with
    while low < high:
        middle = (low + high + 1) // 2
        if request.holds(message[begin : tokens[middle - 1][1]]):
            low = middle
        else:
            high = middle - 1
    return low


def _snippets(message: str, number: int) -> list[str]:
    """A number as the message prints it, once with the word before and once with the word after it."""
    grouped = r"\D?".join(re.findall(r"\d{1,3}(?=(?:\d{3})*$)", str(number)))
    printed = rf"(?<!\d){grouped}(?!\d)"
    before = re.findall(rf"{_BESIDE}\s{{1,3}}{printed}", message)
    return before + re.findall(rf"{printed}\s{{0,3}}{_BESIDE}", message)
