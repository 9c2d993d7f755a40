"""What the operator's endpoints answer, as `/openapi.json` describes it.

Rule: a description, nothing more: the answers are made where the figures are, and a test holds each against its
description. A member that may be left out has a default here, which says what its absence means.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Alive(_Answer):
    """The process lives."""

    status: Literal["ok"] = "ok"


class Ready(_Answer):
    """Requests would be served well."""

    status: Literal["ready"] = "ready"


class NotReady(_Answer):
    """Requests would not be served well."""

    status: Literal["not ready"] = "not ready"
    reasons: dict[str, str]
    """By what is not ready, `upstream` or `store`, why."""


class Reloaded(_Answer):
    """What came of reading the settings again."""

    status: Literal["reloaded", "unchanged"]
    """Of the worker that answers; the others are told."""
    restart_needed: list[str]
    """Settings that are written otherwise now, and cannot change while the proxy runs: they stay as they are."""
    workers: int
    """Processes that share the port."""


class Problem(_Answer):
    """What is wrong."""

    message: str
    """For people: what was measured, and what is allowed."""
    type: str
    param: str | None
    """The parameter that is at fault."""
    code: str
    """For programs."""


class Refusal(_Answer):
    """An error, in OpenAI's shape."""

    error: Problem


class Block(_Answer):
    """What becomes of one message. Sizes are in the model's tokens."""

    message: int
    """Its place in the conversation, from 0 on."""
    role: str
    tool: str
    """The tool whose result it is; empty when it is none."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: list[str]
    """Why it is changed; empty: it is sent as it came."""
    artifacts: list[str]
    """Where what was taken out of it is kept."""


class Shares(_Answer):
    """Where the tokens of the messages went."""

    kept: int
    cut: int
    left_out: int


class Decision(_Answer):
    """One request that is over: the members of its line in the log, and where its tokens went."""

    ended: str
    """ISO 8601, UTC."""
    request_id: str
    outcome: str
    """`answered`, or the code of the error that ended it."""
    status: int
    """Of HTTP, as the client got it; 0: it left before."""
    problem: str = ""
    """Why there was no whole answer."""
    refusal: str = ""
    """What the upstream refused it for, as it was judged; left out where it did not."""
    model: str = ""
    stream: bool = False
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    room_tokens: int | None = None
    """Empty: unknown."""
    window_tokens: int | None = None
    window_is_guessed: bool = False
    counted_by: str = ""
    edits: dict[str, int] = {}
    """By reason, how many. This member and those from `model` on are left out when the request could not be read."""
    warning: str = ""
    advice: str = ""
    cut_to_tokens: int = 0
    """The window to which the upstream has cut the prompt without a word, as its usage proves."""
    mode: Literal["on", "observe"] = "on"
    attempts: int = 1
    rung: str = "first"
    """The kind of the last send."""
    retrieval_rounds: int = 0
    usage: dict[str, int] = {}
    """Of all rounds of an answer together, where there were several."""
    prefix_kept: float = 0.0
    """The share of what the conversation sent before that this request begins with; left out for its first."""
    body_bytes: int
    sent_bytes: int
    answer_bytes: int
    own_ms: float = 0.0
    """From the last byte of the request to its departure."""
    lookup_ms: float = 0.0
    """Beside that, for images that were fetched."""
    first_byte_ms: float = 0.0
    """From the departure to the head of the answer."""
    total_ms: float
    message_tokens: Shares
    messages_left_out: int


class DecisionDetail(Decision):
    """One request that is over, with a block for each of its messages."""

    blocks: list[Block]
    """Empty when the request could not be read."""


class Running(_Answer):
    """A request that is under way."""

    request_id: str
    seconds: float
    attempts: int
    model: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class Totals(_Answer):
    """Since the process started."""

    requests: int
    running: int
    tokens_before: int
    tokens_saved: int
    overflows: int
    """Requests that the upstream refused as too long."""
    overflows_survived: int
    """Of these, answered all the same."""
    prefix_kept: float | None
    """Mean of the requests that went on with a known conversation."""


class Worker(_Answer):
    """The process that answers."""

    pid: int
    workers: int
    """How many there are; each remembers its own requests."""
    seconds: int
    """Since its start."""
    remembered: int


class Decisions(_Answer):
    """The latest requests of one process, the newest first."""

    running: list[Running]
    decisions: list[Decision]
    totals: Totals
    worker: Worker


class Change(_Answer):
    """A size as it came, and as it would be sent."""

    before: int
    after: int


class Sizes(_Answer):
    """Of a request, in each unit."""

    tokens: Change
    chars: Change
    bytes: Change


class Room(_Answer):
    """What a request may have; empty: no limit is known."""

    tokens: int | None
    chars: int | None
    bytes: int | None


class ReplyLimit(_Answer):
    """Most tokens of the reply."""

    asked: int | None
    """Empty: the request does not say."""
    sent: int | None
    """Empty: it is sent as it was asked for."""


class Stated(_Answer):
    """A value of the model's profile, and who says so."""

    value: int | str | list[str] | None
    """Empty: unknown."""
    source: str | None = Field(alias="from")
    """`config …`, `catalogue …`, what a refusal taught, …; empty: nobody says so."""


class Profile(_Answer):
    """What the model takes."""

    window_tokens: Stated
    input_tokens: Stated
    output_tokens: Stated
    modalities: Stated
    tokenizer: Stated


class Ratio(_Answer):
    """The upstream's tokens for one of the estimate's."""

    value: float
    source: Literal["learned from usage", "default"] = Field(alias="from")


class WouldBeKept(_Answer):
    """An artifact that a real request would write."""

    id: str
    bytes: int
    place: str


class Explanation(_Answer):
    """What would be done to a request."""

    model: str
    mode: Literal["on", "observe", "off"]
    """As the settings say; with `observe` and `off` a real request goes as it came."""
    fits: bool
    problem: str | None
    """Why it would be refused before anything is sent; empty when it would be sent."""
    changed: bool
    edits: dict[str, int]
    """By reason, how many."""
    size: Sizes
    besides_messages_tokens: int
    """Of what is no message: tools, mostly."""
    room: Room
    reply_limit: ReplyLimit
    counted_by: str
    profile: Profile
    token_ratio: Ratio
    messages: list[Block]
    artifacts: list[WouldBeKept]


class ArtifactStat(_Answer):
    """What an artifact is."""

    id: str
    bytes: int
    lines: int | None
    """Empty: it is no text."""
    type: str
    """Its media type."""
    tool: str
    """The tool whose result it was taken from."""
    created: str
    """ISO 8601, UTC."""
