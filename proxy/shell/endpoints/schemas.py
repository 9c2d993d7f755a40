"""Responses of the operator's endpoints, as `/openapi.json` describes them.

Rule: descriptions only: the responses are built where their figures are, and a test compares each with its description.
A member that may be left out has a default here, which says what its absence means.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Alive(_Schema):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class Ready(_Schema):
    """Requests would be served well, except those for an upstream that is unavailable."""

    status: Literal["ready"] = "ready"
    unavailable: dict[str, str] = {}
    """What requests do without, and why: of several upstreams those that do not respond (`upstreams[0]`, as in the
    settings), and `state`, the server of what replicas learn; absent: nothing."""


class NotReady(_Schema):
    """Requests would not be served well: no upstream responds, or nothing can be stored."""

    status: Literal["not ready"] = "not ready"
    reasons: dict[str, str]
    """What is not ready, `upstream`, `upstreams[0]` or `store`, and why."""


class Reloaded(_Schema):
    """The outcome of a reload of the settings."""

    status: Literal["reloaded", "unchanged"]
    """Of the worker that responds; the others are notified."""
    restart_needed: list[str]
    """Settings that have changed but need a restart: they keep their old values."""
    workers: int
    """Processes that share the port."""


class Problem(_Schema):
    """What is wrong."""

    message: str
    """For people: what was measured, and what is allowed."""
    type: str
    param: str | None
    """The parameter at fault."""
    code: str
    """For programs."""


class Refusal(_Schema):
    """An error, in OpenAI's shape."""

    error: Problem


class Block(_Schema):
    """What becomes of one message. Sizes are in the model's tokens."""

    message: int
    """Its index in the conversation, from 0."""
    role: str
    tool: str
    """The tool whose result it is; empty if it is none."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: list[str]
    """Why it is changed; empty: it is sent unchanged."""
    artifacts: list[str]
    """Where the content taken out of it is stored."""


class Shares(_Schema):
    """What became of the messages' tokens."""

    kept: int
    cut: int
    left_out: int


class Decision(_Schema):
    """One finished request: the members of its log line, and what became of its tokens."""

    id: int = 0
    """The same in all workers and replicas, larger for what ended later; left out of one that is read from memory."""
    ended: str
    """ISO 8601, UTC."""
    request_id: str
    outcome: str
    """`answered`, or the code of the error that ended it; `running` while it is under way."""
    status: int
    """HTTP status as the client got it; 0: the client left before."""
    problem: str = ""
    """Why there was no whole response."""
    refusal: str = ""
    """What the upstream refused it for, as judged; left out if it did not."""
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
    """Counts by reason. This member and those from `model` on are left out if the request could not be read."""
    warning: str = ""
    advice: str = ""
    upstream: str = ""
    """Host and port."""
    route: str = ""
    """Its place in the settings: `upstream`, `upstreams[0]`; left out if there is only one."""
    prompt_tokens: int = 0
    """As the upstream counted them; left out, like the next two, if it stated nothing."""
    cached_tokens: int = 0
    """Of these, tokens that it had in its prompt cache."""
    reply_tokens: int = 0
    conversation: str = ""
    """The same for all turns of a conversation."""
    cut_to_tokens: int = 0
    """The window to which the upstream silently cut the prompt, as its usage proves."""
    mode: Literal["on", "observe"] = "on"
    attempts: int = 1
    rung: str = "first"
    """The kind of the last send."""
    retrieval_rounds: int = 0
    usage: dict[str, int] = {}
    """Of all rounds of a response together, if there were several."""
    prefix_kept: float = 0.0
    """The share of the conversation's previous request with which this one begins; left out for the first."""
    body_bytes: int
    sent_bytes: int
    answer_bytes: int
    own_ms: float = 0.0
    """From the last byte of the request until it is sent."""
    lookup_ms: float = 0.0
    """In addition, for images that were fetched."""
    first_byte_ms: float = 0.0
    """From then to the head of the response."""
    total_ms: float
    message_tokens: Shares
    messages_left_out: int


class Dollars(_Schema):
    """US dollars, by the catalogue's list prices, as far as the upstream has counted the tokens."""

    spent: float
    not_sent: float
    """For tokens that were not sent, at the mean price of those that were."""
    by_cache: float
    """What the upstream's prompt cache has saved."""


class DecisionDetail(Decision):
    """One finished request, with a block for each of its messages."""

    blocks: list[Block]
    """Empty if the request could not be read, or was long and not edited."""
    usd: Dollars | None = None
    """What it cost and saved; empty if its upstream has counted no tokens, or if no price is known."""


class Running(_Schema):
    """A running request."""

    request_id: str
    seconds: float
    attempts: int
    model: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class Totals(_Schema):
    """Of all workers, over everything that is kept; with `decisions.stored: 0`, of one since it started."""

    requests: int
    running: int
    tokens_before: int
    tokens_saved: int
    overflows: int
    """Requests that the upstream refused as too long."""
    overflows_survived: int
    """Of these, those that succeeded after all."""
    prefix_kept: float | None
    """Mean over the requests that continued a known conversation."""


