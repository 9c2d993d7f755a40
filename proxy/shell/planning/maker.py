"""From a request that was read to the plan of what to send: who counts, what fits, what is given up.

Rule: a function of the request, settings and what is known of the model; what an earlier plan of the same conversation
brings along saves time and changes nothing.
"""

from __future__ import annotations

import functools
from collections import Counter as Counts
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from proxy.core.budget import Budget, budget_for, clamped_reply
from proxy.core.edits import Reason
from proxy.core.estimate import ByteClassCounter, Counter
from proxy.core.image_tokens import with_images_of
from proxy.core.plan import Pipeline, Plan, plan
from proxy.core.profile import ModelProfile
from proxy.core.references import Resolved
from proxy.core.sizes import REPLY_PRIMING_TOKENS, Size, size_of_tools
from proxy.core.tools import Reach, reach_of
from proxy.shell.models.tokenizer import counter_for
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.planning.planned import Basis, Planned, Terms
from proxy.wire.openai_chat import ChatRequest

ProfileOf: TypeAlias = Callable[[str], ModelProfile]
RatioOf: TypeAlias = Callable[[str], tuple[float, bool]]
"""Model → (the upstream's tokens for one of ours, whether that was measured)."""

MAX_KNOWN_LIMITS: Final = 256
"""Models, each with the reply limits that are asked of it; both are foreign input."""
MAX_ROUGH_BYTES: Final = 64 * 1024
"""Whatever the room is: a conversation that grows past this is counted once more from its beginning, in 5 ms. If that
came later, at megabytes in a large window, one turn would pay for all the ones before."""
MAX_TOOLS_BYTES: Final = 256 * 1024
"""Longer tool lists are not remembered; sixty-four are."""


class PlanMaker:
    """Makes plans; may be used from any thread."""

    def __init__(self, pipelines: Pipelines, profile_of: ProfileOf, ratio_of: RatioOf) -> None:
        self._pipelines = pipelines
        self._profile_of = profile_of
        self._ratio_of = ratio_of
        self._known_limits: dict[tuple[str, int | None, float, bool], tuple[ModelProfile, Counter, Budget]] = {}

    def plan(
        self, request: ChatRequest, terms: Terms, resolved: Resolved, known: Planned | None = None, shared: int = 0
    ) -> Planned:
        """The plan for a request. `known` is one whose first `shared` messages are the first of these."""
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

    def _basis(self, request: ChatRequest, terms: Terms, *, rough: bool) -> tuple[Basis, Counter]:
        profile = self._profile_of(request.model)
        if terms.without:
            profile = replace(profile, refused=profile.refused | terms.without)
        tools = terms.tools or bytes(request.members.get("tools", b""))
        asked = request.reply_limit
        own, budget = self._limits(profile, asked[1] if asked else None, *self._ratio_of(request.model))
        if terms.goal_tokens is not None:
            budget = budget.lowered_to(terms.goal_tokens)
        roughly = rough and surely_fits(request.full_bytes, request.body, budget)
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


def surely_fits(full_bytes: int, body: bytes, budget: Budget) -> bool:
    """Whether a body needs no exact count: no token is shorter than a byte, images aside."""
    return full_bytes <= min(budget.room_tokens, MAX_ROUGH_BYTES) and b'"image_url"' not in body


@functools.lru_cache(1024)
def _rough_counter(model: str) -> Counter:
    """The estimate, with images counted as the model's maker does."""
    return with_images_of(model, ByteClassCounter())


@functools.lru_cache(64)
def _of_tools(tools: bytes, counter: Counter, sees_files: bool) -> tuple[Size, Reach]:
    """The size of all that is no message, and what the tools offer. An agent sends the same tools with every request,
    and they are often longer than what it says."""
    raw = tools or None
    return size_of_tools(raw, counter) + Size(tokens=REPLY_PRIMING_TOKENS), reach_of(raw, sees_files=sees_files)


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
