"""The interface of a wire: one API that agents speak, as the modules above see it.

Rule: a wire translates and decides nothing. It has no state: one object serves all requests. Only its own folder knows
the members of its JSON; its users see messages, tool lists and replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from proxy.core.conversation.exchange import unpaired
from proxy.core.conversation.message import Message, ToolCall
from proxy.core.overflow import Counted, Sent, Verdict
from proxy.core.retrieval_tool.hidden_calls import HISTORY_BYTES, AssistantMessage, OwnCall
from proxy.core.retrieval_tool.tool import RetrievalPolicy
from proxy.core.text.jsontext import Raw
from proxy.errors import ProxyError
from proxy.wire.request import Request
from proxy.wire.streams import Framing


class Wire(Protocol):
    """One API."""

    def __hash__(self) -> int:
        """Wires are distinguished by identity."""

    @property
    def name(self) -> str:
        """In settings; empty if it has the same upstream as another wire."""

    @property
    def path(self) -> str:
        """After the base URL: `/chat/completions`."""

    @property
    def end(self) -> bytes:
        """Paths that end like this are its own. It includes the version if other paths end in the same word:
        `/v1/threads/ID/messages` is not `/v1/messages`."""

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """The members of a small request besides its model, and the member of a reply to it that is not empty."""

    @property
    def content_type(self) -> bytes:
        """Of a body that is not a stream."""

    @property
    def results_hold_media(self) -> bool:
        """Whether images and files are allowed in tool results."""

    @property
    def results_may_repeat(self) -> bool:
        """Whether a call may have several results."""

    @property
    def framing(self) -> Framing:
        """Of a reply that is a stream."""

    @property
    def is_on_host(self) -> bool:
        """Whether its path follows the upstream's host, whatever version the base URL ends in."""

    @property
    def greeting(self) -> bytes:
        """What its server answers at `/`, where clients look whether it is there; empty if they do not."""

    # Requests

    def model_in(self, body: bytes) -> str:
        """The model that a body names; empty if it names none or cannot be read."""

    def closed(self, beginning: bytes) -> bytes:
        """The beginning of a body, up to the end of a message, as a whole body."""

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Read a body. Its first `shared` messages are those of a `known` request, byte for byte, and are not read
        again. `will_be_known`: whether a later body may be read in this way by means of this one. Raises
        MalformedRequest for a body that no upstream could judge either."""

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """The body with these messages, and with these members instead of its own; everything else keeps its bytes."""

    def limiting(self, request: Request, tokens: int) -> Mapping[str, Raw]:
        """The members that limit the reply of a request to so many tokens."""

    def message(self, raw: bytes) -> Message:
        """A message from its bytes."""

    def instructions(self, members: Mapping[str, Raw]) -> bytes:
        """The text besides messages and tools that a model reads and that therefore counts, as the request has it."""

    def long_members(self, request: Request) -> Mapping[str, bytes]:
        """By name: long members besides messages, tools and instructions. Some servers add them to the prompt, others
        do not: the schema of a reply, a prediction, documents."""

    def adds_to_prompt(self, request: Request, *, by_tools: bool = True) -> bool:
        """Whether the upstream may add to the prompt what the request does not contain: a conversation that it holds,
        web pages, results of its own tools. Then its count says nothing about ours. `by_tools`: whether its tools may
        have run; they have not when it refuses a stream."""

    def may_hold_images(self, raw: bytes) -> bool:
        """Whether a body, or a piece of one, may contain a part of an image."""

    def asks_for_a_longer_window(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether a request's headers, with names in lower case, lift the window of its model to a million tokens."""

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """The headers that carry a key."""

    def list_headers(self, key: str) -> Mapping[bytes, bytes]:
        """The same where the upstream is asked for its models."""

    def may_name_images(self, raw: bytes) -> bool:
        """Whether a body, or a piece of one, may name an image that is elsewhere, even inside a text."""

    # Tools

    def tool_names(self, tools: bytes) -> Sequence[str]:
        """The names in a tool list."""

    def tools(self, request: Request) -> bytes:
        """All tools in a request, as it has them; empty for none."""

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The tool list of a request with the proxy's own tool at its end; None when its agent does not have it."""

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """Whether a request demands a call, or names the tools that may be called."""

    def missing_result(self, message: Message, call: ToolCall, text: str) -> bytes:
        """The message that answers this message's call of a client's tool."""

    def unsealed(self, request: Request, sent: Sequence[Message], refusal: str) -> Request:
        """The request without the sealed reasoning that the upstream could not verify when it got the messages `sent`;
        `refusal`: its words, which may name the place."""

    def result(self, call: OwnCall, text: str) -> bytes:
        """The message that answers a call of the proxy's own tool."""

    def left_to_the_upstream(self, request: Request) -> Mapping[str, Raw]:
        """Members that ask the upstream to leave out older parts of the conversation that only it holds; empty if it
        holds nothing, or was already asked."""

    def continues(self, request: Request) -> str:
        """The name of the conversation that the upstream holds and this request continues; empty if it holds none."""

    def continued_from(self, request: Request, name: str, results: Sequence[bytes]) -> Request:
        """The same request, continued from what the upstream holds under this name, with these messages before its own:
        the results of calls that the client does not know."""

    def unanswered_in(self, refusal: str) -> str:
        """The id of the call that has no result in what the upstream holds, by the words in which it refused to
        continue; empty if they name none."""

    # Replies

    def named_in(self, request: Request, evidence: bytes) -> str:
        """The name by which a later request continues from the reply to this one, which begins like this; empty if the
        upstream does not keep it."""

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether the beginning of a 200 has the sign of a reply and none of a refusal."""

    def says_something(self, data: bytes) -> bool:
        """Whether the data of an event contributes to the reply: a part of it, an error, or its end."""

    def counted(self, end: bytes) -> Counted | None:
        """The upstream's counts, from the end of a reply."""

    def is_complete(self, told: bytes) -> bool:
        """Whether a stream that ended with `told` is complete."""

    def reply(self, *, stream: bool) -> Reply:
        """Reads the reply to one request."""

    # Errors

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """The meaning of a response, or of its beginning, which is read here and judged by the core. `sent`: our own
        knowledge of the prompt; `request`: the body that was answered, because a response's echo of it is no
        evidence."""

    @property
    def id_header(self) -> bytes:
        """The header that names an error's request, in lower case."""

    def error(self, error: ProxyError, request_id: str = "") -> bytes:
        """The body of an error that the proxy itself makes."""

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """An upstream's response for a client that does not see its status: an error states it in its body."""

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """The same as the end of a stream."""


