"""The chat-completions request as bytes, and errors in OpenAI's shape.

Rule: a request that nothing changes is its own bytes; in one that is changed, every member and message that was not
touched keeps its bytes.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.core.conversation.message import Conversation, Message
from proxy.core.retrieval_tool.hidden_calls import HISTORY_BYTES
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.errors import ContextOverflow, MalformedRequest, ProxyError
from proxy.wire.chat_completions.message import ChatMessage

_ESCAPED_LETTER: Final = re.compile(rb"\\u00[67]")
"""Begins the escape of a letter. No encoder writes one, but a name that holds one may be `messages`."""
_PROBE_BYTES: Final = 16
"""Looked at first where two bodies are compared: three times as fast as comparing all of what differs anyway."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request, read once; also the memory that makes reading the next one of its conversation cheap."""

    body: bytes = field(repr=False)
    """As received, decompressed."""
    members: Mapping[str, Raw] = field(repr=False)
    """Its members in order, unopened; `messages` stands among them only to hold its place."""
    conversation: Conversation
    ends: tuple[int, ...] = field(repr=False, default=())
    """Where in `body` each message ends; empty when that is not known, and then nothing is reused. A message that was
    put in ends where the one before it does."""
    added_bytes: int = 0
    """Of the conversation, that do not stand in `body`."""
    has_images: bool = False
    """Whether a part of an image may stand in it."""
    put_in: tuple[int, ...] = field(repr=False, default=())
    """Indexes in the conversation of the messages that the client did not send."""
    history: bytes = field(repr=False, default=b"")
    """What `hidden.extended` says after each of the first messages, one after the other: those of which it is known
    what they hide."""
    named: str = ""
    """The model's name where the body has none: the path may say it."""
    model: str = field(init=False)
    """The model's name; empty when there is none."""
    stream: bool = field(init=False)
    """Whether the client asked for server-sent events."""
    reply_limit: tuple[str, int] | None = field(init=False)
    """The member that limits the reply, and its tokens; the newer name has the say."""

    def __post_init__(self) -> None:
        """Opened once: everybody on the way asks for them."""
        object.__setattr__(self, "model", self._opened("model", str) or self.named)
        object.__setattr__(self, "stream", self._opened("stream", bool) or False)
        object.__setattr__(self, "reply_limit", self._found_reply_limit())

    @property
    def full_bytes(self) -> int:
        """Of the body, with what was put into the conversation."""
        return len(self.body) + self.added_bytes

    def shared_messages(self, body: bytes, more_than: int = 0) -> int:
        """How many of its messages stand at the head of another body, byte for byte, compared and not hashed; 0 when
        they are not more than so many.

        All of them are tried first: a client mostly adds.
        """
        ends = self.ends
        if len(ends) <= more_than:
            return 0
        end = ends[more_than]
        start = max(0, end - _PROBE_BYTES)
        if body[start:end] != self.body[start:end]:
            return 0  # as mostly, where many conversations begin alike
        view = memoryview(self.body)
        if not body.startswith(view[:end]):
            return 0
        if body.startswith(view[: ends[-1]]):
            return len(ends)
        return bisect.bisect_left(ends, True, more_than + 1, key=lambda end: not body.startswith(view[:end]))

    @property
    def read_messages(self) -> int:
        """How many of the first messages the history tells of."""
        return len(self.history) // HISTORY_BYTES

    def completed(self, places: Mapping[int, Sequence[Message]], history: bytes) -> ChatRequest:
        """The request with several messages in the place of one; `places` are indexes in the conversation. `history` is
        that of all its messages."""
        if not places:
            return replace(self, history=history)
        messages: list[Message] = []
        ends: list[int] = []
        put_in = list(self.put_in)
        told: list[bytes] = []
        for index, message in enumerate(self.conversation.messages):
            found = places.get(index, (message,))
            put_in += range(len(messages) + 1, len(messages) + len(found))
            messages += found
            ends += self.ends[index : index + 1] * len(found)
            told.append(history[HISTORY_BYTES * index : HISTORY_BYTES * (index + 1)] * len(found))
        completed = self._with(tuple(messages), tuple(ends), tuple(put_in))
        return replace(completed, history=b"".join(told))

    def continued(self, messages: Sequence[Message]) -> ChatRequest:
        """The request with more messages at its end. No body of a client goes on from there."""
        known = len(self.conversation)
        put_in = (*self.put_in, *range(known, known + len(messages)))
        return self._with((*self.conversation.messages, *messages), (), put_in)

    def _with(self, messages: tuple[Message, ...], ends: tuple[int, ...], put_in: tuple[int, ...]) -> ChatRequest:
        before, after = (sum(len(m.raw) for m in found) for found in (self.conversation.messages, messages))
        added_bytes = self.added_bytes + max(1, after - before)
        return replace(self, conversation=Conversation(messages), ends=ends, added_bytes=added_bytes, put_in=put_in)

    def _found_reply_limit(self) -> tuple[str, int] | None:
        for name in ("max_completion_tokens", "max_tokens"):
            found = self._opened(name, int)
            if found is not None and not isinstance(found, bool) and found > 0:
                return name, found
        return None

    def _opened(self, name: str, kind: type[Any]) -> Any:
        found = jsontext.opened(self.members.get(name))
        return found if isinstance(found, kind) else None


