"""The Responses API as a wire: OpenAI's API, which Codex speaks.

Rule: an unchanged request keeps its own bytes; in a changed one, every member and item that was not touched keeps its
bytes. If the upstream holds a part of the conversation, nothing is left out of the rest.

https://platform.openai.com/docs/api-reference/responses/create; types of openai-python 3.54.0, `types/responses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from proxy.core.conversation import Message, ToolCall
from proxy.core.retrieval_tool import SPEC, RetrievalPolicy
from proxy.core.text import Raw, jsontext
from proxy.wire.json_messages import MAX_NAMES, OwnTool, Reader
from proxy.wire.protocol import Wire, patterns_of
from proxy.wire.request import REASONING, Request, RequestShape, read_request
from proxy.wire.responses.items import ADDITIONAL_TOOLS, Kind, head_of
from proxy.wire.responses.message import (
    ResponsesMessage,
    as_one_exchange,
    may_hold_images,
    read_held,
    read_items,
)
from proxy.wire.responses.replies import (
    ReplyBody,
    ReplyStream,
    error_in_stream,
    missing_result,
    result_of,
    unanswered_in,
)
from proxy.wire.streams import TAIL_BYTES

# Tools

PREVIOUS: Final = "previous_response_id"
NONE: Final = frozenset({b"", b"null", b'""'})
"""Values equivalent to a missing member."""


_DEFINITION: Final = {"name": SPEC.name, "description": SPEC.description, "parameters": SPEC.schema, "strict": False}
OWN_TOOL: Final = jsontext.dump({"type": "function", **_DEFINITION})
"""A tool is `strict` by default, which makes all its properties required."""


def tool_names(tools: Raw) -> list[str]:
    """The names in a tool list, including those inside namespaces; a tool of the server is named by its type.

    >>> tool_names(b'[{"type":"function","name":"ls"},{"type":"web_search"},{"tools":[{"name":"cat"}]}]')
    ['ls', 'web_search', 'cat']
    """
    return list(_names(jsontext.opened(tools) if tools else None))[:MAX_NAMES]


def _names(tools: Any, depth: int = 0) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("tools"), list) and depth < 4:
            yield from _names(tool["tools"], depth + 1)
        else:
            yield _name(tool)


def _name(tool: Any) -> str:
    found = (tool.get("name") or tool.get("type")) if isinstance(tool, Mapping) else None
    return found if isinstance(found, str) else ""


def is_kept(members: Mapping[str, Raw]) -> bool:
    """Whether the upstream keeps the response to a request with these members, so that another may continue from it.
    By default, it does."""
    return bytes(members.get("store", b"true")) != b"false"


def is_there(members: Mapping[str, Raw], name: str) -> bool:
    """Whether a member says something."""
    return name in members and bytes(members[name]) not in NONE


def cuts_itself(members: Mapping[str, Raw]) -> bool:
    """Whether the request lets the upstream leave out items that do not fit."""
    return bool(jsontext.opened(members.get("truncation")) == "auto")


# The end of a stream

_ENDED: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}\Z")
_LAST_EVENT: Final = re.compile(
    rb'(?:event: ?|"type"\s*:\s*")(?:response\.(?:completed|incomplete|failed)|error)\b|"usage"\s*:\s*\{'
    rb"|[\r\n]data: ?\[DONE\]"
)


# The wire

_FILE: Final = re.compile(rb'"input_(?:file|audio)"')
_ITEM: Final = re.compile(rb'"type"\s*:\s*"response\.output_item\.added"|"output"\s*:\s*\[\s*\{')
_ERROR: Final = re.compile(rb'"error"\s*:(?!\s*null)|"type"\s*:\s*"error"|response\.(?:failed|incomplete)|"incomplete"')
_NOT_YET: Final = frozenset(
    {"response.created", "response.queued", "response.in_progress", "keepalive", "ping", "response.metadata"}
)
"""Events that come before a refusal as well as before a reply."""
_RESPONSE_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[\w\-.=]{1,500})"')
"""vLLM and Ollama give such ids, too; Azure's are long."""


class _Event(msgspec.Struct, gc=False):
    type: str = ""


_event: Final = Reader(_Event)


def _may_continue(message: Message) -> bool:
    return isinstance(message, ResponsesMessage) and message.may_continue


def _may_hold_files(raw: bytes) -> bool:
    return _FILE.search(raw) is not None


