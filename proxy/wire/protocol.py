"""What a wire is: one API that agents speak, told to everybody above it.

Rule: a wire translates and decides nothing. It has no state: one object serves all requests. Only its own folder knows
the members of its JSON; who uses it sees messages, tool lists and replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.core.conversation.message import Message, ToolCall
from proxy.core.overflow import Sent, Verdict
from proxy.core.overflow.silent_truncation import Counted
from proxy.core.retrieval_tool.assistant_message import AssistantMessage, OwnCall
from proxy.core.retrieval_tool.tool import RetrievalPolicy
from proxy.core.text.jsontext import Raw
from proxy.errors import ProxyError
from proxy.wire.request import Request


class Wire(Protocol):
    """One API."""

    def __hash__(self) -> int:
        """Wires are told apart by identity."""

    @property
    def path(self) -> str:
        """Behind the base URL: `/chat/completions`."""

    @property
    def content_type(self) -> bytes:
        """Of a body that is no stream."""

    @property
    def results_hold_media(self) -> bool:
        """Whether images and files may stand in the results of tools."""

    @property
    def results_may_repeat(self) -> bool:
        """Whether a call may have several results."""

    # Requests

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Read a body. Its first `shared` messages are those of a `known` request, byte for byte, and not read again.
        `will_be_known`: whether a later one may be read like that with this one. Raises MalformedRequest for what no
        upstream could judge either."""

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """The body with these messages, and these members in the place of its own; all else keeps its bytes."""

    def message(self, raw: bytes) -> Message:
        """A message out of its bytes."""

    def instructions(self, members: Mapping[str, Raw]) -> bytes:
        """What a model reads besides messages and tools, and what therefore counts; as it stands in the request."""

    def may_hold_images(self, raw: bytes) -> bool:
        """Whether a part of an image may stand in a body, or in a piece of one."""

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """The headers that bring a key."""

    def may_name_images(self, raw: bytes) -> bool:
        """Whether an image that stands elsewhere may be named there, also inside a text."""

    # Tools

    def tool_names(self, tools: bytes) -> Sequence[str]:
        """The names in a tool list."""

    def tools(self, request: Request) -> bytes:
        """All tools that a request brings, as they stand in it; empty for none."""

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The tool list of a request with the proxy's own tool at its end; None when its agent does not have it."""

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """Whether a request demands a call, or names the tools that may be called."""

    def missing_result(self, message: Message, call: ToolCall, text: str) -> bytes:
        """The message that answers a call of a client's tool which this message makes."""

    def result(self, call: OwnCall, text: str) -> bytes:
        """The message that answers a call of the proxy's own tool."""

    def left_to_the_upstream(self, request: Request) -> Mapping[str, Raw]:
        """What asks the upstream to leave out itself what it holds of the conversation, as only it can; empty where it
        holds nothing, or was asked already."""

    # Replies

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether the beginning of a 200 has the sign of a reply and none of a refusal."""

    def says_something(self, data: bytes) -> bool:
        """Whether the data of an event says what the reply is: a part of it, an error, or that no more is to come."""

    def counted(self, end: bytes) -> Counted | None:
        """What the end of a reply says that its upstream counted."""

    def is_complete(self, told: bytes) -> bool:
        """Whether a stream of which this was told last is complete."""

    def whole_reply(self) -> WholeReply:
        """Reads the reply to one request that is no stream."""

    def streamed_reply(self) -> StreamedReply:
        """Reads the reply to one request that is a stream."""

    # Errors

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """What an answer, or its beginning, means: the core judges what is read here. `sent`: what is known of the
        prompt; `request`: the body that it answers, as what it repeats of that is no evidence."""

    @property
    def id_header(self) -> bytes:
        """In which an error names its request, in lower case."""

    def error(self, error: ProxyError, request_id: str = "") -> bytes:
        """The body of an error that the proxy itself makes."""

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """An upstream's answer for a client that does not see its status: an error says so in its body."""

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """The same as the end of a stream."""


class WholeReply(Protocol):
    """The bodies of a reply's rounds, one after the other, and what the client gets of them: one body, without the
    calls of the proxy's own tool."""

    @property
    def usage(self) -> dict[str, int]:
        """What was counted for all rounds so far; empty when this one is the first and none of its calls is ours."""

    def read(self, body: bytes) -> AssistantMessage | None:
        """The body of a round: what the model said, if it called us and is to have an answer."""

    def told(self) -> bytes:
        """The last round's body as the client gets it, when no round follows."""

    def stopped(self, sentence: str) -> bytes:
        """The last round's body when the model would go on calling us: a plain end, with `sentence` when it has not
        said a word."""

    def next_round(self) -> None:
        """The next body is that of another round."""


class StreamedReply(Protocol):
    """The streams of a reply's rounds, one after the other, and what the client gets of them: one stream."""

    @property
    def usage(self) -> dict[str, int]:
        """As of a whole reply."""

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's stream → what the client gets now."""

    def end(self) -> AssistantMessage | None:
        """The round's stream has ended: what the model said, if it called us and is to have an answer."""

    def last_words(self) -> bytes:
        """What ends the stream for the client, when no round follows."""

    def stopped(self, sentence: str) -> bytes:
        """What ends the stream when the model would go on calling us."""

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""
