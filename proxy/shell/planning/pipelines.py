"""From settings to pipelines: the steps with their limits for requests to a model.

Rule: a pipeline is a function of settings, model, budget and tool list; nothing else in a request may change it, or the
prefix of a conversation would change with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import Struct, structs

from proxy.config import ModelSettings, Settings, ToolLimits, ToolOutputSettings
from proxy.core.compaction import Budget, BudgetRules, Cap, Pipeline, budget_for, compaction_steps, last_resorts
from proxy.core.conversation import LocalStep, Resolved
from proxy.core.media import HIDING, SINGLE, SUMS, Measure, RouteMedia, Routes
from proxy.core.models import (
    MANY_IMAGES,
    AgentTools,
    Certainty,
    LimitName,
    ModelProfile,
    ToolImages,
    reply_is_apart,
    smallest,
    usual_tool_images,
)
from proxy.core.notices import Notices, PageSize
from proxy.core.overflow import Terms
from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.core.text import ExcerptLimits
from proxy.core.tokens import Counter
from proxy.core.truncation import CutStrings, JoinTexts, SanitiseText, TruncateToolOutput
from proxy.shell.models import entry_of

_BYTES_PER_TOKEN: Final = 3
"""A low estimate of the average for text."""
_LEAST_RESULT_BYTES: Final = 600
"""Minimum kept of a result on arrival in the smallest window; its notice takes a third of it."""
_BYTES_PER_CHARACTER: Final = 4
"""The most that UTF-8 takes."""
_USUAL: Final = Terms()


class Pipelines:
    """Builds pipelines from one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.language = settings.language
        """Language of the notices that models read."""
        self.retrieval_policy = settings.artifacts.retrieval_tool
        """Which agents are offered the proxy's own tool."""
        self.forbids_silent_cuts = settings.overflow.forbid_silent_cuts
        """Whether to have the upstream refuse what it would cut."""
        budget, defaults = settings.budget, settings.defaults
        self.rules = BudgetRules(
            fill=budget.fill,
            low_mark=budget.low_mark,
            margin_tokens=budget.margin,
            clamp_reply=budget.clamp_reply,
            max_request_chars=defaults.max_request_chars,
            max_request_bytes=defaults.max_request_bytes,
        )

    def reply_is_apart(self, model: str) -> bool:
        """Whether its upstream accepts a reply limit that goes beyond the window."""
        return reply_is_apart(model, self._settings.upstream.base_url)

    def result_limits(self, profile: ModelProfile, ratio: float) -> TruncateToolOutput:
        """The limits of tool results when they arrive; `ratio`: the upstream's tokens for one of ours."""
        budget = budget_for(profile, None, exact=True, rules=self.rules, ratio=ratio)
        return self._truncate(entry_of(self._settings.models, profile.model), budget.result_tokens)

    def page_bytes(self, model: str, budget: Budget) -> int:
        """How many bytes all results of the proxy's own tool may hold at a time: as much as one result of any tool."""
        limits = self._truncate(entry_of(self._settings.models, model), budget.result_tokens).limits_of(RETRIEVAL_TOOL)
        return limits.max_bytes if limits.max_chars is None else min(limits.max_bytes, limits.max_chars)

    def pipeline(
        self,
        profile: ModelProfile,
        budget: Budget,
        counter: Counter,
        tools: AgentTools,
        terms: Terms = _USUAL,
        *,
        results_hold_media: bool = False,
    ) -> Pipeline:
        """The steps for one request on these terms. `results_hold_media`: whether its wire has a place for media in
        tool results."""
        entry, keeping = entry_of(self._settings.models, profile.model), terms.keeping
        of_settings = {} if entry is None or entry.max_images is None else {LimitName.IMAGES.value: entry.max_images}
        at_most = smallest((profile.at_most, of_settings))
        truncate, longest = self._truncate(entry, budget.result_tokens), at_most.get(LimitName.STRING)
        sanitise = SanitiseText(entry.sanitise) if entry is not None and entry.sanitise else None
        steps = (
            self._route(entry, profile, at_most.get(LimitName.IMAGES), results_hold_media=results_hold_media),
            structs.replace(truncate, may_cut=keeping and not profile.refuses_cut_results, longest=longest),
            None if longest is None else CutStrings(longest),  # kept or not: a longer text is refused
            sanitise,
        )
        local = tuple(step for step in steps if step is not None)
        clean = None if sanitise is None else sanitise.clean
        was_refused = terms.is_for_one_send or profile.certainty is Certainty.INFERRED
        page = PageSize.within(truncate.limits)
        notices = Notices(
            self.language, terms.access, tools.reach, keeping, tools.has_subagent, tools.has_shell, clean, page
        )
        showing = _Showing(local)
        return Pipeline(
            caps=tuple(_caps(local, at_most)),
            always=sanitise,
            local=local,
            compaction_steps=compaction_steps(notices, budget, showing, counter),
            last_resorts=last_resorts(notices, budget, showing, counter, was_refused=was_refused),
            notices=notices,
            counter=counter,
            budget=budget,
            is_replayed=not terms.is_for_one_send,
            has_tools=tools.has_any,
        )

    def _route(
        self, entry: ModelSettings | None, profile: ModelProfile, max_images: int | None, *, results_hold_media: bool
    ) -> RouteMedia:
        media = self._settings.media
        routes = Routes(
            modalities=profile.modalities,
            unstated=profile.unstated,
            refused=profile.refused,
            is_strict=media.unknown_capability == "text",
            max_bytes=media.max_bytes,
            max_image_pixels=media.max_image_pixels,
            max_images=max_images,
        )
        stated = entry.tool_images if entry is not None else None
        if results_hold_media:
            holds_text = profile.results_hold_text or stated is ToolImages.TEXT
            return RouteMedia(routes, ToolImages.TEXT if holds_text else ToolImages.KEEP)
        is_unknown = profile.modalities is None and not routes.is_strict and not profile.results_hold_text
        if stated is None and is_unknown:
            return RouteMedia(routes, ToolImages.KEEP)  # nothing is stated: media parts stay where they are
        return RouteMedia(routes, stated or usual_tool_images(profile.model, self._settings.upstream.base_url))

    def _truncate(self, entry: ModelSettings | None, result_tokens: int | None) -> TruncateToolOutput:
        every = self._settings.tool_output
        share = None if result_tokens is None else max(_LEAST_RESULT_BYTES, result_tokens * _BYTES_PER_TOKEN)
        stated = entry.max_tool_result_chars if entry is not None else None
        limits = _in_characters(
            every, stated, share, ExcerptLimits(direction=every.direction, head_share=every.head_share)
        )
        own = {name: _own(every, limits, one, share) for name, one in every.tools.items()}
        bound_by = "window" if limits.max_bytes == share else "settings"
        return TruncateToolOutput(limits, own, every.never, every.preview_chars, bound_by)


