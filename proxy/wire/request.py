"""A request as a wire has read it.

Rule: a request keeps the bytes that it was read from. The part that two bodies share is found by comparing bytes, item
by item of the message list; a wire decides which messages an item makes, or how many items one message spans.
"""

from __future__ import annotations

import bisect
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from proxy.core.conversation import Conversation, Message, ToolCall, Unpaired
from proxy.core.models import LIFTED, stating
from proxy.core.text import Discreet, Path, Raw, jsontext
from proxy.errors import MalformedRequest

_ESCAPED_LETTER: Final = re.compile(rb"\\u00[67]")
"""The beginnings of escaped letters. No encoder writes one, but an escaped name may be that of the message list."""
_BLANKS: Final = re.compile(rb"[ \t\r\n]*")
_BETWEEN_ITEMS: Final = re.compile(rb"[ \t\r\n]*[\[,]?[ \t\r\n]*")
"""Separator before an item of a list."""

_BRIEF_BYTES: Final = 512
"""Limit of a member that an outline keeps: names and limits, no texts."""
MAX_ITEMS: Final = 50_000
"""Limit of a message list, ten times those of the longest runs of agents; planning takes up to 0.2 ms for each, however
short it is."""
MAX_PARTS: Final = MAX_ITEMS
"""Limit of the parts of all messages that are read at a time: a part costs as much as a message, and may have two
bytes."""
_LEAST_PART_BYTES: Final = 2
"""Of a part and its comma: `0,`."""
_ONLY_ITS_PLACE: Final = b"[]"
"""Replaces the list of messages, which would be held twice wherever a request is not held as a view of its body."""
_PROBE_BYTES: Final = 16
"""Compared first: three times as fast as comparing the whole of bodies that differ anyway."""
_MAX_NAMESAKES: Final = 16
"""Examined to find the member with the messages: tool schemas also use names such as `input`."""
_FIRST: Final = operator.itemgetter(0)

ReadItems: TypeAlias = Callable[[Sequence[Raw]], Sequence[tuple[Message, int]]]
"""Items of a message list → its messages in order, each with the number of items that have been read when it ends. If
each item makes one message, the message keeps the item's bytes."""


def _never(_: object) -> bool:
    return False


class ReasoningLimit(NamedTuple):
    """A limit of reasoning, in tokens, that must stay below the limit of the reply."""

    place: Path
    disabled: bytes
    """The value of the member that disables reasoning."""


LEAST_REASONING_TOKENS: Final = 1024
"""The least limit of reasoning: https://platform.claude.com/docs/en/build-with-claude/extended-thinking"""
THINKING: Final = ReasoningLimit(("thinking", "budget_tokens"), b'{"type":"disabled"}')
"""Anthropic's, also in its chat completions and behind gateways: "`max_tokens` must be greater than
`thinking.budget_tokens`" (github.com/router-for-me/CLIProxyAPI/issues/338)."""
REASONING: Final = ReasoningLimit(("reasoning", "max_tokens"), b'{"effort":"none"}')
"""OpenRouter's: "`max_tokens` must be strictly higher than the reasoning budget".
https://openrouter.ai/docs/guides/best-practices/reasoning-tokens"""


class RequestShape(NamedTuple):
    """The names of a request's members in a wire. Its functions have names, so that a request can be pickled."""

    messages: str
    """The member with the list of messages; empty if there is none."""
    reply_limits: tuple[Path, ...]
    """The places in a JSON body that limit the reply, in tokens; the first one present takes precedence."""
    read: ReadItems
    may_hold_images: Callable[[bytes], bool]
    may_hold_files: Callable[[bytes], bool] = lambda _: False
    """Whether a piece of a body may contain a file, a film or sound, whose cost is unknown."""
    may_continue: Callable[[Message], bool] = _never
    """Whether items that come later may belong to a message: then it is read again with them."""
    joined: Callable[[Sequence[Message]], Sequence[Message]] = tuple
    """Messages that were read apart → the same as they belong together in one request."""
    reads_anew: Callable[[bytes], bool] = _never
    """Whether a piece of a body may change the messages before it: then all of them are read again."""
    may_be_plain: bool = False
    """Whether a text, as the only item, or nothing at all may replace the list."""
    is_whole: bool = True
    """Whether the request contains the whole conversation; if not, the upstream's count of its prompt says nothing
    about the request."""
    goes_first_as_it_came: bool = False
    """Whether nothing is changed before the upstream has refused it: the agent asks for a summary of everything."""
    tools: str = "tools"
    """The member with the tool list."""
    items_add_tools: bool = False
    """Whether items of the message list may add tools."""
    window: Path = ()
    """The place in a JSON body that states the window of this request, in tokens; empty if the API has none."""
    reasoning_limits: tuple[ReasoningLimit, ...] = ()
    streams: bool = False
    """Whether a JSON body that does not say so asks for a stream."""


