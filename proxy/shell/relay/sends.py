"""What is sent for one request, after each refusal.

Rule: the core's table of cures decides what follows a refusal; here it becomes a plan. What cannot be kept is not taken
out: then another plan is made, which says so. A request that no plan and no cure changes goes upstream as the original
bytes. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, structs

from proxy.config import Settings
from proxy.core.compaction import Plan
from proxy.core.models import Certainty, Search
from proxy.core.notices import ArtifactAccess
from proxy.core.overflow import (
    ALWAYS_SMALLER,
    ESTIMATED_SHARE,
    AttemptKind,
    Cure,
    OversizedPlan,
    Situation,
    Terms,
    Unit,
    Verdict,
    next_cures,
    sizes_of,
    unkept,
)
from proxy.core.text import Discreet
from proxy.errors import ContextOverflow
from proxy.shell.artifacts import ArtifactStore
from proxy.shell.http import Received
from proxy.shell.planning import Planned, Planner
from proxy.shell.relay.judging import ACCEPTED, Attempt, Judge
from proxy.shell.relay.peeking import PassEarly
from proxy.shell.resources import Kept
from proxy.shell.upstream import Headers
from proxy.wire import Wire

Again: TypeAlias = Callable[[Planned, Terms], Awaitable[Planned]]
"""Plans a request again, on other terms."""


class Arrived(Struct):
    """A request as it came."""

    wire: Wire
    target: bytes
    headers: Headers
    received: Received
    """Compressed or not."""
    kept: Kept
    """Keeps the request while it waits."""
    access: ArtifactAccess
    pass_early: PassEarly
    """Takes bytes without content while the response is read."""
    model: str
    """Used if the body names none."""
    client_streams: bool = False
    """Whether the client is known to want a stream, and gets that of a fitted request: only then are comments sent
    while it waits."""


class PendingRequest(Discreet, frozen=True):
    """A request as it came, and the plan for it."""

    came: Arrived
    headers: Headers
    """For the upstream."""
    planned: Planned
    """What is sent first."""
    again: Again | None = None
    """Plans a request that holds a page which was read for the model: a goal makes the page smaller. The plan that
    follows knows no other page."""
    is_last: bool = False
    """Whether nothing is sent if it is refused."""

    def rendered(self, cure: Cure, planned: Planned) -> tuple[Headers, bytes]:
        """Headers and body of one send."""
        if cure.kind is AttemptKind.ORIGINAL or not planned.changed:
            return self.headers, self.came.received.body
        return without_encoding(self.headers), planned.body()


class Sends:
    """Decides what is sent for every request."""

    def __init__(self, settings: Settings, planner: Planner, store: ArtifactStore, judge: Judge) -> None:
        self._retries = settings.overflow.retry
        self._language = settings.language
        self._planner = planner
        self._store = store
        self._judge = judge

    async def recounted(self, refused: Planned) -> Planned:
        """The plan that was refused, counted exactly."""
        return await self._planner.recounted(refused) if self._retries else refused

    async def following(self, pending: PendingRequest, history: Sequence[Attempt]) -> tuple[Cure, Planned] | None:
        """What is sent next; None if nothing is. Raises ContextOverflow if nothing is left that may be sent."""
        refused, verdict = history[-1].planned, history[-1].outcome.verdict
        if not self._retries:
            return None
        again = pending.again if len(history) == 1 else None
        search = self._judge.search_after(verdict, refused, is_second=len(history) > 1)
        situation = self._situation(refused, search, holds_a_page=again is not None)
        cures = () if pending.is_last else next_cures(history, situation)
        is_searched = verdict.names_no_limit and (not cures or cures[0].kind is AttemptKind.EMERGENCY)
        if search is not None and is_searched:
            self._judge.learn_search(search, verdict, refused)
        if not cures:
            return None
        cure, planned = cures[0], refused
        if cure.terms is not None:
            asking = refused.left_to_the_upstream() if verdict.is_overflow and not refused.members else None
            if asking is not None:
                return cure, asking.with_reply(cure.reply_tokens)
            cure, planned = await self._planned(refused, cures, again or self._planner.again)
            if cure.kind is AttemptKind.EMERGENCY and refused.members:  # it was asked at once
                planned = planned.left_to_the_upstream() or planned
            if not _may_replace(cure, planned, refused):
                if cure.kind is AttemptKind.EMERGENCY and verdict.is_overflow:
                    raise self.refusal(planned, verdict)
                if cure.keeps_to is None:
                    return None
                # Nothing is over that limit by our measure: the refusal is cured as any other of its kind.
                outcome = structs.replace(history[-1].outcome, verdict=structs.replace(verdict, named=None))
                return await self.following(pending, [*history[:-1], structs.replace(history[-1], outcome=outcome)])
        return cure, planned.with_reply(cure.reply_tokens)

    def _situation(self, sent: Planned, search: Search | None, *, holds_a_page: bool) -> Situation:
        """What the table of cures needs to know of what was sent."""
        plan = sent.plan
        guess = None if search is None else int(search.guess / sent.inputs.budget.ratio)
        return Situation(
            estimate_tokens=plan.after.tokens,
            chars=plan.after.chars,
            bytes=plan.after.bytes,
            reply_tokens=sent.reply_tokens or sent.request.reply_tokens,
            edited=sent.changed,
            original_could_fit=plan.budget.admits(plan.before),
            terms=sent.inputs.terms._replace(keeping=True),
            search=search,
            guess_tokens=guess if guess is not None and guess < plan.after.tokens else None,
            has_our_tool=sent.offered,
            fixed_tokens=plan.fixed_tokens,
            holds_a_page=holds_a_page,
            count_may_be_wrong=plan.budget.count_may_be_wrong,
        )

    async def _planned(self, refused: Planned, cures: Sequence[Cure], again: Again) -> tuple[Cure, Planned]:
        """The first cure whose plan keeps to its goal, or the last one."""
        planned, terms = refused, None
        for cure in cures:
            if cure.terms is not None and cure.terms is not terms:
                terms = cure.terms
                planned = await self.kept(await again(refused, terms), again)
            goal = cure.goal_tokens
            if goal is None or (planned.plan.fits and planned.plan.after.tokens <= goal):
                break
        budget = planned.plan.budget
        if cure.is_sure and cure.reply_tokens is not None and budget.max_reply_tokens is not None:
            left = budget.max_reply_tokens - int(planned.tokens_after / ESTIMATED_SHARE)
            cure = structs.replace(cure, reply_tokens=max(left, budget.reserved_reply_tokens))
        return cure, planned

    def refusal(self, planned: Planned, refused: Verdict = ACCEPTED) -> ContextOverflow:
        """The error for a request that cannot be made to fit; `refused`: the upstream's verdict on it."""
        profile = planned.inputs.profile
        is_stated = refused.limit is not None and refused.unit is Unit.TOKENS
        window = refused.limit if is_stated and refused.limit is not None else profile.window_tokens
        oversized = OversizedPlan(
            planned.plan,
            profile.model,
            window,
            planned.request.put_in,
            planned.inputs.members,
            planned.inputs.system_tokens,
            planned.request.reply_tokens,
            window_is_stated=is_stated,
            is_unnamed=not is_stated and profile.certainty in (Certainty.GUESSED, Certainty.INFERRED),
            sizes=sizes_of(planned.plan, profile.window_tokens, refused),
        )
        advice = oversized.message(self._language, says_sizes=False).lstrip()
        return overflow(oversized.message(self._language), planned, refused, advice)

    async def kept(self, planned: Planned, again: Again | None = None) -> Planned:
        """The plan after all that it takes out is kept; if it cannot be, another one, which says that it is not."""
        if not planned.plan.artifacts or not await self._store.keep(planned.plan.artifacts, planned.tenant):
            return planned
        return await (again or self._planner.again)(planned, planned.inputs.terms._replace(keeping=False))