def parse(body: bytes, known: ChatRequest | None = None, shared: int = 0, *, will_be_known: bool = True) -> ChatRequest:
    """Read a body. Its first `shared` messages are those of a `known` request, byte for byte, and not read again.
    `will_be_known`: whether a later one may be read like that with this one, which has to find where its messages end.

    Raises MalformedRequest for what no upstream could judge either: no JSON, no object, no `messages` list.
    """
    if known is not None and shared and (continued := _continue(body, known, shared)):
        return continued
    try:
        members = dict(jsontext.members(body))
    except jsontext.NotJson as error:
        raise MalformedRequest(f"the body must be a JSON object: {error}") from None
    if (array := members.get("messages")) is None:
        raise MalformedRequest("the request has no `messages`; a list of messages is needed", param="messages")
    try:
        messages = tuple([ChatMessage.read(raw) for raw in jsontext.items(array)])
    except jsontext.NotJson as error:
        raise MalformedRequest(f"`messages` must be a list: {error}", param="messages") from None
    ends = _ends(body, members, messages) if will_be_known else ()
    return ChatRequest(body, members, Conversation(messages), ends, has_images=may_hold_images(body))


def may_hold_images(body: bytes) -> bool:
    """Whether a part of an image may stand in a body, or in a piece of one."""
    return b'"image_url"' in body


def render(request: ChatRequest, messages: Sequence[Raw], members: Mapping[str, Raw]) -> bytes:
    """The request with these messages, and these members in the place of its own; all else keeps its bytes."""
    return jsontext.join_object({**request.members, **members, "messages": jsontext.join_array(messages)})


def reply_limit_raw(name: str, tokens: int) -> dict[str, Raw]:
    """A reply limit as the member of a request."""
    return {name: jsontext.dump(tokens)}


def error_body(error: ProxyError) -> bytes:
    """An error of the proxy in OpenAI's shape."""
    described: dict[str, Any] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ContextOverflow) and error.upstream_message is not None:
        described["upstream"] = {"message": error.upstream_message}
    return jsontext.dump({"error": described})


def _continue(body: bytes, known: ChatRequest, count: int) -> ChatRequest | None:
    """The request whose first `count` messages are known; None when the rest of the body is not plain to read."""
    end = known.ends[count - 1]
    rest = body[end:].lstrip(b" \t\r\n")
    if not rest.startswith((b",", b"]")) or b'"messages"' in rest or _ESCAPED_LETTER.search(rest):
        return None
    try:
        tail = dict(jsontext.members(b'{"messages":[' + rest.removeprefix(b",")))
        added = tuple(ChatMessage.read(raw) for raw in jsontext.items(tail["messages"]))
    except jsontext.NotJson:
        return None
    head = _members_before_messages(known)
    if (rest.startswith(b",") and not added) or head.keys() & tail.keys() - {"messages"}:
        return None
    # As bytes of their own: a view of any of them would hold a second copy of all that is new.
    tail = {name: b"[]" if name == "messages" else bytes(raw) for name, raw in tail.items()}
    messages = known.conversation.messages[:count] + added
    ends = known.ends[:count] + _ends_from(body, end, added)
    has_images = known.has_images or may_hold_images(rest)
    put_in = known.put_in[: bisect.bisect_left(known.put_in, count)]
    history = known.history[: HISTORY_BYTES * count]
    added_bytes = known.added_bytes if put_in else 0
    return ChatRequest(body, {**head, **tail}, Conversation(messages), ends, added_bytes, has_images, put_in, history)


def _members_before_messages(known: ChatRequest) -> dict[str, Raw]:
    head: dict[str, Raw] = {}
    for name, raw in known.members.items():
        if name == "messages":
            break
        head[name] = raw
    return head


def _ends(body: bytes, members: Mapping[str, Raw], messages: tuple[Message, ...]) -> tuple[int, ...]:
    """Where each message ends; nothing when names that stand twice, or elsewhere too, make that uncertain."""
    key = body.find(b'"messages"')
    start = body.find(b"[", key)
    if key < 0 or not body.startswith(memoryview(members["messages"]), start):
        return ()
    try:
        head = jsontext.members(body[:start] + b"[]}")
    except jsontext.NotJson:  # what was found stands deeper inside
        return ()
    *before, last = head
    if last != "messages" or any(bytes(head[name]) != bytes(members[name]) for name in before):
        return ()
    return _ends_from(body, start, messages)


def _ends_from(body: bytes, position: int, messages: tuple[Message, ...]) -> tuple[int, ...]:
    ends = []
    for message in messages:
        # Only a bracket or comma and white space stand between, so the first hit is the message itself.
        position = body.index(message.raw, position) + len(message.raw)
        ends.append(position)
    return tuple(ends)
