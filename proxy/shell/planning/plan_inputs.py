"""Inputs of a plan besides the messages.

Rule: a function of the settings, the request's model, reply limit and tool list, the knowledge about that model, and
the terms of the send. It is the same object in all turns of a conversation: a plan continues only from one with equal
inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from msgspec import structs

from proxy.core.compaction import Budget, Pipeline, budget_for, note_tokens
from proxy.core.conversation import REPLY_PRIMING_TOKENS, Size, size_of_tools
from proxy.core.models import (
    AgentTools,
    Certainty,
    ModelProfile,
    has_open_weights,
    smallest,
)
from proxy.core.overflow import Terms
from proxy.core.tokens import ByteClassCounter, Counter, with_images_of
from proxy.shell.models import ModelResolver, counter_for
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.resources import while_wanted
from proxy.wire import Request, Wire

MAX_KNOWN_INPUTS: Final = 256
"""Each is for a model, a reply limit, a tool list and a kind of client; all of these are foreign input."""
MAX_KNOWN_TEXT_BYTES: Final = 8 * 1024 * 1024
"""Limit for all remembered tool lists and instructions."""
_MAX_SIZED_BYTES: Final = 128 * 1024
"""Largest tool list whose size is remembered (64 of them are); the lists of agents have up to 80 KB."""
ROUGH_SHARE: Final = 2 / 3
"""Share of the usable room up to which an estimate decides, because an exact count would decide the same. For whole
conversations of agents it is 0.7 to 1.0 of the estimate, and 1.3 for Chinese in `cl100k_base`, the densest language
that one consists of. A conversation of letters drawn by lot (1.8) is sent, refused, and counted exactly then."""
_ROUGH_BYTES_PER_TOKEN: Final = 3
"""Bytes of a request for each token of the usable room: the estimate of a longer request would hardly ever be within
its share."""
MAX_UNSURE_BYTES: Final = 64 * 1024
"""Largest request that is estimated although its counter may not be its model's own, or its server may cut prompts
silently: both are found out by comparing exact counts with usage."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything besides the messages that a plan depends on."""

    profile: ModelProfile
    counted_by: str
    is_rough: bool
    """Whether `counted_by` is not the model's own counter, because the request is far under its room."""
    budget: Budget
    base: Size
    """Size of what is not a message: mostly tools."""
    members: Mapping[str, int]
    """Tokens in `base` of members that may be no prompt at all for this upstream, by name."""
    system_tokens: int
    """Tokens in `base` of system text that is none of the messages."""
    tools: AgentTools
    terms: Terms
    pipeline: Pipeline = field(repr=False, compare=False)
    """The steps, which follow from all of these."""


class _Texts(NamedTuple):
    """Texts and tools of a request besides its messages."""

    tools: bytes
    instructions: bytes
    members: tuple[tuple[str, bytes], ...]
    """Long ones that may be prompt."""

    @property
    def bytes(self) -> int:
        """Limit for all of them."""
        return len(self.tools) + len(self.instructions) + sum(len(raw) for _, raw in self.members)


class _Limits(NamedTuple):
    """Limits of a model together with a reply limit."""

    profile: ModelProfile
    preamble: bytes
    """Put before the messages by its upstream."""
    own: Counter
    """The model's own counter."""
    rough_bytes: int
    """Largest request for which a rough count is worthwhile."""
    budget: Budget
    known: dict[tuple[bool, str, _Texts, Terms], PlanInputs]
    """Keyed by everything else they depend on: whether the count is rough, the wire, the texts, the terms."""


