"""A record that holds content shows none of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from proxy.core.text import Discreet


class Kind(StrEnum):
    TEXT = "text"


class Held(Discreet, frozen=True):
    kind: Kind
    size: int
    is_whole: bool
    text: str
    raw: bytes
    lines: Sequence[str]
    inside: Held | None = None


SECRET = "sk-secret"
HELD = Held(Kind.TEXT, 7, True, SECRET, SECRET.encode(), [SECRET])


def test_numbers_and_kinds_are_shown_and_nothing_else() -> None:
    assert repr(HELD) == "Held(kind=<Kind.TEXT: 'text'>, size=7, is_whole=True, inside=None)"


def test_not_even_what_a_record_inside_holds_is_shown() -> None:
    outer = Held(Kind.TEXT, 1, False, "", b"", [], HELD)
    assert SECRET not in repr(outer)
    assert SECRET not in f"{outer} {outer!r} {[outer]}"
