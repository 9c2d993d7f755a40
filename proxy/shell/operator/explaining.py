"""A dry run of a request: what would become of each message, and why; nothing is sent or stored.

Rule: it uses the planner of real requests, so that the explanation cannot drift from what happens; sizes, names and
reasons, never content. What a request refers to but does not contain (an image on the web) is not looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, cast

from msgspec import Struct
from pydantic import Field
from typing_extensions import TypedDict

from proxy.config import Settings
from proxy.core.artifact import Artifact
from proxy.core.models import ModelProfile
from proxy.core.notices import ArtifactAccess
from proxy.core.overflow import OversizedPlan
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest
from proxy.shell.models import stated_by
from proxy.shell.planning import Planned, Planner
from proxy.shell.telemetry import Block, described_blocks
from proxy.wire import wire_of_body


class Change(TypedDict):
    """A size before edits, and as it would be sent."""

    before: int
    after: int


class Sizes(TypedDict):
    """Size of a request, in each unit."""

    tokens: Change
    chars: Change
    bytes: Change


class Room(TypedDict):
    """The room for a request; empty: no limit is known."""

    tokens: int | None
    chars: int | None
    bytes: int | None


class ReplyLimit(TypedDict):
    """Most tokens of the reply."""

    asked: int | None
    """Empty: the request does not state one."""
    sent: int | None
    """Empty: it is sent as requested."""


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


class Profile(TypedDict):
    """The model's limits and inputs."""

    window_tokens: Stated
    windows: Stated
    """By every source that states one, in the order in which they are believed: `8192 config models[0]`."""
    input_tokens: Stated
    input_chars: Stated
    input_bytes: Stated
    rate_tokens: Stated
    """Per minute, prompt and reply limit together."""
    prompt_rate_tokens: Stated
    """Per minute, the prompt alone."""
    output_tokens: Stated
    modalities: Stated
    refused: Stated
    """What its upstream has refused, whatever is stated: kinds of input, and `media in results`, `read_artifact`,
    `cut results`."""
    tokenizer: Stated
    """Empty: by the model's name."""


Ratio = TypedDict("Ratio", {"value": float, "from": Literal["learned from usage", "default"]})
Ratio.__doc__ = "The upstream's tokens for one of the estimate's."


class WouldBeKept(TypedDict):
    """An artifact that a real request would write."""

    id: str
    bytes: int
    place: str


class Address(TypedDict):
    """An upstream."""

    base_url: str


class DryRun(TypedDict):
    """A plan that is not sent."""

    model: str
    upstream: Address
    """Where the request would go."""
    mode: Literal["on", "observe", "off"]
    """From the settings; with `observe` and `off` a real request is forwarded unchanged."""
    fits: bool
    problem: str | None
    """Why it would be refused before anything is sent; empty if it would be sent."""
    changed: bool
    edits: dict[str, int]
    """Counts by reason."""
    size: Sizes
    besides_messages_tokens: int
    """Tokens of everything outside the messages: tools, mostly."""
    room: Room
    reply_limit: ReplyLimit
    counted_by: str
    profile: Profile
    token_ratio: Ratio
    messages: list[Block]
    artifacts: list[WouldBeKept]


_REFUSED: Final = {
    "results_hold_text": "media in results",
    "refuses_our_tool": "read_artifact",
    "refuses_cut_results": "cut results",
}


def described_profile(profile: ModelProfile) -> Profile:
    """Each value of a profile, and where it came from."""
    values = {name: getattr(profile, name) for name in Profile.__annotations__}
    values["windows"] = [f"{tokens} {source}" for tokens, source in profile.windows]
    values["modalities"] = None if profile.modalities is None else sorted(profile.modalities)
    values["refused"] = [*sorted(profile.refused), *(word for name, word in _REFUSED.items() if getattr(profile, name))]
    found = {name: Stated({"value": value, "from": stated_by(profile, name)}) for name, value in values.items()}
    found["refused"]["from"] = next(filter(None, (stated_by(profile, name) for name in ("refused", *_REFUSED))), None)
    return cast(Profile, found)


