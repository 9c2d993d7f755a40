"""What stays or goes together, and which of it may go.

Rule: a tool call and its results are one unit; which units may go depends on their order and roles alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proxy.core.conversation import SYSTEM_ROLES
from proxy.core.edits import Edit


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Messages that stay or go together: an exchange, a user message, a system message, an assistant's words."""

    start: int
    stop: int
    role: str
    """Of its first message."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a relief gives up at once: edits of one message, or whole units."""

    edits: tuple[Edit, ...] = ()
    units: tuple[Unit, ...] = ()


def removable(units: Sequence[Unit]) -> list[tuple[Unit, ...]]:
    """What may go, the oldest first: neither system text, nor the last user message, nor the newest unit.

    A user message goes together with the last of its turn: two user messages in a row are refused by the chat
    templates of Mistral and Gemma.

    >>> roles = ["system", "user", "assistant", "user", "assistant"]
    >>> units = [Unit(index, index + 1, role) for index, role in enumerate(roles)]
    >>> [[unit.start for unit in together] for together in removable(units)]
    [[2, 1]]
    """
    found: list[tuple[Unit, ...]] = []
    asked: tuple[Unit, ...] = ()
    for unit in units:
        if unit.role == "user":
            if asked and found:
                found[-1] += asked
            elif asked:
                found.append(asked)
            asked = (unit,)
        elif unit.role not in SYSTEM_ROLES and unit is not units[-1]:
            found.append((unit,))
    return found