class RequestOptions(NamedTuple):
    """Options of a request: everything but its content."""

    model: str = ""
    """The model's name; empty if it states none."""
    stream: bool = False
    """Whether the client requests a stream."""
    reply_tokens: int | None = None
    """The limit of the reply."""
    window_tokens: int | None = None
    """The window that this request states for itself."""


class Request(Discreet, frozen=True):
    """One request, read once."""

    body: bytes
    """The body as received, decompressed."""
    members: Mapping[str, Raw]
    """Its members in order, unopened; the list of messages is included only to keep its position."""
    conversation: Conversation
    shape: RequestShape
    model: str = ""
    """The model's name; empty if there is none."""
    stream: bool = False
    """Whether the client requests a stream."""
    reply_tokens: int | None = None
    """The limit of the reply."""
    window_tokens: int | None = None
    """The window that this request states for itself."""
    ends: tuple[int, ...] = ()
    """Where in `body` the last item of each message ends, including whatever makes that end certain; empty if unknown,
    in which case nothing is reused. An inserted message ends where the one before it does."""
    added_bytes: int = 0
    """The bytes of the conversation that are not in `body`."""
    has_images: bool = False
    """Whether it may contain a part of an image."""
    has_files: bool = False
    """Whether it may contain a file, a film or sound."""
    put_in: tuple[int, ...] = ()
    """Indexes in the conversation of the messages that the client did not send."""
    healed: tuple[int, ...] = ()
    """Where in `body` each message ends that a repair took out, put in or changed; 0 if unknown."""
    repairs: tuple[tuple[str, int], ...] = ()
    """The faults of which it has none, because repairs took them out, each with the value that its refusal stated."""
    is_rewritten: bool = False
    """Whether `body` is not what the client sent: its upstream waits for results of calls that the client does not
    know."""
    is_lifted: bool = False
    """Whether its headers ask for a longer window than its model has without them."""

    @property
    def known_as(self) -> str:
        """The name under which lessons about its model are kept."""
        if self.window_tokens is not None:
            return stating(self.model, self.window_tokens)
        return self.model + LIFTED if self.is_lifted and not self.model.endswith(LIFTED) else self.model

    @property
    def full_bytes(self) -> int:
        """Size of the body, including the messages that were put into the conversation."""
        return len(self.body) + self.added_bytes

    def shared_messages(self, body: bytes, more_than: int = 0) -> int:
        """How many of its messages begin another body, byte for byte, compared and not hashed; 0 unless they are more
        than `more_than`.

        All of them are tried first, because a client usually only adds messages.
        """
        ends = self.ends
        if len(ends) <= more_than:
            return 0
        if not _begins_like(body, self.body, ends[more_than]):
            return 0  # the usual case if many conversations begin alike
        shared = len(ends)
        if not _begins_like(body, self.body, ends[-1]):
            own = self.body
            shared = bisect.bisect_left(ends, True, more_than + 1, key=lambda end: not _begins_like(body, own, end))
        while shared and self.shape.may_continue(self.conversation.messages[shared - 1]):
            shared -= 1
        return shared if shared > more_than else 0

    def outline(self) -> Request:
        """A copy without messages and texts, while its content is elsewhere."""
        # Copied, because a view keeps the whole body alive.
        members = {name: bytes(raw) for name, raw in self.members.items() if len(memoryview(raw)) <= _BRIEF_BYTES}
        nothing = Conversation()
        return replace(self, body=b"", members=members, conversation=nothing, ends=(), put_in=(), healed=())

    def followed(
        self,
        count: int,
        body: bytes,
        new: bytes,
        members: Mapping[str, Raw],
        read: Sequence[tuple[Message, int]],
        options: RequestOptions,
    ) -> Request:
        """The request of another body whose first `count` messages are those of this one, byte for byte; `read` are the
        others, each with its end, and `new` is what they were read from."""
        put_in = self.put_in[: bisect.bisect_left(self.put_in, count)]
        healed = self.healed[: bisect.bisect_right(self.healed, self.ends[count - 1])]
        messages, ends = tuple(map(_FIRST, read)), tuple([end for _, end in read])
        return Request(
            body,
            members,
            Conversation(tuple(self.shape.joined(self.conversation.messages[:count] + messages))),
            self.shape,
            *options,
            self.ends[:count] + ends,
            added_bytes=self.added_bytes if put_in or healed else 0,
            # Its own may be in messages that the user has taken back.
            has_images=self.shape.may_hold_images(body if self.has_images else new),
            has_files=self.shape.may_hold_files(body if self.has_files else new),
            put_in=put_in,
            healed=healed,
            repairs=self.repairs,
        )

    def sharing(self, known: Sequence[Message]) -> Request:
        """A copy with the messages of an earlier request wherever these are equal, so that nothing is held or counted
        twice."""
        own = self.conversation.messages
        shared = [one if one == other else other for one, other in zip(known, own, strict=False)]
        return replace(self, conversation=Conversation((*shared, *own[len(shared) :])))

    def repaired(self, unpaired: Unpaired, result_for: Callable[[Message, ToolCall], Message]) -> Request:
        """The request without results that belong to no call, and with the results that calls lack. No client's body
        continues from there."""
        lacking: dict[int, list[Message]] = {}
        for found in unpaired.unanswered:
            caller = self.conversation.messages[found.message]
            lacking.setdefault(found.after, []).extend(result_for(caller, call) for call in found.calls)
        repaired = self.in_place(
            lambda index, one: [*([] if index in unpaired.orphans else [one]), *lacking.get(index, [])]
        )
        return replace(repaired, ends=(), healed=(0,) * unpaired.count)

    def unsealed(self, count: int | None = None, language: str = "en") -> Request:
        """The request without reasoning that is encrypted or signed in its first `count` messages, or in all."""

        def left_of(index: int, message: Message) -> Sequence[Message]:
            left = message.unsealed(language) if count is None or index < count else message
            return () if left is None else (left,)

        return self.mended(left_of)

    def mended(self, found_at: Callable[[int, Message], Sequence[Message]]) -> Request:
        """The request with what a repair finds for each message, as in `in_place`; the same object if it changes
        none."""
        healed: list[int] = []

        def noted(index: int, message: Message) -> Sequence[Message]:
            found = found_at(index, message)
            if len(found) != 1 or found[0] is not message:
                healed.extend(self.ends[index : index + 1] or (0,))
            return found

        mended = self.in_place(noted)
        return replace(mended, healed=tuple(sorted((*self.healed, *healed)))) if healed else self

    def in_place(self, found_at: Callable[[int, Message], Sequence[Message]]) -> Request:
        """The request with none, one or several messages in place of each; all but the first are put in. `found_at`: a
        message and its index in the conversation → what takes its place."""
        messages: list[Message] = []
        ends: list[int] = []
        put_in: list[int] = []
        for index, message in enumerate(self.conversation.messages):
            found = found_at(index, message)
            put_in += range(len(messages) + (index not in self.put_in), len(messages) + len(found))
            messages += found
            ends += self.ends[index : index + 1] * len(found)
        return self._with(tuple(messages), tuple(ends), tuple(put_in))

    def continued(self, messages: Sequence[Message]) -> Request:
        """The request with more messages at its end. No client's body continues from there."""
        known = len(self.conversation)
        put_in = (*self.put_in, *range(known, known + len(messages)))
        return self._with((*self.conversation.messages, *messages), (), put_in)

    def _with(self, messages: tuple[Message, ...], ends: tuple[int, ...], put_in: tuple[int, ...]) -> Request:
        before, after = (sum(len(m.raw) for m in found) for found in (self.conversation.messages, messages))
        added_bytes = self.added_bytes + max(1, after - before)
        conversation = Conversation(tuple(self.shape.joined(messages)))
        return replace(self, conversation=conversation, ends=ends, added_bytes=added_bytes, put_in=put_in)


