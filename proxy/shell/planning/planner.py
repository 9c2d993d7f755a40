"""Plans requests, off the event loop when that takes long, and remembers them.

Rule: the event loop is never held for more than 20 ms; what a conversation has shown before is not worked on again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from proxy.core.conversation.message import Message
from proxy.core.conversation.references import Fetched, Reference, Resolved, references_in
from proxy.core.conversation.size import Size
from proxy.core.models.profile import Modality
from proxy.core.notices.artifact_access import NOWHERE, ArtifactAccess
from proxy.core.retrieval_tool.hidden_calls import HiddenToolCalls
from proxy.shell.planning.hidden_calls import HiddenCallMemory
from proxy.shell.planning.maker import PlanMaker, ProfileOf, RatioOf, surely_fit
from proxy.shell.planning.memory import ConversationMemory, Match
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.planning.planned import Planned, Terms
from proxy.shell.planning.wanted import in_thread
from proxy.wire.chat_completions.request import may_hold_images, parse

MEMORY_BYTES: Final = 40 * 1024 * 1024
"""What the remembered conversations of one process may hold; with code and one vocabulary it is under 200 MB then."""
SMALL_BYTES: Final = 4 * 1024
"""Read anew in less time than it takes to look for it among many that begin alike."""
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


Settle: TypeAlias = Callable[[str, str, int], Awaitable[bool]]
"""(model, owner, bytes of the body) → whether more is known of the model now, for which a moment may be waited."""


class Planner:
    """Plans requests; remembers plans, per owner."""

    def __init__(
        self,
        pipelines: Pipelines,
        profile_of: ProfileOf,
        ratio_of: RatioOf,
        lookup: Lookup | None = None,
        hidden: HiddenCallMemory | None = None,
        settle: Settle | None = None,
    ) -> None:
        self._pipelines = pipelines
        self._maker = PlanMaker(pipelines, profile_of, ratio_of)
        self._profile_of = profile_of
        self._lookup = lookup
        self._hidden = hidden
        """None: nothing is ever hidden."""
        self._settle = settle
        self._memory: ConversationMemory[Planned] = ConversationMemory(MEMORY_BYTES)

    async def plan(
        self, owner: bytes, body: bytes, way: ArtifactAccess = NOWHERE, model: str = "", *, looking_up: bool = False
    ) -> Planned:
        """The plan for a body; `way` is how its client gets at artifacts, `model` counts where the body names none.
        `looking_up`: whether what its new messages name may be fetched. Raises MalformedRequest."""
        match = self._memory.find(owner, body) if len(body) > SMALL_BYTES else None
        resolved, lookup_seconds = _known(match), 0.0
        if looking_up and self._lookup and self._lookup.may_refer(body, match.shared_bytes if match else 0):
            started = time.perf_counter()
            resolved = await self._resolved(self._lookup, owner, body, match)
            lookup_seconds = time.perf_counter() - started
        planned = await self._run(owner, body, match, resolved, way, model)
        if looking_up and self._settle:
            started = time.perf_counter()
            is_news = await self._settle(planned.request.model, planned.owner, len(body))
            lookup_seconds += time.perf_counter() - started
            if is_news:
                planned = await self._run(owner, body, match, resolved, way, model)
        if planned.unknown and self._hidden and await self._hidden.look_up(owner.hex(), planned.unknown):
            planned = await self._run(owner, body, match, resolved, way, model)
        if lookup_seconds:
            planned = replace(planned, lookup_seconds=lookup_seconds)
        if len(body) > SMALL_BYTES:
            contents = sum(len(found.content) for found in resolved.values() if isinstance(found, Fetched))
            held_bytes = planned.held_bytes + _COPIES * contents
            self._memory.remember(owner, planned.request, planned, instead_of=match, held_bytes=held_bytes)
        return planned

    async def plan_without_keeping(self, planned: Planned) -> Planned:
        """The plan for a request while artifacts cannot be kept: only what must be cut is, and the notices say so."""
        terms = Terms.of(planned.basis)._replace(keeping=False)
        return await in_thread(self._maker.plan, planned.request, planned.owner, terms, planned.resolved)

    async def plan_again(self, planned: Planned, *, keeping: bool) -> Planned:
        """The plan for a request with what is known of its model by now: as its next turn will be planned."""
        terms = Terms.of(planned.basis)._replace(keeping=keeping)
        return await in_thread(self._maker.plan, planned.request, planned.owner, terms, planned.resolved)

    async def dry_run(self, body: bytes, way: ArtifactAccess = NOWHERE) -> Planned:
        """The plan for a body that is not going to be sent, and of which nothing is remembered. Raises
        MalformedRequest."""
        return await in_thread(self._plan, b"", body, None, _NOTHING, way)

    async def plan_for(
        self, refused: Planned, goal_tokens: int, most_tokens: int | None = None, *, keeping: bool
    ) -> Planned:
        """A harsher plan for a request that was refused: so many tokens by our estimate, and `most_tokens` where what
        has to stay is more."""
        terms = Terms.of(refused.basis)._replace(goal_tokens=goal_tokens, most_tokens=most_tokens, keeping=keeping)
        return await in_thread(self._maker.plan, refused.request, refused.owner, terms, refused.resolved)

    async def plan_without(self, refused: Planned, media: frozenset[Modality], *, keeping: bool) -> Planned:
        """A plan for a request whose media were refused: what is of these kinds is sent as text."""
        terms = Terms.of(refused.basis)._replace(without=media, keeping=keeping)
        return await in_thread(self._maker.plan, refused.request, refused.owner, terms, refused.resolved)

    async def plan_further(self, planned: Planned, messages: Sequence[Message]) -> Planned:
        """The plan for a request with more messages at its end, as harsh as the one for it was."""
        request, terms = planned.request.continued(messages), Terms.of(planned.basis)
        known = len(planned.request.conversation)
        return await in_thread(self._maker.plan, request, planned.owner, terms, planned.resolved, planned, known)

    async def keep_hidden(self, owner: str, hidden: HiddenToolCalls) -> None:
        """Keep what an answer hides from its client; it is put back into the client's next requests."""
        if self._hidden is not None:
            await self._hidden.keep(owner, hidden)

    def page_bytes(self, planned: Planned) -> int:
        """What the results of the proxy's own tool may hold at a time in an answer to this."""
        return self._pipelines.page_bytes(planned.request.model, planned.basis.budget)

    async def _run(
        self,
        owner: bytes,
        body: bytes,
        match: Match[Planned] | None,
        resolved: Resolved,
        way: ArtifactAccess,
        model: str,
    ) -> Planned:
        if resolved is _known(match) and self._is_quick(body, match):
            return self._plan(owner, body, match, resolved, way, model)
        return await in_thread(self._plan, owner, body, match, resolved, way, model)

    async def _resolved(self, lookup: Lookup, owner: bytes, body: bytes, match: Match[Planned] | None) -> Resolved:
        """What the messages name: what is known of it, and what the new ones add."""
        known = _known(match)
        references = await in_thread(_new_references, body, match)
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
        if known.basis.is_rough and (not surely_fit(len(body), budget) or may_hold_images(body)):
            return False  # the model's own counter comes in, and may have to load its vocabulary first
        return new_bytes <= INLINE_BYTES and budget.high_mark.excess(grown) is None

    def _plan(
        self,
        owner: bytes,
        body: bytes,
        match: Match[Planned] | None,
        resolved: Resolved,
        way: ArtifactAccess,
        model: str = "",
    ) -> Planned:
        known = match.remembered.knowledge if match else None
        shared = match.shared_messages if match else 0
        will_be_known = len(body) > SMALL_BYTES
        request = parse(body, known.request if known else None, shared, will_be_known=will_be_known)
        if model and not request.model:
            request = replace(request, named=model)
        tools = self._pipelines.tools_with_ours(request.members)
        if tools is not None and self._profile_of(request.model, owner.hex()).refuses_our_tool:
            tools = None
        unknown: tuple[str, ...] = ()
        if tools is not None:
            way = replace(way, tool=True)
            if self._hidden is not None:
                request, unknown = self._hidden.completed(owner.hex(), request)
        elif request.put_in:  # calls of ours that were put in go with the tool; no other replica would put them in now
            return self._plan(owner, body, None, resolved, way, model)
        goes_on = match is not None and match.is_continued
        planned = self._maker.plan(
            request,
            owner.hex(),
            Terms(way, tools),
            resolved,
            known,
            shared,
            goes_on=goes_on,
            will_be_known=will_be_known,
        )
        return replace(planned, unknown=unknown) if unknown else planned


def _known(match: Match[Planned] | None) -> Resolved:
    return match.remembered.knowledge.resolved if match else _NOTHING


def _new_references(body: bytes, match: Match[Planned] | None) -> list[Reference]:
    """What the messages that are not known yet name. Raises MalformedRequest."""
    known, shared = (match.remembered.request, match.shared_messages) if match else (None, 0)
    messages = parse(body, known, shared).conversation.messages[shared:]
    return [reference for message in messages for reference in references_in(message)]
