"""The plan for a request, with the bytes to send. It knows what it depends on, and how much of the previous send of its
conversation it repeats.

Rule: a record; a plan continues only from one with equal inputs. Its content may be elsewhere while its request waits;
what describes it stays. No plan depends on what was sent before: that is one comparison of two tuples while nothing is
cut, and one hash for each conversation, for the record only.
"""

from __future__ import annotations

import hashlib
import operator
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from msgspec import Struct, field, structs

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.compaction import Plan, Progress, Reading
from proxy.core.conversation import Edit, Fetched, Message, Reason, Resolved
from proxy.core.notices import MARK, is_ours
from proxy.core.text import Raw
from proxy.shell.planning.plan_inputs import PlanInputs
from proxy.wire import Request, Wire

NAMED_BY_BYTES: Final = 512
"""Bytes at the beginning and at the end of the first user message that name a conversation, with its length: no two
tasks have all three in common."""


class LastSent(Struct, weakref=True):
    """The messages that were last sent upstream in a conversation, as of one of its turns; all plans of a turn share
    this object."""

    messages: tuple[Message, ...] | None = None
    """None before the first send."""
    before: tuple[Message, ...] | None = None
    """Those of the turn before; None also once they are not needed."""
    conversation: str = ""
    """Its name; empty until it is needed."""


def name_of_conversation(tenant: str, messages: Sequence[Message]) -> str:
    """The same name for all turns of a conversation, on every worker: a hash of its first user message, keyed with the
    tenant hash, so it cannot be brute-forced."""
    for message in messages:
        if message.role == "user":
            first = message.raw
            end = max(NAMED_BY_BYTES, len(first) - NAMED_BY_BYTES)
            beginning = b"%d %b%b" % (len(first), first[:NAMED_BY_BYTES], first[end:])
            return hashlib.blake2b(beginning, key=tenant.encode()[:64], digest_size=6).hexdigest()
    return ""


_MARK: Final = MARK.encode()
_NAMED: Final = re.compile(ARTIFACT_NAME)
_RAW: Final = operator.attrgetter("raw")


def share_kept(before: tuple[Message, ...], now: tuple[Message, ...]) -> float:
    """The share of the bytes of `before` that is in messages with which `now` also begins; a changed message counts as
    lost."""
    if now[: len(before)] == before:  # immediate for messages that are the same objects, like those of a known turn
        return 1.0
    are_same = [*map(operator.eq, before, now), False]
    return _bytes_of(before[: are_same.index(False)]) / _bytes_of(before)


def _bytes_of(messages: Iterable[Message]) -> int:
    return sum(map(len, map(_RAW, messages)))


_MESSAGE_BYTES: Final = 600
"""Memory of a message besides its own bytes: views, sizes, entries in lists; measured, and checked by a test."""

_POOL_BYTES: Final = 500_000
"""Upper bound for the lines and names of omitted messages, whose number is bounded."""


_COPIES: Final = 4
"""How often a plan holds a fetched content: itself, and as base64, a third longer, in an edit and in a message."""


_Content: TypeAlias = tuple[Request, Plan, Resolved]
"""The parts that take memory."""