def options_in(shape: RequestShape, members: Mapping[str, Raw]) -> RequestOptions:
    """Options in the members of a JSON body."""
    model, stream = jsontext.opened(members.get("model")), jsontext.opened(members.get("stream"))
    limit = _limit_in(shape, members)
    return RequestOptions(
        model if isinstance(model, str) else "",
        stream if isinstance(stream, bool) else shape.streams,
        limit[1] if limit else None,
        _tokens_at(shape.window, members) if shape.window else None,
    )


def limiting(shape: RequestShape, members: Mapping[str, Raw], tokens: int) -> Mapping[str, Raw]:
    """The members of a JSON body that limit the reply to so many tokens, by the name that the body uses for it. A limit
    of reasoning that is not lower becomes the least one, in every turn the same, as each change of it costs the prompt
    cache; beyond that, reasoning is disabled."""
    limit = _limit_in(shape, members)
    found = {}
    for place, disabled in shape.reasoning_limits:
        if (_tokens_at(place, members) or 0) >= tokens:
            is_room = tokens > LEAST_REASONING_TOKENS
            found[str(place[0])] = _with(place, members, LEAST_REASONING_TOKENS)[1] if is_room else disabled
    name, raw = _with(limit[0] if limit else shape.reply_limits[-1], members, tokens)
    return {**found, name: raw}