_DIFFERS: Final[Mapping[AttemptKind, Callable[[Plan, Plan], bool]]] = {
    AttemptKind.WITHOUT_MEDIA: lambda plan, refused: plan.sent != refused.sent,
    AttemptKind.LIMITED: lambda plan, refused: plan.sent != refused.sent,
    AttemptKind.FEWER_BYTES: lambda plan, refused: plan.after.bytes < refused.after.bytes * ALWAYS_SMALLER,
    AttemptKind.EMERGENCY: lambda plan, refused: plan.after.bytes < refused.after.bytes,
    AttemptKind.FITTED: lambda plan, refused: plan.after.bytes < refused.after.bytes,
}
"""How the plan of a cure must differ from the one that was refused; those of other cures always do."""


def _may_replace(cure: Cure, planned: Planned, refused: Planned) -> bool:
    """Whether a plan may be sent after one that was refused, and differs from it as its cure requires."""
    differs = _DIFFERS.get(cure.kind)
    return planned.plan.may_be_sent and (differs is None or differs(planned.plan, refused.plan))


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


def without_encoding(headers: Headers) -> Headers:
    """The headers of a body that is not compressed."""
    return [(name, value) for name, value in headers if name != b"content-encoding"]


def asking_for_plain(headers: Headers, accepted: bytes) -> Headers:
    """Request headers that accept no compressed response, in which a refusal would go unnoticed, in place of those that
    are `accepted`. No client sends that header twice.

    >>> asking_for_plain([(b"accept-encoding", b"br, gzip;q=0.9"), (b"accept", b"*/*")], b"br, gzip;q=0.9")
    [(b'accept-encoding', b'identity'), (b'accept', b'*/*')]
    """
    plain = headers.copy()
    plain[headers.index((b"accept-encoding", accepted))] = (b"accept-encoding", b"identity")
    return plain
