"""Conversations that an upstream holds and that no longer fit its window: it is asked at once to leave out the oldest
items, because it would refuse every later turn first.

Rule: kept in memory only, and bounded; a conversation that was forgotten costs one refusal.
"""

from __future__ import annotations

from typing import Final

from proxy.core.overflow import VerdictKind
from proxy.core.overflow.retry import Outcome
from proxy.shell.planning.planned import Planned
from proxy.shell.resources.bounded import BoundedMap

MAX_KNOWN: Final = 10_000
MAX_NAME_CHARACTERS: Final = 500
"""A longer name is not kept."""


class HeldConversations:
    """Those that have overflowed, per tenant."""

    def __init__(self) -> None:
        self._overflowed: BoundedMap[tuple[str, str], None] = BoundedMap(MAX_KNOWN)

    def planned(self, planned: Planned, tenant: str) -> Planned:
        """The plan, which asks the upstream if this conversation is known to have overflowed."""
        if not self._overflowed or (tenant, planned.wire.continues(planned.request)) not in self._overflowed:
            return planned
        return planned.left_to_the_upstream() or planned

    def note(self, sent: Planned, outcome: Outcome, evidence: bytes, tenant: str) -> None:
        """Remember a conversation whose upstream was asked and answered. `evidence`: the beginning of its response, by
        whose name the next turn may continue."""
        if not sent.members or outcome.status >= 400 or outcome.verdict.kind is not VerdictKind.ACCEPTED:
            return
        for name in (sent.wire.continues(sent.request), sent.wire.named_in(sent.request, evidence)):
            if 0 < len(name) <= MAX_NAME_CHARACTERS:
                self._overflowed.put((tenant, name), None)