def _with(place: Path, members: Mapping[str, Raw], tokens: int) -> tuple[str, bytes]:
    """The name and value of a member with this number at a place in it."""
    name, *inside = place
    raw = members[str(name)] if isinstance(jsontext.opened(members.get(str(name))), dict) else b"{}"
    return str(name), jsontext.spliced(raw, {tuple(inside): jsontext.dump(tokens)})


def _limit_in(shape: RequestShape, members: Mapping[str, Raw]) -> tuple[Path, int] | None:
    """The place that limits the reply, and its tokens; None if none does."""
    for path in shape.reply_limits:
        if path[0] in members and (tokens := _tokens_at(path, members)):
            return path, tokens
    return None


def _tokens_at(path: Path, members: Mapping[str, Raw]) -> int | None:
    """The whole number above nothing at a place."""
    name, *inside = path
    found = jsontext.opened(members.get(str(name)))
    for step in inside:
        found = found.get(step) if isinstance(found, dict) else None
    return found if type(found) is int and found > 0 else None


def read_request(
    shape: RequestShape, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
) -> Request:
    """Read a body. Its first `shared` messages are those of a `known` request, byte for byte, and are not read again.
    `will_be_known`: whether a later body may be read in this way by means of this one, so that the ends of its messages
    are needed.

    Raises MalformedRequest for a body that no upstream could judge either: no JSON, no object, no list of messages.
    """
    if known is not None and shared and (continued := _continue(shape, body, known, shared)):
        return continued
    try:
        members = dict(jsontext.members(body))
    except jsontext.NotJson as error:
        raise MalformedRequest(f"the body must be a JSON object: {error}") from None
    name = shape.messages
    array = members.get(name) if name else None
    if array is None and not shape.may_be_plain:
        raise MalformedRequest(f"the request has no `{name}`; a list of messages is needed", param=name)
    try:
        items = _items(shape, array)
    except jsontext.NotJson as error:
        raise MalformedRequest(f"`{name}` must be a list: {error}", param=name) from None
    if len(items) > MAX_ITEMS:
        raise MalformedRequest(f"`{name}` has {len(items):,} items; at most {MAX_ITEMS:,} are read", param=name)
    if (parts := _count_of_parts(items, body)) > MAX_PARTS:
        raise MalformedRequest(
            f"the items of `{name}` have {parts:,} parts in all; at most {MAX_PARTS:,} are read", param=name
        )
    read = shape.read(items)
    messages = tuple(map(_FIRST, read))
    ends = _ends(name, body, members, items, read) if will_be_known else ()
    if array is not None and bytes(memoryview(array)[:1]) == b"[":
        members[name] = _ONLY_ITS_PLACE
    has_images, has_files = shape.may_hold_images(body), shape.may_hold_files(body)
    options, made = options_in(shape, members), Conversation(messages)
    return Request(body, members, made, shape, *options, ends, has_images=has_images, has_files=has_files)


def _begins_like(body: bytes, other: bytes, end: int) -> bool:
    """Whether a body begins with the first `end` bytes of another.

    >>> _begins_like(b"abcd", b"abce", 3), _begins_like(b"abcd", b"abce", 4)
    (True, False)
    """
    probe = max(0, end - _PROBE_BYTES)
    return body[probe:end] == other[probe:end] and body.startswith(memoryview(other)[:end])


