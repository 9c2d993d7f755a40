"""The record of one request: what was found out, what was done, how it ended; and what its plan changes, as lines of
the log: a summary, and one line for each change.

Rule: it is filled in as the request proceeds and decides nothing; never a key, never content. Lines are computed only
when somebody will read them: one for each change at the level debug, nothing at all for a request that nothing is done
to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct, field

from proxy.core.compaction.budget import in_model_tokens
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.message import Message
from proxy.core.conversation.tracked_message import MessageReport
from proxy.core.overflow import Counted
from proxy.core.overflow.retry import Attempt, Rung
from proxy.errors import ProxyError
from proxy.shell.planning.planned import LastSent, Planned, name_of_conversation, share_kept

if TYPE_CHECKING:
    from opentelemetry.context import Context

MAX_MODEL_CHARACTERS: Final = 256
"""Of a model's name in the log: it is foreign input."""
LARGER_WINDOW: Final = "give the server a larger window (Ollama: OLLAMA_CONTEXT_LENGTH=64000)"
"""Advice for a server that cuts prompts: for a header, a line of the log and the dashboard."""
_MAX_PROBLEM_CHARACTERS: Final = 2_000
"""It may name the model, too."""


class Decision(Struct):
    """One request; filled in as it proceeds. Times are seconds of `time.perf_counter`."""

    request_id: str
    started: float
    outcome: str = "answered"
    """`answered`, or the code of the error that ended it."""
    problem: str = ""
    """Why there was no whole response."""
    status: int = 0
    """Of the response to the client; 0 if the client left before it, and nothing had come from upstream."""
    body_bytes: int = 0
    received: float | None = None
    """When the body was complete."""
    planned: Planned | None = None
    observed: bool = False
    """Whether the plan is only for the record."""
    refused_as_too_long: bool = False
    """Whether the upstream reported it at any send."""
    refusal: str = ""
    """What the upstream refused the last send for, as judged: the kind of a verdict."""
    counted_as_stream: bool = False
    """Whether it is counted among the running streams."""
    attempts: int = 1
    rung: str = Rung.FIRST.value
    """The kind of the last send."""
    sent_bytes: int = 0
    """Of the body that was sent upstream."""
    own_seconds: float | None = None
    """From the last byte of the request to its first send, without the wait for images."""
    sent: float | None = None
    """When the request was last sent upstream."""
    answered: float | None = None
    """When the head of the response arrived."""
    answer_bytes: int = 0
    prompt_tokens: int | None = None
    """As the upstream counted them, if known."""
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
        self.planned = planned
        if not planned.last_sent.conversation:
            planned.last_sent.conversation = name_of_conversation(planned.tenant, planned.request.conversation.messages)
        if self._last_sent is None:  # a second plan is not part of the conversation
            self._last_sent = planned.last_sent
            self._sent_before = planned.last_sent.messages

    def note_attempt(self, attempt: Attempt, planned: Planned) -> None:
        """The request is sent once more."""
        self.attempts += 1
        self.rung, self.planned = attempt.rung.value, planned

    def note_sent(self, sent_bytes: int) -> None:
        """The request leaves."""
        self.sent_bytes, self.sent = sent_bytes, time.perf_counter()
        self.status, self.answered = 0, None  # those of a refusal that was not passed on
        if self.own_seconds is None and self.received is not None:
            waited = self.planned.lookup_seconds if self.planned is not None else 0.0
            self.own_seconds = self.sent - self.received - waited
        if self.planned is not None and self._last_sent is not None:
            self._last_sent.messages = messages = self._sent_messages(self.planned)
            if self._sent_before:
                self.prefix_kept = share_kept(self._sent_before, messages)

    def _sent_messages(self, planned: Planned) -> tuple[Message, ...]:
        return planned.request.conversation.messages if self.rung == Rung.ORIGINAL else planned.plan.sent

    held_bytes: ClassVar[int] = 0
    """What it holds of messages is held, and counted, by its plan."""

    def set_aside(self) -> object:
        """Let go of messages while the request waits: what is known of the prefix is known from the send before."""
        self._last_sent = self._sent_before = None
        return None

    def put_back(self, _: object) -> None:
        """What is sent now is what the conversation sent last, if that is still remembered."""
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
        self.outcome, self.problem = error.code, error.message

    def note_response(self, status: int, answer_bytes: int) -> None:
        """The response that the client got; status 0: none."""
        self.status, self.answer_bytes = status or self.status, answer_bytes

    @property
    def sent_tokens(self) -> int:
        """Estimated for the last send, in the model's tokens; 0 if there was no plan."""
        if self.planned is None:
            return 0
        as_it_came = self.observed or self.rung == Rung.ORIGINAL
        return self.planned.tokens_before if as_it_came else self.planned.tokens_after

    @property
    def went_well(self) -> bool:
        """Whether the client got a whole response that is not an error."""
        return self.outcome == "answered" and self.status < 400

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers that tell a client what was done to its request."""
        if self.planned is None:
            return []
        planned, as_it_came = self.planned, self.rung == Rung.ORIGINAL
        after = planned.tokens_before if as_it_came else planned.tokens_after
        room = "unknown" if planned.room_tokens is None else planned.room_tokens
        sizes = f"before={planned.tokens_before};after={after};room={room}"
        found = [
            (b"x-context-proxy-tokens", sizes.encode()),
            (b"x-context-proxy-attempts", str(self.attempts).encode()),
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

    @property
    def warning(self) -> str:
        """A word for what an operator has to attend to; empty if there is nothing."""
        planned = self.planned
        is_cut = planned is not None and planned.inputs.profile.cuts_silently and not planned.plan.fits
        return "window_too_small" if is_cut else ""

    def _described_upstream(self) -> dict[str, Any]:
        """Which upstream serves it, and if it was sent, where to, and what was counted there."""
        line: dict[str, Any] = {"route": self.route} if self.route else {}
        if not self.upstream:
            return line
        line["upstream"] = self.upstream
        if (counted := self.counted) is not None:
            line["prompt_tokens"] = counted.prompt
            line["cached_tokens"] = counted.cached
            line["reply_tokens"] = counted.reply
        return line

    def described(self, now: float) -> dict[str, Any]:
        """The members of the log line."""
        line: dict[str, Any] = {"request_id": self.request_id, "outcome": self.outcome, "status": self.status}
        if self.problem:
            line["problem"] = self.problem[:_MAX_PROBLEM_CHARACTERS]
        line |= {"refusal": self.refusal} if self.refusal and self.status >= 400 else {}
        if self.planned is not None:
            line |= _described_plan(self.planned)
        if self.warning:
            line |= {"warning": self.warning, "advice": LARGER_WINDOW}
        line |= self._described_upstream()
        if self.cut_to_tokens is not None:
            line["cut_to_tokens"] = self.cut_to_tokens
        if self.observed:
            line["mode"] = "observe"
        if self.attempts > 1:
            line |= {"attempts": self.attempts, "rung": self.rung}
        if self.retrieval_rounds:
            line["retrieval_rounds"] = self.retrieval_rounds
        if self.usage:
            line["usage"] = dict(self.usage)
        if self.prefix_kept is not None:
            line["prefix_kept"] = round(self.prefix_kept, 6)
        line |= {"body_bytes": self.body_bytes, "sent_bytes": self.sent_bytes, "answer_bytes": self.answer_bytes}
        if (own_seconds := self.own_seconds) is not None:
            line["own_ms"] = _milliseconds(0.0, own_seconds)
        if self.planned is not None and self.planned.lookup_seconds:
            line["lookup_ms"] = _milliseconds(0.0, self.planned.lookup_seconds)
        if self.sent is not None and self.answered is not None:
            line["first_byte_ms"] = _milliseconds(self.sent, self.answered)
        line["total_ms"] = _milliseconds(self.started, now)
        return line


def _described_plan(planned: Planned) -> dict[str, Any]:
    return {
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


def _milliseconds(start: float, end: float) -> float:
    return int(100_000 * (end - start) + 0.5) / 100  # as `round` to two digits, which takes five times as long


MAX_EDIT_LINES: Final = 500
"""For one plan; a last line says how many changes have none."""
MAX_ARTIFACTS: Final = 20
"""Named in a summary: a conversation with more has them in its `edit` lines."""
MAX_RANGES: Final = 40
"""Of message numbers in a summary."""


def summary_of(planned: Planned) -> dict[str, Any]:
    """Which messages are changed, which are left out, and where the originals are kept."""
    blocks = planned.plan.blocks
    changed = [index for index, block in enumerate(blocks) if block.reasons and block.tokens_after]
    left_out = [index for index, block in enumerate(blocks) if block.reasons and not block.tokens_after]
    kept_in = dict.fromkeys(name for block in blocks for name in block.artifacts)
    told: dict[str, Any] = {}
    if changed:
        told["changed"] = ranges(changed)
    if left_out:
        told["left_out"] = ranges(left_out)
    if kept_in:
        told["artifacts"] = list(kept_in)[:MAX_ARTIFACTS]
    return told


def edit_lines(planned: Planned) -> Iterator[dict[str, Any]]:
    """The members of one line for each change, in the order of the messages; neighbours that are left out into the same
    artifact share a line. Sizes are in the model's tokens."""
    runs = [*_runs(in_model_tokens(planned.plan.blocks, planned.plan.budget))]
    for index, run in runs[:MAX_EDIT_LINES]:
        yield _line_of(index, run)
    yield from _beside_messages(planned)
    if len(runs) > MAX_EDIT_LINES:
        yield {"not_told": len(runs) - MAX_EDIT_LINES}


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as people write them.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3,7,9-10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:MAX_RANGES]]
    return ",".join([*told, "…"] if len(runs) > MAX_RANGES else told)


