"""Plans for one more send of a request, with what they take out kept before it is sent.

Rule: what cannot be kept is not taken out: then there is another plan, which says so. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from proxy.core.models.profile import Modality, Witness
from proxy.core.overflow.retry_strategy import Attempt
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.models.trials import LARGER, PROVES, Trials
from proxy.shell.planning.planned import Planned
from proxy.shell.planning.planner import Planner
from proxy.shell.relay.journey import Journey
from proxy.shell.resources.logs import logger
from proxy.shell.telemetry.decision import Decision

_Make: TypeAlias = Callable[..., Awaitable[Planned]]
"""Makes a plan; `keeping`: whether what it takes out can be kept."""


class SendPlans:
    """Makes them for every request."""

    def __init__(self, planner: Planner, store: ArtifactStore) -> None:
        self._planner = planner
        self._store = store
        self._trials = Trials()
        self._log = logger()

    async def kept(self, planned: Planned, owner: str, decision: Decision) -> Planned:
        """The plan once its artifacts are safe; another one when they cannot be kept."""
        if await self._is_safe(planned, owner):
            return planned
        planned = await self._planner.plan_without_keeping(planned)
        decision.note_plan(planned)
        return planned

    async def larger(self, planned: Planned, owner: str, decision: Decision) -> Planned | None:
        """A plan for more than a learned window is known to take, now and then where that made a cut necessary: if it
        is taken, the window has grown."""
        profile, budget = planned.basis.profile, planned.plan.budget
        may_have_grown = profile.witness in (Witness.LEARNED, Witness.INFERRED) and not profile.cuts_silently
        if not may_have_grown or budget.admits(planned.plan.before):
            return None
        if not self._trials.is_due(profile.model):
            return None
        # What stays whole may leave no plan that proves anything: it is made once, not at every turn from now on.
        goal = int(profile.window_tokens * LARGER / budget.ratio)
        larger = await self._planner.plan_for(planned, goal, keeping=True)
        proves_it = larger.plan.fits and larger.tokens_after > profile.window_tokens * PROVES
        if not proves_it or not await self._is_safe(larger, owner):
            return None
        decision.note_plan(larger)
        self._log.info(
            "window_tried",
            request_id=decision.request_id,
            model=profile.model,
            window_tokens=profile.window_tokens,
            tokens_after=larger.tokens_after,
        )
        return larger

    async def harsher_for(self, journey: Journey, attempt: Attempt, goal_tokens: int) -> tuple[Planned, Attempt]:
        """The plan for a second send: the one that the next turn will go on from where that surely fits, so that a
        prompt cache is lost once and not twice; else down to its goal, or as far under the true limit as can be, with
        the shortest useful reply beside it."""
        if attempt.sure_tokens is not None and journey.plan_for is None:
            planned = await self.as_next_turn(journey)
            sure = _as_counted(attempt.sure_tokens, journey.planned, planned)
            if planned.plan.fits and planned.plan.after.tokens <= sure:
                return planned, replace(attempt, reply_tokens=None)
        planned = await self.harsher(journey, goal_tokens, attempt.most_tokens)
        if attempt.most_tokens is None or planned.plan.after.tokens <= _as_counted(
            goal_tokens, journey.planned, planned
        ):
            return planned, attempt
        reply = attempt.least_reply_tokens
        return planned, attempt if reply is None else replace(attempt, reply_tokens=reply)

    async def as_next_turn(self, journey: Journey) -> Planned:
        """The plan for a request with what is known of its model by now."""
        return await self._made(partial(self._planner.plan_again, journey.planned), journey.owner)

    async def harsher(self, journey: Journey, goal_tokens: int, most_tokens: int | None = None) -> Planned:
        """The plan for a second send of so many tokens, as the first was counted; whether it fits it says."""
        refused = journey.planned
        plan_for = journey.plan_for or partial(self._planner.plan_for, refused)
        planned = await plan_for(goal_tokens, most_tokens, keeping=True)
        if planned.basis.counted_by != refused.basis.counted_by:
            # A request that surely fits is not counted exactly; this one is, and the goal has to mean the same.
            goal_tokens = _as_counted(goal_tokens, refused, planned)
            most_tokens = None if most_tokens is None else _as_counted(most_tokens, refused, planned)
            planned = await plan_for(goal_tokens, most_tokens, keeping=True)
        if await self._is_safe(planned, journey.owner):
            return planned
        return await plan_for(goal_tokens, most_tokens, keeping=False)

    async def without_media(self, journey: Journey, media: frozenset[Modality]) -> Planned:
        """The plan for a second send in which these kinds of input are text."""
        return await self._made(partial(self._planner.plan_without, journey.planned, media), journey.owner)

    async def _made(self, make: _Make, owner: str) -> Planned:
        planned = await make(keeping=True)
        return planned if await self._is_safe(planned, owner) else await make(keeping=False)

    async def _is_safe(self, planned: Planned, owner: str) -> bool:
        """Whether all that a plan takes out is kept."""
        return not planned.plan.artifacts or not await self._store.keep(planned.plan.artifacts, owner)


def _as_counted(tokens: int, refused: Planned, planned: Planned) -> int:
    """Tokens as one plan counts, as another plan for the same request does."""
    if planned.basis.counted_by == refused.basis.counted_by:
        return tokens
    return tokens * planned.plan.before.tokens // max(1, refused.plan.before.tokens)
