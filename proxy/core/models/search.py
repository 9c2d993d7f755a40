"""The search for a limit that no refusal names: it lies between what was accepted and what was refused.

Rule: what was refused is never sent again, and after a refusal nothing is sent but what was accepted before, or half of
what was refused beside the parts that have to stay. Only a prompt that comes near the guess raises it, so that running
conversations are seldom cut anew.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

_Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=2**31)]

_NEAR: Final = 0.9
"""Of the guess: a conversation that has grown to this would be cut next, so a larger room costs no prompt cache."""
_WORTH: Final = 1 / 32
"""Of what was refused: a smaller step is not worth another cut of running conversations."""


class Search(Struct, frozen=True, omit_defaults=True):
    """Sizes of prompts in the model's tokens."""

    refused: _Tokens
    """The smallest that was refused."""
    guess: _Tokens
    """The largest that is sent next."""
    passed: _Tokens = 0
    """The largest that was accepted; 0 if none is known."""
    reply: _Tokens = 0
    """The reply limit that the window holds beside such a prompt."""

    @classmethod
    def begun(cls, refused: int, passed: int = 0, reply: int = 0, fixed: int = 0) -> Search:
        """After a refusal of this size, `fixed` of which had to stay. A `passed` that is no smaller was accepted by
        another window.

        >>> Search.begun(40_429, 39_197).guess, Search.begun(40_000).guess, Search.begun(40_000, 50_000).guess
        (39197, 20000, 20000)
        >>> Search.begun(40_000, fixed=30_000).guess
        35000
        """
        passed = passed if passed < refused else 0
        return cls(refused, max(passed, (min(fixed, refused) + refused) // 2), passed, reply)

    def after_refusal(self, size: int, passed: int = 0, reply: int = 0, fixed: int = 0) -> Search:
        """After one more refusal; `passed` was accepted since the last one."""
        return self if size >= self.refused else Search.begun(size, max(passed, self.passed), reply, fixed)

    def after_pass(self, size: int) -> Search | None:
        """After a prompt was accepted: the same object unless that moves the guess; None if it disproves the search.

        >>> found = Search.begun(40_000)
        >>> found.after_pass(10_000) is found, found.after_pass(19_000).guess, found.after_pass(40_000)
        (True, 29500, None)
        """
        if size >= self.refused:
            return None
        passed = max(size, self.passed)
        guess = (passed + self.refused) // 2
        is_worth_it = size >= _NEAR * self.guess and guess - self.guess >= _WORTH * self.refused
        return replace(self, guess=guess, passed=passed) if is_worth_it else self
