"""Plans requests, off the event loop if that takes long. It remembers the plans.

Rule: the event loop is never blocked for more than 20 ms; known messages of a conversation are not processed again.
"""

from __future__ import annotations

import copy
import time
from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, structs

from proxy.core.compaction import Pipeline, Plan, Progress, Reading, clamped_reply, plan
from proxy.core.conversation import Message, Reason, Reference, Resolved, Size, references_in
from proxy.core.models import LimitName, facts
from proxy.core.notices import BY_HASH, HISTORY, UNNAMED, ArtifactAccess, say
from proxy.core.overflow import FAULTS, Terms, Verdict, VerdictKind
from proxy.shell.models import SMALL_BODY_BYTES, ModelResolver
from proxy.shell.planning.memory import ConversationMemory, Match, RefusedHistories
from proxy.shell.planning.pipelines import Pipelines, one_by_one, resolving
from proxy.shell.planning.plan_inputs import KnownInputs, PlanInputs, is_far_under
from proxy.shell.planning.planned import LastSent, Planned
from proxy.shell.references import Resolver
from proxy.shell.resources import in_thread
from proxy.wire import Request, Wire, fault_in, kind_of, mended, repaired, value_in

MEMORY_BYTES: Final = 32 * 1024 * 1024
"""Limit for the remembered conversations of one process: six of 2 MB, or sixty of 200 KB. With code, one vocabulary
and what Python keeps free between them, the process then stays under 200 MB; with 40 MB, it did not."""
SMALL_BYTES: Final = 4 * 1024
"""A smaller body is parsed in less time than it takes to find it among many with the same beginning."""
INLINE_BYTES: Final = 32 * 1024
"""New bytes that are processed on the event loop: tiktoken counts 6 MB a second or more, so this takes about 5 ms at
most. A thread costs 0.1 ms and waits for its turn."""
WAITED_SECONDS: Final = 0.000_5
"""Shorter look-ups are cache hits and are not reported."""

_NOTHING: Final[Resolved] = {}
_NO_OTHERS: Final[Mapping[int, Message]] = {}


class _Incoming(Struct):
    """A request as it came."""

    wire: Wire
    tenant: str
    body: bytes
    access: ArtifactAccess
    """How this client can fetch artifacts."""
    model: str = ""
    """Used if the body names none."""
    is_lifted: bool = False
    """Whether its headers ask for a longer window."""