class Worker(_Schema):
    """The process that responds."""

    pid: int
    workers: int
    seconds: int
    """Since its start."""
    remembered: int
    """Number of requests that can be listed."""
    shared: bool
    """Whether these are of all workers, and outlive them."""
    problem: str
    """Why they are not, although they should be; empty: nothing."""


class Decisions(_Schema):
    """The latest requests, the newest first."""

    running: list[Running]
    decisions: list[Decision]
    matching: int
    """How many there are on all pages together."""
    totals: Totals
    worker: Worker
    reasons: dict[str, list[str]]
    """What each reason for an edit means, in words: if it was done once, and if it was done `#` times."""


class Health(_Schema):
    """Something that somebody should know."""

    level: Literal["warn", "bad"]
    words: str


class UpstreamState(_Schema):
    """An upstream, and how it has answered."""

    upstream: str
    """Host and port."""
    problem: str
    """Why it does not answer; empty: it does."""
    requests: int
    failed: int
    """Of these, those that it or the proxy failed."""
    first_byte_ms: float | None
    """The median of the latest 200; empty: none."""
    slow_first_byte_ms: float | None
    """The slowest twentieth of these took at least this long."""


class Sums(_Schema):
    """Of requests."""

    requests: int
    failed: int
    edited: int
    overflows: int
    survived: int
    tokens_before: int
    """Of those sent, before edits; estimated."""
    tokens_sent: int
    prompt_tokens: int
    """As the upstreams counted them, where they did."""
    cached_tokens: int
    reply_tokens: int
    prefix_kept: float | None
    """Mean over the requests that continued a known conversation."""
    usd: Dollars | None
    """Empty: no price is known."""


class AllSums(Sums):
    """Of all models."""

    unpriced_models: int
    """Models in this time without a price."""


class ModelSums(Sums):
    """Of one model at one upstream."""

    model: str
    upstream: str


class Bar(_Schema):
    """A part of the time line."""

    at: int
    """Its beginning, Unix time."""
    requests: int
    failed: int
    edited: int
    overflows: int
    tokens_before: int
    tokens_sent: int
    cached_tokens: int


class Overview(_Schema):
    """The last hours, of all workers."""

    hours: int
    health: list[Health]
    """Empty: all is well."""
    upstreams: list[UpstreamState]
    totals: AllSums
    models: list[ModelSums]
    bars: list[Bar]
    bar_seconds: int


class Turn(_Schema):
    """One request of a conversation."""

    request_id: str
    tokens_before: int | None
    """Empty, like the next two, if the request could not be read."""
    tokens_after: int | None
    room_tokens: int | None
    changed: int
    """1: it was edited."""
    troubled: int
    """2: it failed, was refused or came with a warning; 1: a second send has cured it."""


class Conversation(_Schema):
    """The requests that begin with the same task."""

    conversation: str
    requests: int
    last: int
    """The `id` of its latest request."""
    began: float
    """Unix time."""
    ended: float
    changed: int
    troubled: int
    model: str
    turns: list[Turn]
    """The latest, the oldest of them first."""


class Conversations(_Schema):
    """The latest conversations."""

    conversations: list[Conversation]


class Change(_Schema):
    """A size before edits, and as it would be sent."""

    before: int
    after: int


class Sizes(_Schema):
    """Of a request, in each unit."""

    tokens: Change
    chars: Change
    bytes: Change


class Room(_Schema):
    """The room for a request; empty: no limit is known."""

    tokens: int | None
    chars: int | None
    bytes: int | None


class ReplyLimit(_Schema):
    """Most tokens of the reply."""

    asked: int | None
    """Empty: the request does not state one."""
    sent: int | None
    """Empty: it is sent as requested."""


class Stated(_Schema):
    """A value of the model's profile, and its source."""

    value: int | str | list[str] | None
    """Empty: unknown."""
    source: str | None = Field(alias="from")
    """`config …`, `catalogue …`, what a refusal taught, …; empty: nobody states it."""


class Profile(_Schema):
    """The model's limits and inputs."""

    window_tokens: Stated
    input_tokens: Stated
    output_tokens: Stated
    modalities: Stated
    tokenizer: Stated


class Ratio(_Schema):
    """The upstream's tokens for one of the estimate's."""

    value: float
    source: Literal["learned from usage", "default"] = Field(alias="from")


class WouldBeKept(_Schema):
    """An artifact that a real request would write."""

    id: str
    bytes: int
    place: str


class Destination(_Schema):
    """An upstream."""

    base_url: str


class Explanation(_Schema):
    """What would be done to a request."""

    model: str
    upstream: Destination
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
    """Of everything outside the messages: tools, mostly."""
    room: Room
    reply_limit: ReplyLimit
    counted_by: str
    profile: Profile
    token_ratio: Ratio
    messages: list[Block]
    artifacts: list[WouldBeKept]


class ArtifactStat(_Schema):
    """What an artifact is."""

    id: str
    bytes: int
    lines: int | None
    """Empty: it is not text."""
    type: str
    """Its media type."""
    tool: str
    """The tool whose result it was taken from."""
    created: str
    """ISO 8601, UTC."""
