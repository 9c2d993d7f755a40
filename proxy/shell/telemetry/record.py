"""The record of one request: what was found out, what was done, how it ended.

Rule: it is filled in as the request proceeds and decides nothing; never a key, never content.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NotRequired

from msgspec import Meta, Struct, field
from typing_extensions import TypedDict

from proxy.core.conversation import Message
from proxy.core.overflow import AttemptKind, Counted, Cure, VerdictKind
from proxy.errors import (
    ClientError,
    ClientLeft,
    ContextOverflow,
    MalformedRequest,
    ProxyError,
    ServerStopping,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.shell.planning import LastSent, Planned, name_of_conversation, share_kept

if TYPE_CHECKING:
    from opentelemetry.context import Context

MAX_MODEL_CHARACTERS: Final = 256
"""Limit for a model's name in the log: it is foreign input."""
LARGER_WINDOW: Final = "give the server a larger window (Ollama: OLLAMA_CONTEXT_LENGTH=64000)"
"""Advice for a server that cuts prompts: for a header, a line of the log and the dashboard."""
FEWER_TOOLS: Final = f"{LARGER_WINDOW}, or the agent fewer tools (Claude Code: ENABLE_TOOL_SEARCH=true)"
"""Advice for an agent whose system text and tools alone are over the window."""
_MAX_PROBLEM_CHARACTERS: Final = 2_000
"""It may name the model, too."""
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Sum = Annotated[float, Meta(ge=0, lt=2**53)]


class RequestOutcome(StrEnum):
    """How a request ended, by who has to act: for the log, metrics, spans, `/decisions` and the dashboard."""

    ANSWERED = "answered"
    """The client has the whole of a success."""
    REFUSED = "refused"
    """The upstream, or the proxy before it, refused the request itself with a 4xx, for its key, its rate, its model or
    its content: its sender must act."""
    CONTEXT_LENGTH_EXCEEDED = ContextOverflow.code
    """The request is too long and could not be made to fit: shorten its system text and tools, or use a larger
    window."""
    CLIENT_LEFT = ClientLeft.code
    """The client closed its connection before it had the whole response."""
    UPSTREAM_ERROR = "upstream_error"
    """The upstream failed: a 5xx, an error in place of a reply or in the middle of one, or no reply at all."""
    UPSTREAM_UNREACHABLE = UpstreamUnreachable.code
    """No connection to the upstream, or one that broke before the end of its response."""
    UPSTREAM_TIMEOUT = UpstreamTimeout.code
    """The upstream took longer than a setting allows."""
    SERVER_STOPPING = ServerStopping.code
    """The proxy was stopped before the response was complete."""
    PROXY_ERROR = ProxyError.code
    """The proxy failed, or its upstream leads back to it: `problem` and the log have the cause."""

    @classmethod
    def of_status(cls, status: int) -> RequestOutcome:
        """The outcome of a response by its status."""
        return cls.ANSWERED if status < 400 else cls.REFUSED if status < 500 else cls.UPSTREAM_ERROR

    @classmethod
    def of_error(cls, error: ProxyError) -> RequestOutcome:
        """The outcome of a request that has no whole response."""
        match error:
            case ClientLeft() | ContextOverflow() | UpstreamUnreachable() | UpstreamTimeout() | ServerStopping():
                return cls(error.code)
            case ClientError():
                return cls.REFUSED
            case UpstreamError():
                return cls.UPSTREAM_ERROR
        return cls.PROXY_ERROR


_NO_REPLY: Final = frozenset((VerdictKind.TRANSIENT, VerdictKind.EMPTY, VerdictKind.UNKNOWN))
"""Verdicts on a response with a success's status that blame the upstream; others blame the request."""
_EXPLAINED: Final = frozenset(
    (RequestOutcome.REFUSED, RequestOutcome.CONTEXT_LENGTH_EXCEEDED, RequestOutcome.UPSTREAM_ERROR)
)
"""Outcomes of which `refusal` is the reason."""