SHAPE: Final = RequestShape(
    "input",
    (("max_output_tokens",),),
    read_items,
    may_hold_images,
    _may_hold_files,
    may_continue=_may_continue,
    may_be_plain=True,
    reasoning_limits=(REASONING,),
)
PART_UNSEEN: Final = SHAPE._replace(is_whole=False)
"""Some of the content that counts is elsewhere: a stored prompt, or an item that is named by its id."""
HELD: Final = PART_UNSEEN._replace(read=read_held, joined=as_one_exchange, items_add_tools=True)
"""The upstream holds the conversation so far, or truncates it itself."""
COMPACTED: Final = SHAPE._replace(goes_first_as_it_came=True, items_add_tools=True)
"""The request asks for a compaction of its whole input: Codex sends such requests when its window is nearly full."""


class Responses(Wire):
    """`/responses`; the base class describes each member."""

    shape = SHAPE
    read_message = staticmethod(ResponsesMessage.read)
    own_tool = OwnTool(OWN_TOOL, tool_names)
    result_of = staticmethod(result_of)
    name = "responses"
    api = "responses"
    path = "/responses"
    end = b"/responses"
    compacts: ClassVar[bool] = False
    """Whether every request asks for a compaction of its input."""
    client_tools = re.compile("function|custom|namespace|local_shell|shell|apply_patch")
    read_members = frozenset({"tools", "instructions"})
    results_hold_media = True
    results_may_repeat = True
    forms = MappingProxyType({"text": ("format",)})
    counts: ClassVar[Sequence[re.Pattern[bytes]]] = patterns_of("input_tokens", "output_tokens", "cached_tokens")
    """`input_tokens` counts the whole prompt, cached or not.
    https://platform.openai.com/docs/api-reference/responses/object"""

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """A plain text."""
        return {"input": words}, "output"

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Raises MalformedRequest."""
        request = read_request(SHAPE, body, known, shared, will_be_known=will_be_known)
        messages = request.conversation.messages
        is_compacted = self.compacts or (messages and _kind_of(messages[-1]) is Kind.TRIGGER)
        if _is_held(request.members):
            shape = HELD._replace(goes_first_as_it_came=True) if is_compacted else HELD
            return read_request(shape, body, will_be_known=False)
        if is_compacted:
            is_whole = not (is_there(request.members, "prompt") or any(map(_is_reference, messages)))
            return read_request(COMPACTED._replace(is_whole=is_whole), body, will_be_known=False)
        if known is not None and shared and _answers_what_is_known(messages[shared:]):
            request = read_request(SHAPE, body, will_be_known=will_be_known)
        shape, new = known.shape if known is not None and shared else SHAPE, messages[shared:]
        if not shape.items_add_tools and any(map(_brings_tools, new)):
            shape = shape._replace(items_add_tools=True)
        if shape.is_whole and (is_there(request.members, "prompt") or any(map(_is_reference, new))):
            shape = PART_UNSEEN._replace(items_add_tools=shape.items_add_tools)
        return request if shape is request.shape else msgspec.structs.replace(request, shape=shape)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """Each message is one item or several; a plain text stays one if it is the only message."""
        found: dict[str, Raw] = {**request.members, **members}
        raws = [message.raw for message in messages]
        if bytes(found.get(SHAPE.messages, b"null"))[:1] == b"[":
            found[SHAPE.messages] = jsontext.join_array(raws)
        elif len(raws) == 1 and raws[0][:1] == b'"':
            found[SHAPE.messages] = raws[0]
        elif raws:
            found[SHAPE.messages] = jsontext.join_array([_as_item(raw) for raw in raws])
        return jsontext.join_object(found)

    def instructions(self, members: Mapping[str, Raw]) -> bytes:
        """The member of that name."""
        found = bytes(members.get("instructions", b""))
        return b"" if found in NONE else found

    def tools(self, request: Request) -> bytes:
        """The member of that name, and the tools that items add."""
        listed = bytes(request.members.get("tools", b""))
        added = [bytes(jsontext.members(one.raw).get("tools", b"[]")) for one in _bringing_tools(request)]
        if not added:
            return listed
        inside = [one[1:-1].strip() for one in (listed, *added) if one[:1] == b"["]
        return b"[" + b",".join(one for one in inside if one) + b"]"

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """None if items add tools, if a compaction is requested, or if the upstream holds the conversation or keeps the
        response: it would wait there for results of our calls, which the client does not know."""
        shape = request.shape
        is_held = shape is HELD or shape.goes_first_as_it_came or is_kept(request.members)
        return None if is_held or _bringing_tools(request) else super().with_tool(request, policy)

    def tool_wants(self, request: Request) -> str:
        """`store: false`, unless the request says so."""
        return "`store: false`" if is_kept(request.members) else ""

    def left_to_the_upstream(self, request: Request) -> Mapping[str, Raw]:
        """`truncation: auto` if the upstream holds the conversation: then it leaves out the oldest items."""
        if request.shape is not HELD or cuts_itself(request.members):
            return {}
        return {"truncation": b'"auto"'}

    def continues(self, request: Request) -> str:
        """The id of the response before, or of the conversation."""
        for name in (PREVIOUS, "conversation"):
            found = jsontext.opened(request.members.get(name))
            found = found.get("id") if isinstance(found, dict) else found
            if isinstance(found, str) and found:
                return found
        return ""

    def continued_from(self, request: Request, name: str, results: Sequence[bytes]) -> Request:
        """More items, and another `previous_response_id` unless it is a conversation that is continued: the API refuses
        both together."""
        messages = [*map(self.message, results), *request.conversation.messages]
        changes = {} if is_there(request.members, "conversation") else {PREVIOUS: jsontext.dump(name)}
        body = self.render(request, messages, changes)
        whole = self.parse(body, will_be_known=False)
        put_in = (*range(len(results)), *(index + len(results) for index in request.put_in))
        return msgspec.structs.replace(whole, model=request.model, put_in=put_in, is_rewritten=True)

    def unanswered_in(self, refusal: str) -> str:
        """OpenAI's words name one call."""
        return unanswered_in(refusal)

    def named_in(self, request: Request, evidence: bytes) -> str:
        """The first id that is one of a response."""
        found = _RESPONSE_ID.search(evidence) if is_kept(request.members) else None
        return found[1].decode() if found else ""

    def missing_result(self, message: Message, call: ToolCall, text: str) -> bytes:
        """An item of the type that the call's type requires."""
        return missing_result(message.raw, call.id, text)

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether an item has begun, and there is no word of a refusal."""
        return _ITEM.search(evidence) is not None and _ERROR.search(evidence) is None

    def says_something(self, data: bytes) -> bool:
        """An event that a response was created or is waiting says nothing."""
        return bool(data) and _event(data).type not in _NOT_YET

    def is_complete(self, ending: bytes) -> bool:
        """A stream ends with an event that contains the whole response and may be longer than the tail that is
        searched; only in this event does `usage` have figures."""
        tail = ending[-TAIL_BYTES:]
        return _ENDED.search(tail) is not None and _LAST_EVENT.search(tail) is not None

    def reply(self, *, stream: bool) -> ReplyBody | ReplyStream:
        """A response, or its events."""
        return ReplyStream() if stream else ReplyBody()

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """The event `error`, and `response.failed`."""
        return error_in_stream(status, body)


class Compactions(Responses):
    """`/responses/compact`: the same request, answered by items that replace its input.
    https://platform.openai.com/docs/api-reference/responses/compact"""

    name = ""
    api = "responses_compact"
    path = "/responses/compact"
    end = b"/responses/compact"
    compacts = True