def resolving(pipeline: Pipeline, resolved: Resolved) -> Pipeline:
    """The pipeline with what references in the request refer to."""
    if not resolved:
        return pipeline
    caps = [
        cap if cap.local is None else structs.replace(cap, local=_with_resolved(cap.local, resolved))
        for cap in pipeline.caps
    ]
    return replace(pipeline, local=_with_resolved(pipeline.local, resolved), caps=tuple(caps))


def _with_resolved(steps: Sequence[LocalStep], resolved: Resolved) -> tuple[LocalStep, ...]:
    looking = (RouteMedia, TruncateToolOutput)
    return tuple(structs.replace(step, resolved=resolved) if isinstance(step, looking) else step for step in steps)


def one_by_one(pipeline: Pipeline) -> Pipeline:
    """The pipeline for messages that are shortened one by one: none is added, left out or moved."""
    local = [structs.replace(step, in_place=True) if isinstance(step, RouteMedia) else step for step in pipeline.local]
    return replace(pipeline.without_steps(), local=tuple(local))


class _Showing(Struct, frozen=True):
    """Keeps only some images of a message and describes the others."""

    steps: tuple[LocalStep, ...]

    def __call__(self, images: int) -> tuple[LocalStep, ...]:
        """The pipeline for at most this many images."""
        return _routing(self.steps, max_images=images)


def _routing(steps: Sequence[LocalStep], **changes: Any) -> tuple[LocalStep, ...]:
    """The steps with other routes for media."""
    return tuple(
        structs.replace(step, routes=structs.replace(step.routes, **changes)) if isinstance(step, RouteMedia) else step
        for step in steps
    )


_OF_AN_IMAGE: Final = {
    LimitName.IMAGE_BYTES: "max_image_bytes",
    LimitName.SIDE: "max_side",
    LimitName.SIDE_OF_MANY: "max_side",
}
"""Limits of one image, by the member of its routes that keeps to them."""


def _caps(local: Sequence[LocalStep], at_most: Mapping[str, int]) -> Iterator[Cap]:
    """The caps of a request. A limit of one message or one image allows none that is over it."""
    for name in map(LimitName, sorted(set(at_most) & {*SUMS, *SINGLE})):
        most = at_most[name]
        if name is LimitName.IMAGES:
            yield Cap(most, SUMS[name], _routing(local, max_images=0))
        elif name in SUMS:
            yield Cap(most, SUMS[name], _routing(local, hidden=HIDING[name]) if name in HIDING else None)
        else:
            steps = _routing(local, **{_OF_AN_IMAGE[name]: most}) if name in _OF_AN_IMAGE else None
            if name is LimitName.PARTS:  # between two images that are shown stands one text
                steps = (*_routing(local, max_images=max(0, (most - 1) // 2)), JoinTexts(most))
            yield Cap(0, _over(SINGLE[name], most), steps, MANY_IMAGES if name is LimitName.SIDE_OF_MANY else 0)


def _over(measure: Measure, most: int) -> Measure:
    return lambda entry: int(measure(entry) > most)


def _in_characters(
    every: ToolOutputSettings, max_chars: int | None, share: int | None, like: ExcerptLimits
) -> ExcerptLimits:
    """The limits where `max_chars` is set for results: it replaces lines and bytes that are not set. The share of the
    window, in bytes, always holds."""
    replaces = max_chars is not None
    lines_stand = not replaces or "max_lines" in every.model_fields_set
    bytes_stand = not replaces or "max_bytes" in every.model_fields_set
    most = every.max_bytes if bytes_stand else max(every.max_bytes, _BYTES_PER_CHARACTER * (max_chars or 0))
    return structs.replace(
        like,
        max_lines=every.max_lines if lines_stand else max(every.max_lines, max_chars or 0),
        max_bytes=most if share is None else min(most, share),
        max_chars=max_chars,
    )


def _own(every: ToolOutputSettings, limits: ExcerptLimits, stated: ToolLimits, share: int | None) -> ExcerptLimits:
    """The limits of one tool: those stated for it, the rest as for every tool."""
    if stated.max_chars is not None:
        limits = _in_characters(every, stated.max_chars, share, limits)
    return structs.replace(
        limits,
        max_lines=stated.max_lines or limits.max_lines,
        max_bytes=stated.max_bytes or limits.max_bytes,
        direction=stated.direction or limits.direction,
    )