class Line(TypedDict):
    """The members of the log line of a request."""

    request_id: str
    outcome: str
    """How it ended: `answered`, `refused`, `context_length_exceeded`, `client_left`, `upstream_error`,
    `upstream_unreachable`, `upstream_timeout`, `server_stopping` or `proxy_error`; `running` while it is under way."""
    status: int
    """HTTP status as the client got it; 0: the client left before. With `overflow.keepalive_seconds`, it may be the 200
    of a stream that ends with an error."""
    problem: NotRequired[str]
    """Why there was no whole response."""
    api: NotRequired[str]
    """`chat`, `messages`, `responses`, `responses_compact`, `ollama` or `ollama_generate`."""
    client: NotRequired[str]
    """The client's name: the header `x-context-proxy-client`, else the first word of its `User-Agent`."""
    key: NotRequired[str]
    """A short hash of the client's API key; empty if it sent none."""
    refusal: NotRequired[str]
    """What the upstream refused it for, as judged; left out if it did not."""
    model: NotRequired[str]
    """This member and those up to `conversation` are left out if the request could not be read."""
    stream: NotRequired[bool]
    messages: NotRequired[int]
    tokens_before: NotRequired[Count]
    tokens_after: NotRequired[Count]
    room_tokens: NotRequired[Count | None]
    """Empty: unknown."""
    window_tokens: NotRequired[int | None]
    window_is_guessed: NotRequired[bool]
    counted_by: NotRequired[str]
    edits: NotRequired[Mapping[str, Count]]
    """Counts by reason."""
    conversation: NotRequired[str]
    """Equal in all turns of a conversation."""
    warning: NotRequired[str]
    advice: NotRequired[str]
    upstream: NotRequired[str]
    """Host and port."""
    route: NotRequired[str]
    """Its place in the settings: `upstream`, `upstreams[0]`; left out if there is only one."""
    prompt_tokens: NotRequired[int]
    """The upstream's count; omitted, like the next two, if it reported none."""
    cached_tokens: NotRequired[int]
    """The part of the prompt that was in the upstream's prompt cache."""
    reply_tokens: NotRequired[int]
    cut_to_tokens: NotRequired[int]
    """The window to which the upstream silently cut the prompt, as its usage proves."""
    mode: NotRequired[Literal["on", "observe"]]
    """Left out: `on`."""
    attempts: NotRequired[int]
    """Left out: 1."""
    attempt_kind: NotRequired[str]
    """The kind of the last send; left out: `first`."""
    cause: NotRequired[str]
    """Why there was another send, the latest reason: a row of [the table of refusals](refusals.md); left out: there was
    none."""
    retrieval_rounds: NotRequired[int]
    usage: NotRequired[Mapping[str, int]]
    """The sum over all rounds of a response, if there were several."""
    prefix_kept: NotRequired[float]
    """The share of the conversation's previous request with which this one begins; left out for the first."""
    body_bytes: int
    sent_bytes: int
    answer_bytes: int
    own_ms: NotRequired[float]
    """From the last byte of the request until it is sent."""
    lookup_ms: NotRequired[float]
    """In addition, for images that were fetched."""
    first_byte_ms: NotRequired[Sum]
    """From then to the head of the response."""
    total_ms: float