class Planned(Struct, eq=False):
    """A request, and what to send in its place."""

    wire: Wire
    request: Request
    tenant: str
    """Whose request it is; empty in a dry run."""
    inputs: PlanInputs
    plan: Plan
    progress: Progress | None
    """Starting point of the next turn's plan; None if that must start from the beginning."""
    known_messages: int
    """Number of messages known before this request: their edits have been logged."""
    reasons: Mapping[str, int]
    """How many edits there are for each reason."""
    reply_tokens: int | None
    """The new limit of the reply, if it must be lowered."""
    last_sent: LastSent = field(default_factory=LastSent)
    """Sent last in this conversation; plans for another send of the request have the same object."""
    resolved: Resolved = field(default_factory=dict)
    """Results for the references in the messages."""
    lookup_seconds: float = 0.0
    """How long the look-ups for this request took: time of others, not the proxy's own."""
    members: Mapping[str, Raw] = field(default_factory=dict)
    """Members that are sent in addition to the request's own, or in place of them."""
    offered: bool = False
    """Whether the proxy's own tool is in the list that is sent."""
    forbids_silent_cuts: bool = False
    """Whether the upstream is to refuse what it would cut."""
    reading: Reading | None = None
    """Artifacts that the proxy has read for the model since the client's request."""
    _last_sent: weakref.ref[LastSent] | None = None
    is_here: bool = True
    """Whether its content is: messages, edits, artifacts."""
    message_count: int = 0
    """Messages of the request as it came."""
    changed: bool = False
    """Whether anything but the client's own bytes is sent."""
    tokens_before: int = 0
    """Size of the request as it came, in the model's tokens, as all reported sizes are."""
    tokens_after: int = 0
    """Size of what the plan sends, in the model's tokens."""
    room_tokens: int | None = None
    """Room for a prompt, in the model's tokens: never more than its window. None if the window is only guessed."""

    def __post_init__(self) -> None:
        """Converted once: a dozen places ask for each."""
        budget = self.plan.budget
        room = self.inputs.budget.certain_room_tokens
        self.message_count = len(self.request.conversation)
        self.changed = self._is_rendered or self.reply_tokens is not None or self.request.is_rewritten
        self.tokens_before = budget.model_tokens(self.plan.before.tokens)
        self.tokens_after = budget.model_tokens(self.plan.after.tokens)
        self.room_tokens = None if room is None else budget.model_tokens(room)

    def __repr__(self) -> str:
        """Without its content, which must not reach a log."""
        return f"{type(self).__name__}({self.message_count} messages)"

    def set_aside(self) -> object:
        """Take out its content, for `put_back`."""
        content: _Content = (self.request, self.plan, self.resolved)
        self._last_sent = weakref.ref(self.last_sent)  # as long as the conversation is remembered
        self.last_sent.before = None
        self.request, self.resolved, self.progress = self.request.outline(), {}, None
        self.plan = structs.replace(self.plan, edits=(), sent=(), artifacts=(), largest=())
        self.last_sent = LastSent(conversation=self.last_sent.conversation)
        self.is_here = False
        return content

    def put_back(self, content: object) -> None:
        """Restore what `set_aside` returned, or a copy of it."""
        request, self.plan, self.resolved = cast("_Content", content)
        self.request = structs.replace(request, shape=self.request.shape)  # wires know theirs by identity
        self.last_sent = (self._last_sent and self._last_sent()) or self.last_sent
        self.is_here = True

    @property
    def held_bytes(self) -> int:
        """Its memory with its request: the body, the same bytes again in the messages, what was taken out of them, what
        is sent instead of some, what was fetched, and the lines and names from which a note was made."""
        body_bytes = self.request.full_bytes
        held = 2 * body_bytes + _MESSAGE_BYTES * len(self.request.conversation)
        held += _COPIES * sum(len(found.content) for found in self.resolved.values() if isinstance(found, Fetched))
        if Reason.OMISSION_NOTE.value in self.reasons:
            held += min(body_bytes, _POOL_BYTES)
        if self.plan.changed:
            held += self.plan.after.bytes + sum(len(artifact.content) for artifact in self.plan.artifacts)
        return held

    @property
    def _is_rendered(self) -> bool:
        request = self.request
        is_edited = self.plan.changed or bool(request.healed) or request.added_bytes > 0
        return is_edited or self.offered or bool(self.members)

    def left_to_the_upstream(self) -> Planned | None:
        """A copy that has the upstream drop old messages that it stores; None if it has no such member."""
        members = self.wire.left_to_the_upstream(self.request)
        if not members:
            return None
        reasons = {**self.reasons, Reason.UPSTREAM_TRUNCATION.value: 1}
        return structs.replace(self, members=members, reasons=reasons)

    @property
    def new_edits(self) -> tuple[Edit, ...]:
        """The edits of messages that are new."""
        return tuple([e for e in self.plan.edits if e.message is not None and e.message >= self.known_messages])

    def lost(self) -> list[str]:
        """The names of all artifacts that its conversation has lost, the newest first: what this plan takes out, and
        what notices in the messages name."""
        names = [artifact.id for artifact in reversed(self.plan.artifacts)]
        for message in reversed(self.request.conversation.messages):
            if message.raw.find(_MARK) >= 0:
                names += [name for _, text in message.texts() if is_ours(text) for name in _NAMED.findall(text)]
        return list(dict.fromkeys(names))

    def with_reply(self, reply_tokens: int | None) -> Planned:
        """A copy with this reply limit, unless its own is lower."""
        own = self.reply_tokens or self.request.reply_tokens
        if reply_tokens is None or (own is not None and own <= reply_tokens):
            return self
        return structs.replace(self, reply_tokens=reply_tokens)

    def body(self) -> bytes:
        """The body to send: the request's bytes if nothing changes."""
        if not self._is_rendered and self.reply_tokens is None:
            return self.request.body
        members = dict(self.wire.forbidding_cuts(self.request)) if self.forbids_silent_cuts else {}
        members |= self.members
        if self.reply_tokens is not None:
            members |= self.wire.limiting(self.request, self.reply_tokens)
        if self.offered and self.inputs.terms.tools is not None:
            members[self.request.shape.tools] = self.inputs.terms.tools
        return self.wire.render(self.request, self.plan.sent, members)
