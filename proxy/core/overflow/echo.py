"""The parts of a refusal that may be the client's own words, which some upstreams repeat in their errors.

Rule: words that a client may have written are no evidence of a model's limit: other clients would pay for it.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from proxy.core.overflow.verdict import Verdict

_BESIDE: Final = r"[^\s\d]{1,40}"
"""A word beside a number: by itself, a number such as 4096 occurs in many conversations."""
_TOKENS: Final = re.compile(r"[!-~]+|[^\x00-\x7f]")
"""Words; in scripts without spaces, characters."""
_LEAST_CHARS: Final = 16
"""Of a run that counts as an echo: shorter ones occur in both by chance."""
_LEAST_OWN_LETTERS: Final = 8
"""Of an upstream's words beside an echo; with fewer, it says nothing but what the request contains."""


class SentText(Protocol):
    """A request as written, for searching."""

    @property
    def hides_letters(self) -> bool:
        """Whether some letters or digits are written in a form that a search does not find."""
        ...

    def holds(self, text: str) -> bool:
        """Whether the request contains a text."""
        ...


def may_be_echoed(verdict: Verdict, request: SentText) -> bool:
    """Whether the request also contains the limit or the count of a refusal, with the word before or after it."""
    numbers = [number for number in (verdict.limit, verdict.prompt, verdict.requested) if number is not None]
    snippets = [snippet for number in numbers for snippet in _snippets(verdict.upstream_message, number)]
    return bool(snippets) and (request.hides_letters or any(map(request.holds, snippets)))


def own_words(message: str, request: SentText) -> str:
    """A message without the parts that the request also contains."""
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
    """Whether an upstream says anything beside an echo. If a refusal consists only of words of the request, the
    conversation is about that refusal: the words are the upstream's, too.

    >>> says_something("Invalid value:  you'."), says_something(" you'.")
    (True, False)
    """
    return sum(map(str.isalpha, words)) >= _LEAST_OWN_LETTERS


def _echoed_up_to(message: str, tokens: list[tuple[int, int]], start: int, request: SentText) -> int | None:
    """The token after which the longest run from `start` that the request contains ends; None if it contains none."""
    begin = tokens[start][0]
    least = next((stop for stop in range(start + 1, len(tokens) + 1) if tokens[stop - 1][1] - begin >= _LEAST_CHARS), 0)
    if not least or not request.holds(message[begin : tokens[least - 1][1]]):
        return None
    low, high = least, len(tokens)  # a request that contains a run contains every beginning of it
    while low < high:
        middle = (low + high + 1) // 2
        if request.holds(message[begin : tokens[middle - 1][1]]):
            low = middle
        else:
            high = middle - 1
    return low


def _snippets(message: str, number: int) -> list[str]:
    """A number as the message prints it, once with the word before it and once with the word after it."""
    grouped = r"\D?".join(re.findall(r"\d{1,3}(?=(?:\d{3})*$)", str(number)))
    printed = rf"(?<!\d){grouped}(?!\d)"
    before = re.findall(rf"{_BESIDE}\s{{1,3}}{printed}", message)
    return before + re.findall(rf"{printed}\s{{0,3}}{_BESIDE}", message)