class Planner:
    """Plans requests; remembers plans, per tenant."""

    def __init__(
        self,
        pipelines: Pipelines,
        models: ModelResolver,
        lookup: Resolver | None = None,
    ) -> None:
        self._pipelines = pipelines
        self.models = models
        self._inputs = KnownInputs(pipelines, models)
        self._lookup = lookup
        self._memory = ConversationMemory(MEMORY_BYTES)
        self._refused = RefusedHistories()

    async def plan(
        self,
        wire: Wire,
        tenant: bytes,
        body: bytes,
        access: ArtifactAccess = UNNAMED,
        model: str = "",
        *,
        is_lifted: bool = False,
        looking_up: bool = False,
    ) -> Planned:
        """The plan for a body; `access` is how its client gets at artifacts, `model` is used if the body names none.
        `is_lifted`: whether its headers ask for a longer window. `looking_up`: whether the references in its new
        messages may be fetched. Raises MalformedRequest."""
        will_be_known = len(body) > SMALL_BYTES
        came = _Incoming(wire, tenant.hex(), body, access, model, is_lifted)
        match = self._memory.find((wire.path, came.tenant), body) if will_be_known else None
        resolved, lookup_seconds = _known(match), 0.0
        known_bytes = match.shared_bytes if match else 0
        if looking_up and self._lookup and self._lookup.may_refer(body, known_bytes, wire.may_name_images):
            started = time.perf_counter()
            resolved = await self._resolved(came, self._lookup, match)
            lookup_seconds = time.perf_counter() - started
        planned = await self._run(came, match, resolved)
        if looking_up and len(body) > SMALL_BODY_BYTES:
            started = time.perf_counter()
            is_cut = not planned.plan.budget.admits(planned.plan.before)
            is_news = await self.models.settle(planned.request.known_as, planned.tenant, is_cut=is_cut)
            lookup_seconds += time.perf_counter() - started
            if is_news:
                planned = await self._run(came, match, resolved)
        if lookup_seconds >= WAITED_SECONDS:
            planned = structs.replace(planned, lookup_seconds=lookup_seconds)
        if will_be_known:
            self._memory.remember(planned, match)
            planned = copy.copy(planned)  # its content may be put elsewhere; what is remembered stays as it is
        return planned

    async def dry_run(self, wire: Wire, body: bytes, access: ArtifactAccess = UNNAMED) -> Planned:
        """The plan for a body that will not be sent; nothing is remembered. Raises MalformedRequest."""
        return await in_thread(self._plan, _Incoming(wire, "", body, access), None, _NOTHING)

    async def compressed(
        self, wire: Wire, tenant: str, request: Request, protected: int = 0, window_tokens: int | None = None
    ) -> Plan:
        """The plan for messages that the caller sends itself; nothing is remembered. The last `protected` ones come
        back as they are. `window_tokens`: what the conversation has to fit into; None: each message is shortened on its
        own, and none is left out."""
        return await in_thread(self._compressed, wire, tenant, request, protected, window_tokens)

    def _compressed(self, wire: Wire, tenant: str, request: Request, protected: int, window_tokens: int | None) -> Plan:
        inputs = self._inputs.of(wire, request, tenant, Terms(BY_HASH, window_tokens=window_tokens), rough=False)
        steps = one_by_one(inputs.pipeline) if window_tokens is None else inputs.pipeline
        made, _ = plan(request.conversation, inputs.base, steps.up_to(len(request.conversation) - protected))
        return made

    async def again(self, planned: Planned, terms: Terms) -> Planned:
        """Another plan for a request, on these terms."""
        return await in_thread(self._again, planned, terms)

    async def recounted(self, refused: Planned) -> Planned:
        """A refused plan by the model's own counter: a request that seemed to fit anyway was only estimated."""
        if not refused.inputs.is_rough:
            return refused
        exact = await self.again(refused, refused.inputs.terms._replace(exactly=True))
        scale = exact.plan.before.tokens / max(1, refused.plan.before.tokens)
        after = structs.replace(refused.plan.after, tokens=int(refused.plan.after.tokens * scale))
        sent, edits, artifacts = refused.plan.sent, refused.plan.edits, refused.plan.artifacts
        plan = structs.replace(exact.plan, after=after, sent=sent, edits=edits, artifacts=artifacts)
        return structs.replace(refused, inputs=exact.inputs, plan=plan)

    def _again(self, planned: Planned, terms: Terms) -> Planned:
        request = planned.request if terms.repairs is None else self.repaired(planned, terms.repairs)
        terms = terms._replace(repairs=None)
        made = self.made(planned.wire, request, planned.tenant, terms, planned.resolved, reading=planned.reading)
        made.last_sent = planned.last_sent
        return made

    def repaired(self, planned: Planned, refusal: Verdict) -> Request:
        """The request without what was refused in its history; the same object if that does not hold it. Only the
        upstream may have a call, which the words of its refusal then name."""
        wire, request, language = planned.wire, planned.request, self._pipelines.language
        if refusal.kind is VerdictKind.SEAL:
            return wire.unsealed(request, planned.plan.sent, refusal.upstream_message, language)
        if refusal.kind not in FAULTS:
            return repaired(wire, request, refusal.upstream_message, say(HISTORY, "lacking", language))
        fault = fault_in(refusal.kind, refusal.upstream_message)
        value = value_in(refusal.kind, refusal.upstream_message)
        repairs = tuple(sorted({**dict(request.repairs), fault: value}.items()))
        found = mended(request, repairs, language)
        return request if found is request else structs.replace(found, repairs=repairs)

    def note_healed(self, refused: Planned, healed: Planned, kind: VerdictKind) -> None:
        """Heal the history of a refused request in its next turns, too: the upstream has nothing against it then."""
        if kind in FAULTS:
            found = {fault: value for fault, value in healed.request.repairs if kind_of(fault) == kind}
            lessons = {f"{facts.AT_MOST}{fault}": value for fault, value in found.items()}
            self.models.learning.learn(refused.request.known_as, lessons, refused.tenant)
        elif kind is VerdictKind.SEAL:
            self._refused.note_seals(refused.tenant, refused.request, healed.request)
        elif refused.request.shape.is_whole:
            may_repeat = refused.wire.results_may_repeat
            self._refused.note_unpaired(refused.tenant, refused.request, may_repeat=may_repeat)
        # The next turn continues from the repaired request, not from the refused one.
        match = self._memory.find((healed.wire.path, healed.tenant), healed.request.body)
        if match is not None and not healed.request.ends:
            # No turn can continue from the repaired request, and none must from this one.
            self._memory.forget(match.known)
        self._memory.remember(copy.copy(healed), match)

    def _repairs(self, request: Request, tenant: str) -> tuple[tuple[str, int], ...]:
        """The repairs that the upstream's refusals have taught, each with the value that was stated."""
        at_most = self.models.profile(request.known_as, tenant).at_most
        return tuple(sorted(one for one in at_most.items() if kind_of(one[0]) in FAULTS)) if at_most else ()

    def _is_healed_otherwise(self, known: Request, request: Request, tenant: str) -> bool:
        """Whether the known messages of a request are healed for another model, or for other refusals than by now."""
        is_of_another = bool(request.healed) and request.model != known.model
        return is_of_another or known.repairs != self._repairs(request, tenant)

    def _healed(self, wire: Wire, tenant: str, request: Request, known: int) -> Request:
        """The request without what its upstream is known to refuse; no seals are looked for in its first messages."""
        if repairs := self._repairs(request, tenant):
            request = structs.replace(mended(request, repairs, self._pipelines.language), repairs=repairs)
        request = self._refused.without_seals(tenant, request, known, self._pipelines.language)
        if request.shape.is_whole and self._refused.has_unpaired(tenant, request):
            request = repaired(wire, request, "", say(HISTORY, "lacking", self._pipelines.language))
        return request

    def _refuses_our_tool(self, wire: Wire, request: Request, tenant: str, tools: bytes) -> bool:
        """Whether the upstream is known to refuse the proxy's own tool, or a list as long as this one."""
        profile = self.models.profile(request.known_as, tenant)
        most = profile.at_most.get(LimitName.TOOLS)
        return profile.refuses_our_tool or (most is not None and len(wire.tool_names(tools)) > most)

    async def plan_further(
        self, planned: Planned, messages: Sequence[Message], accepted_tokens: int, *, may_cut: bool = False
    ) -> Planned:
        """The plan for a request with more messages at its end, on the same terms as its own plan. `accepted_tokens`:
        the size of the prompt that the upstream has just accepted; `may_cut`: whether what the model works on may be
        cut for them."""
        request, known = planned.request.continued(messages), Match(planned, len(planned.request.conversation))
        received = known.shared_messages if planned.reading is None else planned.reading.received
        reading = Reading(received, may_cut=may_cut, accepted_tokens=accepted_tokens)
        made, terms = partial(self.made, reading=reading), planned.inputs.terms
        further = await in_thread(made, planned.wire, request, planned.tenant, terms, planned.resolved, known)
        further.last_sent = planned.last_sent
        return further

    def page_bytes(self, planned: Planned) -> int:
        """How many bytes all results of the proxy's own tool may hold at a time in a response to this."""
        return self._pipelines.page_bytes(planned.request.model, planned.inputs.budget)

    async def _run(self, came: _Incoming, match: Match | None, resolved: Resolved) -> Planned:
        if resolved is _known(match) and self._is_quick(came.wire, came.body, match):
            return self._plan(came, match, resolved)
        return await in_thread(self._plan, came, match, resolved)

    async def _resolved(self, came: _Incoming, lookup: Resolver, match: Match | None) -> Resolved:
        """Resolve the references in the messages: the known ones, and those that new messages add."""
        known = _known(match)
        references = await in_thread(_new_references, came.wire, came.body, match)
        wanted = [reference for reference in references if reference.address not in known]
        found = await lookup.resolve(wanted, came.tenant) if wanted else _NOTHING
        return {**known, **found} if found else known

    def _is_quick(self, wire: Wire, body: bytes, match: Match | None) -> bool:
        """Whether little is new and no cut will be necessary: a cut reads all kept messages."""
        if match is None:
            return len(body) <= SMALL_BYTES
        new_bytes = len(body) - match.shared_bytes
        known = match.known
        budget, size = known.inputs.budget, known.plan.after
        grown = Size(size.tokens + new_bytes // 2, size.chars + new_bytes, size.bytes + new_bytes)
        if known.inputs.is_rough and (
            not is_far_under(grown, budget) or wire.may_hold_images(body[match.shared_bytes :])
        ):
            return False  # the model's own counter counts everything, and may have to load its vocabulary first
        return new_bytes <= INLINE_BYTES and budget.high_mark.excess(grown) is None

    def _plan(self, came: _Incoming, match: Match | None, resolved: Resolved) -> Planned:
        wire, tenant, body, access = came.wire, came.tenant, came.body, came.access
        known, shared = (match.known.request, match.shared_messages) if match else (None, 0)
        will_be_known = len(body) > SMALL_BYTES
        request = wire.parse(body, known, shared, will_be_known=will_be_known)
        if came.is_lifted or not request.model:
            request = structs.replace(request, model=request.model or came.model, is_lifted=came.is_lifted)
        if known is not None and self._is_healed_otherwise(known, request, tenant):
            return self._plan(came, None, resolved)
        tools = wire.with_tool(request, self._pipelines.retrieval_policy)
        if tools is not None and self._refuses_our_tool(wire, request, tenant, tools):
            tools = None
        if tools is not None:
            access = structs.replace(access, tool=True)
        elif self._pipelines.retrieval_policy != "never":
            access = structs.replace(access, tool_wants=wire.tool_wants(request))
        request = self._healed(wire, tenant, request, shared)
        goes_on = match is not None and match.is_continued
        if known is not None and request.conversation.messages[:shared] != known.conversation.messages[:shared]:
            match, goes_on = None, False  # new content changed known messages
        others: dict[int, Message] = {}
        if tenant and will_be_known and not goes_on:
            near = self._memory.nearly((wire.path, tenant), request.conversation.messages)
            if near is not None and near.known.resolved == resolved:
                match, goes_on = near, near.is_continued
                before = near.known.request.conversation.messages[: near.shared_messages]
                request = request.sharing(before)
                pairs = enumerate(zip(before, request.conversation.messages, strict=False))
                others = {index: message for index, (earlier, message) in pairs if message is not earlier}
        planned = self.made(wire, request, tenant, Terms(access, tools), resolved, match, others)
        if match is not None and goes_on:
            former = match.known.last_sent
            planned.last_sent = LastSent(former.messages, former.messages, former.conversation)
        return planned

    def made(
        self,
        wire: Wire,
        request: Request,
        tenant: str,
        terms: Terms,
        resolved: Resolved,
        match: Match | None = None,
        others: Mapping[int, Message] = _NO_OTHERS,
        reading: Reading | None = None,
    ) -> Planned:
        """The plan for a request; may be called from any thread. `match` has the first messages of this request, except
        for `others` at their indexes; `reading`: what the proxy has read since the client's request."""
        # What has been counted exactly is not estimated again: both decide the same.
        is_counted = match is not None and not match.known.inputs.is_rough and _point_of(match) is not None
        may_be_rough = terms.goal_tokens is None and not (terms.exactly or is_counted)
        for rough in (may_be_rough, False):
            inputs = self._inputs.of(wire, request, tenant, terms, rough=rough)
            steps = _steps(request, inputs, resolved)
            earlier = _progress(match, inputs, others, steps)
            made, progress = plan(request.conversation, inputs.base, steps, earlier, reading)
            lowered = _lowered(request, inputs, made)
            if not inputs.is_rough or (lowered is None and is_far_under(made.before, inputs.budget)):
                break  # else nothing is given up before the model's own counter has counted
        offered = made.has_tool or (terms.tools is not None and self._pipelines.retrieval_policy == "always")
        offered = offered and not wire.forces_a_call(request.members)
        reasons = _reasons(made, lowered is not None, offered, len(request.healed))
        return Planned(
            wire,
            request,
            tenant,
            inputs,
            made,
            progress,
            match.shared_messages if match else 0,
            reasons,
            lowered,
            resolved=resolved,
            offered=offered,
            forbids_silent_cuts=made.changed and self._pipelines.forbids_silent_cuts,
            reading=reading,
        )


def _known(match: Match | None) -> Resolved:
    return match.known.resolved if match else _NOTHING


def _new_references(wire: Wire, body: bytes, match: Match | None) -> list[Reference]:
    """The references in messages that are not known yet. Raises MalformedRequest."""
    known, shared = (match.known.request, match.shared_messages) if match else (None, 0)
    messages = wire.parse(body, known, shared).conversation.messages[shared:]
    return [reference for message in messages for reference in references_in(message)]


def _progress(
    match: Match | None, inputs: PlanInputs, others: Mapping[int, Message], steps: Pipeline
) -> Progress | None:
    """The progress of a known plan, if a plan with these inputs may continue from it."""
    if match is None or not (match.known.inputs is inputs or match.known.inputs == inputs):
        return None
    if steps.budget is not inputs.budget:
        return None  # it goes as it came, and the known one did not
    progress = _point_of(match)
    return progress.exchanged(others, steps) if progress is not None and others else progress


def _point_of(match: Match) -> Progress | None:
    """Where a plan may continue from the known one."""
    progress = match.known.progress
    return None if progress is None else progress.within(match.shared_messages)


def _reasons(made: Plan, reply_lowered: bool, offered: bool, healed: int) -> dict[str, int]:
    if not made.edits and not reply_lowered and not offered and not healed:
        return {}
    counts = Counts(edit.reason for edit in made.edits)
    others = {
        Reason.CLAMP_REPLY: int(reply_lowered),
        Reason.HISTORY_HEALED: healed,
        Reason.RETRIEVAL_TOOL: int(offered),
    }
    counts.update(others)
    return {reason.value: counts[reason] for reason in sorted(counts) if counts[reason]}


def _steps(request: Request, inputs: PlanInputs, resolved: Resolved) -> Pipeline:
    """The steps for one send of a request: none for one that goes first as it came."""
    if request.shape.goes_first_as_it_came and inputs.terms.goal_tokens is None:
        return inputs.pipeline.without_steps()
    return resolving(inputs.pipeline, resolved)


def _lowered(request: Request, inputs: PlanInputs, made: Plan) -> int | None:
    requested, most = request.reply_tokens, inputs.profile.at_most.get(LimitName.REPLY)
    if requested is None:
        return None
    fitting = clamped_reply(made.budget, requested, made.after.tokens)
    return most if most is not None and most < (fitting or requested) else fitting
