"""From the bytes of a request to the plan of what to send, off the event loop when that takes long.

Rule: the event loop is never held for more than 20 ms; what a conversation has shown before is not worked on again.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from proxy.core.budget import Budget, budget_for, clamped_reply
from proxy.core.conversation import Message
from proxy.core.edits import Edit, Reason
from proxy.core.estimate import ByteClassCounter, Counter
from proxy.core.hidden import HiddenCalls
from proxy.core.image_tokens import with_images_of
from proxy.core.plan import Pipeline, Plan, Progress, plan
from proxy.core.profile import Modality, ModelProfile
from proxy.core.references import Fetched, Reference, Resolved, references_in
from proxy.core.sizes import REPLY_PRIMING_TOKENS, Size, size_of_tools
from proxy.core.tools import Reach, reach_of
from proxy.core.way_back import NOWHERE, WayBack
from proxy.shell.hidden_calls import HiddenCallMemory
from proxy.shell.memory import ConversationMemory, Match
from proxy.shell.pipelines import Pipelines
from proxy.shell.prefix import LastSent
from proxy.shell.tokenizer import counter_for
from proxy.wire.openai_chat import ChatRequest, parse, render, reply_limit_raw

ProfileOf: TypeAlias = Callable[[str], ModelProfile]
RatioOf: TypeAlias = Callable[[str], tuple[float, bool]]
"""Model → (the upstream's tokens for one of ours, whether that was measured)."""

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""What the remembered conversations of one process may hold."""
SMALL_BYTES: Final = 4 * 1024
"""Read anew in less time than it takes to look for it among many that begin alike."""
MAX_KNOWN_LIMITS: Final = 256
"""Models, each with the reply limits that are asked of it; both are foreign input."""
MAX_TOOLS_BYTES: Final = 256 * 1024
"""Longer tool lists are not remembered; sixty-four are."""
INLINE_BYTES: Final = 32 * 1024
"""New bytes that are worked on at once: tiktoken counts 6 MB a second or more, so this takes about 5 ms at most.
A thread costs 0.1 ms and waits for its turn."""

_NOTHING: Final[Resolved] = {}
_COPIES: Final = 4
"""Of a looked-up content that a plan holds: itself, and as base64 in an edit and in a message, a third longer."""


class Lookup(Protocol):
    """Finds what stands elsewhere: images on the web, artifacts."""

    def may_refer(self, body: bytes, start: int) -> bool:
        """Whether a body may name something behind that position, told by its bytes."""

    async def resolve(self, references: Iterable[Reference], owner: str) -> Resolved:
        """What these stand for."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan depends on besides the messages; only plans with the same basis go on from one another."""

    profile: ModelProfile
    counted_by: str
    is_rough: bool
    """Whether that is not the model's own counter, as the request fits anyway."""
    budget: Budget
    base: Size
    """Of what is no message: tools, mostly."""
    reach: Reach
    way: WayBack
    tools: bytes | None = field(default=None, repr=False)
    """With the proxy's own among them, when that is offered."""
    goal_tokens: int | None = None
    """Of the prompt at the most, after a refusal."""
    keeping: bool = True
    """Whether artifacts can be kept."""
    without: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text, after a refusal."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A request, and what to send in its place."""

    request: ChatRequest
    basis: Basis
    plan: Plan
    progress: Progress
    known_messages: int
    """Of the conversation before this request: what was done to them has been logged."""
    reasons: Mapping[str, int]
    """How many edits there are for each reason."""
    reply_limit: tuple[str, int] | None
    """The member that limits the reply and its new value, when it has to be lowered."""
    last_sent: LastSent = field(default_factory=LastSent, repr=False)
    """What its conversation sent before; the same object for all its turns that are remembered."""
    resolved: Resolved = field(default_factory=dict, repr=False)
    """What the messages name and do not hold, as far as it was found."""
    lookup_seconds: float = 0.0
    """That looking it up took for this request: others' time, not the proxy's own."""
    unknown: tuple[str, ...] = field(default=(), repr=False)
    """Marks of messages that may hide calls of the proxy's own tool."""

    @property
    def changed(self) -> bool:
        """Whether anything but the very bytes is to be sent."""
        return self._is_rendered or self.reply_limit is not None

    @property
    def _is_rendered(self) -> bool:
        return self.plan.changed or self.basis.tools is not None or self.request.added_bytes > 0

    @property
    def new_edits(self) -> tuple[Edit, ...]:
        """The edits of messages that are new."""
        return tuple(e for e in self.plan.edits if e.message is not None and e.message >= self.known_messages)

    def body(self, reply_tokens: int | None = None) -> bytes:
        """What to send: the very bytes that came, when nothing changes. `reply_tokens`: a lower limit for the reply."""
        limit = self.reply_limit
        if reply_tokens is not None:
            limit = ((self.request.reply_limit or ("max_tokens", 0))[0], reply_tokens)
        if not self._is_rendered and limit is None:
            return self.request.body
        members = {} if limit is None else reply_limit_raw(*limit)
        if self.basis.tools is not None:
            members["tools"] = self.basis.tools
        return render(self.request, self.plan.messages, members)


class _Terms(NamedTuple):
    """On what a plan is made, besides the request; the last members of a basis."""

    way: WayBack
    tools: bytes | None
    goal_tokens: int | None = None
    keeping: bool = True
    without: frozenset[Modality] = frozenset()

    @classmethod
    def of(cls, basis: Basis) -> _Terms:
        """Those of another plan."""
        return cls(basis.way, basis.tools, basis.goal_tokens, basis.keeping, basis.without)


class Planner:
    """Plans requests; remembers plans, per owner."""

    def __init__(
        self,
        pipelines: Pipelines,
        profile_of: ProfileOf,
        ratio_of: RatioOf,
        lookup: Lookup | None = None,
        hidden: HiddenCallMemory | None = None,
    ) -> None:
        self._pipelines = pipelines
        self._profile_of = profile_of
        self._ratio_of = ratio_of
        self._lookup = lookup
        self._hidden = hidden
        """None: nothing is ever hidden."""
        self._memory: ConversationMemory[Planned] = ConversationMemory(MEMORY_BYTES)
        self._known_limits: dict[tuple[str, int | None, float, bool], tuple[ModelProfile, Counter, Budget]] = {}

    async def plan(self, owner: bytes, body: bytes, way: WayBack = NOWHERE, *, looking_up: bool = False) -> Planned:
        """The plan for a body; `way` is how its client gets at artifacts. `looking_up`: whether what its new messages
        name may be fetched. Raises MalformedRequest."""
        match = self._memory.find(owner, body) if len(body) > SMALL_BYTES else None
        resolved, lookup_seconds = _known(match), 0.0
        if looking_up and self._lookup and self._lookup.may_refer(body, match.shared_bytes if match else 0):
            started = time.perf_counter()
            resolved = await self._resolved(self._lookup, owner, body, match)
            lookup_seconds = time.perf_counter() - started
        planned = await self._run(owner, body, match, resolved, way)
        if planned.unknown and self._hidden and await self._hidden.look_up(owner.hex(), planned.unknown):
            planned = await self._run(owner, body, match, resolved, way)
        if lookup_seconds:
            planned = replace(planned, lookup_seconds=lookup_seconds)
        if len(body) > SMALL_BYTES:
            contents = sum(len(found.content) for found in resolved.values() if isinstance(found, Fetched))
            self._memory.remember(owner, planned.request, planned, instead_of=match, more_bytes=_COPIES * contents)
        return planned

    async def plan_without_keeping(self, planned: Planned) -> Planned:
        """The plan for a request while artifacts cannot be kept: only what must be cut is, and the notices say so."""
        terms = _Terms.of(planned.basis)._replace(keeping=False)
        return await asyncio.to_thread(self._planned, planned.request, terms, planned.resolved)

    async def dry_run(self, body: bytes, way: WayBack = NOWHERE) -> Planned:
        """The plan for a body that is not going to be sent, and of which nothing is remembered. Raises
        MalformedRequest."""
        return await asyncio.to_thread(self._plan, b"", body, None, _NOTHING, way)

    async def plan_for(self, refused: Planned, goal_tokens: int, *, keeping: bool) -> Planned:
        """A harsher plan for a request that was refused: at most so many tokens by our estimate."""
        terms = _Terms.of(refused.basis)._replace(goal_tokens=goal_tokens, keeping=keeping)
        return await asyncio.to_thread(self._planned, refused.request, terms, refused.resolved)

    async def plan_without(self, refused: Planned, media: frozenset[Modality], *, keeping: bool) -> Planned:
        """A plan for a request whose media were refused: what is of these kinds is sent as text."""
        terms = _Terms.of(refused.basis)._replace(without=media, keeping=keeping)
        return await asyncio.to_thread(self._planned, refused.request, terms, refused.resolved)

    async def plan_further(self, planned: Planned, messages: Sequence[Message]) -> Planned:
        """The plan for a request with more messages at its end, as harsh as the one for it was."""
        request, terms = planned.request.continued(messages), _Terms.of(planned.basis)
        known = len(planned.request.conversation)
        return await asyncio.to_thread(self._planned, request, terms, planned.resolved, planned, known)

    async def keep_hidden(self, owner: str, hidden: HiddenCalls) -> None:
        """Keep what an answer hides from its client; it is put back into the client's next requests."""
        if self._hidden is not None:
            await self._hidden.keep(owner, hidden)

    def page_bytes(self, planned: Planned) -> int:
        """What the results of the proxy's own tool may hold at a time in an answer to this."""
        return self._pipelines.page_bytes(planned.request.model, planned.basis.budget)

    async def _run(
        self, owner: bytes, body: bytes, match: Match[Planned] | None, resolved: Resolved, way: WayBack
    ) -> Planned:
        if resolved is _known(match) and self._is_quick(body, match):
            return self._plan(owner, body, match, resolved, way)
        return await asyncio.to_thread(self._plan, owner, body, match, resolved, way)

    async def _resolved(self, lookup: Lookup, owner: bytes, body: bytes, match: Match[Planned] | None) -> Resolved:
        """What the messages name: what is known of it, and what the new ones add."""
        known = _known(match)
        references = await asyncio.to_thread(_new_references, body, match)
        wanted = [reference for reference in references if reference.address not in known]
        found = await lookup.resolve(wanted, owner.hex()) if wanted else _NOTHING
        return {**known, **found} if found else known

    def _is_quick(self, body: bytes, match: Match[Planned] | None) -> bool:
        """Whether little is new and nothing will have to be given up: a cut reads all that is kept."""
        if match is None:
            return len(body) <= SMALL_BYTES
        new_bytes = len(body) - match.shared_bytes
        known = match.remembered.knowledge
        budget, size = known.basis.budget, known.plan.after
        grown = Size(size.tokens + new_bytes // 2, size.chars + new_bytes, size.bytes + new_bytes)
        if known.basis.is_rough and not _surely_fits(len(body), body, budget):
            return False  # the model's own counter comes in, and may have to load its vocabulary first
        return new_bytes <= INLINE_BYTES and budget.excess(grown, budget.fill) is None

    def _plan(
        self, owner: bytes, body: bytes, match: Match[Planned] | None, resolved: Resolved, way: WayBack
    ) -> Planned:
        known = match.remembered.knowledge if match else None
        shared = match.shared_messages if match else 0
        request = parse(body, known.request if known else None, shared, will_be_known=len(body) > SMALL_BYTES)
        tools = self._pipelines.tools_with_ours(request.members)
        unknown: tuple[str, ...] = ()
        if tools is not None:
            way = replace(way, tool=True)
            if self._hidden is not None:
                read = shared if known and _goes_on(request, known.request, shared) else 0
                request, unknown = self._hidden.completed(owner.hex(), request, read)
        planned = self._planned(request, _Terms(way, tools), resolved, known, shared)
        last_sent = known.last_sent if match and known and match.is_continued else planned.last_sent
        return replace(planned, last_sent=last_sent, unknown=unknown)

    def _planned(
        self, request: ChatRequest, terms: _Terms, resolved: Resolved, known: Planned | None = None, shared: int = 0
    ) -> Planned:
        basis, counter = self._basis(request, terms, rough=terms.goal_tokens is None)
        earlier = None
        if known is not None and known.basis == basis and known.progress.messages <= shared:
            earlier = known.progress
        made, progress = plan(request.conversation, basis.base, self._pipeline(basis, counter, resolved), earlier)
        if basis.is_rough and made.before.tokens > basis.budget.room_tokens:
            # The rough count was wrong, or nearly: nothing is given up before the model's own counter has been asked.
            basis, counter = self._basis(request, terms, rough=False)
            made, progress = plan(request.conversation, basis.base, self._pipeline(basis, counter, resolved))
        lowered = _lowered(request, basis.budget, made)
        reasons = _reasons(made, lowered is not None, basis.tools is not None)
        return Planned(request, basis, made, progress, shared, reasons, lowered, resolved=resolved)

    def _pipeline(self, basis: Basis, counter: Counter, resolved: Resolved) -> Pipeline:
        budget, reach, way, keeping = basis.budget, basis.reach, basis.way, basis.keeping
        return self._pipelines.pipeline(basis.profile, budget, counter, reach, way, keeping=keeping, resolved=resolved)

    def _basis(self, request: ChatRequest, terms: _Terms, *, rough: bool) -> tuple[Basis, Counter]:
        profile = self._profile_of(request.model)
        if terms.without:
            profile = replace(profile, refused=profile.refused | terms.without)
        tools = terms.tools or bytes(request.members.get("tools", b""))
        asked = request.reply_limit
        own, budget = self._limits(profile, asked[1] if asked else None, *self._ratio_of(request.model))
        if terms.goal_tokens is not None:
            budget = budget.lowered_to(terms.goal_tokens)
        roughly = rough and _surely_fits(request.full_bytes, request.body, budget)
        counter = _rough_counter(profile.model) if roughly else own
        measured = _of_tools if len(tools) <= MAX_TOOLS_BYTES else _of_tools.__wrapped__
        base, reach = measured(tools, counter, terms.way.folder is not None)
        is_rough = counter.name != own.name
        return Basis(profile, counter.name, is_rough, budget, base, reach, *terms), counter

    def _limits(
        self, profile: ModelProfile, asked_reply_tokens: int | None, ratio: float, calibrated: bool
    ) -> tuple[Counter, Budget]:
        """Who counts for a model, and its budget; remembered while its profile is the same object."""
        key = (profile.model, asked_reply_tokens, ratio, calibrated)
        known = self._known_limits.get(key)
        if known is not None and known[0] is profile:
            return known[1:]
        own = with_images_of(profile.model, counter_for(profile.tokenizer, profile.model))
        exact = own.exact or calibrated
        budget = budget_for(profile, asked_reply_tokens, exact=exact, rules=self._pipelines.rules, ratio=ratio)
        if len(self._known_limits) >= MAX_KNOWN_LIMITS:
            self._known_limits = {}
        self._known_limits[key] = profile, own, budget
        return own, budget


@functools.lru_cache(1024)
def _rough_counter(model: str) -> Counter:
    """The estimate, with images counted as the model's maker does."""
    return with_images_of(model, ByteClassCounter())


def _known(match: Match[Planned] | None) -> Resolved:
    return match.remembered.knowledge.resolved if match else _NOTHING


def _new_references(body: bytes, match: Match[Planned] | None) -> list[Reference]:
    """What the messages that are not known yet name. Raises MalformedRequest."""
    known, shared = (match.remembered.request, match.shared_messages) if match else (None, 0)
    messages = parse(body, known, shared).conversation.messages[shared:]
    return [reference for message in messages for reference in references_in(message)]


@functools.lru_cache(64)
def _of_tools(tools: bytes, counter: Counter, sees_files: bool) -> tuple[Size, Reach]:
    """The size of all that is no message, and what the tools offer. An agent sends the same tools with every request,
    and they are often longer than what it says."""
    raw = tools or None
    return size_of_tools(raw, counter) + Size(tokens=REPLY_PRIMING_TOKENS), reach_of(raw, sees_files=sees_files)


def _goes_on(request: ChatRequest, known: ChatRequest, shared: int) -> bool:
    """Whether the first messages were taken over from a known request, with what was put into them."""
    return shared > 0 and request.conversation.messages[shared - 1] is known.conversation.messages[shared - 1]


def _surely_fits(full_bytes: int, body: bytes, budget: Budget) -> bool:
    """Whether a body needs no exact count: no token is shorter than a byte, images aside."""
    return full_bytes <= budget.room_tokens and b'"image_url"' not in body


def _reasons(made: Plan, reply_lowered: bool, offered: bool) -> dict[str, int]:
    if not made.edits and not reply_lowered and not offered:
        return {}
    counts = Counts(edit.reason for edit in made.edits)
    if reply_lowered:
        counts[Reason.CLAMP_REPLY] += 1
    if offered:
        counts[Reason.RETRIEVAL_TOOL] += 1
    return {reason.value: counts[reason] for reason in sorted(counts)}


def _lowered(request: ChatRequest, budget: Budget, made: Plan) -> tuple[str, int] | None:
    asked = request.reply_limit
    if asked is None:
        return None
    lowered = clamped_reply(budget, asked[1], made.after.tokens)
    return None if lowered is None else (asked[0], lowered)
