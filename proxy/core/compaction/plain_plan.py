"""The plan for a request to which nothing happens: short, without results of tools, and within its room.

Rule: what `plan` would say, for a third of its work, or nothing at all. No cut can have been made on the way to a
conversation that fits as a whole, so there is nothing to replay.
"""

from __future__ import annotations

from proxy.core.compaction.message_report import MAX_ROLE_CHARACTERS, MessageReport
from proxy.core.compaction.plan import Pipeline, Plan
from proxy.core.conversation.message import Conversation
from proxy.core.conversation.size import Size, size_of


def plain_plan(conversation: Conversation, base: Size, pipeline: Pipeline) -> Plan | None:
    """A plan without edits; None when there may be some. `base` is the size of all that is not messages."""
    if pipeline.images is not None:
        return None
    size, blocks = base, []
    for index, message in enumerate(conversation.messages):
        if message.answers or message.name:
            return None  # whose result it is has to be found out
        for step in pipeline.local:
            for _ in step(index, message, "", pipeline.notices):
                return None
        own = size_of(message, pipeline.counter)
        size += own
        blocks.append(MessageReport(message.role[:MAX_ROLE_CHARACTERS], "", own.tokens, own.tokens))
    if pipeline.budget.high_mark.excess(size) is not None:
        return None
    return Plan((), conversation.messages, size, size, pipeline.budget, artifacts=(), base=base, blocks=tuple(blocks))
