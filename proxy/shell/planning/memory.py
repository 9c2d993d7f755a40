"""Memory of running conversations: each turn needs work only on its new messages. No turn is refused for the reason of
an earlier refusal: sealed reasoning, calls without results, or more items than fit the window of the upstream that
holds them.

Rule: kept in memory only, and bounded; a forgotten refusal costs another one, and everything else only time. The
earlier request of a conversation is found by comparing bytes, among those of the same tenant and wire (`whose`), or, if
an agent rewrites the beginning of its body each time, by the model's latest messages.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from proxy.core.conversation import TOOL_ROLES, Message, unpaired
from proxy.core.overflow import Outcome, VerdictKind
from proxy.shell.planning.planned import Planned
from proxy.shell.resources import BoundedMap
from proxy.wire import Request

HEAD_BYTES: Final = 256
"""Requests that start with the same bytes are kept together; agents of one kind share more than that."""
MAX_TOGETHER: Final = 64
"""Conversations with the same head that are remembered; a look-up may compare with all of them."""
NEARLY_ALL: Final = 0.9
"""Share of a body. A conversation that makes up so much of the body is taken as the right one: comparing the others as
well takes 0.1 ms if their bodies are not in the CPU caches."""
MAX_TAKEN_BACK: Final = 4
"""Messages at the end that a client may change or take back while it continues the same conversation."""
_LEAST_IN_COMMON: Final = 5
"""Messages of the same bytes, before two conversations that begin otherwise are taken for one: agents of one kind often
take the same first step."""
_KNOWN_BY: Final = 2
"""The newest messages of a model by which a conversation is found although its body begins otherwise."""
_SOUGHT_BY: Final = 6
"""How many of a model's newest messages are looked for: the newest of all is always new."""
MAX_EXCHANGED: Final = 2
"""Messages before the newest that an agent may rewrite in each turn: the system text and the first user message."""

_Head: TypeAlias = tuple[Hashable, bytes]
"""Whose request it is, and how its body begins."""
_MessageKey: TypeAlias = tuple[Hashable, int, bytes]
"""Whose request it is, and a message of its model, with its index."""


@dataclass(frozen=True, slots=True)
class Match:
    """A remembered request whose first messages are also the first of a new body."""

    known: Planned
    shared_messages: int

    @property
    def is_continued(self) -> bool:
        """Whether the new body continues that conversation, and is not another one with the same beginning."""
        ends, shared = self.known.request.ends, self.shared_messages
        # Counted in items of the list: if one item makes several messages, all of them are known or none.
        taken_back = _items(ends, shared, len(ends), MAX_TAKEN_BACK + 1)
        return taken_back <= MAX_TAKEN_BACK and _items(ends, 0, shared, taken_back + 1) > taken_back

    @property
    def shared_bytes(self) -> int:
        """How many bytes of the new body are known."""
        return self.known.request.ends[self.shared_messages - 1]


class ConversationMemory:
    """The last request of each conversation; the least recently used are dropped when all together hold more than
    `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._kept: BoundedMap[Planned, _Head] = BoundedMap(max_bytes=max_bytes)
        self._heads: dict[_Head, list[Planned]] = {}
        """The kept requests, the newest of each head last."""
        self._by_message: dict[_MessageKey, Planned] = {}
        """The kept requests by the model's latest messages in them."""

    def find(self, whose: Hashable, body: bytes) -> Match | None:
        """The remembered request that shares the most messages with this body, or the newest one that the body
        continues and that makes up nearly all of it; None if none shares any."""
        best: Match | None = None
        for known in reversed(self._heads.get((whose, body[:HEAD_BYTES]), ())):
            # Agents of one kind begin alike: most conversations are rejected at their first message that differs.
            shared = known.request.shared_messages(body, best.shared_messages if best else 0)
            if shared:
                best = Match(known, shared)
                if best.is_continued and best.shared_bytes >= NEARLY_ALL * len(body):
                    return best
        return best

    def nearly(self, whose: Hashable, messages: Sequence[Message]) -> Match | None:
        """A remembered request that these messages continue although its body begins otherwise; up to MAX_EXCHANGED of
        the shared messages may differ. May be called from any thread."""
        for index, raw in islice(_message_keys(messages), _SOUGHT_BY):
            known = self._by_message.get((whose, index, raw))
            if known is None:
                continue
            pairs = enumerate(zip(known.request.conversation.messages, messages, strict=False))
            differing = [at for at, (earlier, message) in pairs if earlier != message]
            exchanged = sum(at < index for at in differing)
            both = min(len(known.request.conversation), len(messages))
            shared = next((at for at in differing if at > index), both)
            is_same = exchanged <= MAX_EXCHANGED and shared - exchanged >= _LEAST_IN_COMMON
            return Match(known, shared) if is_same else None
        return None

    def remember(self, planned: Planned, instead_of: Match | None) -> None:
        """Keep a request, with its plan, in place of the one that it continues. One that no body can continue, because
        the ends of its messages are unknown, is not kept."""
        request, whose = planned.request, (planned.wire.path, planned.tenant)
        if not request.ends:
            return
        key = (whose, request.body[:HEAD_BYTES])
        if instead_of is None or not instead_of.is_continued:
            instead_of = self.nearly(whose, request.conversation.messages)
        if instead_of is not None and instead_of.is_continued:
            self.forget(instead_of.known)
        together = self._heads.setdefault(key, [])
        together.append(planned)
        for message_key in islice(_message_keys(request.conversation.messages), _KNOWN_BY):
            self._by_message[whose, *message_key] = planned
        gone = self._kept.put(planned, key, planned.held_bytes)
        if len(together) > MAX_TOGETHER:
            self.forget(together[0])
        for forgotten, head in gone:
            self._strike(forgotten, head)

    def forget(self, planned: Planned) -> None:
        """Let no later request continue from this one."""
        head = self._kept.pop(planned)
        if head is not None:
            self._strike(planned, head)

    def _strike(self, planned: Planned, head: _Head) -> None:
        together = self._heads[head]
        together.remove(planned)
        if not together:
            del self._heads[head]
        for message_key in islice(_message_keys(planned.request.conversation.messages), _KNOWN_BY):
            if self._by_message.get((head[0], *message_key)) is planned:
                del self._by_message[head[0], *message_key]


