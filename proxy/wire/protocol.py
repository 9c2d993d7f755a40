"""A wire: one API that agents speak, as the modules above see it. The base class has what most wires have in common,
whose bodies are JSON, whose streams are server-sent events, whose keys are bearer tokens and whose errors have OpenAI's
shape; a wire overrides what differs.

Rule: a wire translates and decides nothing. It has no state: one object serves all requests. Only its own folder knows
the members of its JSON; its users see messages, tool lists and replies.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NotRequired, Protocol

from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy.core.conversation import Message, ToolCall, unpaired
from proxy.core.overflow import Counted, Sent, Verdict
from proxy.core.retrieval_tool import AssistantMessage, OwnCall, RetrievalPolicy
from proxy.core.text import Raw, jsontext
from proxy.errors import ContextOverflow, ProxyError
from proxy.wire.error_bodies import judge_answer
from proxy.wire.json_messages import OwnTool, has_others
from proxy.wire.request import Request, RequestShape, limiting, read_request
from proxy.wire.streams import SSE, Framing

_LONG_BYTES: Final = 1_024
"""A shorter member costs less than the margin of any window. OpenAI's `metadata` may have 9 KB and is no prompt."""
_FAILED: Final = re.compile(
    rb'\n(?:(?:data: ?)?\{\s*(?:"error"\s*:(?!\s*null)|"(?:object|type)"\s*:\s*"(?:error|response\.failed)")'
    rb'|data: ?\{[^\n]*"finish_reason"\s*:\s*"error")'
)
"""A body or an event that is an error of any API, as gateways pass them on; quotes in a model's text are escaped.
OpenRouter's is a chunk: https://openrouter.ai/docs/api-reference/errors"""
_ADDS: Final = re.compile(
    r".*search.*|mcp_servers|plugins|documents|data_sources|tool_resources|vector_store.*|container"
)
"""Members of requests that make a server add text: `web_search_options` of OpenAI, `search_parameters` of xAI,
`enable_search` of DashScope, `plugins` of OpenRouter, `data_sources` of Azure, `documents` of Cohere and vLLM,
`mcp_servers` and `container` of Anthropic."""
_LEAVES_THE_CHOICE: Final = (None, "auto", "none")
"""Values of `tool_choice` that force nothing. With `none` the tool stays in the list: the model does not call it, and
the beginning of the prompt stays the same."""
_MAX_MESSAGE_CHARS: Final = 2_000
"""Limit for quoting a response that is no OpenAI error."""
SAYS_NO: Final = frozenset({b"null", b"false", b"[]", b"{}", b'""'})


def patterns_of(*names: str) -> Sequence[re.Pattern[bytes]]:
    """A pattern for each count with one of these names, separated by `|`."""
    return [re.compile(rb'"(?:%b)"\s*:\s*(\d{1,9})' % name.encode()) for name in names]


class Problem(TypedDict):
    """What is wrong."""

    message: str
    """For people: what was measured, and what is allowed."""
    type: str
    param: str | None
    """The parameter at fault."""
    code: str
    """For programs."""
    upstream: NotRequired[dict[str, str]]
    """The `message` of the upstream that refused it."""


class Refusal(TypedDict):
    """An error, in OpenAI's shape."""

    error: Problem


def error_body(error: ProxyError) -> bytes:
    """An error of the proxy in OpenAI's shape."""
    problem: Problem = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ContextOverflow) and error.upstream_message is not None:
        problem["upstream"] = {"message": error.upstream_message}
    return jsontext.dump(Refusal(error=problem))


def error_in_body(status: int, body: bytes) -> bytes:
    """The body of a response for a client that does not see its status; anything that is no OpenAI error becomes one.

    >>> error_in_body(503, b"")
    b'{"error":{"message":"HTTP 503","type":"upstream_error","param":null,"code":"503"}}'
    """
    try:
        is_known = "error" in jsontext.members(body) or status == 200
    except jsontext.NotJson:
        is_known = False
    if is_known:
        return body
    message = body.decode("utf-8", "replace")[:_MAX_MESSAGE_CHARS]
    error = {"message": message or f"HTTP {status}", "type": "upstream_error", "param": None, "code": str(status)}
    return jsontext.dump({"error": error})


