"""What wires have in common whose bodies are JSON, whose streams are server-sent events and whose keys are bearer
tokens; a wire overrides what differs. The tool list of a request with the proxy's own tool at its end, in which the
client's own entries keep their bytes; and errors in OpenAI's shape: those of its APIs, and of the proxy's own pages.

Rule: nothing in here knows a member of any API but `tools` and `tool_choice`, which all of them have.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NotRequired

from typing_extensions import TypedDict

from proxy.core.conversation.message import Message, ToolCall
from proxy.core.overflow import Counted, Sent, Verdict
from proxy.core.retrieval_tool.hidden_calls import OwnCall
from proxy.core.retrieval_tool.tool import RetrievalPolicy, is_offered
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.errors import ContextOverflow, ProxyError
from proxy.wire.error_bodies import judge_answer
from proxy.wire.request import Request, RequestShape, limiting, read_request
from proxy.wire.streams import SSE, Framing

_MAX_MESSAGE_CHARS: Final = 2_000


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
    said = {"message": message or f"HTTP {status}", "type": "upstream_error", "param": None, "code": str(status)}
    return jsontext.dump({"error": said})


# Tool lists

MAX_NAMES: Final = 1_000
"""Tools of one list whose names are read."""
_NO_TOOLS: Final = frozenset((b"null", b"[]"))
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Of a tool list that is read once for all requests of its agent; sixty-four lists are remembered."""


def has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    """Whether a tool list has a tool of a type other than these; a tool without one has an empty one.

    >>> known = re.compile("(?:function)?")
    >>> has_others(b'[{"type":"web_search"}]', known), has_others(b'[{"type":"function"},{}]', known)
    (True, False)
    """
    return (_has_others if len(tools) <= _MAX_REMEMBERED_BYTES else _has_others.__wrapped__)(tools, types)


@functools.lru_cache(64)
def _has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    found = (tool for tool in jsontext.listed(jsontext.opened(tools or None)) if isinstance(tool, dict))
    return any(types.fullmatch(jsontext.string_in(tool, "type")) is None for tool in found)


def names_in(tools: Raw, name_of: Callable[[Any], str]) -> list[str]:
    """The names in a tool list; empty for a tool without one."""
    return [name_of(tool) for tool in jsontext.listed(jsontext.opened(tools or None))[:MAX_NAMES]]


