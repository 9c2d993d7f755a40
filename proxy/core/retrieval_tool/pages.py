"""Results of the proxy's own tool: recognised when they arrive, and not cut, routed or kept again. Once they are put
back into a client's conversation, they are given up for room like any other result.

Rule: a page is a tool result for a call of that tool and carries our mark; another tool's result is never a page,
whatever it quotes.
"""

from __future__ import annotations

from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.notices.writing import is_ours
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL


def is_page(message: Message, tool: str) -> bool:
    """Whether a message is such a result; `tool` is the name of the tool that was called."""
    if tool != RETRIEVAL_TOOL or message.role not in TOOL_ROLES:
        return False
    return any(is_ours(text) for _, text in message.texts())