class RequestRecord(Struct):
    """One request; filled in as it proceeds. Times are seconds of `time.perf_counter`."""

    request_id: str
    started: float
    api: str = ""
    client: str = ""
    key: str = ""
    outcome: RequestOutcome = RequestOutcome.ANSWERED
    problem: str = ""
    """Why there was no whole response."""
    status: int = 0
    """Status of the upstream's latest response, in the end of the response to the client; 0: there is none."""
    body_bytes: int = 0
    received: float | None = None
    """When the body was complete."""
    planned: Planned | None = None
    warning: str = ""
    """A word for what an operator has to attend to; empty if there is nothing."""
    observed: bool = False
    """Whether the plan is only for the record."""
    refused_as_too_long: bool = False
    """Whether the upstream reported it at any send."""
    refusal: str = ""
    """Why the upstream refused the last send: the kind of a verdict."""
    is_clients_doing: bool = False
    """Whether the client's departure, or a body that cannot be read, ended it."""
    counted_as_stream: bool = False
    """Whether it is counted among the running streams."""
    attempts: int = 1
    attempt_kind: str = AttemptKind.FIRST.value
    cause: str = ""
    """The kind of the last send."""
    sent_bytes: int = 0
    """Size of the body that was sent upstream."""
    sent_tokens: int = 0
    """Estimated size of the last send, in the model's tokens; 0 if there was no plan."""
    own_seconds: float | None = None
    """From the last byte of the request to its first send, without the wait for images."""
    sent: float | None = None
    """When the request was last sent upstream."""
    answered: float | None = None
    """When the head of the response arrived."""
    answer_bytes: int = 0
    prompt_tokens: int | None = None
    """The upstream's count, if known."""
    counted: Counted | None = None
    """All its counts for the prompt that was sent last, cached tokens included, if it states them."""
    upstream: str = ""
    """Host and port of the upstream that it was sent to."""
    route: str = ""
    """The place of the upstream in the settings, if there are several."""
    parent: Context | None = None
    """The client's span, if requests are traced and the client names one."""
    cut_to_tokens: int | None = None
    """The window to which the upstream silently cut the prompt, as its usage proves."""
    retrieval_rounds: int = 0
    """Number of reads of artifacts for the model before the client had its response."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """The upstream's counts over all rounds of a response together, by OpenAI's names; empty if there was only one, as
    the client sees those."""
    prefix_kept: float | None = None
    """The share of the conversation's previous request with which this one begins; None for the first."""
    _last_sent: LastSent | None = None
    _sent_before: tuple[Message, ...] | None = None

    def note_body(self, body_bytes: int) -> None:
        """The body of the request is complete."""
        self.body_bytes, self.received = body_bytes, time.perf_counter()

    def note_plan(self, planned: Planned) -> None:
        """The request was read, and it is clear what to send."""
        self.planned, self.warning = planned, _warning_of(planned)
        if not planned.last_sent.conversation:
            planned.last_sent.conversation = name_of_conversation(planned.tenant, planned.request.conversation.messages)
        if self._last_sent is None:  # a second plan is not part of the conversation
            self._last_sent = planned.last_sent
            self._sent_before = planned.last_sent.messages

    def note_attempt(self, cure: Cure, planned: Planned) -> None:
        """The request is sent once more."""
        self.attempts += 1
        if self.planned is not None and not planned.last_sent.conversation:  # a second plan continues no other
            planned.last_sent.conversation = self.planned.last_sent.conversation
        self.attempt_kind, self.cause = cure.kind.value, cure.cause
        self.planned, self.warning = planned, _warning_of(planned)

    def note_sent(self, sent_bytes: int) -> None:
        """The request leaves."""
        self.sent_bytes, self.sent = sent_bytes, time.perf_counter()
        self.status, self.answered = 0, None  # those of a refusal that was not passed on
        if self.own_seconds is None and self.received is not None:
            waited = self.planned.lookup_seconds if self.planned is not None else 0.0
            self.own_seconds = self.sent - self.received - waited
        if self.planned is None:
            return
        planned, is_original = self.planned, self.attempt_kind == AttemptKind.ORIGINAL
        self.sent_tokens = planned.tokens_before if self.observed or is_original else planned.tokens_after
        if self._last_sent is not None:
            messages = planned.request.conversation.messages if is_original else planned.plan.sent
            self._last_sent.messages = messages
            if self._sent_before:
                self.prefix_kept = share_kept(self._sent_before, messages)

    held_bytes: ClassVar[int] = 0
    """Its messages are held, and counted, by its plan."""

    def set_aside(self) -> object:
        """Let go of messages while the request waits: what is known of the prefix is known from the send before."""
        self._last_sent = self._sent_before = None
        return None

    def put_back(self, _: object) -> None:
        """Record what is sent now as the conversation's last send, if that is still remembered."""
        self._last_sent = None if self.planned is None else self.planned.last_sent

    def note_answer(self, status: int) -> None:
        """The head of the response has arrived."""
        self.status, self.answered = status, time.perf_counter()

    def note_usage(self, usage: Mapping[str, int]) -> None:
        """A round of a response is over; the counts so far."""
        if self.retrieval_rounds:
            self.usage = usage

    def note_error(self, error: ProxyError) -> None:
        """There will be no whole response."""
        self.outcome, self.problem = RequestOutcome.of_error(error), error.message
        self.is_clients_doing = isinstance(error, ClientLeft | MalformedRequest)

    def note_end(self, status: int, kind: VerdictKind, *, ends_in_error: bool) -> None:
        """The client has the whole response of the upstream, which is no plain success. `kind`: what its beginning was
        judged to be."""
        if status >= 400:
            self.outcome = RequestOutcome.of_status(status)
        elif ends_in_error or kind is not VerdictKind.ACCEPTED:
            is_upstreams = kind is VerdictKind.ACCEPTED or kind in _NO_REPLY
            self.outcome = RequestOutcome.UPSTREAM_ERROR if is_upstreams else RequestOutcome.REFUSED

    def note_response(self, status: int, answer_bytes: int) -> None:
        """The status and bytes that the client got; status 0: none."""
        self.status, self.answer_bytes = status, answer_bytes

    @property
    def is_problem(self) -> bool:
        """Whether an operator should hear of it: an error that reached the client and that neither its body nor its
        departure caused."""
        return not self.went_well and not self.is_clients_doing

    @property
    def went_well(self) -> bool:
        """Whether the client got a whole response that is not an error."""
        return self.outcome is RequestOutcome.ANSWERED

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers that tell a client what was done to its request."""
        if self.planned is None:
            return []
        planned, as_it_came = self.planned, self.attempt_kind == AttemptKind.ORIGINAL
        after = planned.tokens_before if as_it_came else planned.tokens_after
        room = "unknown" if planned.room_tokens is None else planned.room_tokens
        sizes = f"before={planned.tokens_before};after={after};room={room}"
        found = [
            (b"x-context-proxy-tokens", sizes.encode()),
            (b"x-context-proxy-attempts", b"%d" % self.attempts),
        ]
        if planned.changed and not as_it_came:
            counts = ";".join(f"{reason}={count}" for reason, count in planned.reasons.items())
            found.append((b"x-context-proxy-edits", counts.encode()))
        if self.warning:
            found.append((b"x-context-proxy-warning", f"{self.warning}; {LARGER_WINDOW}".encode()))
        if self.usage:
            counted = ";".join(f"{name}={tokens}" for name, tokens in self.usage.items())
            found.append((b"x-context-proxy-usage", counted.encode()))
        return found

    def described(self, now: float) -> Line:
        """The members of the log line."""
        line: Line = {
            "request_id": self.request_id,
            "outcome": self.outcome,
            "status": self.status,
            "api": self.api,
            "client": self.client,
            "key": self.key,
            "body_bytes": self.body_bytes,
            "sent_bytes": self.sent_bytes,
            "answer_bytes": self.answer_bytes,
            "total_ms": _milliseconds(self.started, now),
        }
        if self.problem:
            line["problem"] = self.problem[:_MAX_PROBLEM_CHARACTERS]
        if self.outcome in _EXPLAINED and self.refusal not in ("", VerdictKind.ACCEPTED):
            line["refusal"] = self.refusal
        if self.planned is not None:
            _describe_plan(line, self.planned)
        if self.warning:
            line |= {"warning": self.warning, "advice": LARGER_WINDOW}
        if self.route:
            line["route"] = self.route
        if self.sent is not None:
            self._describe_sending(line, self.sent)
        if self.cut_to_tokens is not None:
            line["cut_to_tokens"] = self.cut_to_tokens
        if self.observed:
            line["mode"] = "observe"
        if self.attempts > 1:
            line |= {"attempts": self.attempts, "attempt_kind": self.attempt_kind, "cause": self.cause}
        if self.retrieval_rounds:
            line["retrieval_rounds"] = self.retrieval_rounds
        if self.usage:
            line["usage"] = dict(self.usage)
        if self.prefix_kept is not None:
            line["prefix_kept"] = round(self.prefix_kept, 6)
        return line

    def _describe_sending(self, line: Line, sent: float) -> None:
        if self.upstream:
            line["upstream"] = self.upstream
        if self.own_seconds is not None:
            line["own_ms"] = _milliseconds(0.0, self.own_seconds)
        if (counted := self.counted) is not None:
            line["prompt_tokens"] = counted.prompt
            line["cached_tokens"] = counted.cached
            line["reply_tokens"] = counted.reply
        if self.answered is not None:
            line["first_byte_ms"] = _milliseconds(sent, self.answered)


def _warning_of(planned: Planned) -> str:
    is_cut = planned.inputs.profile.cuts_silently and not planned.plan.fits
    return "window_too_small" if is_cut else ""


def _describe_plan(line: Line, planned: Planned) -> None:
    line |= {
        "model": planned.request.model[:MAX_MODEL_CHARACTERS],
        "stream": planned.request.stream,
        "messages": planned.message_count,
        "tokens_before": planned.tokens_before,
        "tokens_after": planned.tokens_after,
        "room_tokens": planned.room_tokens,
        "window_tokens": planned.inputs.profile.window_tokens,
        "window_is_guessed": planned.plan.budget.room_is_guessed,
        "counted_by": planned.inputs.counted_by,
        "edits": planned.reasons,
        "conversation": planned.last_sent.conversation,
    }
    if planned.lookup_seconds:
        line["lookup_ms"] = _milliseconds(0.0, planned.lookup_seconds)


_CLIENT: Final = re.compile(rb"[ \t]*([!-.0-~]{1,40})")
"""The first word, up to a slash: without the version, names stay few."""


@functools.lru_cache(256)
def client_name(user_agent: bytes) -> str:
    """A client's name, from what it says about itself.

    >>> client_name(b"claude-cli/2.1.0 (external, cli)"), client_name(b"OpenAI/Python 2.1"), client_name(b"")
    ('claude-cli', 'OpenAI', '')
    """
    found = _CLIENT.match(user_agent)
    return found[1].decode() if found else ""


def _milliseconds(start: float, end: float) -> float:
    return int(100_000 * (end - start) + 0.5) / 100  # as `round` to two digits, which takes five times as long
