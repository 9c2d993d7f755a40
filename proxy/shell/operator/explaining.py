"""A dry run of a request: what would become of each message, with the reasons. Nothing is sent or stored.

Rule: it uses the planner of real requests, so that the explanation cannot drift from what happens; sizes, names and
reasons, never content. What a request refers to but does not contain (an image on the web) is not looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Struct
from pydantic import Field
from typing_extensions import TypedDict

from proxy.config import Settings
from proxy.core.artifact import Artifact
from proxy.core.models import ModelProfile
from proxy.core.notices import ArtifactAccess
from proxy.core.overflow import OversizedPlan
from proxy.core.text import jsontext
from proxy.shell.models import ModelResolver, stated_by
from proxy.shell.planning import Planned, Planner
from proxy.shell.telemetry import Block, described_blocks
from proxy.wire import wire_of_body

Stated = TypedDict(
    "Stated",
    {
        "value": Annotated[int | str | list[str] | None, Field(description="Empty: unknown.")],
        "from": Annotated[
            str | None,
            Field(description="`config …`, `catalogue …`, what a refusal taught, …; empty: nothing states it."),
        ],
    },
)
Stated.__doc__ = "A value of the model's profile, and its source."


class DryRun(TypedDict):
    """A plan that is not sent."""

    model: str
    upstream: Mapping[str, str]
    """Where the request would go: `base_url`."""
    mode: Literal["on", "observe", "off"]
    """From the settings; with `observe` and `off` a real request is forwarded unchanged."""
    fits: bool
    problem: str | None
    """Why it would be refused before anything is sent; empty if it would be sent."""
    changed: bool
    edits: Mapping[str, int]
    """Counts by reason."""
    size: Mapping[str, Mapping[str, int]]
    """In `tokens`, `chars` and `bytes`: `before` edits, and `after`, as it would be sent."""
    besides_messages_tokens: int
    """Tokens of everything outside the messages: tools, mostly."""
    room: Mapping[str, int | None]
    """The room for a request in `tokens`, `chars` and `bytes`; empty: no limit is known."""
    reply_limit: Mapping[str, int | None]
    """Most tokens of the reply that the client `asked` for; empty: none. As it would be `sent`; empty: as requested."""
    counted_by: str
    profile: Mapping[str, Stated]
    """The model's limits, and what it reads. `windows`: by every source that states one, in the order in which they are
    believed; `rate_tokens` are per minute, prompt and reply limit together, `prompt_rate_tokens` the prompt alone;
    `refused` is what its upstream has refused, whatever is stated: kinds of input, and `media in results`,
    `read_artifact`, `cut results`; `tokenizer` is empty if the name of the model decides."""
    token_ratio: Mapping[str, float | str]
    """The upstream's tokens for one of the estimate's: `value`, `from` usage or `default`."""
    messages: list[Block]
    artifacts: list[Mapping[str, int | str]]
    """What a real request would write: its `id`, `bytes` and `place`."""


class Explanation(NamedTuple):
    """A plan that is not sent, and what is said of it."""

    planned: Planned
    described: DryRun
    unlisted: str | None
    """Why the upstream did not list its models' limits; None if it did, or was not asked."""


_VALUES: Final = (
    *("window_tokens", "windows", "input_tokens", "input_chars", "rate_tokens", "prompt_rate_tokens"),
    *("output_tokens", "modalities", "refused", "tokenizer"),
)
_REFUSED: Final = {
    "results_hold_text": "media in results",
    "refuses_our_tool": "read_artifact",
    "refuses_cut_results": "cut results",
}


def described_profile(profile: ModelProfile) -> Mapping[str, Stated]:
    """Each value of a profile, and where it came from."""
    values = {name: getattr(profile, name) for name in _VALUES}
    values["windows"] = [f"{tokens} {source}" for tokens, source in profile.windows]
    values["modalities"] = None if profile.modalities is None else sorted(profile.modalities)
    values["refused"] = [*sorted(profile.refused), *(word for name, word in _REFUSED.items() if getattr(profile, name))]
    found = {name: Stated({"value": value, "from": stated_by(profile, name)}) for name, value in values.items()}
    found["refused"]["from"] = next(filter(None, (stated_by(profile, name) for name in ("refused", *_REFUSED))), None)
    return found


class Explainer(Struct, frozen=True):
    """Explains requests with the planner and the settings of the proxy."""

    settings: Settings
    planners: Sequence[Planner]
    """Of the upstreams in the order in which they are tried; the last one takes every request."""
    place_of: Callable[[Artifact], str]
    way: ArtifactAccess

    async def explain(self, body: bytes, model: str | None = None, *, asks: bool = False) -> Explanation:
        """The explanation of a body, or of the same body for another model; `asks`: its upstream is asked for its
        models' limits first, as a proxy does at its start. Raises MalformedRequest."""
        body = body if model is None else _for_model(body, model)
        wire = wire_of_body(body)
        name = wire.model_in(body)
        taking = (one for one in self.planners if one.models.upstream.settings.takes(wire.path, name))
        planner = next(taking, self.planners[-1])
        unlisted = await planner.models.ask_now(lambda: filter(None, [name])) if asks else None
        planned = await planner.dry_run(wire, body, self.way)
        return Explanation(planned, self._described(planned, planner.models), unlisted)

    def _described(self, planned: Planned, models: ModelResolver) -> DryRun:
        plan, inputs, profile = planned.plan, planned.inputs, planned.inputs.profile
        window, system = profile.window_tokens, inputs.system_tokens
        oversized = OversizedPlan(plan, profile.model, window, members=inputs.members, system_tokens=system)
        ratio, is_measured = models.ratio(profile)
        return {
            "model": profile.model,
            "upstream": {"base_url": models.upstream.settings.base_url},
            "mode": self.settings.mode if self.settings.enabled else "off",
            "fits": plan.fits,
            "problem": None if plan.may_be_sent else oversized.message(self.settings.language),
            "changed": planned.changed,
            "edits": planned.reasons,
            "size": {
                "tokens": {"before": planned.tokens_before, "after": planned.tokens_after},
                "chars": {"before": plan.before.chars, "after": plan.after.chars},
                "bytes": {"before": plan.before.bytes, "after": plan.after.bytes},
            },
            "besides_messages_tokens": plan.budget.model_tokens(inputs.base.tokens),
            "room": {
                "tokens": planned.room_tokens,
                "chars": plan.budget.room_chars,
                "bytes": plan.budget.room_bytes,
            },
            "reply_limit": {"asked": planned.request.reply_tokens, "sent": planned.reply_tokens},
            "counted_by": inputs.counted_by,
            "profile": described_profile(profile),
            "token_ratio": {"value": ratio, "from": "learned from usage" if is_measured else "default"},
            "messages": described_blocks(plan.blocks, plan.budget),
            "artifacts": [
                {"id": one.id, "bytes": len(one.content), "place": self.place_of(one)} for one in plan.artifacts
            ],
        }


def _for_model(body: bytes, model: str) -> bytes:
    """The body with another model; as it is if it cannot be read, which its plan reports."""
    members = jsontext.members_if_any(body)
    return jsontext.join_object({**members, "model": jsontext.dump(model)}) if members else body