def _items(shape: RequestShape, array: Raw | None) -> Sequence[Raw]:
    """The items of a message list, or the one that replaces it. Raises NotJson."""
    array = b"null" if array is None else array
    if shape.may_be_plain and bytes(memoryview(array)[:1]) in (b'"', b"n"):
        return [] if bytes(array) == b"null" else [bytes(array)]
    return jsontext.items(array)


def _count_of_parts(items: Sequence[Raw], text: bytes) -> int:
    """How many parts the items of a message list have, also inside the content of their parts; 0 if they are surely
    few, by the commas of the text that they are from."""
    if len(text) <= _LEAST_PART_BYTES * MAX_PARTS or text.count(b",") <= MAX_PARTS:
        return 0
    parts = [part for item in items for found in jsontext.members_if_any(item).values() for part in _listed(found)]
    objects = [jsontext.members_if_any(part) for part in parts if bytes(memoryview(part)[:1]) == b"{"]
    return len(parts) + sum(len(_listed(members.get("content", b""))) for members in objects)


def _listed(raw: Raw) -> Sequence[Raw]:
    """The items of a list; none of anything else, which is not read."""
    return jsontext.items_if_any(raw) if bytes(memoryview(raw)[:1]) == b"[" else ()


def _continue(shape: RequestShape, body: bytes, known: Request, count: int) -> Request | None:
    """The request whose first `count` messages are known; None if the rest of the body is not simple to read."""
    end, name = known.ends[count - 1], shape.messages
    blanks = _BLANKS.match(body, end)
    assert blanks is not None, "there may be none"
    start = blanks.end()
    if (first := body[start : start + 1]) not in (b",", b"]"):
        return None
    key = b'{"%b":' % name.encode()
    rest = key + b"[" + memoryview(body)[start + (first == b",") :]  # the one copy of what may be megabytes
    if rest.find(key[1:-1], len(key)) >= 0 or _ESCAPED_LETTER.search(rest) or shape.reads_anew(rest):
        return None
    try:
        tail = dict(jsontext.members(rest))
        items = jsontext.items(tail[name])
    except jsontext.NotJson:
        return None
    if count + len(items) > MAX_ITEMS or _count_of_parts(items, rest) > MAX_PARTS:
        return None
    read = shape.read(items)
    head = dict(takewhile(lambda member: member[0] != name, known.members.items()))
    if (first == b"," and not read) or head.keys() & tail.keys() - {name}:
        return None
    # Copied, because a view of any of them would keep alive a second copy of everything new.
    tail = {member: _ONLY_ITS_PLACE if member == name else bytes(raw) for member, raw in tail.items()}
    ended = list(zip(map(_FIRST, read), _ends_from(body, end, items, read), strict=True))
    both = {**head, **tail}
    return known.followed(count, body, rest, both, ended, options_in(known.shape, both))


def _ends(
    name: str, body: bytes, members: Mapping[str, Raw], items: Sequence[Raw], read: Sequence[tuple[Message, int]]
) -> tuple[int, ...]:
    """Where each message ends; empty if names that occur twice, or elsewhere too, make that uncertain."""
    start = _start(body, b'"%b"' % name.encode(), members[name]) if name in members else -1
    if start < 0:
        return ()
    try:
        head = jsontext.members(body[:start] + b"[]}")
    except jsontext.NotJson:  # the name found belongs to a nested object
        return ()
    *before, last = head
    if last != name or any(bytes(head[other]) != bytes(members[other]) for other in before):
        return ()
    return _ends_from(body, start, items, read)


def _start(body: bytes, key: bytes, array: Raw) -> int:
    """Where the list of messages begins; -1 if the first few members of its name are others."""
    at = -1
    for _ in range(_MAX_NAMESAKES):
        at = body.find(key, at + 1)
        start = body.find(b"[", at)
        if at < 0 or body.startswith(memoryview(array), start):
            return start if at >= 0 else -1
    return -1


def _ends_from(
    body: bytes, position: int, items: Sequence[Raw], read: Sequence[tuple[Message, int]]
) -> tuple[int, ...]:
    if [stop for _, stop in read] == list(range(1, len(items) + 1)):  # one message each, which keeps its item's bytes
        items = [message.raw for message, _ in read]
    ends = [position]
    for raw in map(bytes, items):
        between = _BETWEEN_ITEMS.match(body, position)  # searching for the item would take longer than reading it
        assert between is not None, "it may be empty"
        position = between.end() + len(raw)
        ends.append(position)
    return tuple([ends[stop] for _, stop in read])
