"""The record of one request: what was found out, what was done, how it ended.

Rule: it is filled in as the request proceeds and decides nothing; never a key, never content. Its fields are described
here and nowhere else: the dictionary of a record is the log line, the row in SQLite and what `/decisions` shows.
"""

from __future__ import annotations

import datetime
import functools
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from proxy.core.compaction import Budget, in_model_tokens
from proxy.core.conversation import MessageReport
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
from proxy.shell.planning import Planned, name_of_conversation, share_kept

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
MAX_BLOCKS: Final = 2_000
"""Messages of one request that are kept: the last ones."""
MAX_UNCHANGED_BLOCKS: Final = 50
"""Messages of a request that nothing was done to: more would cost more CPU than the rest of its row."""


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
        return next(outcome for kind, outcome in _OF_ERRORS if isinstance(error, kind))


_OF_ERRORS: Final[tuple[tuple[type[ProxyError], RequestOutcome], ...]] = (
    (ClientLeft, RequestOutcome.CLIENT_LEFT),
    (ContextOverflow, RequestOutcome.CONTEXT_LENGTH_EXCEEDED),
    (UpstreamUnreachable, RequestOutcome.UPSTREAM_UNREACHABLE),
    (UpstreamTimeout, RequestOutcome.UPSTREAM_TIMEOUT),
    (ServerStopping, RequestOutcome.SERVER_STOPPING),
    (ClientError, RequestOutcome.REFUSED),
    (UpstreamError, RequestOutcome.UPSTREAM_ERROR),
    (ProxyError, RequestOutcome.PROXY_ERROR),
)
"""The first that an error is decides."""


_NO_BUDGET: Final = Budget(0)
"""Of a request without a plan."""
_NO_REPLY: Final = frozenset((VerdictKind.TRANSIENT, VerdictKind.EMPTY, VerdictKind.UNKNOWN))
"""Verdicts on a response with a success's status that blame the upstream; others blame the request."""
_EXPLAINED: Final = frozenset(
    (RequestOutcome.REFUSED, RequestOutcome.CONTEXT_LENGTH_EXCEEDED, RequestOutcome.UPSTREAM_ERROR)
)
"""Outcomes of which `refusal` is the reason."""


class _Progress:
    """What the figures of a request are made from, until they are written. In slots, so that the dictionary of a record
    holds its described fields and nothing else. Times are seconds of `time.perf_counter`."""

    started: float
    received: float | None
    """When the body was complete."""
    sent: float | None
    """When the request was last sent upstream."""
    answered: float | None
    """When the head of the response arrived."""
    planned: Planned | None
    verdict: VerdictKind | None
    """What the latest response of the upstream was judged to be."""
    is_clients_doing: bool
    """True if the client's departure, or a body that cannot be read, ended it."""
    parent: Context | None
    """The client's span, if requests are traced and the client names one."""
    finished_at: float
    """Unix time."""
    reports: Sequence[MessageReport]
    """The messages of its last plan by our estimate; they do not hold its body."""
    budget: Budget
    """Of its last plan."""
    __slots__ = tuple(__annotations__)


