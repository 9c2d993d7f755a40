"""What is sent for a request, one plan after another; what a plan takes out is kept before it is sent.

Rule: the core's strategy decides what kind of send follows; here it becomes a plan. What cannot be kept is not taken
out: then another plan is made, which says so. Nothing is sent here.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from proxy.config.settings import Settings
from proxy.core.models.profile import Modality, Witness
from proxy.core.overflow import Unit, Verdict
from proxy.core.overflow.refusal import does_not_fit, sizes_of, unkept
from proxy.core.overflow.retry import ALWAYS_SMALLER, Attempt, Outcome, Rung, Situation, next_attempt
from proxy.errors import ContextOverflow
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.models.trials import LARGER, PROVES, Trials
from proxy.shell.planning.planned import Planned
from proxy.shell.planning.planner import Planner
from proxy.shell.relay.journey import Journey
from proxy.shell.relay.judging import ACCEPTED, Judge
from proxy.shell.resources.logs import logger
from proxy.shell.telemetry.decision import Decision

_FIRST: Final = Attempt(Rung.FIRST)
_Make: TypeAlias = Callable[..., Awaitable[Planned]]
"""Makes a plan; `keeping`: whether what it takes out can be kept."""


class SendPlan(Struct, frozen=True):
    """One send."""

    attempt: Attempt
    planned: Planned


class Cure(Struct, frozen=True):
    """A refusal, and what was sent after it."""

    attempt: Attempt
    refusal: Verdict
    refused: Planned
    sent: Planned


class Sends:
    """What to send for one request, one after another."""

    def __init__(self, plans: SendPlans, journey: Journey, first: SendPlan, *, retries: bool) -> None:
        self._plans = plans
        self._journey = journey
        self._retries = retries
        self._unproven: list[Cure] = []
        self.cures: list[Attempt] = []
        """The sends after the first one."""
        self.current = first
        """The latest send."""

    @property
    def heals(self) -> bool:
        """Whether a repair of the history is still to be proven."""
        return any(cure.attempt.rung is Rung.REPAIRED for cure in self._unproven)

    def learn(self, outcome: Outcome, *, is_accepted: bool) -> None:
        """Learn what the cures prove: all of them if what was sent is accepted or refused for another reason."""
        if self._unproven and (is_accepted or outcome.proves([cure.attempt for cure in self._unproven])):
            for cure in self._unproven:
                self._plans.learn(cure, is_accepted=is_accepted)
            self._unproven.clear()

    async def following(self, outcome: Outcome) -> SendPlan | None:
        """The send after the current one; None if the client gets that one's response. Raises ContextOverflow if
        nothing is left that may be sent."""
        if outcome.is_final or not self._retries:
            return None  # nearly always: no situation is described that nobody will ask about
        attempt = next_attempt(outcome, self._plans.situation(self._journey), self.cures)
        refused = self.current.planned
        if attempt is None:
            self._plans.note_final(outcome, refused)
            return None
        found = await self._plans.send_after(self._journey, attempt, outcome, refused)
        if found is not None:
            self.current, self._journey = found, self._journey.after(found.planned)
            self.cures.append(found.attempt)
            self._unproven.append(Cure(found.attempt, outcome.verdict, refused, found.planned))
        return found


class SendPlans:
    """Makes the send plans of every request."""

    def __init__(self, settings: Settings, planner: Planner, store: ArtifactStore, judge: Judge) -> None:
        self._retries = settings.overflow.retry
        self._language = settings.language
        self._most_bytes = settings.defaults.max_request_bytes or math.inf
        self._planner = planner
        self._store = store
        self._judge = judge
        self._trials = Trials()
        self._log = logger()

    def sends(self, journey: Journey) -> Sends:
        """The sends for one request. Raises ContextOverflow if nothing may be sent."""
        planned = journey.first
        if not planned.plan.may_be_sent:
            raise self._refusal(planned)
        return Sends(self, journey, SendPlan(_FIRST, planned), retries=self._retries)

    def situation(self, journey: Journey) -> Situation:
        """What the retry strategy must know, with what is sent next if nobody states a limit."""
        situation, search = journey.situation, self._judge.search_after(journey.first)
        guess = None if search is None else int(search.guess / journey.first.inputs.budget.ratio)
        return (
            situation if guess is None or guess >= situation.estimate_tokens else replace(situation, guess_tokens=guess)
        )

    def learn(self, cure: Cure, *, is_accepted: bool) -> None:
        """Learn from a refusal whose cure is proven."""
        refused, sent = cure.refused, cure.sent
        self._judge.learn_what_was_refused(cure.attempt, cure.refusal, refused, sent, is_accepted=is_accepted)
        if cure.attempt.rung is Rung.REPAIRED and refused.is_here and sent.is_here:
            self._planner.note_healed(refused, sent, unsealed=cure.attempt.unseals)

    def note_final(self, outcome: Outcome, planned: Planned) -> None:
        """Learn from a refusal without a number that no smaller send follows."""
        verdict = outcome.verdict
        if verdict.is_suspect or verdict.names_no_limit:
            self._judge.learn_search(verdict, planned)

    async def send_after(
        self, journey: Journey, attempt: Attempt, outcome: Outcome, refused: Planned
    ) -> SendPlan | None:
        """What is sent after a response that the client does not get; None if nothing better can be sent. Raises
        ContextOverflow."""
        if attempt.rung is Rung.AS_KNOWN:
            profile = journey.planned.inputs.profile
            if outcome.verdict.limit is not None:
                self._trials.note_confirmed((profile.known_as, journey.tenant, profile.window_tokens))
            return SendPlan(attempt, journey.planned)
        if attempt.rung is Rung.WITHOUT_MEDIA:
            planned = await self._without_media(journey, attempt.refused)
            is_another = planned.plan.may_be_sent and planned.plan.sent != refused.plan.sent
            return SendPlan(attempt, planned) if is_another else None
        if attempt.rung in (Rung.REPAIRED, Rung.WITHOUT_TOOL):
            planned = await self._made(partial(self._changed(attempt, outcome), journey.planned), journey.tenant)
            return SendPlan(attempt, planned) if planned.plan.may_be_sent else None
        if attempt.goal_bytes is not None:
            return await self._of_fewer_bytes(journey, attempt, attempt.goal_bytes)
        if attempt.goal_tokens is None:
            return SendPlan(attempt, refused)
        if attempt.rung is Rung.FITTED:
            return await self._fitted(journey, attempt, attempt.goal_tokens)
        asking = refused.left_to_the_upstream() if outcome.verdict.is_overflow and not refused.members else None
        if asking is not None:
            return SendPlan(attempt, asking)
        planned, attempt = await self._harsher_for(journey, attempt, attempt.goal_tokens)
        if attempt.is_search:
            self._judge.learn_search(outcome.verdict, refused, planned)
        if refused.members:  # it was asked at once
            planned = planned.left_to_the_upstream() or planned
        self._judge.learn_from_recount(outcome.verdict, refused, planned)
        if planned.plan.may_be_sent and planned.plan.after.bytes < refused.plan.after.bytes:
            return SendPlan(attempt, planned)
        if outcome.verdict.is_overflow:
            raise self._refusal(planned, outcome.verdict)
        return None

    def _changed(self, attempt: Attempt, outcome: Outcome) -> _Make:
        """Makes the plan for a request of which something else than its length was refused."""
        if attempt.rung is Rung.WITHOUT_TOOL:
            return self._planner.plan_without_tool
        repair = self._planner.plan_unsealed if attempt.unseals else self._planner.plan_repaired
        return partial(repair, refusal=outcome.verdict.upstream_message)

    async def _of_fewer_bytes(self, journey: Journey, attempt: Attempt, goal_bytes: int) -> SendPlan | None:
        """About half of a body that was too large, or as little as can be."""
        planned = await self._made(partial(self._planner.plan_for_bytes, journey.planned, goal_bytes), journey.tenant)
        is_less = planned.plan.after.bytes < journey.planned.plan.after.bytes * ALWAYS_SMALLER
        return SendPlan(attempt, planned) if is_less and planned.plan.may_be_sent else None

    async def _fitted(self, journey: Journey, attempt: Attempt, goal_tokens: int) -> SendPlan | None:
        """As much as the upstream reads uncut, in place of a prompt that it has cut silently."""
        planned = await self._as_next_turn(journey)
        if planned.plan.after.tokens > goal_tokens:  # settings that state another window take precedence
            planned = await self._harsher(journey, goal_tokens)
        is_less = planned.plan.after.bytes < journey.planned.plan.after.bytes
        return SendPlan(attempt, planned) if is_less and planned.plan.may_be_sent else None

    def _refusal(self, planned: Planned, refused: Verdict = ACCEPTED) -> ContextOverflow:
        """What a client is told about a request that cannot be made to fit; `refused`: the upstream's verdict on it."""
        profile = planned.inputs.profile
        is_told = refused.limit is not None and refused.unit is Unit.TOKENS
        window = refused.limit if is_told and refused.limit is not None else profile.window_tokens
        say = partial(
            does_not_fit,
            planned.plan,
            profile.model,
            window,
            self._language,
            planned.request.put_in,
            planned.inputs.members,
            window_is_told=is_told,
            is_unnamed=not is_told and profile.witness in (Witness.GUESSED, Witness.INFERRED),
            sizes=sizes_of(planned.plan, profile.window_tokens, refused),
            reply_tokens=planned.request.reply_tokens,
        )
        return overflow(say(), planned, refused, say(says_sizes=False).lstrip())

    async def kept(self, planned: Planned, tenant: str, decision: Decision) -> Planned:
        """The plan after its artifacts are kept; another one if they cannot be."""
        if await self._is_safe(planned, tenant):
            return planned
        planned = await self._planner.plan_without_keeping(planned)
        decision.note_plan(planned)
        return planned

    async def larger(self, planned: Planned, tenant: str, decision: Decision) -> Planned | None:
        """A plan for more than a learned limit is known to hold, made now and then when that limit required a cut: if
        the upstream accepts it, the limit has grown."""
        excess = planned.plan.budget.ceiling.excess(planned.plan.before)
        if excess is None:
            return None
        is_of_bytes = excess.bytes and planned.plan.budget.bytes_may_be_wrong
        larger = await (self._of_more_bytes(planned) if is_of_bytes else self._of_more_tokens(planned))
        # What stays whole may leave no plan that proves anything: it is tried once, not at every turn from now on.
        if larger is None or not larger.plan.fits or not await self._is_safe(larger, tenant):
            return None
        decision.note_plan(larger)
        self._log.info(
            "window_tried",
            request_id=decision.request_id,
            model=larger.inputs.profile.model,
            window_tokens=larger.inputs.profile.window_tokens,
            tokens_after=larger.tokens_after,
            bytes_after=larger.plan.after.bytes,
        )
        return larger

    async def _of_more_tokens(self, planned: Planned) -> Planned | None:
        profile, search = planned.inputs.profile, self._judge.search_of(planned)
        may_have_grown = profile.witness in (Witness.LEARNED, Witness.INFERRED) and not profile.cuts_silently
        if not may_have_grown or profile.is_rated:  # a rate is met anew when it is forgotten
            return None
        window = profile.window_tokens
        if not self._trials.is_due((profile.known_as, planned.tenant, window)):
            return None
        known, refused = (window, window) if search is None else (search.guess, search.refused)
        goal = int(refused * LARGER / planned.plan.budget.ratio)
        larger = await self._planner.plan_for(planned, goal, keeping=True)
        return larger if larger.tokens_after > known * PROVES else None

    async def _of_more_bytes(self, planned: Planned) -> Planned | None:
        search = self._judge.search_of_bytes(planned)
        if search is None or not self._trials.is_due(("", planned.tenant, search.guess)):
            return None
        goal = int(min(search.refused * LARGER, self._most_bytes))
        larger = await self._planner.plan_for_bytes(planned, goal, keeping=True)
        return larger if larger.plan.after.bytes > search.guess * PROVES else None

    async def _harsher_for(self, journey: Journey, attempt: Attempt, goal_tokens: int) -> tuple[Planned, Attempt]:
        """The plan for a second send: the one that the next turn will continue from if that surely fits, so that a
        prompt cache is lost once, not twice; otherwise one cut down to its goal, or as far below the true limit as
        possible, with the shortest useful reply limit. The attempt names the goal that was used, as the plan counts."""
        if attempt.sure_tokens is not None and journey.plan_for is None:
            planned = await self._as_next_turn(journey)
            sure = _as_counted(attempt.sure_tokens, journey.planned, planned)
            if planned.plan.fits and planned.plan.after.tokens <= sure:
                # The reply limit of the plan; the next turn's own where settings leave it, and this send is sure.
                reply = attempt.reply_tokens if planned.plan.budget.max_reply_tokens is None else None
                return planned, replace(attempt, goal_tokens=sure, reply_tokens=reply)
        if attempt.is_search and journey.plan_for is None:
            planned = await self._as_searched(journey)
            goal = _as_counted(goal_tokens, journey.planned, planned)
            if planned.plan.fits and planned.plan.after.tokens <= goal:
                return planned, replace(attempt, goal_tokens=goal)
        planned = await self._harsher(journey, goal_tokens, attempt.most_tokens)
        goal = _as_counted(goal_tokens, journey.planned, planned)
        if attempt.most_tokens is None or planned.plan.after.tokens <= goal:
            return planned, replace(attempt, goal_tokens=goal)
        attempt = replace(attempt, goal_tokens=_as_counted(attempt.most_tokens, journey.planned, planned))
        reply = attempt.least_reply_tokens
        return planned, attempt if reply is None else replace(attempt, reply_tokens=reply)

    async def _as_next_turn(self, journey: Journey) -> Planned:
        """The plan for a request with the current knowledge of its model."""
        return await self._made(partial(self._planner.plan_again, journey.planned), journey.tenant)

    async def _as_searched(self, journey: Journey) -> Planned:
        """The plan that the next turn will continue from, after a refusal that names no limit."""
        counted: Planned | None = None
        for _ in range(2):  # the first plan may find that the request has to be counted by another counter
            search = self._judge.search_after(journey.planned, counted)
            if search is None:
                return journey.planned
            supposing = partial(self._planner.plan_supposing, journey.planned, search)
            planned = await self._made(supposing, journey.tenant)
            if planned.inputs.counted_by == (counted or journey.planned).inputs.counted_by:
                break
            counted = planned
        return planned

    async def _harsher(self, journey: Journey, goal_tokens: int, most_tokens: int | None = None) -> Planned:
        """The plan for a second send of `goal_tokens`, counted as the first was; the plan says whether it fits."""
        refused = journey.planned
        plan_for = journey.plan_for or partial(self._planner.plan_for, refused)
        planned = await plan_for(goal_tokens, most_tokens, keeping=True)
        if planned.inputs.counted_by != refused.inputs.counted_by:
            # A request that surely fits is not counted exactly; this one is, so the goal is converted to its counter.
            goal_tokens = _as_counted(goal_tokens, refused, planned)
            most_tokens = None if most_tokens is None else _as_counted(most_tokens, refused, planned)
            planned = await plan_for(goal_tokens, most_tokens, keeping=True)
        if await self._is_safe(planned, journey.tenant):
            return planned
        return await plan_for(goal_tokens, most_tokens, keeping=False)

    async def _without_media(self, journey: Journey, media: frozenset[Modality]) -> Planned:
        """The plan for a second send in which these kinds of media are sent as text."""
        return await self._made(partial(self._planner.plan_without, journey.planned, media), journey.tenant)

    async def _made(self, make: _Make, tenant: str) -> Planned:
        planned = await make(keeping=True)
        return planned if await self._is_safe(planned, tenant) else await make(keeping=False)

    async def _is_safe(self, planned: Planned, tenant: str) -> bool:
        """Whether everything that a plan takes out is kept."""
        return not planned.plan.artifacts or not await self._store.keep(planned.plan.artifacts, tenant)


def _as_counted(tokens: int, refused: Planned, planned: Planned) -> int:
    """Tokens as counted by one plan, converted to the counter of another plan for the same request."""
    if planned.inputs.counted_by == refused.inputs.counted_by:
        return tokens
    return tokens * planned.plan.before.tokens // max(1, refused.plan.before.tokens)


def overflow(message: str, planned: Planned, refused: Verdict, advice: str = "") -> ContextOverflow:
    """A refusal for length that could not be cured, worded so that a person can act on it."""
    terms, pipeline = planned.inputs.terms, planned.inputs.pipeline
    cause = "" if terms.keeping else unkept(pipeline.notices.language)
    return ContextOverflow(
        message + cause,
        param=planned.request.shape.messages,
        upstream_message=refused.upstream_message if refused.is_overflow else None,
        sizes=sizes_of(planned.plan, planned.inputs.profile.window_tokens, refused),
        advice=advice and advice + cause,
    )
