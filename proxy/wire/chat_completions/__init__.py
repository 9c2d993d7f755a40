"""Chat completions: OpenAI's API, as all compatible servers speak it."""

from proxy.wire.chat_completions.message import ChatMessage
from proxy.wire.chat_completions.replies import AnswerBody, AnswerStream
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS, SHAPE

__all__ = [
    "CHAT_COMPLETIONS",
    "SHAPE",
    "AnswerBody",
    "AnswerStream",
    "ChatMessage",
]
