"""From a request that was read to the plan of what to send: who counts, what fits, what is given up.

Rule: a function of the request, settings and what is known of the model; what an earlier plan of the same conversation
brings along saves time and changes nothing.
"""

from __future__ import annotations

import functools
from collections import Counter as Counts
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from proxy.core.compaction.budget import Budget, budget_for, clamped_reply
from proxy.core.compaction.plain_plan import plain_plan
from proxy.core.compaction.plan import Pipeline, Plan, Progress, plan
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.references import Resolved
from proxy.core.conversation.size import REPLY_PRIMING_TOKENS, Size, size_of_tools
from proxy.core.models.agent_tools import AgentFileAccess, offers_subagent, reach_with
from proxy.core.models.profile import ModelProfile
from proxy.core.tokens.counters import ByteClassCounter, Counter
from proxy.core.tokens.image_tokens import with_images_of
from proxy.shell.models.tokenizer import counter_for
from proxy.shell.planning.pipelines import Pipelines, resolving
from proxy.shell.planning.planned import Basis, Planned, Terms
from proxy.shell.planning.prefix import LastSent
from proxy.shell.planning.wanted import while_wanted
from proxy.wire.chat_completions.request import ChatRequest
from proxy.wire.chat_completions.tools import forces_a_call, tool_names

ProfileOf: TypeAlias = Callable[[str, str], ModelProfile]
"""Model, owner of the request → what the model takes."""
RatioOf: TypeAlias = Callable[[str, str], tuple[float, bool]]
"""Model, name of its counter → (the upstream's tokens for one of ours, whether that was measured)."""

MAX_KNOWN_GROUNDS: Final = 256
"""Each for a model, the reply limit that is asked of it, a tool list and a kind of client; all foreign input."""
MAX_KNOWN_TOOLS_BYTES: Final = 8 * 1024 * 1024
"""Of all tool lists that are remembered."""
_MAX_SIZED_BYTES: Final = 128 * 1024
"""Of a tool list whose size is remembered, sixty-four of them; agents' own have up to 80 KB."""
MAX_ROUGH_BYTES: Final = 64 * 1024
"""Whatever the room is: a conversation that grows past this is counted once more from its beginning, in 5 ms. If that
came later, at megabytes in a large window, one turn would pay for all the ones before."""


class Ground(NamedTuple):
    """What a plan rests on, and the steps that make it; the same object in all turns of a conversation."""

    basis: Basis
    pipeline: Pipeline


class _Limits(NamedTuple):
    """What holds for a model, and for the reply limit that is asked of it."""

    profile: ModelProfile
    own: Counter
    """The model's own counter."""
    is_slow: bool
    """Whether that costs so much that a rough count is worth having."""
    budget: Budget
    grounds: dict[tuple[bool, bytes, Terms], Ground]
    """By what else they rest on: whether a rough count will do, the tool list, the terms."""


