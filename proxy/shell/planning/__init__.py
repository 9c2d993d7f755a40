"""From the bytes of a request to what is sent in its place."""

from proxy.shell.planning.memory import (
    ConversationMemory,
    HeldConversations,
    Match,
    RefusedHistories,
)
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.planning.planned import LastSent, Planned, name_of_conversation, share_kept
from proxy.shell.planning.planner import Planner

__all__ = [
    "ConversationMemory",
    "HeldConversations",
    "LastSent",
    "Match",
    "Pipelines",
    "Planned",
    "Planner",
    "RefusedHistories",
    "name_of_conversation",
    "share_kept",
]