class KnownInputs:
    """Finds the inputs of plans; may be used from any thread."""

    def __init__(self, pipelines: Pipelines, models: ModelResolver) -> None:
        self._pipelines = pipelines
        self._profile_of, self._ratio_of = models.profile, models.ratio
        self._limits_of: dict[tuple[int, str, int | None], _Limits] = {}
        """Keyed by the identity of a profile, which is another object as soon as anything else is known of its
        model, the tenant, whose ratio may be its own, and the reply limit."""
        self._count, self._text_bytes = 0, 0

    def of(self, wire: Wire, request: Request, tenant: str, terms: Terms, *, rough: bool) -> PlanInputs:
        """The inputs of a plan; `rough`: whether a rough count is enough while the request is far under its room."""
        limits = self._limits(request, tenant, terms)
        roughly = rough and not request.has_images and request.full_bytes <= limits.rough_bytes
        members = wire.long_members(request)
        texts = _Texts(
            wire.tools(request),
            wire.instructions(request.members) + limits.preamble,
            tuple(members.items()) if members else (),
        )
        key = (roughly, wire.path, texts, terms)
        inputs = limits.known.get(key)
        if inputs is None:
            inputs = self._built(wire, limits, terms, texts, roughly=roughly)
            if not terms.is_for_one_send and terms.supposed is None:  # hardly two second sends are alike
                self._make_room(texts.bytes)
                limits.known[key] = inputs
        return inputs

    def _limits(self, request: Request, tenant: str, terms: Terms) -> _Limits:
        """The limits for a request's model and reply limit, remembered while its profile is the same object."""
        known_of, supposed, reply_tokens = (request.known_as, tenant), terms.supposed, request.reply_tokens
        profile = self._profile_of(*known_of) if supposed is None else self._profile_of(*known_of, supposed)
        if terms.window_tokens is not None:
            profile = _within(profile, terms.window_tokens)
        key = (id(profile), tenant, reply_tokens)
        found = self._limits_of.get(key)
        if found is not None and found.profile is profile:
            return found
        found = self._limits_for(profile, tenant, reply_tokens)
        if supposed is None and terms.window_tokens is None:
            self._make_room(0)
            self._limits_of[key] = found
        return found

    def _limits_for(self, profile: ModelProfile, tenant: str, reply_tokens: int | None) -> _Limits:
        texts = counter_for(profile.tokenizer, profile.model)
        ratio, calibrated = self._ratio_of(profile, tenant)
        own = with_images_of(profile.model, texts, profile.least_image_tokens)
        exact = own.exact or (calibrated and not profile.cuts_silently)
        apart = self._pipelines.reply_is_apart(profile.model)
        budget = budget_for(
            profile, reply_tokens, exact=exact, rules=self._pipelines.rules, ratio=ratio, reply_is_apart=apart
        )
        rough_bytes = 0 if isinstance(texts, ByteClassCounter) else _ROUGH_BYTES_PER_TOKEN * budget.usable_tokens
        if not texts.exact or has_open_weights(profile.model):
            rough_bytes = min(rough_bytes, MAX_UNSURE_BYTES)
        return _Limits(profile, profile.preamble.encode("utf-8", "replace"), own, rough_bytes, budget, {})

    def _make_room(self, text_bytes: int) -> None:
        """Make room for one more entry; if there are too many, all are forgotten."""
        self._count += 1
        self._text_bytes += text_bytes
        if self._count > MAX_KNOWN_INPUTS or self._text_bytes > MAX_KNOWN_TEXT_BYTES:
            self._limits_of = {}
            self._count, self._text_bytes = 1, text_bytes

    def _built(self, wire: Wire, limits: _Limits, terms: Terms, texts: _Texts, *, roughly: bool) -> PlanInputs:
        profile, own, budget = limits.profile, limits.own, limits.budget
        if terms.without:
            profile = structs.replace(profile, refused=profile.refused | terms.without)
        if terms.at_most:
            named = [{name.value: most} for name, most in terms.at_most]
            profile = structs.replace(profile, at_most=smallest([profile.at_most, *named]))
            budget = replace(budget, note_tokens=note_tokens(profile))
        if texts.members:  # the upstream decides whether they are prompt
            budget = replace(budget, count_may_be_wrong=not profile.cuts_silently)
        if terms.goal_tokens is not None:
            budget = budget.for_one_send(terms.goal_tokens, terms.most_tokens)
        if terms.goal_bytes is not None:
            budget = budget.for_bytes(terms.goal_bytes)
        counter = with_images_of(profile.model, ByteClassCounter(), profile.least_image_tokens) if roughly else own
        beside = _beside if texts.bytes <= _MAX_SIZED_BYTES else _beside.__wrapped__
        base, members, system_tokens, tools = beside(wire, texts, counter, terms.access.folder is not None)
        holds_media = wire.results_hold_media
        pipeline = self._pipelines.pipeline(profile, budget, counter, tools, terms, results_hold_media=holds_media)
        tool_size = None
        if terms.tools is not None:
            tool_size = size_of_tools(wire.own_tool.definition, counter)
            if self._pipelines.retrieval_policy == "always":
                base, tool_size = base + tool_size, None
        return PlanInputs(
            profile,
            counter.name,
            counter.name != own.name,
            budget,
            base,
            members,
            system_tokens,
            tools,
            terms,
            replace(pipeline, local=(while_wanted, *pipeline.local), tool_size=tool_size),
        )


def _within(profile: ModelProfile, window_tokens: int) -> ModelProfile:
    """The profile with this window, unless its own is known to be smaller."""
    if window_tokens >= profile.window_tokens and not profile.window_is_guessed:
        return profile
    return structs.replace(profile, window_tokens=window_tokens, certainty=Certainty.STATED)


def is_far_under(estimate: Size, budget: Budget) -> bool:
    """Whether a request of this estimated size needs no exact count."""
    return estimate.tokens <= budget.usable_tokens * ROUGH_SHARE and budget.high_mark.excess(estimate) is None


@functools.lru_cache(64)
def _beside(
    wire: Wire, texts: _Texts, counter: Counter, sees_files: bool
) -> tuple[Size, Mapping[str, int], int, AgentTools]:
    """The size of everything that is not a message, the tokens in it of each long member and of system text, and what
    the tools offer. An agent sends the same tools with every request, often longer than its messages, while its reply
    limit may differ each time."""
    system = size_of_tools(texts.instructions or None, counter)
    base = Size(tokens=REPLY_PRIMING_TOKENS) + size_of_tools(texts.tools or None, counter) + system
    members = {name: size_of_tools(raw, counter) for name, raw in texts.members}
    tools = AgentTools.of(wire.tool_names(texts.tools), sees_files=sees_files)
    return sum(members.values(), base), {name: size.tokens for name, size in members.items()}, system.tokens, tools