def _is_held(members: Mapping[str, Raw]) -> bool:
    return is_there(members, PREVIOUS) or is_there(members, "conversation") or cuts_itself(members)


def _kind_of(message: Message) -> Kind | None:
    return message.kind if isinstance(message, ResponsesMessage) else None


def _is_reference(message: Message) -> bool:
    return _kind_of(message) is Kind.REFERENCE


def _answers_what_is_known(messages: Sequence[Message]) -> bool:
    """Whether an output answers a call that was read before: then messages that were read apart belong together."""
    calls: set[str] = set()
    for message in messages:
        calls.update(call.id for call in message.calls)
        if message.answers and message.answers not in calls and _kind_of(message) is Kind.OUTPUT:
            return True
    return False


def _bringing_tools(request: Request) -> Sequence[Message]:
    """The messages that add tools. Read in every turn, so most requests are not searched."""
    return list(filter(_brings_tools, request.conversation.messages)) if request.shape.items_add_tools else ()


def _brings_tools(message: Message) -> bool:
    return _kind_of(message) is Kind.TOOLS and head_of(message.raw).type == ADDITIONAL_TOOLS


def _as_item(raw: bytes) -> bytes:
    """A plain text as an item, which it has to be if there are others."""
    return jsontext.join_object({"role": b'"user"', "content": raw}) if raw[:1] == b'"' else raw


RESPONSES: Final = Responses()
COMPACTIONS: Final = Compactions()