class Wire(ABC):
    """One API."""

    name: ClassVar[str]
    """Name in the settings; empty if it has the same upstream as another wire."""
    api: ClassVar[str]
    """Name in the log, in metrics and on the dashboard."""
    path: ClassVar[str]
    """Path after the base URL: `/chat/completions`."""
    end: ClassVar[bytes]
    """Paths that end like this are its own. It includes the version if other paths end in the same word:
    `/v1/threads/ID/messages` is not `/v1/messages`."""
    is_on_host: ClassVar[bool] = False
    """Whether its path follows the upstream's host, whatever version the base URL ends in."""
    greeting: ClassVar[bytes] = b""
    """Its server's response at `/`, where clients check whether it is up; empty if they do not."""
    content_type: ClassVar[bytes] = b"application/json"
    """Type of a body that is not a stream."""
    framing: ClassVar[Framing] = SSE
    """Framing of a streamed reply."""
    results_hold_media: ClassVar[bool]
    """Whether images and files are allowed in tool results."""
    results_may_repeat: ClassVar[bool] = False
    """Whether a call may have several results."""
    id_header: ClassVar[bytes] = b"x-request-id"
    """The header that names an error's request, in lower case."""
    shape: ClassVar[RequestShape]
    read_message: ClassVar[staticmethod[[Raw], Message]]
    own_tool: ClassVar[OwnTool]
    result_of: ClassVar[staticmethod[[str, str], bytes]]
    """The id of a call, and a text → the message that answers the call."""
    forms: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})
    """Members that give the reply a form, each with the way to it inside."""
    client_tools: ClassVar[re.Pattern[str]] = re.compile("(?:function|custom)?")
    """Types of tools that the client runs; any other one is the server's."""
    read_members: ClassVar[frozenset[str]] = frozenset({"tools"})
    """Members besides the messages that are counted on their own."""
    counts: ClassVar[Sequence[re.Pattern[bytes]]] = ()
    """The tokens of the prompt, of the reply, and of the prompt's part in a cache."""

    @abstractmethod
    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """The members of a small request besides its model, and the member of a reply to it that is not empty."""

    # Requests

    def model_in(self, body: bytes) -> str:
        """The model that a body names; empty if it names none or cannot be read."""
        found = jsontext.opened(jsontext.members_if_any(body).get("model"))
        return found if isinstance(found, str) else ""

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Read a body. Its first `shared` messages are those of a `known` request, byte for byte, and are not read
        again. `will_be_known`: whether a later body may be read in this way by means of this one. Raises
        MalformedRequest for a body that no upstream could judge either."""
        return read_request(self.shape, body, known, shared, will_be_known=will_be_known)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """The body with these messages, and with these members instead of its own; everything else keeps its bytes."""
        listed = jsontext.join_array([message.raw for message in messages])
        return jsontext.join_object({**request.members, **members, self.shape.messages: listed})

    def limiting(self, request: Request, tokens: int) -> Mapping[str, Raw]:
        """The members that limit the reply of a request to so many tokens."""
        return limiting(request.shape, request.members, tokens)

    def message(self, raw: bytes) -> Message:
        return self.read_message(raw)

    def instructions(self, _: Mapping[str, Raw]) -> bytes:
        """The text besides messages and tools that a model reads and that therefore counts, as the request has it."""
        return b""

    def long_members(self, request: Request) -> Mapping[str, bytes]:
        """Long members by name, besides messages, tools and instructions. Some servers add them to the prompt, others
        do not: the schema of a reply, a prediction, documents. An API's next member is counted before it is known here;
        metadata is not."""
        read = self.read_members
        return {
            name: bytes(raw)
            for name, raw in request.members.items()
            if len(raw) > _LONG_BYTES and name not in read and name != request.shape.messages and "metadata" not in name
        }

    def adds_to_prompt(self, request: Request, *, by_tools: bool = True) -> bool:
        """Whether the upstream may add to the prompt what the request does not contain: a conversation that it holds,
        web pages, results of its own tools, files, whose cost is unknown. Then its count says nothing about ours.
        `by_tools`: whether its tools may have run; they have not when it refuses a stream."""
        return (
            not request.shape.is_whole
            or request.has_files
            or any(bytes(request.members[name]) not in SAYS_NO for name in filter(_ADDS.fullmatch, request.members))
            or (by_tools and has_others(self.tools(request), self.client_tools))
        )

    def may_hold_images(self, raw: bytes) -> bool:
        """Whether a body, or a piece of one, may contain a part of an image."""
        return self.shape.may_hold_images(raw)

    def may_name_images(self, raw: bytes) -> bool:
        """Whether a body, or a piece of one, may name an image that is elsewhere, even inside a text, where the quotes
        around the member's name are escaped."""
        return raw.find(b"image_url") >= 0

    def asks_for_a_longer_window(self, _: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether a request's headers, with names in lower case, lift the window of its model to a million tokens."""
        return False

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """The headers that carry a key."""
        return [(b"authorization", b"Bearer " + key.encode())]

    def list_headers(self, key: str) -> Mapping[bytes, bytes]:
        """The headers of a request for the upstream's models."""
        return dict(self.credentials(key))

    # Tools

    def tool_names(self, tools: bytes) -> Sequence[str]:
        """The names in a tool list; empty for a tool without one."""
        return self.own_tool.names_in(tools)

    def tools(self, request: Request) -> bytes:
        """All tools in a request, as it has them; empty for none."""
        return bytes(request.members.get("tools", b""))

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The tool list of a request with the proxy's own tool at its end; None if its agent must not have it. A reply
        that must have a form has none with a call of ours in it."""
        return None if self._demands_a_form(request.members) else self.own_tool.appended(request.members, policy)

    def tool_wants(self, _: Request) -> str:
        """What a request would have to say to be offered that tool; empty if nothing would help."""
        return ""

    def _demands_a_form(self, members: Mapping[str, Raw]) -> bool:
        """Whether the reply must be JSON, or follow a schema."""
        for name in self.forms.keys() & members.keys():
            found = jsontext.opened(members[name])
            for step in self.forms[name]:
                found = found.get(step) if isinstance(found, dict) else None
            if found and not (isinstance(found, dict) and found.get("type") == "text"):
                return True
        return False

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """Whether a request demands a call, or names the tools that may be called: a model that must call something
        would call ours, round after round, and the client would wait in vain for a call of its own. Unknown values
        count as a demand: `required`, `any` (Mistral), a named function, `allowed_tools`."""
        return jsontext.opened(members.get("tool_choice")) not in _LEAVES_THE_CHOICE

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        """The message that answers this message's call of a client's tool."""
        return self.result_of(call.id, text)

    def unsealed(self, request: Request, _: Sequence[Message], __: str, language: str) -> Request:
        """The request without the sealed reasoning that the upstream could not verify: its messages as they were sent,
        and the upstream's words, which may name the place. `language`: of the note that stands for a compaction."""
        return request.unsealed(None, language)

    def lacks_reasoning(self, _: Request) -> bool:
        """Whether a running tool loop lacks the reasoning that the API demands there; a rendered request does not need
        it."""
        return False

    def result(self, call: OwnCall, text: str) -> bytes:
        """The message that answers a call of the proxy's own tool."""
        return self.result_of(call.id, text)

    def forbidding_cuts(self, _: Request) -> Mapping[str, Raw]:
        """Members that ask the upstream to refuse a prompt that it would otherwise cut silently."""
        return {}

    # A conversation that the upstream holds

    def left_to_the_upstream(self, _: Request) -> Mapping[str, Raw]:
        """Members that ask the upstream to leave out older parts of the conversation that only it holds; empty if it
        holds nothing, or already has the order."""
        return {}

    def continues(self, _: Request) -> str:
        """The name of the conversation that the upstream holds and this request continues; empty if it holds none."""
        return ""

    def continued_from(self, request: Request, _: str, __: Sequence[bytes]) -> Request:
        """Continue the request from what the upstream holds under this name, with these messages before its own: the
        results of calls that the client does not know."""
        return request

    def unanswered_in(self, _: str) -> str:
        """The id of the call that has no result in what the upstream holds, by the words in which it refused to
        continue; empty if they name none."""
        return ""

    def named_in(self, _: Request, __: bytes) -> str:
        """The name by which a later request continues from the reply to this one, given the reply's beginning; empty if
        the upstream does not keep it."""
        return ""

    # Replies

    @abstractmethod
    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether the beginning of a 200 has the sign of a reply and none of a refusal."""

    @abstractmethod
    def says_something(self, data: bytes) -> bool:
        """Whether the data of an event contributes to the reply: a part of it, an error, or its end."""

    def counted(self, end: bytes) -> Counted | None:
        """The upstream's counts, from the end of a reply; the model's words before the last `usage` are not
        searched."""
        prompt, reply, cached = [pattern.findall(end) for pattern in self.counts]
        if not prompt:
            return None
        return Counted(int(prompt[-1]), int(reply[-1]) if reply else 0, int(cached[-1]) if cached else None)

    @abstractmethod
    def is_complete(self, ending: bytes) -> bool:
        """Whether a stream that ended with `ending` is complete."""

    def closing_error(self, ending: bytes) -> bytes:
        """The error that a success reports in place of its reply or of the rest of it; empty if `ending` has none."""
        found = _FAILED.search(b"\n" + ending) if b'"error"' in ending else None  # hardly any has the word
        return b"" if found is None else ending[found.start() :]

    @abstractmethod
    def reply(self, *, stream: bool) -> Reply:
        """Reads the reply to one request."""

    # Errors

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """The meaning of a response, or of its beginning, which is read here and judged by the core. `sent`: our own
        knowledge of the prompt; `request`: the body that was answered, whose numbers teach nothing. Gateways pass on
        other servers' errors in whatever shape, so those of any API are read."""
        counted = self.counted(body) if status < 400 else None
        return judge_answer(status, headers, body, sent=sent, request=request, counted=counted)

    def error(self, error: ProxyError, _: str = "") -> bytes:
        """The body of an error that the proxy itself makes, given the id of the request."""
        return error_body(error)

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """An upstream's response for a client that does not see its status: an error states it in its body."""
        return error_in_body(status, body)

    @abstractmethod
    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """An upstream's error as the end of a stream."""


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
        """Final bytes for the client, if no round follows."""

    def stopped(self, sentence: str) -> bytes:
        """Final bytes if the model would call us again: a normal end, with `sentence` after what the model wrote for
        the client."""

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""


def repaired(wire: Wire, request: Request, refusal: str, lacking: str) -> Request:
    """The request with a history whose calls and results pair up: results that lack are added, results of no call are
    left out, and nothing else changes; the same object if it had nothing of that. `refusal`: the upstream's words,
    which name the call if only the upstream has it; `lacking`: the text of a result that lacks."""
    if request.shape.is_whole:
        found = unpaired(request.conversation.messages, may_repeat=wire.results_may_repeat)
        if not found:  # a rendered request does not need the reasoning that lacks
            return replace(request, healed=(0,)) if wire.lacks_reasoning(request) else request
        return request.repaired(
            found,
            lambda message, call: wire.message(wire.missing_result(message, call, lacking)),
        )
    name, call_id = wire.continues(request), wire.unanswered_in(refusal)
    if not (name and call_id):
        return request
    return replace(wire.continued_from(request, name, [wire.result(OwnCall(call_id, ""), lacking)]), healed=(0,))
