"""A model server that speaks the made-up API: counts tokens, refuses what is longer than its window or breaks a rule,
and says what a test wants, whole or streamed."""

from __future__ import annotations

from starlette.types import Send

from proxy.demo import model_server as embedded
from proxy.wire import Request
from support.journey import Received
from support.journey_models import respond
from support.line_api import LINES, ended

IMAGE_TOKENS = 765


class LineModel:
    """An `Answer` of a journey's upstream."""

    def __init__(
        self,
        *says: str,
        window_tokens: int = 128_000,
        is_blind: bool = False,
        is_late: bool = False,
    ) -> None:
        """`says`: the lines of its replies, without `assistant` before them and the ends behind; the last one for ever.
        `is_late`: whether a refusal comes in a stream that has begun with a success."""
        self._says = list(says or ["> Done."])
        self._window_tokens = window_tokens
        self._is_blind = is_blind
        self._is_late = is_late

    async def __call__(self, received: Received, send: Send) -> bool:
        request = LINES.parse(received.body)
        if refusal := self._refusal(request):
            await self._refuse(send, request, refusal)
            return True
        words = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        end = "calls" if "+ " in words else "done"
        lines = ["assistant", *words.split("\n"), f"ended: {end}", f"counted: {tokens_of(request)} {len(words)}"]
        if request.stream:
            await respond(send, ended(lines), LINES.framing.content_type)
        else:
            await respond(send, "\n".join(lines).encode(), LINES.content_type)
        return True

    def _refusal(self, request: Request) -> str:
        tokens, waiting = tokens_of(request), 0
        for message in request.conversation.messages:
            if message.role == "tool":
                if not waiting:
                    return "unpaired\n> There is a result without its call."
                waiting -= 1
            elif waiting:
                return "unpaired\n> Calls must be followed by tool messages that respond to each of them."
            waiting += len(message.calls)
        if self._is_blind and any(message.images for message in request.conversation):
            return "unsupported\n> This model does not support image input."
        if tokens > self._window_tokens:
            window = f"the context window is {self._window_tokens} tokens"
            return f"too_long\n> The prompt has {tokens} tokens, but {window}."
        return ""

    async def _refuse(self, send: Send, request: Request, refusal: str) -> None:
        lines = f"refused: {refusal}".split("\n")
        if request.stream and self._is_late:
            await respond(send, ended(["assistant", *lines]), LINES.framing.content_type)
        else:
            await respond(send, "\n".join(lines).encode(), LINES.content_type, 400)


def tokens_of(request: Request) -> int:
    """Of a whole prompt."""
    messages = request.conversation.messages
    texts = sum(embedded.MESSAGE_TOKENS + embedded.count(message.text()) for message in messages)
    tools = embedded.count(bytes(request.members.get("offers", b"")).decode())
    return embedded.REPLY_TOKENS + tools + texts + IMAGE_TOKENS * sum(message.images for message in messages)