class PlanMaker:
    """Makes plans; may be used from any thread."""

    def __init__(self, pipelines: Pipelines, profile_of: ProfileOf, ratio_of: RatioOf) -> None:
        self._pipelines = pipelines
        self._profile_of = profile_of
        self._ratio_of = ratio_of
        self._known: dict[tuple[str, int, int | None, float, bool], _Limits] = {}
        self._known_grounds, self._known_tools_bytes = 0, 0

    def plan(
        self,
        request: ChatRequest,
        owner: str,
        terms: Terms,
        resolved: Resolved,
        known: Planned | None = None,
        shared: int = 0,
        *,
        goes_on: bool = False,
        will_be_known: bool = True,
    ) -> Planned:
        """The plan for a request. `known` is one whose first `shared` messages are the first of these; `goes_on`:
        whether this is the next turn of the same conversation; `will_be_known`: whether there may be a next one that
        goes on from this plan."""
        basis, pipeline = self._ground(request, owner, terms, rough=terms.goal_tokens is None)
        steps, progress = resolving(pipeline, resolved), None
        made = None if will_be_known else plain_plan(request.conversation, basis.base, steps)
        if made is None:
            made, progress = plan(request.conversation, basis.base, steps, _progress(known, basis, shared))
        if basis.is_rough and made.before.tokens > basis.budget.room_tokens:
            # The rough count was wrong, or nearly: nothing is given up before the model's own counter has been asked.
            basis, pipeline = self._ground(request, owner, terms, rough=False)
            made, progress = plan(request.conversation, basis.base, resolving(pipeline, resolved))
        lowered = _lowered(request, basis.budget, made)
        offered = basis.tools is not None and not forces_a_call(request.members)
        reasons = _reasons(made, lowered is not None, offered)
        last_sent = known.last_sent if known is not None and goes_on else LastSent()
        return Planned(
            request, owner, basis, made, progress, shared, reasons, lowered, last_sent, resolved, offered=offered
        )

    def _ground(self, request: ChatRequest, owner: str, terms: Terms, *, rough: bool) -> Ground:
        """What a request is planned on; `rough`: whether a rough count will do where it surely fits."""
        limits = self._limits(request, owner)
        roughly = rough and limits.is_slow and not request.has_images and surely_fit(request.full_bytes, limits.budget)
        tools = terms.tools or bytes(request.members.get("tools", b""))
        key = (roughly, tools, terms)
        ground = limits.grounds.get(key)
        if ground is None:
            ground = self._built(limits, terms, tools, roughly=roughly)
            if terms.goal_tokens is None:  # of second sends, hardly two are alike
                self._make_room(len(tools))
                limits.grounds[key] = ground
        return ground

    def _limits(self, request: ChatRequest, owner: str) -> _Limits:
        """What holds for a model, remembered while its profile is the same object."""
        profile = self._profile_of(request.model, owner)
        texts = counter_for(profile.tokenizer, profile.model)
        ratio, calibrated = self._ratio_of(request.model, texts.name)
        asked = request.reply_limit[1] if request.reply_limit else None
        key = (profile.model, profile.window_tokens, asked, ratio, calibrated)
        known = self._known.get(key)
        if known is not None and known.profile is profile:
            return known
        own, is_slow = (
            with_images_of(profile.model, texts, profile.image_tokens),
            not isinstance(texts, ByteClassCounter),
        )
        exact = own.exact or calibrated
        budget = budget_for(profile, asked, exact=exact, rules=self._pipelines.rules, ratio=ratio)
        self._make_room(0)
        self._known[key] = found = _Limits(profile, own, is_slow, budget, {})
        return found

    def _make_room(self, tools_bytes: int) -> None:
        """For one more that is remembered; when it is too much, all are forgotten."""
        self._known_grounds += 1
        self._known_tools_bytes += tools_bytes
        if self._known_grounds > MAX_KNOWN_GROUNDS or self._known_tools_bytes > MAX_KNOWN_TOOLS_BYTES:
            self._known, self._known_grounds, self._known_tools_bytes = {}, 1, tools_bytes

    def _built(self, limits: _Limits, terms: Terms, tools: bytes, *, roughly: bool) -> Ground:
        profile, own, budget = limits.profile, limits.own, limits.budget
        if terms.without:
            profile = replace(profile, refused=profile.refused | terms.without)
        if terms.goal_tokens is not None:
            budget = budget.for_one_send(terms.goal_tokens, terms.most_tokens)
        counter = with_images_of(profile.model, ByteClassCounter(), profile.image_tokens) if roughly else own
        of_tools = _of_tools if len(tools) <= _MAX_SIZED_BYTES else _of_tools.__wrapped__
        base, reach, subagent = of_tools(tools, counter, terms.way.folder is not None)
        basis = Basis(profile, counter.name, counter.name != own.name, budget, base, reach, subagent, *terms)
        pipeline = self._pipelines.pipeline(
            profile,
            budget,
            counter,
            reach,
            terms.way,
            keeping=terms.keeping,
            subagent=subagent,
            is_replayed=terms.goal_tokens is None,
        )
        return Ground(basis, replace(pipeline, local=(while_wanted, *pipeline.local)))


def _progress(known: Planned | None, basis: Basis, shared: int) -> Progress | None:
    """How far a known plan has come, when a plan on this basis may go on from there."""
    if known is None or known.progress is None or known.progress.messages > shared:
        return None
    return known.progress if known.basis is basis or known.basis == basis else None


def surely_fit(full_bytes: int, budget: Budget) -> bool:
    """Whether so many bytes need no exact count: no token is shorter than a byte, images aside."""
    return full_bytes <= budget.room_tokens and full_bytes <= MAX_ROUGH_BYTES


@functools.lru_cache(64)
def _of_tools(tools: bytes, counter: Counter, sees_files: bool) -> tuple[Size, AgentFileAccess, bool]:
    """The size of all that is no message, and what the tools offer. An agent sends the same tools with every request,
    and they are often longer than what it says; its reply limit may be another one each time."""
    raw = tools or None
    base = size_of_tools(raw, counter) + Size(tokens=REPLY_PRIMING_TOKENS)
    names = tool_names(raw)
    return base, reach_with(names, sees_files=sees_files), offers_subagent(names)


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
