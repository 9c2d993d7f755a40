"""OpenAI's Responses API as a wire."""

from proxy.wire.responses.message import ResponsesMessage
from proxy.wire.responses.replies import ReplyBody, ReplyStream
from proxy.wire.responses.wire import COMPACTIONS, RESPONSES

__all__ = [
    "COMPACTIONS",
    "RESPONSES",
    "ReplyBody",
    "ReplyStream",
    "ResponsesMessage",
]