class Reply(Protocol):
    """Merges a reply's rounds, one after the other, into one for the client, without the calls of the proxy's own
    tool."""

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's body → what the client gets now."""

    def end(self) -> AssistantMessage | None:
        """The round's body has ended: returns the model's message if it called us and needs a result."""

    def last_words(self) -> bytes:
        """What the client gets at the end, if no round follows."""

    def stopped(self, sentence: str) -> bytes:
        """The same if the model would call us again: a normal end, with `sentence` if the model has not said a word to
        the client."""

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""


def repaired(wire: Wire, request: Request, refusal: str, lacking: str) -> Request:
    """The request with a history whose calls and results pair up: results that lack are added, results of no call are
    left out, and nothing else changes. `refusal`: the upstream's words, which name the call if only the upstream
    has it; `lacking`: the text of a result that lacks."""
    if request.shape.is_whole:
        return request.repaired(
            unpaired(request.conversation.messages, may_repeat=wire.results_may_repeat),
            lambda message, call: wire.message(wire.missing_result(message, call, lacking)),
        )
    result = wire.result(OwnCall(0, wire.unanswered_in(refusal), "", b""), lacking)
    history = bytes(HISTORY_BYTES) + request.history
    continued = wire.continued_from(request, wire.continues(request), [result])
    return replace(continued, history=history, healed=(0,))
