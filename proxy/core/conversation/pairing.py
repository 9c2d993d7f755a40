"""Whether tool calls and results pair up, and which messages an upstream refuses if they do not: agents that were
interrupted during a call leave such histories.

Rule: nothing is repaired before an upstream has refused it, and then as little as possible: a result without a call is
left out, and a call without a result gets one that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from proxy.core.conversation.message import TOOL_ROLES, Message, ToolCall


class Unanswered(Struct, frozen=True):
    """Calls of one message that have no result."""

    message: int
    """Index of the message that makes them."""
    after: int
    """Index of the message after which their results belong: the last result of its batch, or the message itself."""
    calls: tuple[ToolCall, ...]


class Unpaired(Struct, frozen=True):
    """What does not pair up in a history."""

    orphans: tuple[int, ...] = ()
    """Indexes of results that answer no call of the message before their batch."""
    unanswered: tuple[Unanswered, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.orphans or self.unanswered)

    @property
    def count(self) -> int:
        """How many messages a repair takes out or puts in."""
        return len(self.orphans) + sum(len(found.calls) for found in self.unanswered)


def unpaired(messages: Sequence[Message], *, may_repeat: bool = False) -> Unpaired:
    """What does not pair up; `may_repeat`: whether a call may have several results."""
    orphans: list[int] = []
    unanswered: list[Unanswered] = []
    caller, last, calls = -1, -1, dict[str, ToolCall]()
    answered: set[str] = set()

    def close() -> None:
        left = tuple(call for name, call in calls.items() if name not in answered)
        if left:
            unanswered.append(Unanswered(caller, last, left))

    for index, message in enumerate(messages):
        if message.role in TOOL_ROLES:
            name = message.answers
            if name not in calls or (name in answered and not may_repeat):
                orphans.append(index)
            else:
                answered.add(name)
                last = index
        elif not message.is_companion:
            close()
            caller = last = index
            calls, answered = {call.id: call for call in message.calls}, set()
        elif message.role == "assistant" and (message.calls or last == index - 1):
            last = index  # it is one with the message before it, for its upstream, and results come after both
            caller = index if message.calls else caller
            calls |= {call.id: call for call in message.calls}
    close()
    return Unpaired(tuple(orphans), tuple(unanswered))
