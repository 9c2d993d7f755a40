"""Answers the calls of the proxy's own tool and continues with the model until it has a response for the client.

Rule: a client never gets an error that it would not have had without the tool: the model is told what cannot be read,
and goes on without a page that does not fit. What it works on stays: a page gets the room that is left. At most
MAX_ROUNDS readings in one response; each is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, reduce
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.compaction.plan import Plan
from proxy.core.conversation.size import Size
from proxy.core.notices.catalogue import Language
from proxy.core.overflow.retry import Terms
from proxy.core.retrieval_tool.hidden_calls import (
    HISTORY_BYTES,
    AssistantMessage,
    Continuation,
    HiddenToolCalls,
    extended,
)
from proxy.core.retrieval_tool.tool import (
    Wanted,
    last_reading,
    no_room,
    stopped,
    too_many,
    unnamed,
    wanted_by,
    withheld,
)
from proxy.core.text.lines import utf8_length
from proxy.errors import ContextOverflow
from proxy.shell.artifacts.tools import ArtifactTools
from proxy.shell.planning.planned import Planned
from proxy.shell.planning.planner import Planner
from proxy.shell.relay.peeking import PeekedResponse
from proxy.shell.relay.sends import Journey
from proxy.shell.resources.logs import logger
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.recorder import Recorder

MAX_ROUNDS: Final = 8
"""For one response: three find a needle in 5 MB, and a model that needs more than eight is lost in the artifact."""
MAX_CALLS: Final = 8
"""Calls of one round that are answered."""
MIN_PAGE_BYTES: Final = 500
"""A shorter page would be useless."""
_NEXT_TOKENS: Final = 400
"""Left beside a page for two more calls and the lines that answer them, so that what stays is not cut for these."""
_SHARES: Final = (1.0, 0.25, 0.06, 0.0)
"""Shares of a page, tried in turn if the request would not fit with it; 0: one line in its place."""

Send: TypeAlias = Callable[[Journey, str], Awaitable[tuple[PeekedResponse, Planned]]]
"""Sends the plan for the request with this id; returns the final response and the plan that it answers. Raises
ProxyError."""


class Retrieval(Struct, frozen=True):
    """What every response needs for its rounds."""

    planner: Planner
    tools: ArtifactTools
    recorder: Recorder
    language: Language
    keepalive_seconds: float | None
    """How long the client of a stream may hear nothing between two rounds; None: as long as it takes."""


class _Read(NamedTuple):
    """The results of the calls in one response."""

    texts: list[tuple[str, str]]
    """(name of the artifact, empty if none was named; text)."""
    results: list[bytes]
    """The same texts as tool messages."""
    planned: Planned
    """The plan for the request with these results."""


class ToolLoop(Struct):
    """The rounds of one response."""

    retrieval: Retrieval
    send: Send
    journey: Journey
    decision: Decision
    planned: Planned
    """What was sent last."""
    count: int = 0
    """Number of readings so far."""

    @property
    def last_words(self) -> str:
        """The text of a response in which the model has written nothing and may not continue."""
        language = self.retrieval.language
        return stopped(MAX_ROUNDS, language) if self.count == MAX_ROUNDS else withheld(language)

    async def following(self, said: AssistantMessage) -> PeekedResponse | None:
        """The model's next response, after its calls were answered; None if it may not continue. Raises ProxyError."""
        if self.count == MAX_ROUNDS:
            return None
        read = await self._read(said)
        for _ in range(2):
            if read is None or not read.planned.plan.may_be_sent:
                return None
            round_of = replace(self.journey, planned=read.planned, again=partial(self._again, said))
            try:
                answer, self.planned = await self.send(round_of, self.decision.request_id)
            except ContextOverflow:
                read = await self._with_pages(said, 0.0)
            else:
                return answer
        return None

    async def close(self, said: AssistantMessage | None, first: PeekedResponse, last: PeekedResponse) -> None:
        """Keep what is needed when the client returns, before it has the end of its response.

        `said`: the model's message, if none of our calls in it is answered yet. `first`: the response that the client
        knows by its name; `last`: the one that holds the whole.
        """
        results = () if said is None else await self._left(said)
        wire, request = self.planned.wire, self.planned.request
        told, name = (wire.named_in(request, response.evidence) for response in (first, last))
        if told and name and (results or told != name):
            continuation = Continuation.of(self.journey.tenant, told, name, results)
            await self.retrieval.planner.keep_hidden(self.journey.tenant, continuation)

    async def _left(self, said: AssistantMessage) -> Sequence[bytes]:
        """The results of our calls after which no round follows. Those beside calls of the client are read, and kept
        for when it returns with its own; otherwise the model has come to its end."""
        read = await self._read(said) if said.is_mixed else None
        if read is None:
            return [self.planned.wire.result(call, self.last_words) for call in said.own]
        before = map(self.planned.wire.message, said.before)
        history = reduce(extended, before, self.journey.planned.request.history[-HISTORY_BYTES:])
        hidden = HiddenToolCalls.of(history, said, read.results)
        await self.retrieval.planner.keep_hidden(self.journey.tenant, hidden)
        return read.results

    async def _read(self, said: AssistantMessage) -> _Read | None:
        """The results of our calls, as much as fits. A defect of the proxy costs the page, not the response: None."""
        try:
            return await self._read_all(said) if await self.journey.kept.back() else None
        except Exception:
            logger().exception("planning_failed", request_id=self.decision.request_id)
            return None

    async def _read_all(self, said: AssistantMessage) -> _Read:
        self.count += 1
        self.decision.retrieval_rounds = self.count
        for share in _SHARES:
            read = await self._with_pages(said, share)
            if _leaves_room(read.planned.plan):
                break
        for artifact, text in read.texts:
            self.retrieval.recorder.artifact_read(self.decision, artifact, utf8_length(text))
        return read

    async def _again(self, said: AssistantMessage, refused: Planned, terms: Terms) -> Planned:
        """The plan for a round that was refused. For a goal, its pages are made smaller here, because a plan does not
        cut them. If all that stays is beyond the goal, the smallest page that fits stays with it."""
        planner, goal_tokens = self.retrieval.planner, terms.goal_tokens
        if goal_tokens is None or goal_tokens == refused.inputs.terms.goal_tokens:
            return await planner.again(refused, terms)
        fitting = None
        for share in _SHARES:
            read = await self._with_pages(said, share)
            planned = await planner.again(read.planned, terms)
            if planned.plan.fits and planned.plan.after.tokens <= goal_tokens:
                return planned
            fitting = planned if share and planned.plan.fits else fitting
        return fitting or planned

    async def _with_pages(self, said: AssistantMessage, share: float) -> _Read:
        wanted = [wanted_by(call.arguments) for call in said.own]
        page_bytes = self.retrieval.planner.page_bytes(self.planned) // min(len(wanted), MAX_CALLS)
        if share:
            texts = await self._texts(wanted, max(MIN_PAGE_BYTES, int(page_bytes * share)))
        else:
            language = self.retrieval.language
            texts = [no_room(one.artifact, language) if one else unnamed(language) for one in wanted]
        wire = self.planned.wire
        results = [wire.result(call, text) for call, text in zip(said.own, texts, strict=True)]
        messages = [wire.message(raw) for raw in (said.message, *results)]
        planned = await self.retrieval.planner.plan_further(self.planned, messages, may_cut=not share)
        named = [one.artifact if one else "" for one in wanted]
        return _Read(list(zip(named, texts, strict=True)), results, planned)

    async def _texts(self, wanted: Sequence[Wanted | None], page_bytes: int) -> list[str]:
        """The text that answers each call."""
        texts = await asyncio.gather(*(self._text(one, page_bytes) for one in wanted[:MAX_CALLS]))
        texts += [too_many(MAX_CALLS, self.retrieval.language)] * (len(wanted) - MAX_CALLS)
        if self.count == MAX_ROUNDS:
            texts[-1] += last_reading(MAX_ROUNDS, self.retrieval.language)
        return texts

    async def _text(self, wanted: Wanted | None, page_bytes: int) -> str:
        return (await self.retrieval.tools.read(wanted, (self.journey.tenant,), page_bytes)).text


def _leaves_room(plan: Plan) -> bool:
    """Whether a plan fits, and what follows will."""
    left = Size(min(_NEXT_TOKENS, plan.budget.room_tokens // 20))
    return plan.budget.admits(plan.after + left)