def _items(ends: Sequence[int], start: int, stop: int, most: int) -> int:
    """How many items make the messages from `start` to `stop`, counted up to `most`: called several times per turn of a
    long conversation.

    >>> _items((10, 20, 20, 30), 0, 4, 9), _items((10, 20, 20, 30), 0, 4, 2)
    (3, 2)
    """
    count = 0
    while start < stop and count < most:
        start = bisect.bisect_right(ends, ends[start], start, stop)
        count += 1
    return count


def _message_keys(messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
    """The model's texts, each with its index, the newest first: no two conversations have them in common."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            yield index, messages[index].raw


MAX_KNOWN: Final = 10_000
MAX_NAME_CHARACTERS: Final = 500
"""A longer name is not kept."""
_Key: TypeAlias = tuple[str, str, int]
"""Tenant, model, and the hash of a message of that model; only its tenant can write another one with the same hash."""


class RefusedHistories:
    """The newest message with refused seals of each conversation, as what comes before it was refused with it, and the
    messages that did not pair up. They are looked up from any thread."""

    def __init__(self) -> None:
        self._newest: BoundedMap[_Key, None] = BoundedMap(MAX_KNOWN)
        self._unpaired: BoundedMap[_Key, None] = BoundedMap(MAX_KNOWN)

    def note_seals(self, tenant: str, refused: Request, repaired: Request) -> None:
        """Remember the seals of a refused request that its repair has left out."""
        kept = set(map(id, repaired.conversation))
        for message in reversed(refused.conversation.messages):
            if id(message) not in kept and message.unsealed() is not message:
                self._newest.put(_key(tenant, refused, message), None)
                return

    def note_unpaired(self, tenant: str, refused: Request, *, may_repeat: bool) -> None:
        """Remember a request whose calls and results do not pair up."""
        messages = refused.conversation.messages
        found = unpaired(messages, may_repeat=may_repeat)
        for index in (*found.orphans, *(one.message for one in found.unanswered)):
            self._unpaired.put(_key(tenant, refused, messages[index]), None)

    def has_unpaired(self, tenant: str, request: Request) -> bool:
        """Whether a message that did not pair up is in the request."""
        if not self._unpaired:
            return False
        found = (one for one in request.conversation.messages if one.calls or one.role in TOOL_ROLES)
        return any(_key(tenant, request, one) in self._unpaired for one in found)

    def without_seals(self, tenant: str, request: Request, known: int = 0, language: str = "en") -> Request:
        """The request without the seals that were refused; nothing is looked up for its first `known` messages."""
        if not self._newest:
            return request
        messages = request.conversation.messages
        for index in range(len(messages) - 1, known - 1, -1):
            message = messages[index]
            if (message.role == "assistant" or message.must_stay) and _key(tenant, request, message) in self._newest:
                return request.unsealed(index + 1, language)
        return request


def _key(tenant: str, request: Request, message: Message) -> _Key:
    return tenant, request.model, hash(message.unmarked())


class HeldConversations:
    """Conversations held by an upstream that have overflowed, per tenant."""

    def __init__(self) -> None:
        self._overflowed: BoundedMap[tuple[str, str], None] = BoundedMap(MAX_KNOWN)

    def planned(self, planned: Planned, tenant: str) -> Planned:
        """The plan, which asks the upstream if this conversation is known to have overflowed."""
        if not self._overflowed or (tenant, planned.wire.continues(planned.request)) not in self._overflowed:
            return planned
        return planned.left_to_the_upstream() or planned

    def note(self, sent: Planned, outcome: Outcome, evidence: bytes, tenant: str) -> None:
        """Remember a conversation that its upstream has answered. `evidence`: the beginning of the response, by whose
        name the next turn may continue."""
        if not sent.members or outcome.status >= 400 or outcome.verdict.kind is not VerdictKind.ACCEPTED:
            return
        for name in (sent.wire.continues(sent.request), sent.wire.named_in(sent.request, evidence)):
            if 0 < len(name) <= MAX_NAME_CHARACTERS:
                self._overflowed.put((tenant, name), None)