class OwnTool:
    """The proxy's own tool in the form of one API."""

    def __init__(self, definition: bytes, names_in: Callable[[bytes], Sequence[str]]) -> None:
        """`definition`: the tool as an item of the list. `names_in`: a tool list → the names in it."""
        self._definition = definition
        self.names_in = names_in
        self._remembered = functools.lru_cache(64)(self._appended)

    def appended(self, members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
        """The `tools` of a request with ours at the end; None if its agent does not have our tool: never beside a tool
        of the same name or beyond the maximum."""
        tools = bytes(members.get("tools", b"null"))
        if policy == "never" or (policy == "auto" and tools in _NO_TOOLS):
            return None
        return (self._remembered if len(tools) <= _MAX_REMEMBERED_BYTES else self._appended)(tools, policy)

    def _appended(self, tools: bytes, policy: RetrievalPolicy) -> bytes | None:
        if not is_offered(self.names_in(tools), policy):
            return None
        if tools == b"null":
            return jsontext.join_array([self._definition])
        if not tools.startswith(b"["):
            return None
        inside = tools[1:-1].strip()
        return b"[" + inside + b"," * bool(inside) + self._definition + b"]"


_LONG_BYTES: Final = 1_024
"""A shorter member costs less than the margin of any window. OpenAI's `metadata` may have 9 KB and is no prompt."""


_ADDS: Final = re.compile(
    r".*search.*|mcp_servers|plugins|documents|data_sources|tool_resources|vector_store.*|container"
)
"""Members of requests that make a server add text: `web_search_options` of OpenAI, `search_parameters` of xAI,
`enable_search` of DashScope, `plugins` of OpenRouter, `data_sources` of Azure, `documents` of Cohere and vLLM,
`mcp_servers` and `container` of Anthropic."""
_LEAVES_THE_CHOICE: Final = (None, "auto", "none")
"""Values of `tool_choice` that force nothing. With `none` the tool stays in the list: the model does not call it, and
the beginning of the prompt stays the same."""
_SAYS_NO: Final = frozenset({b"null", b"false", b"[]", b"{}", b'""'})


def patterns_of(*names: str) -> Sequence[re.Pattern[bytes]]:
    """A pattern for each count with one of these names, separated by `|`."""
    return [re.compile(rb'"(?:%b)"\s*:\s*(\d{1,9})' % name.encode()) for name in names]


class JsonWire:
    """The protocol describes each member. An API declares its parts and overrides what differs."""

    shape: ClassVar[RequestShape]
    read_message: ClassVar[staticmethod[[Raw], Message]]
    own_tool: ClassVar[OwnTool]
    result_of: ClassVar[staticmethod[[str, str], bytes]]
    """The id of a call, and a text → the message that answers the call."""

    id_header: ClassVar[bytes] = b"x-request-id"
    content_type: ClassVar[bytes] = b"application/json"
    framing: ClassVar[Framing] = SSE
    client_tools: ClassVar[re.Pattern[str]] = re.compile("(?:function|custom)?")
    """Types of tools that the client runs; any other one is the server's."""
    read_members: ClassVar[frozenset[str]] = frozenset({"tools"})
    """Members besides the messages that are counted on their own."""

    counts: ClassVar[Sequence[re.Pattern[bytes]]] = ()
    """The tokens of the prompt, of the reply, and of the prompt's part in a cache."""

    is_on_host: ClassVar[bool] = False
    greeting: ClassVar[bytes] = b""

    def model_in(self, body: bytes) -> str:
        """By `model`."""
        found = jsontext.opened(jsontext.members_if_any(body).get("model"))
        return found if isinstance(found, str) else ""

    def closed(self, beginning: bytes) -> bytes:
        """With the ends of the list and the object."""
        return beginning + b"]}"

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Raises MalformedRequest."""
        return read_request(self.shape, body, known, shared, will_be_known=will_be_known)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """Each message is an item of the list."""
        listed = jsontext.join_array([message.raw for message in messages])
        return jsontext.join_object({**request.members, **members, self.shape.messages: listed})

    def message(self, raw: bytes) -> Message:
        """A message from its bytes."""
        return self.read_message(raw)

    def instructions(self, _: Mapping[str, Raw]) -> bytes:
        """They are messages."""
        return b""

    def may_hold_images(self, raw: bytes) -> bool:
        """By the names of the parts that hold one."""
        return self.shape.may_hold_images(raw)

    def may_name_images(self, raw: bytes) -> bool:
        """By the member that names one; the quotes around it are escaped inside a text."""
        return b"image_url" in raw

    def tool_names(self, tools: bytes) -> Sequence[str]:
        """The names in a tool list."""
        return self.own_tool.names_in(tools)

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The list with `read_artifact` at its end."""
        return self.own_tool.appended(request.members, policy)

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        """Like any other."""
        return self.result_of(call.id, text)

    def result(self, call: OwnCall, text: str) -> bytes:
        """One message."""
        return self.result_of(call.id, text)

    def tools(self, request: Request) -> bytes:
        """The member of that name."""
        return bytes(request.members.get("tools", b""))

    def long_members(self, request: Request) -> Mapping[str, bytes]:
        """All others that are long, but for metadata: an API's next member is counted before it is known here."""
        read = self.read_members
        return {
            name: bytes(raw)
            for name, raw in request.members.items()
            if len(raw) > _LONG_BYTES and name not in read and name != request.shape.messages and "metadata" not in name
        }

    def adds_to_prompt(self, request: Request, *, by_tools: bool = True) -> bool:
        """By members of these names, by tools that the client does not run, and by files, whose cost is unknown."""
        return (
            not request.shape.is_whole
            or request.has_files
            or any(bytes(request.members[name]) not in _SAYS_NO for name in filter(_ADDS.fullmatch, request.members))
            or (by_tools and has_others(self.tools(request), self.client_tools))
        )

    def limiting(self, request: Request, tokens: int) -> Mapping[str, Raw]:
        """In the place that the request uses."""
        return limiting(request.shape, request.members, tokens)

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """By `tool_choice`: a model that must call something would call ours, round after round, and the client would
        wait in vain for a call of its own. Unknown values count as a demand: `required`, `any` (Mistral), a named
        function, `allowed_tools`."""
        return "tool_choice" in members and jsontext.opened(members["tool_choice"]) not in _LEAVES_THE_CHOICE

    def counted(self, end: bytes) -> Counted | None:
        """By the last `usage` in it; the model's words before that are not searched."""
        prompt, reply, cached = [pattern.findall(end) for pattern in self.counts]
        if not prompt:
            return None
        return Counted(int(prompt[-1]), int(reply[-1]) if reply else 0, int(cached[-1]) if cached else 0)

    def left_to_the_upstream(self, _: Request) -> Mapping[str, Raw]:
        """Nothing: the upstream holds nothing of the conversation."""
        return {}

    def unsealed(self, request: Request, _: Sequence[Message], __: str) -> Request:
        """Without any: which of it is broken is not said."""
        return request.unsealed()

    def continues(self, _: Request) -> str:
        """Nothing, for the same reason."""
        return ""

    def continued_from(self, request: Request, _: str, __: Sequence[bytes]) -> Request:
        """The same, for the same reason."""
        return request

    def unanswered_in(self, _: str) -> str:
        """Nothing, for the same reason."""
        return ""

    def named_in(self, _: Request, __: bytes) -> str:
        """Nothing, for the same reason."""
        return ""

    def asks_for_a_longer_window(self, _: Sequence[tuple[bytes, bytes]]) -> bool:
        """No header does that."""
        return False

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """A bearer token."""
        return [(b"authorization", b"Bearer " + key.encode())]

    def list_headers(self, key: str) -> Mapping[bytes, bytes]:
        """The same."""
        return dict(self.credentials(key))

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """By the words of any API's servers: gateways pass on other servers' words in whatever shape."""
        return judge_answer(status, headers, body, sent=sent, request=request)

    def error(self, error: ProxyError, request_id: str = "") -> bytes:  # noqa: ARG002 - the id is only in a header
        """In OpenAI's shape."""
        return error_body(error)

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """In OpenAI's shape."""
        return error_in_body(status, body)
