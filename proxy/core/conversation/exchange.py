"""Which messages stay or go together, and which of them may go.

Rule: a tool call and its results are one unit; which units may go depends only on their order and roles.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from proxy.core.conversation.edit import Edit
from proxy.core.conversation.message import SYSTEM_ROLES
from proxy.core.conversation.tracked_message import TrackedMessage


class ToolExchange(msgspec.Struct, frozen=True, gc=False):
    """Messages that stay or go together: an exchange, a user message, a system message, or an assistant message without
    calls."""

    start: int
    stop: int
    role: str
    """Of its first message; `tool` for system messages in the middle of a conversation, if they are a unit."""
    must_stay: bool = False
    """Whether later messages depend on it."""
    last_user: int = -1
    """The last user message in it that is not a companion; -1 if there is none. In an exchange, it began like tool
    output."""


class Change(Struct, frozen=True):
    """What a compaction step gives up at once: edits of one message, whole units, or images of a message."""

    edits: tuple[Edit, ...] = ()
    units: tuple[ToolExchange, ...] = ()
    redone: TrackedMessage | None = None
    """Another preparation of a message."""


def first_request(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The first user message: it holds the task, and always stays."""
    return next((unit for unit in units if unit.role == "user"), None)


def last_request(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The unit of the last user message, which always stays, however that message begins."""
    return next((unit for unit in reversed(units) if unit.last_user >= 0), None)


def separator(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The unit that must stay between the first user message and the next one: the chat templates of Mistral and Gemma
    refuse two user messages in a row. None if there is none."""
    users = [position for position, unit in enumerate(units) if unit.role == "user"]
    if len(users) < 2:
        return None
    between = [unit for unit in units[users[0] + 1 : users[1]] if unit.role not in SYSTEM_ROLES]
    said = [unit for unit in between if unit.role == "assistant"] or between
    return said[-1] if said else None


def newest_units(units: Sequence[ToolExchange], held_from: int | None = None) -> Sequence[ToolExchange]:
    """The newest unit, and all from the one on that `held_from` is in."""
    if held_from is None:
        return units[-1:]
    return [unit for unit in units if unit.stop > held_from]


def removable(units: Sequence[ToolExchange], held_from: int | None = None) -> list[tuple[ToolExchange, ...]]:
    """The units that may go, the oldest first: not system texts, the first and last user message, and the newest unit.
    If the last user message may be tool output, the last one that is not stays, too. `held_from`: the index of the
    first message that counts as newest, if it is not that of the newest unit.

    A later user message goes together with the last unit of its turn, and the last unit of the first turn stays if
    another turn follows, so that two user messages never come to follow each other.

    >>> roles = ["system", "user", "assistant", "assistant", "user", "assistant", "user"]
    >>> units = [ToolExchange(index, index + 1, role) for index, role in enumerate(roles)]
    >>> [[unit.start for unit in together] for together in removable(units)]
    [[2], [5, 4]]
    """
    newest = newest_units(units, held_from)
    always = (first_request(units), separator(units), last_request(units), *newest)
    staying = {unit.start for unit in always if unit is not None}
    found: list[tuple[ToolExchange, ...]] = []
    asked: tuple[ToolExchange, ...] = ()
    turn_begins = 0
    for unit in units:
        if unit.role == "user":
            if asked and len(found) > turn_begins:
                found[-1] += asked
            elif asked:
                found.append(asked)
            asked = () if unit.must_stay or unit.start in staying else (unit,)
            turn_begins = len(found)
        elif newest and unit.start >= newest[0].start:
            asked = ()
        elif unit.role not in SYSTEM_ROLES and not unit.must_stay and unit.start not in staying:
            found.append((unit,))
    return found