def _runs(blocks: Sequence[MessageReport]) -> Iterator[tuple[int, list[MessageReport]]]:
    """Index of the first message, and the changed messages that share a line."""
    run: list[MessageReport] = []
    for index, block in enumerate(blocks):
        joins = bool(run) and not block.tokens_after and not run[0].tokens_after
        if run and not (joins and (block.reasons, block.artifacts) == (run[0].reasons, run[0].artifacts)):
            yield index - len(run), run
            run = []
        if block.reasons:
            run.append(block)
    if run:
        yield len(blocks) - len(run), run


def _line_of(index: int, run: Sequence[MessageReport]) -> dict[str, Any]:
    first = run[0]
    line: dict[str, Any] = {"message": index}
    if len(run) > 1:
        line |= {"last_message": index + len(run) - 1}
    else:
        line |= {"role": first.role, "tool": first.tool}
    return line | {
        "reasons": first.reasons,
        "tokens_before": sum(block.tokens_before for block in run),
        "tokens_after": sum(block.tokens_after for block in run),
        "artifacts": first.artifacts,
    }


def _beside_messages(planned: Planned) -> Iterator[dict[str, Any]]:
    """Changes of the request itself, which no message shows."""
    shown = {reason for block in planned.plan.blocks for reason in block.reasons}
    for reason, count in planned.reasons.items():
        if reason in shown:
            continue
        line: dict[str, Any] = {"reasons": (reason,), "count": count}
        if reason == Reason.CLAMP_REPLY.value and planned.reply_tokens is not None:
            line |= {"tokens_before": planned.request.reply_tokens, "tokens_after": planned.reply_tokens}
        yield line
