"""The journey of one chat request, top to bottom.

Rule: what goes wrong in here never makes a request worse off than without the proxy: when the proxy cannot plan, the
bytes that came go upstream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final, TypeAlias, get_args

from proxy.config.settings import Settings
from proxy.config.types import Mode
from proxy.core.notices.artifact_access import NOWHERE, ArtifactAccess
from proxy.core.overflow import Unit, Verdict, VerdictKind
from proxy.core.overflow.refusal import does_not_fit, empty_twice, refused_twice
from proxy.core.overflow.retry_strategy import Attempt, Outcome, RetryStrategy, Rung, retry_strategy
from proxy.errors import ContextOverflow, MalformedRequest, ProxyError, UpstreamEmpty, UpstreamError
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.artifacts.tenants import KEY_HEADERS, Tenants
from proxy.shell.http.unpacking import can_unpack, unpack
from proxy.shell.models.learning import Learning
from proxy.shell.models.profiles import ModelResolver
from proxy.shell.planning.planned import Planned
from proxy.shell.planning.planner import Planner
from proxy.shell.planning.wanted import in_thread
from proxy.shell.relay.journey import READABLE, UNCOMPRESSED, Journey, PassEarly, accepting
from proxy.shell.relay.judging import ACCEPTED, Judge
from proxy.shell.relay.peeking import PeekedResponse
from proxy.shell.relay.send_plans import SendPlans
from proxy.shell.relay.tool_loop import Retrieval, ToolLoop
from proxy.shell.relay.watching import StreamedAnswer, WholeAnswer, watched
from proxy.shell.resources.logs import logger
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.recorder import Recorder
from proxy.shell.upstream.client import Headers, Upstream, UpstreamAnswer

MODE_HEADER: Final = b"x-context-proxy-mode"
_MODES: Final = frozenset(get_args(get_args(Mode)[0]))


Answer: TypeAlias = UpstreamAnswer | PeekedResponse | WholeAnswer | StreamedAnswer


def _overflow(message: str, outcome: Outcome) -> ContextOverflow:
    """A refusal for length that could not be cured, said so that a person can act on it."""
    return ContextOverflow(message, param="messages", upstream_message=outcome.verdict.upstream_message)


class Relay:
    """Serves chat requests from one upstream."""

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        models: ModelResolver,
        planner: Planner,
        store: ArtifactStore,
        owners: Tenants,
        recorder: Recorder,
        learning: Learning,
        retrieval: Retrieval,
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._models = models
        self._planner = planner
        self._plans = SendPlans(planner, store)
        self._owners = owners
        self._recorder = recorder
        self._judge = Judge(recorder, learning, settings.upstream.base_url)
        self._retrieval = retrieval
        self._log = logger()

    async def serve(
        self,
        target: bytes,
        headers: Headers,
        body: bytes,
        decision: Decision,
        way: ArtifactAccess = NOWHERE,
        early: PassEarly | None = None,
        model: str = "",
    ) -> Answer:
        """The upstream's answer, as much of it read as was needed to judge it; what says nothing goes to `early` while
        it is. `model`: where the body names none. Raises ProxyError."""
        mode = self._mode(headers)
        owner = self._owners.owner_of(headers)
        self._models.offer_key(header(headers, b"authorization"))
        planned = None if mode == "off" else await self._planned(owner, headers, body, decision, way, model)
        sent = self._with_key([(name, value) for name, value in headers if name != MODE_HEADER])
        if planned is None or mode == "observe":
            decision.observed = planned is not None
            self._recorder.plan_made(decision)
            observed = await self._send(target, sent, body, decision)
            return observed if planned is None else await self._observed(observed, planned, decision)
        has_our_tool = planned.basis.tools is not None  # and may call it, even where this request withholds it
        read_on_the_way = has_our_tool or self._settings.overflow.keepalive_seconds
        sent = accepting(sent, UNCOMPRESSED if read_on_the_way else READABLE)
        planned = await self._plans.kept(planned, owner.hex(), decision)
        larger = await self._plans.larger(planned, owner.hex(), decision) if self._settings.overflow.retry else None
        journey = Journey(target, sent, body, planned, owner.hex(), larger=larger, early=early)
        self._recorder.plan_made(decision)
        answer = await self._climb(journey, decision)
        if not has_our_tool or decision.rung == Rung.ORIGINAL:
            return answer
        was_sent = decision.planned or planned
        return await watched(answer, ToolLoop(self._retrieval, self._send_round, journey, decision, was_sent))

    async def _observed(self, answer: UpstreamAnswer, planned: Planned, decision: Decision) -> Answer:
        """An answer that passes as it is; of a refusal it is written down what it was for."""
        if answer.status < 400:
            return answer
        refusal = PeekedResponse(answer)
        try:
            await refusal.look()
        except BaseException:
            await refusal.aclose()
            raise
        self._judge.observed(refusal, planned, decision)
        return refusal

    async def _send_round(self, journey: Journey, request_id: str) -> tuple[PeekedResponse, Planned]:
        """One more round of an answer: a send for an answer of the model like any other, with a record of its own."""
        decision = Decision(request_id, time.perf_counter())
        decision.note_plan(journey.planned)
        planned = await self._plans.kept(journey.planned, journey.owner, decision)
        answer = await self._climb(replace(journey, planned=planned, larger=None), decision)
        return answer, decision.planned or planned

    def keepalive_seconds(self, headers: Headers) -> float | None:
        """How long a client of a stream may hear nothing before its first event; None: as long as it takes."""
        seconds = self._settings.overflow.keepalive_seconds
        if seconds is None:
            return None
        try:
            return seconds if self._mode(headers) == "on" else None
        except MalformedRequest:  # it will be told when the request is served
            return None

    async def _climb(self, journey: Journey, decision: Decision) -> PeekedResponse:
        """Send what the ladder says until an answer stands."""
        planned = journey.first
        if not planned.plan.may_be_sent:
            raise ContextOverflow(self._refusal(planned), param="messages")
        ladder = retry_strategy(journey.situation)
        attempt, refusal = next(ladder), ACCEPTED
        wordless: PeekedResponse | None = None  # what the client gets when a shorter request is not taken either
        while True:
            headers, body = journey.rendered(planned, attempt)
            answer = PeekedResponse(await self._send(journey.target, headers, body, decision))
            try:
                may_begin = answer.may_begin_early(as_stream=planned.request.stream)
                await answer.look(journey.early if may_begin else None)
                outcome = self._judge.outcome(answer, planned, decision)
                following = self._next(ladder, outcome)
                if following is None:
                    self._judge.learn_what_was_refused(attempt, refusal, outcome, journey.planned)
                    if wordless is not None and outcome.verdict.kind is not VerdictKind.ACCEPTED:
                        await answer.aclose()
                        return wordless
                    self._raise_for(attempt, outcome, planned)
                    return answer
                if following.rung is Rung.FITTED:
                    return await self._fitted(journey, following, answer, decision)
                second = await self._second(journey, following, outcome, planned)
                if second is None:
                    return answer
                following, harsher = second
                if outcome.verdict.is_suspect and following.rung is Rung.EMERGENCY:
                    self._recorder.overflowed(decision, outcome.verdict)
                    wordless = answer if outcome.status >= 400 and answer.is_whole else None
            except BaseException:
                await answer.aclose()
                raise
            await answer.aclose()
            journey = journey.uncompressed() if answer.has_begun else journey
            attempt, planned, refusal = following, harsher, outcome.verdict
            decision.note_attempt(attempt, planned)
            self._recorder.retried(decision, attempt)

    async def _second(
        self, journey: Journey, attempt: Attempt, outcome: Outcome, refused: Planned
    ) -> tuple[Attempt, Planned] | None:
        """What is sent after a refusal; None when nothing better can be. Raises ContextOverflow."""
        if attempt.rung is Rung.AS_KNOWN:
            return attempt, journey.planned
        if attempt.rung is Rung.WITHOUT_MEDIA:
            planned = await self._plans.without_media(journey, attempt.refused)
            is_another = planned.plan.fits and planned.plan.messages != refused.plan.messages
            return (attempt, planned) if is_another else None
        if attempt.goal_tokens is None:
            return attempt, refused
        planned, attempt = await self._plans.harsher_for(journey, attempt, attempt.goal_tokens)
        self._judge.learn_from_recount(outcome.verdict, refused, planned)
        if planned.plan.may_be_sent and planned.plan.after.bytes < refused.plan.after.bytes:
            return attempt, planned
        if outcome.verdict.is_overflow:
            raise _overflow(self._refusal(planned, outcome.verdict), outcome)
        return None

    async def _fitted(
        self, journey: Journey, attempt: Attempt, cut: PeekedResponse, decision: Decision
    ) -> PeekedResponse:
        """The answer to as much as the upstream reads whole, in the place of one to a prompt that it has cut without a
        word; that one, where there is no better."""
        assert attempt.goal_tokens is not None
        planned = await self._plans.as_next_turn(journey)
        if planned.plan.after.tokens > attempt.goal_tokens:  # settings that state another window have the say
            planned = await self._plans.harsher(journey, attempt.goal_tokens)
        if planned.plan.after.bytes >= journey.planned.plan.after.bytes or not planned.plan.may_be_sent:
            return cut
        await cut.aclose()  # it is whole
        journey = journey.uncompressed() if cut.has_begun else journey
        decision.note_attempt(attempt, planned)
        self._recorder.retried(decision, attempt)
        headers, body = journey.rendered(planned, attempt)
        try:
            answer = PeekedResponse(await self._send(journey.target, headers, body, decision))
        except UpstreamError:
            return cut
        try:
            await answer.look()
            if answer.status == 200:
                return answer
        except UpstreamError:
            pass
        except BaseException:
            await answer.aclose()
            raise
        await answer.aclose()
        return cut

    def _raise_for(self, attempt: Attempt, outcome: Outcome, planned: Planned) -> None:
        """Say so where the last answer is one that a client can do nothing with. Raises ContextOverflow and
        UpstreamEmpty."""
        tokens, language = planned.tokens_after, self._settings.language
        if outcome.verdict.is_overflow and self._settings.overflow.retry:
            raise _overflow(refused_twice(tokens, language), outcome)
        if outcome.verdict.kind is VerdictKind.EMPTY and attempt.rung is not Rung.FIRST:
            raise UpstreamEmpty(empty_twice(tokens, language))

    def _next(self, ladder: RetryStrategy, outcome: Outcome) -> Attempt | None:
        if not self._settings.overflow.retry:
            return None
        try:
            return ladder.send(outcome)
        except StopIteration:
            return None

    async def _send(self, target: bytes, headers: Headers, body: bytes, decision: Decision) -> UpstreamAnswer:
        decision.note_sent(len(body))
        answer = await self._upstream.send("POST", target, headers, body)
        decision.note_answer(answer.status)
        return answer

    def learn_from(self, answer: Answer, decision: Decision) -> None:
        """Hold what the upstream counted against the estimate, once its answer has been passed on."""
        if not isinstance(answer, UpstreamAnswer):
            counted = None if isinstance(answer, WholeAnswer) else answer.counted
            self._judge.learn_from_usage(answer.prompt_tokens, decision, counted)

    async def pass_through(
        self, method: str, target: bytes, headers: Headers, body: AsyncIterator[bytes] | None
    ) -> UpstreamAnswer:
        """The upstream's answer to anything else. Raises ProxyError."""
        return await self._upstream.send(method, target, self._with_key(headers), body)

    async def _planned(
        self, owner: bytes, headers: Headers, body: bytes, decision: Decision, way: ArtifactAccess, model: str
    ) -> Planned | None:
        """The plan; None when there can be none and the upstream has to judge. Raises MalformedRequest."""
        encoding = b",".join(value.lower() for name, value in headers if name == b"content-encoding")
        if encoding and encoding != b"identity":
            if not can_unpack(encoding):
                self._log.info("request_not_read", request_id=decision.request_id, reason="content_encoding")
                return None
            body = await in_thread(unpack, body, encoding, self._settings.server.max_body_bytes)
        try:
            # Who only observes asks no third party for anything.
            looking_up = self._mode(headers) == "on"
            planned = await self._planner.plan(owner, body, way, model, looking_up=looking_up)
        except ProxyError:
            raise
        except Exception:
            self._log.exception("planning_failed", request_id=decision.request_id)
            return None
        decision.note_plan(planned)
        return planned

    def _refusal(self, planned: Planned, refused: Verdict = ACCEPTED) -> str:
        """What a client is told of a request that cannot be made to fit; `refused`: what the upstream said of it."""
        profile = planned.basis.profile
        is_told = refused.limit is not None and refused.unit is Unit.TOKENS
        window = refused.limit if is_told and refused.limit is not None else profile.window_tokens
        language, put_in = self._settings.language, planned.request.put_in
        return does_not_fit(planned.plan, profile.model, window, language, put_in, window_is_told=is_told)

    def _mode(self, headers: Headers) -> str:
        """Raises MalformedRequest: who misspells `observe` wants anything but an edited request."""
        if not self._settings.enabled:
            return "off"
        asked = header(headers, MODE_HEADER)
        if not asked:
            return self._settings.mode
        mode = asked.decode("latin-1").strip().lower()
        if mode not in _MODES:
            raise MalformedRequest(f"{MODE_HEADER.decode()} is {mode[:40]!r}; allowed are {', '.join(sorted(_MODES))}")
        return mode

    def _with_key(self, headers: Headers) -> Headers:
        """The client's key goes on; the configured one stands in when the client sends none."""
        key = self._settings.upstream.api_key
        if key is None or any(name in KEY_HEADERS for name, _ in headers):
            return headers
        return [*headers, (b"authorization", b"Bearer " + key.get_secret_value().encode())]


def header(headers: Headers, name: bytes) -> bytes:
    """The first header of that lower-case name, or nothing."""
    for found, value in headers:
        if found == name:
            return value
    return b""
