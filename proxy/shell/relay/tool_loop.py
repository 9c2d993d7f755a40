"""Answers the calls of the proxy's own tool until the model has a response for the client.

Rule: a client never gets an error that it would not have had without the tool: the model reads why a page is missing,
and continues without one that does not fit; where it cannot continue, the response ends with what it wrote, and why.
What it works on stays: a page gets the room that is left. At most MAX_ROUNDS readings in one response; each is
recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field, structs

from proxy.core.conversation import Message, Size
from proxy.core.notices import READING, Language, framed, say
from proxy.core.overflow import Counted, Terms
from proxy.core.retrieval_tool import AssistantMessage, Wanted, notice, wanted_by
from proxy.core.text import utf8_length
from proxy.errors import ContextOverflow, ProxyError, UpstreamError
from proxy.shell.artifacts import ArtifactTools
from proxy.shell.planning import Planned, Planner
from proxy.shell.relay.peeking import OF_THE_BODY, PeekedResponse
from proxy.shell.relay.sends import Again, PendingRequest
from proxy.shell.resources import BoundedMap, logger
from proxy.shell.telemetry import Recorder, RequestRecord
from proxy.shell.upstream import Headers

MAX_ROUNDS: Final = 8
"""Most rounds of one response: three find a needle in 5 MB, and a model that needs more than eight is lost in the
artifact."""
MAX_CALLS: Final = 8
"""Calls of one round that are answered."""
MAX_LEFT_OUT: Final = 1_000
"""Conversations whose left-out calls are remembered."""
MAX_LEFT_OUT_BYTES: Final = 4 * 1024 * 1024
"""Limit of what these calls say."""
MIN_PAGE_BYTES: Final = 500
"""A shorter page would be useless."""
_NEXT_TOKENS: Final = 400
"""Left beside a page for two more calls and the lines that answer them, so that what stays is not cut for these."""
_SHARES: Final = (1.0, 0.25, 0.06, 0.0)
"""Shares of a page, tried in turn if the request would not fit with it; 0: one line in its place."""

Send: TypeAlias = Callable[[PendingRequest, str], Awaitable[tuple[PeekedResponse, Planned, str]]]
"""Sends the plan for the request with this id; returns the final response, the plan that it answers, and what is wrong
with it, empty for a reply. Raises ProxyError."""


class LeftCalls(NamedTuple):
    """Our calls in a response that also had calls of the client."""

    wanted: Sequence[Wanted | None]
    messages: int
    """Number of messages before that response."""
    last: int
    """Hash of the last of them: other conversations may have the same beginning."""


class Retrieval(Struct, frozen=True):
    """Shared by the rounds of every response."""

    planner: Planner
    tools: ArtifactTools
    recorder: Recorder
    language: Language
    keepalive_seconds: float | None
    """How long the client of a stream may hear nothing between two rounds; None: as long as it takes."""
    left_out: BoundedMap[tuple[str, str], LeftCalls] = field(
        default_factory=lambda: BoundedMap(MAX_LEFT_OUT, MAX_LEFT_OUT_BYTES)
    )
    """Those of the latest response of each conversation, by tenant and conversation."""


class _Calls(NamedTuple):
    """Our calls in one response."""

    wanted: Sequence[Wanted | None]
    """None: a call that says nothing of what to read."""
    answered: Callable[[Sequence[str]], list[Message]]
    """The texts that answer them → the messages that follow the request."""
    accepted_tokens: int = 0
    """The size of the prompt that they answer; 0 before anything was sent."""


class ToolLoop(Struct):
    """The rounds of one response."""

    retrieval: Retrieval
    send: Send
    pending: PendingRequest
    record: RequestRecord
    planned: Planned
    """Sent last."""
    problem: str = ""
    """Why the latest round failed."""

    @property
    def last_words(self) -> str:
        """The last text of a response in which the model may not continue."""
        language = self.retrieval.language
        if self.problem:
            return say(READING, "broken", language, problem=self.problem)
        return say(
            READING,
            "stopped" if self.record.retrieval_rounds == MAX_ROUNDS else "withheld",
            language,
            rounds=MAX_ROUNDS,
        )

    async def following(self, message: AssistantMessage, *, as_stream: bool) -> PeekedResponse | None:
        """The model's next response, after its calls were answered, a stream or not; None if it may not continue, or
        there is none."""
        calls = self._calls(message)
        read = await self._read(calls) if self.record.retrieval_rounds < MAX_ROUNDS else None
        for is_last in (False, True):
            if read is None or not read.plan.may_be_sent:
                return None
            again = partial(self._again, calls)
            round_of = structs.replace(self.pending, planned=read, again=again, is_last=is_last)
            try:
                answer, planned, problem = await self.send(round_of, self.record.request_id)
            except ContextOverflow:
                read, _ = await self._with_pages(calls, 0.0)
                continue
            except ProxyError as error:
                self._fail(error.code)
                return None
            if problem := problem or await _unreadable(answer, as_stream=as_stream):
                await answer.aclose()
                self._fail(problem)
                return None
            self.planned = planned
            return answer
        return None

    def _fail(self, problem: str) -> None:
        """Note why there is no next response."""
        self.problem = problem
        logger().warning("reading_broken", request_id=self.record.request_id, problem=problem)

    def leave_out(self, message: AssistantMessage) -> None:
        """Remember our calls beside the client's: the client gets its own, and the next turn what ours read."""
        messages = self._received
        if messages and message.own:
            left = LeftCalls(_wanted(message)[:MAX_CALLS], len(messages), _hash_of(messages[-1]))
            self.retrieval.left_out.put(self._conversation, left, sum(len(call.arguments) for call in message.own))

    async def catch_up(self) -> tuple[Planned, Again | None]:
        """The plan with what our calls of the turn before were to read, which came beside the client's own, at its end;
        and how it is planned again."""
        left, messages = self.retrieval.left_out.get(self._conversation), self._received
        is_next = left is not None and left.messages < len(messages)
        if left is None or not is_next or _hash_of(messages[left.messages - 1]) != left.last:
            return self.planned, None
        self.retrieval.left_out.pop(self._conversation)
        said = notice("beside", self.retrieval.language).rstrip()
        calls = _Calls(left.wanted, lambda texts: [messages[-1].beside("user", "\n".join([said, *texts]))])
        read = await self._read(calls)
        if read is None or not read.plan.may_be_sent:
            return self.planned, None
        self.record.note_plan(read)
        return read, partial(self._again, calls)

    @property
    def _conversation(self) -> tuple[str, str]:
        return self.planned.tenant, self.pending.planned.last_sent.conversation

    @property
    def _received(self) -> Sequence[Message]:
        """The messages of the client."""
        messages, reading = self.planned.request.conversation.messages, self.planned.reading
        return messages if reading is None else messages[: reading.received]

    def _calls(self, message: AssistantMessage) -> _Calls:
        wire = self.planned.wire

        def as_results(texts: Sequence[str]) -> list[Message]:
            results = [wire.result(call, text) for call, text in zip(message.own, texts, strict=True)]
            return [wire.message(raw) for raw in (message.message, *results)]

        return _Calls(_wanted(message), as_results, self.planned.plan.after.tokens)

    async def _read(self, calls: _Calls) -> Planned | None:
        """The plan with the results of our calls, as much of them as fits beside what may follow. None after a defect
        of the proxy, which costs the page and not the response."""
        try:
            if not await self.pending.came.kept.back():
                return None
            self.record.retrieval_rounds += 1
            for share in _SHARES:
                planned, texts = await self._with_pages(calls, share)
                plan = planned.plan
                if plan.budget.admits(plan.after + Size(min(_NEXT_TOKENS, plan.budget.room_tokens // 20))):
                    break
        except Exception:
            logger().exception("planning_failed", request_id=self.record.request_id)
            return None
        for one, text in zip(calls.wanted, texts, strict=True):
            self.retrieval.recorder.artifact_read(self.record, one.artifact if one else "", utf8_length(text))
        return planned

    async def _again(self, calls: _Calls, refused: Planned, terms: Terms) -> Planned:
        """The plan for a round that was refused. For a goal, its pages are made small here, because a plan does not cut
        them."""
        if terms.goal_tokens is not None and terms.goal_tokens != refused.inputs.terms.goal_tokens:
            refused, _ = await self._with_pages(calls, _SHARES[-2])
        return await self.retrieval.planner.again(refused, terms)

    async def _with_pages(self, calls: _Calls, share: float) -> tuple[Planned, Sequence[str]]:
        """The plan with pages of this share of their size, and their texts."""
        wanted, language = calls.wanted, self.retrieval.language
        page_bytes = self.retrieval.planner.page_bytes(self.planned) // min(len(wanted), MAX_CALLS)
        if share:
            texts = await self._texts(wanted, max(MIN_PAGE_BYTES, int(page_bytes * share)))
        else:
            texts = [notice("no_room" if one else "unnamed", language) for one in wanted]
        plan_further, messages = self.retrieval.planner.plan_further, calls.answered(texts)
        return await plan_further(self.planned, messages, calls.accepted_tokens, may_cut=not share), texts

    async def _texts(self, wanted: Sequence[Wanted | None], page_bytes: int) -> list[str]:
        """The text that answers each call."""
        planned, read = self.planned, self.retrieval.tools.read
        lost, total = planned.lost(), planned.message_count
        reading = (read(one, (planned.tenant,), page_bytes, lost, total) for one in wanted[:MAX_CALLS])
        texts = [found.text for found in await asyncio.gather(*reading)]
        texts += [notice("many", self.retrieval.language, calls=MAX_CALLS)] * (len(wanted) - MAX_CALLS)
        if self.record.retrieval_rounds == MAX_ROUNDS:
            last = say(READING, "last", self.retrieval.language, rounds=MAX_ROUNDS)
            texts[-1] += f"\n{framed(last)}\n"
        return texts


async def _unreadable(answer: PeekedResponse, *, as_stream: bool) -> str:
    """Why the response of a later round cannot be used, empty if it can; a stream is read as it arrives."""
    if answer.is_stream is not as_stream:
        return "another form of response"
    try:
        return "" if as_stream or await answer.read(MAX_BODY_BYTES) is not None else "too long"
    except UpstreamError as error:
        return error.code


def _wanted(message: AssistantMessage) -> list[Wanted | None]:
    return [wanted_by(call.arguments) for call in message.own]


def _hash_of(message: Message) -> int:
    """A hash of what a client repeats of a message; it moves cache marks, which may turn a text into a block."""
    return hash((message.role, message.answers, *(text for _, text in message.texts())))


MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Limit of a response that is not a stream; a longer one is passed on as it arrives."""


class MergedResponse:
    """A response that its later rounds continue."""

    def __init__(self, first: PeekedResponse, rounds: ToolLoop) -> None:
        self.status, self.is_stream = first.status, first.is_stream
        self.headers: Headers = [pair for pair in first.headers if pair[0] not in OF_THE_BODY]
        self._current = self._first = first
        self._rounds = rounds
        self._pieces = self._merged()
        self._coming: asyncio.Task[PeekedResponse | None] | None = None
        """The response of the next round."""

    @property
    def counted(self) -> Counted | None:
        """The upstream's counts for the first send: later rounds also hold pages."""
        return self._first.counted

    async def whole(self) -> PeekedResponse | MergedResponse:
        """Go through all rounds of a response that is not a stream; it is the first one if that is not changed. Raises
        ProxyError."""
        try:
            body = await self._first.read(MAX_BODY_BYTES)
            said = None if body is None else b"".join([piece async for piece in self._pieces])
        except BaseException:
            await self.aclose()
            raise
        if said is None or (self._current is self._first and said == body):
            return self._first
        self.headers.append((b"content-length", str(len(said)).encode()))
        self._pieces = _only(said)
        return self

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, like UpstreamResponse.chunks."""
        return self._pieces

    async def _merged(self) -> AsyncIterator[bytes]:
        """The body, as far as it is decided, as the rounds arrive."""
        rounds, wire = self._rounds, self._rounds.planned.wire
        reply = wire.reply(stream=self.is_stream)
        seconds = rounds.retrieval.keepalive_seconds if self.is_stream and wire.framing.comment else None
        while True:
            async for piece in self._current.chunks() if self.is_stream else _only(self._current.evidence):
                self._current.last.add(piece)
                if visible := reply.feed(piece):
                    yield visible
            message = reply.end()
            rounds.record.note_usage(reply.usage)
            if message is None or message.others:
                if message is not None:
                    rounds.leave_out(message)
                yield reply.last_words()
                return
            self._coming = asyncio.create_task(rounds.following(message, as_stream=self.is_stream))
            while not (await asyncio.wait({self._coming}, timeout=seconds))[0]:
                yield wire.framing.comment
            following, self._coming = self._coming.result(), None
            if following is None:
                yield reply.stopped(rounds.last_words)
                return
            await self._current.aclose()
            self._current = following
            reply.next_round()

    async def drain(self) -> None:
        await self._current.drain()

    async def aclose(self) -> None:
        """Release the connections."""
        if self._coming is not None:
            self._coming.cancel()
            (came,) = await asyncio.gather(self._coming, return_exceptions=True)
            if isinstance(came, PeekedResponse):
                await came.aclose()
        await self._current.aclose()


async def _only(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def watched(answer: PeekedResponse, rounds: ToolLoop) -> PeekedResponse | MergedResponse:
    """The response as the client gets it. Raises ProxyError."""
    if answer.status != 200 or not answer.is_plain:
        return answer
    merged = MergedResponse(answer, rounds)
    return merged if merged.is_stream else await merged.whole()
