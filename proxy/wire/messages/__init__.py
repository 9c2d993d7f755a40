"""Anthropic's Messages API, which other servers speak, too."""

from proxy.wire.messages.message import ApiMessage
from proxy.wire.messages.replies import AnswerBody, AnswerStream
from proxy.wire.messages.wire import MESSAGES

__all__ = [
    "MESSAGES",
    "AnswerBody",
    "AnswerStream",
    "ApiMessage",
]