class Explanation(Struct, frozen=True):
    """A plan that is not sent, for JSON."""

    planned: Planned
    base_url: str
    """Base URL of the upstream that the request would go to."""
    mode: Literal["on", "observe", "off"]
    """From the settings."""
    places: dict[str, str]
    """Artifacts that would be written: name to place."""
    ratio: tuple[float, bool]
    """The upstream's tokens for one of ours, and whether that was measured."""
    problem: str | None
    """Why it would be refused before anything is sent; None if it would be sent."""

    @property
    def profile(self) -> ModelProfile:
        """Profile of the request's model."""
        return self.planned.inputs.profile

    @property
    def beside_tokens(self) -> int:
        """Tokens of everything outside the messages: tools, mostly."""
        return self.planned.plan.budget.model_tokens(self.planned.inputs.base.tokens)

    def described(self) -> DryRun:
        """All of it as JSON."""
        planned, plan = self.planned, self.planned.plan
        return {
            "model": self.profile.model,
            "upstream": {"base_url": self.base_url},
            "mode": self.mode,
            "fits": plan.fits,
            "problem": self.problem,
            "changed": planned.changed,
            "edits": dict(planned.reasons),
            "size": {
                "tokens": {"before": planned.tokens_before, "after": planned.tokens_after},
                "chars": {"before": plan.before.chars, "after": plan.after.chars},
                "bytes": {"before": plan.before.bytes, "after": plan.after.bytes},
            },
            "besides_messages_tokens": self.beside_tokens,
            "room": {
                "tokens": planned.room_tokens,
                "chars": plan.budget.room_chars,
                "bytes": plan.budget.room_bytes,
            },
            "reply_limit": {
                "asked": planned.request.reply_tokens,
                "sent": planned.reply_tokens,
            },
            "counted_by": planned.inputs.counted_by,
            "profile": described_profile(self.profile),
            "token_ratio": {"value": self.ratio[0], "from": "learned from usage" if self.ratio[1] else "default"},
            "messages": described_blocks(plan.blocks, plan.budget),
            "artifacts": [
                {"id": artifact.id, "bytes": len(artifact.content), "place": self.places[artifact.id]}
                for artifact in plan.artifacts
            ],
        }


class Explainer:
    """Explains requests with the planner and the settings of the proxy."""

    def __init__(
        self,
        settings: Settings,
        planners: Sequence[Planner],
        place_of: Callable[[Artifact], str],
        way: ArtifactAccess,
    ) -> None:
        """`planners`: of the upstreams in the order in which they are tried; the last one takes every request."""
        self._settings = settings
        self._planners = planners
        self._place_of = place_of
        self._way = way

    async def ask(self, body: bytes, model: str | None = None) -> str | None:
        """Ask the upstream that a body would go to for its models' limits, as a proxy does at its start; why it did not
        list them, None if it did. Raises MalformedRequest."""
        body = body if model is None else _for_model(body, model)
        return await self._planner(body).models.ask_now(lambda: filter(None, [wire_of_body(body).model_in(body)]))

    async def explain(self, body: bytes, model: str | None = None) -> Explanation:
        """The explanation of a body, or of the same body for another model. Raises MalformedRequest."""
        body = body if model is None else _for_model(body, model)
        planner = self._planner(body)
        planned = await planner.dry_run(wire_of_body(body), body, self._way)
        profile, plan = planned.inputs.profile, planned.plan
        problem = None
        if not plan.may_be_sent:
            oversized = OversizedPlan(
                plan,
                profile.model,
                profile.window_tokens,
                members=planned.inputs.members,
                system_tokens=planned.inputs.system_tokens,
            )
            problem = oversized.message(self._settings.language)
        places = {artifact.id: self._place_of(artifact) for artifact in plan.artifacts}
        mode = self._settings.mode if self._settings.enabled else "off"
        ratio = planner.models.ratio(profile)
        return Explanation(planned, planner.models.upstream.settings.base_url, mode, places, ratio, problem)

    def _planner(self, body: bytes) -> Planner:
        """Chosen by wire and model, as for a real request."""
        wire = wire_of_body(body)
        path, model = wire.path, wire.model_in(body)
        taking = (one for one in self._planners if one.models.upstream.settings.takes(path, model))
        return next(taking, self._planners[-1])


def _for_model(body: bytes, model: str) -> bytes:
    try:
        members = jsontext.members(body)
    except jsontext.NotJson as error:
        raise MalformedRequest(f"the body must be a JSON object: {error}") from None
    return jsontext.join_object({"model": jsontext.dump(model), **{n: r for n, r in members.items() if n != "model"}})
