"""Results of the proxy's own tool: recognised, and not cut, routed or kept again when they arrive. Only for room they
give way, once they are put back into a client's conversation, like any other result.

Rule: a page is a tool's answer to a call of that tool that carries our mark; what another tool says is none, whatever
it quotes.
"""

from __future__ import annotations

from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.notices.writing import is_ours
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL


def is_page(message: Message, tool: str) -> bool:
    """Whether a message is such a result; `tool` is the name of the tool that it answers for."""
    if tool != RETRIEVAL_TOOL or message.role not in TOOL_ROLES:
        return False
    return any(is_ours(text) for _, text in message.texts())