@dataclass(init=False, eq=False)
class RequestRecord(_Progress):
    """What became of one request: sizes, names, reasons and times, never a key and never content. A field that is not
    set is left out everywhere and means its default. Tokens are the model's, estimated where no one says otherwise."""

    request_id: str
    outcome: str = RequestOutcome.ANSWERED
    """How it ended: `answered`, `refused`, `context_length_exceeded`, `client_left`, `upstream_error`,
    `upstream_unreachable`, `upstream_timeout`, `server_stopping` or `proxy_error`; `running` while it is under way."""
    status: int = 0
    """HTTP status as the client got it; 0: the client left before. With `overflow.keepalive_seconds`, it may be the 200
    of a stream that ends with an error."""
    problem: str = ""
    """Why there was no whole response."""
    api: str = ""
    """`chat`, `messages`, `responses`, `responses_compact`, `ollama` or `ollama_generate`."""
    client: str = ""
    """The client's name: the header `x-context-proxy-client`, else the first word of its `User-Agent`."""
    key: str = ""
    """A short hash of the client's API key; empty if it sent none."""
    session: str = ""
    """A name for the conversation, from the header `x-context-proxy-session`; left out if the client sent none."""
    refusal: str = ""
    """What the upstream refused it for, as judged; left out if it did not."""
    model: str = ""
    """This field and those up to `conversation` are left out if the request could not be read."""
    stream: bool = False
    reply_limit: int | None = None
    """The limit of tokens that the client asked for; left out if it named none."""
    messages: int = 0
    tokens_before: int = 0
    """Tokens of the request as it came."""
    tokens_after: int = 0
    """Tokens of the request as planned."""
    room_tokens: int | None = None
    """Tokens that the window leaves for the prompt. Empty: unknown."""
    window_tokens: int | None = None
    """Empty: unknown."""
    window_is_guessed: bool = False
    counted_by: str = ""
    """The counter of the estimates."""
    edits: Mapping[str, int] | None = None
    """Counts by reason."""
    conversation: str = ""
    """Equal in all turns of a conversation."""
    warning: str = ""
    """A word for what an operator has to attend to."""
    advice: str = ""
    upstream: str = ""
    """Host and port."""
    route: str = ""
    """Its place in the settings: `upstream`, `upstreams[0]`; left out if there is only one."""
    tokens_sent: int | None = None
    """Tokens of the last send; left out if nothing was sent or planned."""
    tokens_saved: int = 0
    """Of an answered request: tokens that were not sent, as far as they would have fitted into the window."""
    fitted: bool = False
    """True if it was answered, and would have been refused or silently cut for its length."""
    too_long: bool = False
    """True if the upstream refused it as too long, at any send."""
    prompt_tokens: int | None = None
    """The upstream's count; left out, like each of the next two, if it reported none."""
    cached_tokens: int | None = None
    """The part of the prompt that was in the upstream's prompt cache."""
    reply_tokens: int | None = None
    cut_to_tokens: int | None = None
    """The window to which the upstream silently cut the prompt, as its usage proves."""
    mode: Literal["on", "observe"] = "on"
    """`observe`: the plan was made and not used."""
    attempts: int = 1
    """Sends upstream for one answer of the model."""
    attempt_kind: str = AttemptKind.FIRST.value
    """The kind of the last send."""
    cause: str = ""
    """Why there was another send, the latest reason: a row of [the table of refusals](refusals.md); left out: there was
    none."""
    retrieval_rounds: int = 0
    """Reads of artifacts for the model before the client had its response."""
    usage: Mapping[str, int] | None = None
    """The upstream's counts over all rounds of a response together, if there were several."""
    prefix_kept: float | None = None
    """The share of the conversation's previous request with which this one begins; left out for the first."""
    body_bytes: int = 0
    """Of the request as it came."""
    sent_bytes: int = 0
    """Of the body of the last send."""
    answer_bytes: int = 0
    """Of the body that the client got."""
    own_ms: float | None = None
    """Milliseconds from the last byte of the request until it is first sent, without the next."""
    lookup_ms: float | None = None
    """Milliseconds in which images were fetched."""
    first_byte_ms: float | None = None
    """Milliseconds from the last send to the head of its response."""
    total_ms: float = 0.0
    """Milliseconds from its head to its end; of a running request, until now."""
    id: int = 0
    """Its row in `/decisions`, larger for what was written later. It and the fields that follow are not in the log."""
    ended: str = ""
    """ISO 8601, UTC."""
    tokens_cut: int = 0
    """Tokens cut out of messages that were sent."""
    tokens_left_out: int = 0
    """Tokens of messages that were left out."""
    messages_left_out: int = 0
    tool: str = ""
    """The tool of most of its results."""

    def __init__(self, request_id: str, started: float, planned: Planned | None = None) -> None:
        self.request_id, self.started, self.planned = request_id, started, planned
        self.outcome, self.status = RequestOutcome.ANSWERED, 0
        self.api = self.client = self.key = ""
        self.body_bytes = self.sent_bytes = self.answer_bytes = 0
        self.received = self.sent = self.answered = self.verdict = self.parent = None
        self.is_clients_doing = False
        self.reports, self.budget = (), _NO_BUDGET

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RequestRecord:
        """A record with these fields, as they were written."""
        found = cls(fields["request_id"], 0.0)
        vars(found).update(fields)
        return found

    def in_order(self) -> dict[str, Any]:
        """What is set, by the names of the fields, in the order in which they are described."""
        found = vars(self)
        names = sorted(found, key=_PLACES.__getitem__)  # without a bytecode for each
        return dict(zip(names, map(found.__getitem__, names), strict=True))

    def note_body(self, body_bytes: int) -> None:
        """The body of the request is complete."""
        self.body_bytes, self.received = body_bytes, time.perf_counter()

    def note_plan(self, planned: Planned) -> None:
        """The request was read, and it is clear what to send."""
        self.planned = planned
        if not planned.last_sent.conversation:
            planned.last_sent.conversation = name_of_conversation(planned.tenant, planned.request.conversation.messages)

    def note_attempt(self, cure: Cure, planned: Planned) -> None:
        """The request is sent once more."""
        self.attempts += 1
        self.attempt_kind, self.cause, self.planned = cure.kind.value, cure.cause, planned

    def note_sent(self, sent_bytes: int) -> None:
        """The request leaves."""
        self.sent_bytes, self.sent = sent_bytes, time.perf_counter()
        self.status, self.answered = 0, None  # those of a refusal that was not passed on
        if self.own_ms is None and self.received is not None:
            waited = self.planned.lookup_seconds if self.planned is not None else 0.0
            self.own_ms = _milliseconds(self.sent - self.received - waited)
        if self.planned is None:
            return
        planned, is_original = self.planned, self.is_original
        self.tokens_sent = planned.tokens_before if self.mode == "observe" or is_original else planned.tokens_after
        last = planned.last_sent
        last.messages = planned.request.conversation.messages if is_original else planned.plan.sent
        if last.before:
            self.prefix_kept = round(share_kept(last.before, last.messages), 6)

    def note_answer(self, status: int) -> None:
        """The head of the response has arrived."""
        self.status, self.answered = status, time.perf_counter()

    def note_counts(self, counted: Counted | None) -> None:
        """What the upstream has counted for the prompt that was sent last, cached tokens included, if it says so."""
        if counted is not None and self.sent is not None:
            self.prompt_tokens, self.reply_tokens = counted.prompt, counted.reply
            if counted.cached is not None:
                self.cached_tokens = counted.cached

    def note_usage(self, usage: Mapping[str, int]) -> None:
        """A round of a response is over; the counts so far."""
        if self.retrieval_rounds:
            self.usage = usage

    def note_error(self, error: ProxyError) -> None:
        """There will be no whole response."""
        self.outcome, self.problem = RequestOutcome.of_error(error), storable(error.message[:_MAX_PROBLEM_CHARACTERS])
        self.is_clients_doing = isinstance(error, ClientLeft | MalformedRequest)

    def note_end(self, status: int, kind: VerdictKind, *, ends_in_error: bool) -> None:
        """The client has the whole response of the upstream, which is no plain success. `kind`: what its beginning was
        judged to be."""
        if status >= 400:
            self.outcome = RequestOutcome.of_status(status)
        elif ends_in_error or kind is not VerdictKind.ACCEPTED:
            is_upstreams = kind is VerdictKind.ACCEPTED or kind in _NO_REPLY
            self.outcome = RequestOutcome.UPSTREAM_ERROR if is_upstreams else RequestOutcome.REFUSED

    @property
    def is_problem(self) -> bool:
        """Whether an operator should hear of it: an error that reached the client and that neither its body nor its
        departure caused."""
        return not self.went_well and not self.is_clients_doing

    @property
    def hangs_on_a_guess(self) -> bool:
        """True if its window is a guess, and it takes more than half of that."""
        return self.window_is_guessed and 2 * self.tokens_before > (self.window_tokens or 0)

    @property
    def went_well(self) -> bool:
        """Whether the client got a whole response that is not an error."""
        return self.outcome == RequestOutcome.ANSWERED

    @property
    def is_original(self) -> bool:
        """True if the last send was the request as it came, in place of a plan that was refused."""
        return self.attempt_kind == AttemptKind.ORIGINAL

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers that tell a client what was done to its request."""
        if self.planned is None:
            return []
        planned, warning = self.planned, warning_of(self.planned)
        after = planned.tokens_before if self.is_original else planned.tokens_after
        room = "unknown" if planned.room_tokens is None else planned.room_tokens
        found = {
            b"x-context-proxy-tokens": f"before={planned.tokens_before};after={after};room={room}",
            b"x-context-proxy-attempts": str(self.attempts),
            b"x-context-proxy-edits": "" if self.is_original else _joined(planned.reasons),
            b"x-context-proxy-warning": warning and f"{warning}; {LARGER_WINDOW}",
            b"x-context-proxy-usage": _joined(self.usage),
        }
        return [(name, value.encode()) for name, value in found.items() if value]

    def complete(self, now: float) -> None:
        """The request is finished: set what is known only now, and let go of its body."""
        self.total_ms = _milliseconds(now - self.started)
        if self.outcome in _EXPLAINED and self.verdict not in (None, VerdictKind.ACCEPTED):
            self.refusal = self.verdict.value
        if self.planned is not None:
            self._note_figures(self.planned)
            self.planned.last_sent.before = None
        self.planned = None
        if self.sent is not None and self.answered is not None:
            self.first_byte_ms = _milliseconds(self.answered - self.sent)
        if self.tokens_sent is not None and self.went_well:
            before, sent = self.tokens_before, self.tokens_sent
            window = self.window_tokens or before
            if self.too_long or (before > window >= sent and not self.window_is_guessed):
                self.fitted = True
            if (saved := min(before, window) - sent) > 0:
                self.tokens_saved = saved

    def running(self, now: float) -> RequestRecord:
        """The record of a running request, as far as it is known."""
        if self.planned is not None:
            self._note_figures(self.planned)
        found = self.of({**vars(self), "outcome": "running", "total_ms": _milliseconds(now - self.started)})
        found.reports, found.budget = self.reports, self.budget
        return found

    def described(self) -> tuple[RequestRecord, list[Block]]:
        """The record with what became of the tokens of its messages, and these as they were last sent."""
        was_edited = bool(self.edits) and not self.is_original
        is_shown = self.edits or len(self.reports) <= MAX_UNCHANGED_BLOCKS
        blocks = described_blocks(self.reports, self.budget, was_edited=was_edited) if is_shown else []
        changed = [one for one in blocks if one.reasons]
        tools = Counter(one.tool for one in self.reports if one.tool).most_common(1)
        figures = {
            "ended": datetime.datetime.fromtimestamp(self.finished_at, datetime.UTC).isoformat(timespec="milliseconds"),
            "tokens_cut": sum(max(0, one.tokens_before - one.tokens_after) for one in changed if one.tokens_after),
            "tokens_left_out": sum(one.tokens_before for one in changed if not one.tokens_after),
            "messages_left_out": sum(not one.tokens_after for one in changed),
            "tool": storable(tools[0][0]) if tools else "",
        }
        return self.of({**vars(self), **figures}), blocks[-MAX_BLOCKS:]

    def _note_figures(self, planned: Planned) -> None:
        request, budget = planned.request, planned.plan.budget
        self.model = storable(request.model[:MAX_MODEL_CHARACTERS])
        self.stream, self.messages = request.stream, planned.message_count
        self.tokens_before, self.tokens_after = planned.tokens_before, planned.tokens_after
        self.room_tokens, self.window_tokens = planned.room_tokens, planned.inputs.profile.window_tokens
        self.window_is_guessed, self.counted_by = budget.room_is_guessed, planned.inputs.counted_by
        self.edits, self.conversation = planned.reasons, planned.last_sent.conversation
        self.reports, self.budget = planned.plan.blocks, budget
        if request.reply_tokens is not None:
            self.reply_limit = request.reply_tokens
        if planned.lookup_seconds:
            self.lookup_ms = _milliseconds(planned.lookup_seconds)
        if warning := warning_of(planned):
            self.warning, self.advice = warning, LARGER_WINDOW


_PLACES: Final = {name: place for place, name in enumerate(RequestRecord.__dataclass_fields__)}


def warning_of(planned: Planned) -> str:
    """A word for what an operator has to attend to; empty if there is nothing."""
    return "window_too_small" if planned.inputs.profile.cuts_silently and not planned.plan.fits else ""


@dataclass
class Block:
    """What becomes of one message. Sizes are in the model's tokens."""

    message: int
    """Its index in the conversation, from 0."""
    role: str
    tool: str
    """The tool whose result it is; empty if it is none."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: Sequence[str]
    """Why it is changed; empty: it is sent unchanged."""
    artifacts: Sequence[str]
    """Where the content taken out of it is stored."""
    limit: str = ""
    """The limit that it exceeded by itself, and its value: `tool_output.max_lines=2000`; `window=30000`: bytes of its
    share of the window; empty: none."""


def described_blocks(reports: Sequence[MessageReport], budget: Budget, *, was_edited: bool = True) -> list[Block]:
    """A block for each message, in the model's tokens; as they came, if they were not edited."""
    return [
        Block(
            *(at, storable(one.role), storable(one.tool), one.tokens_before),
            *((one.tokens_after, one.reasons, one.artifacts, one.limit) if was_edited else (one.tokens_before, (), ())),
        )
        for at, one in enumerate(in_model_tokens(reports, budget))
    ]


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


_MAX_SESSION_CHARACTERS: Final = 80
"""Limit for the name of a session in the log: it is foreign input."""


def session_name(header: bytes) -> str:
    """The name that a client gives to its session: one line of printable characters.

    >>> session_name("Why is it red?\x1b[1m \u202e 为什么".encode())
    'Why is it red? [1m 为什么'
    """
    text = header[: 4 * _MAX_SESSION_CHARACTERS].decode("utf-8", "ignore")
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:_MAX_SESSION_CHARACTERS]


def _joined(counts: Mapping[str, int] | None) -> str:
    return ";".join(f"{name}={count}" for name, count in (counts or {}).items())


def _milliseconds(seconds: float) -> float:
    return int(100_000 * seconds + 0.5) / 100  # as `round` to two digits, which takes five times as long


def storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
