"""The plan for a request that needs no change: short, without tool results, and within its room.

Rule: the same plan as `plan` makes, for a third of the work, or None. A conversation that fits as a whole was never cut
as it grew, so there is nothing to replay.
"""

from __future__ import annotations

from proxy.core.compaction.message_report import MAX_ROLE_CHARACTERS, MessageReport
from proxy.core.compaction.plan import Pipeline, Plan
from proxy.core.conversation.message import Conversation, beginning, tool_of
from proxy.core.conversation.size import Size, size_of


def plain_plan(conversation: Conversation, base: Size, pipeline: Pipeline) -> Plan | None:
    """A plan without edits; None if there may be some. `base` is the size of everything that is not a message."""
    if pipeline.images is not None:
        return None
    size, blocks, begins = base, [], beginning(conversation.messages)
    for index, message in enumerate(conversation.messages):
        if message.answers or message.name:
            return None  # its call has to be found
        tool = tool_of(message, {}, has_begun=index >= begins)
        for step in pipeline.local:
            for _ in step(index, message, tool, pipeline.notices):
                return None
        own = size_of(message, pipeline.counter)
        size += own
        blocks.append(MessageReport(message.role[:MAX_ROLE_CHARACTERS], tool, own.tokens, own.tokens))
    if pipeline.budget.high_mark.excess(size) is not None:
        return None
    return Plan((), conversation.messages, size, size, pipeline.budget, artifacts=(), base=base, blocks=tuple(blocks))
