"""Serves one request, top to bottom.

Rule: a failure in here never leaves a request worse off than without the proxy: if the proxy cannot plan, the original
bytes go upstream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, TypeAlias, get_args

from msgspec import Struct, structs

from proxy.config import Mode, RoutedUpstream, Settings
from proxy.core.overflow import (
    FIRST,
    AttemptKind,
    Cure,
    Outcome,
    Verdict,
    VerdictKind,
    best,
    empty_twice,
    lower_reply_helps,
    refused_twice,
    still_stands,
)
from proxy.errors import MalformedRequest, ProxyError, UpstreamEmpty, UpstreamError, UpstreamUnreachable
from proxy.shell.artifacts import KEY_HEADERS, ArtifactStore, ArtifactTools, Tenants
from proxy.shell.http import can_unpack, encoding_of, unpack
from proxy.shell.planning import HeldConversations, Planned, Planner
from proxy.shell.relay.judging import ACCEPTED, Attempt, Judge
from proxy.shell.relay.peeking import PeekedResponse
from proxy.shell.relay.sends import (
    Arrived,
    PendingRequest,
    Sends,
    asking_for_plain,
    overflow,
    without_encoding,
)
from proxy.shell.relay.tool_loop import MergedResponse, Retrieval, ToolLoop, watched
from proxy.shell.resources import Kept, in_thread, logger
from proxy.shell.telemetry import Recorder, RequestRecord, client_name, session_name
from proxy.shell.upstream import Headers, Outgoing, UpstreamResponse
from proxy.wire import DEFAULT, Wire

MODE_HEADER: Final = b"x-context-proxy-mode"
CLIENT_HEADER: Final = b"x-context-proxy-client"
SESSION_HEADER: Final = b"x-context-proxy-session"
_OWN_HEADERS: Final = frozenset((MODE_HEADER, CLIENT_HEADER, SESSION_HEADER))
KEY_HASH_CHARACTERS: Final = 8
"""Characters of the hash in the log: enough to tell keys apart, and part of a keyed hash."""
_MODES: Final = frozenset(get_args(get_args(Mode)[0]))


AnyResponse: TypeAlias = UpstreamResponse | PeekedResponse | MergedResponse


class Served(Struct):
    """The response for a client."""

    response: AnyResponse
    attempt: Attempt | None = None
    """What it answers, before the rounds of the proxy's own tool; None if the request was not planned, or only
    observed."""

    @property
    def verdict(self) -> Verdict:
        """The meaning of the response."""
        return ACCEPTED if self.attempt is None else self.attempt.outcome.verdict


class Relay:
    """Serves requests from one upstream."""

    def __init__(
        self,
        settings: Settings,
        planner: Planner,
        store: ArtifactStore,
        tenants: Tenants,
        recorder: Recorder,
        tools: ArtifactTools,
    ) -> None:
        self._settings = settings
        self._models = planner.models
        self._upstream = planner.models.upstream
        self._planner = planner
        self._judge = Judge(settings, recorder, planner)
        self._sends = Sends(settings, planner, store, self._judge)
        self._tenants = tenants
        self._recorder = recorder
        self.keepalive_seconds = settings.overflow.keepalive_seconds
        """How long a client of a stream may receive nothing before its first event; None: as long as it takes."""
        self._retrieval = Retrieval(planner, tools, recorder, settings.language, self.keepalive_seconds)
        self._held = HeldConversations()

    async def serve(self, came: Arrived, record: RequestRecord) -> Served:
        """The upstream's response, read as far as was needed to judge it. Raises ProxyError."""
        headers = came.headers
        named = dict(reversed(headers))  # the first of each name
        mode = self._mode(named.get(MODE_HEADER, b""))
        tenant = self._tenants.tenant_of(headers)
        record.client = client_name(named.get(CLIENT_HEADER) or named.get(b"user-agent", b""))
        if SESSION_HEADER in named:
            record.session = session_name(named[SESSION_HEADER])
        if not KEY_HEADERS.isdisjoint(named):
            record.key = tenant.hex()[:KEY_HASH_CHARACTERS]
        self._models.discovery.offer_key(named.get(b"authorization") or _as_bearer(named.get(b"x-api-key", b"")))
        planned = None
        if mode != "off":
            encoding = encoding_of(headers) if b"content-encoding" in named else b""
            planned = await self._planned(came, encoding, record, tenant, is_observed=mode != "on")
        headers = self._sent_headers(came, named, None if mode == "observe" else planned)
        if planned is None or mode == "observe":
            return await self._as_it_came(came, headers, planned, record)
        came.client_streams = planned.request.stream
        kept, again = came.kept, None
        if planned.offered and self._retrieval.left_out:
            pending = PendingRequest(came, headers, planned)
            planned, again = await ToolLoop(self._retrieval, self._send_round, pending, record, planned).catch_up()
        planned = await self._ready(planned, record)
        if planned.request.is_rewritten:  # as the client would have written it
            headers = without_encoding(headers)
            came.received.become(planned.request.body)
        pending = PendingRequest(came, headers, planned, again)
        self._recorder.plan_made(record, planned)
        attempt = await self._answer(pending, record)
        if attempt.planned.offered and attempt.cure.kind is not AttemptKind.ORIGINAL:
            await kept.rest()
            rounds = ToolLoop(self._retrieval, self._send_round, pending, record, attempt.planned)
            return Served(await watched(attempt.response, rounds), attempt)
        kept.drop()
        return Served(attempt.response, attempt)

    def _sent_headers(self, came: Arrived, named: Mapping[bytes, bytes], planned: Planned | None) -> Headers:
        """The request's headers for the upstream; a response that is not read may be compressed as the client likes."""
        headers = came.headers
        if not _OWN_HEADERS.isdisjoint(named):
            headers = [pair for pair in headers if pair[0] not in _OWN_HEADERS]
        headers = self._with_key(headers, came.wire)
        accepted = named.get(b"accept-encoding") if planned is not None else None
        return headers if accepted is None else asking_for_plain(headers, accepted)

    async def _as_it_came(
        self, came: Arrived, headers: Headers, planned: Planned | None, record: RequestRecord
    ) -> Served:
        """The response to a request that is sent unchanged; with a plan, only observed."""
        if planned is not None:
            record.mode = "observe"
            self._recorder.plan_made(record, planned)
        came.kept.hold(came.received, *filter(None, [planned]))
        response = await self._send(came.target, headers, Outgoing(came.received.body, came.kept.rest), record)
        if planned is None:
            return Served(response)
        refused = response.status >= 400
        served = Served(await self._observed(response, planned, came.kept, record) if refused else response)
        came.kept.drop()
        return served

    @property
    def own_wire(self) -> str:
        """The wire that is the upstream's own API; empty as long as it is not recognised as such a server. Its clients
        look for it before their first chat, so the upstream is checked again if it was not up before."""
        self._models.discovery.nudge()
        return self._models.discovery.own_wire

    async def _ready(self, planned: Planned, record: RequestRecord) -> Planned:
        """The plan, after what it takes out is kept; it asks the upstream to leave out old messages that it holds, if
        they are known not to fit."""
        ready = await self._sends.kept(planned) if planned.plan.artifacts else planned
        if self._settings.overflow.retry:
            ready = self._held.planned(ready, ready.tenant)
        if ready is not planned:
            record.note_plan(ready)
        return ready

    async def _observed(
        self, answer: UpstreamResponse, planned: Planned, kept: Kept, record: RequestRecord
    ) -> PeekedResponse:
        """A refusal that passes unchanged; its cause is recorded."""
        refusal = PeekedResponse.of(answer, planned.wire)
        try:
            await refusal.look()
            if await kept.back():
                sent = structs.replace(planned, plan=structs.replace(planned.plan, after=planned.plan.before))
                outcome = self._judge.outcome(refusal, sent, record, is_first=False)
                if outcome.is_too_long:
                    self._recorder.overflowed(record, outcome.verdict)
        except BaseException:
            await refusal.aclose()
            raise
        return refusal

    async def _send_round(self, pending: PendingRequest, request_id: str) -> tuple[PeekedResponse, Planned, str]:
        """One more round of a response: a send like any other, with a record of its own. The text says what is wrong
        with it."""
        record = RequestRecord(request_id, time.perf_counter())
        record.note_plan(pending.planned)
        planned = await self._ready(pending.planned, record)
        attempt = await self._answer(structs.replace(pending, planned=planned), record)
        await pending.came.kept.rest()
        problem = "" if attempt.outcome.is_accepted else f"HTTP {attempt.response.status}"
        return attempt.response, attempt.planned, problem

    async def _answer(self, pending: PendingRequest, record: RequestRecord) -> Attempt:
        """Send what the table of cures says until there is a response for the client. Raises ProxyError."""
        history: list[Attempt] = []
        cure, planned = FIRST, pending.planned
        if not planned.plan.may_be_sent:
            raise self._sends.refusal(planned)
        while True:
            try:
                response = await self._responded(pending, cure, planned, history, record)
            except UpstreamError:
                if history and still_stands(history[-1], cure):
                    return history[-1]
                raise
            try:
                outcome = await self._outcome(response, cure, planned, pending, record)
                if outcome.is_too_long or outcome.verdict.is_suspect:
                    planned = await self._sends.recounted(planned)
                attempt = Attempt(cure, outcome, response.is_whole, planned=planned, response=response)
                if cure is FIRST and outcome.is_final:  # nearly always
                    self._held.note(planned, outcome, response.evidence, planned.tenant)
                    return attempt
                history.append(attempt)
                if outcome.verdict.is_overflow:
                    self._models.discovery.doubt()
                self._judge.learn(history, record)
                following = None if outcome.is_final else await self._sends.following(pending, history)
                if following is None:
                    chosen = best(history)
                    if chosen is attempt:
                        self._raise_for(history, pending)
                        self._held.note(planned, outcome, response.evidence, planned.tenant)
                    else:
                        await response.aclose()
                    return chosen
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
            cure, planned = following
            self._recorder.retried(record, planned, cure, outcome.verdict)

    async def _responded(
        self,
        pending: PendingRequest,
        cure: Cure,
        planned: Planned,
        history: Sequence[Attempt],
        record: RequestRecord,
    ) -> PeekedResponse:
        """The response to a send, read as far as needed to judge it; meanwhile the client may have its beginning,
        unless an earlier response still stands. Raises UpstreamError."""
        pending.came.kept.hold(pending.came.received, planned)
        headers, body = pending.rendered(cure, planned)
        outgoing = Outgoing(body, pending.came.kept.rest)
        del body  # its response may take minutes
        response = PeekedResponse.of(await self._send(pending.came.target, headers, outgoing, record), planned.wire)
        may_begin = not (history and still_stands(history[-1], cure))
        pass_on = pending.came.pass_early if may_begin else None
        try:
            await response.look(pass_on, as_stream=planned.request.stream)
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _outcome(
        self, response: PeekedResponse, cure: Cure, planned: Planned, pending: PendingRequest, record: RequestRecord
    ) -> Outcome:
        """Judge a response. The request is needed again unless this is the first and plainly a reply; if it is lost,
        the client gets the response."""
        kept = pending.came.kept
        kept.wake()
        if kept.is_away and not (cure is FIRST and response.status < 400 and response.is_plainly_a_reply):
            await kept.back()
        outcome = self._judge.outcome(response, planned, record, is_first=cure is FIRST)
        is_lost = not outcome.is_final and not await kept.back()
        return Outcome(response.status, ACCEPTED) if is_lost else outcome

    def _raise_for(self, history: Sequence[Attempt], pending: PendingRequest) -> None:
        """Raise a clear error if the last response is one that a client cannot use. Raises ContextOverflow,
        UpstreamEmpty and UpstreamUnreachable."""
        last, cures = history[-1], [one.cure for one in history[1:]]
        outcome, planned = last.outcome, last.planned
        tokens, language = planned.tokens_after, self._settings.language
        was_in_vain = bool(planned.members) and outcome.status in (400, 422)  # it may be unable to drop messages
        is_ours = self._settings.overflow.retry or pending.again is not None  # a page is not the client's
        if (outcome.verdict.is_overflow or was_in_vain) and is_ours:
            helps = lower_reply_helps(planned.plan, outcome.verdict)
            done = [cure.reason for cure in cures]
            message = refused_twice(tokens, language, planned.request.reply_tokens if helps else None, done)
            raise overflow(message, planned, outcome.verdict)
        is_shorter = any(cure.kind is not AttemptKind.REPEATED for cure in cures)
        if outcome.verdict.kind is VerdictKind.EMPTY and is_shorter:
            raise UpstreamEmpty(empty_twice(tokens, language))
        if last.response.failure is not None:
            raise last.response.failure

    async def _send(self, target: bytes, headers: Headers, body: Outgoing, record: RequestRecord) -> UpstreamResponse:
        record.upstream = self._upstream.host
        record.note_sent(body.length)
        try:
            answer = await self._upstream.send("POST", target, headers, body)
        except UpstreamUnreachable:
            self._models.discovery.doubt()
            raise
        record.note_answer(answer.status)
        return answer

    def learn_from(self, served: Served, record: RequestRecord, *, went_well: bool = True) -> None:
        """Compare what the upstream counted with the estimate, after its response has been passed on."""
        response, attempt = served.response, served.attempt
        if isinstance(response, UpstreamResponse):
            return
        counted = response.counted
        record.note_counts(counted)
        if attempt is None or not attempt.cure.keeps_prompt or attempt.outcome.fitting_tokens is not None:
            return
        is_compared = isinstance(response, MergedResponse) or (
            response.is_whole and served.verdict.kind is VerdictKind.ACCEPTED  # by its judge
        )
        may_be_cut = response.is_stream or not is_compared
        went_well = went_well and response.status < 400
        self._judge.learn_from_usage(attempt.planned, counted, record, may_be_cut=may_be_cut, went_well=went_well)

    def learn_from_end(self, served: Served, error: bytes, reply_tokens: int, record: RequestRecord) -> None:
        """Learn from the error that ended a response of about so many tokens, after it has been passed on."""
        if served.attempt is not None and not record.retrieval_rounds:
            self._judge.learn_from_end(served.attempt.planned, error, reply_tokens, record)

    async def pass_through(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: Outgoing | AsyncIterator[bytes] | None,
        wire: Wire = DEFAULT,
    ) -> UpstreamResponse:
        """The upstream's response to any other request; `wire`: the one it belongs to. Raises ProxyError."""
        return await self._upstream.send(method, target, self._with_key(headers, wire), body)

    async def _planned(
        self, came: Arrived, encoding: bytes, record: RequestRecord, tenant: bytes, *, is_observed: bool
    ) -> Planned | None:
        """The plan for a body, as `Planner.plan` makes it; None if there can be none and the upstream must judge the
        request. Raises MalformedRequest."""
        body = came.received.body
        if encoding:
            if not can_unpack(encoding):
                logger().info("request_not_read", request_id=record.request_id, reason="content_encoding")
                return None
            body = await in_thread(unpack, body, encoding, self._settings.server.max_body_bytes)
        try:
            planned = await self._planner.plan(
                came.wire,
                tenant,
                body,
                came.access,
                came.model,
                is_lifted=came.wire.asks_for_a_longer_window(came.headers),
                looking_up=not is_observed,  # a proxy that only observes fetches nothing from third parties
            )
        except ProxyError:
            raise
        except Exception:
            logger().exception("planning_failed", request_id=record.request_id)
            return None
        record.note_plan(planned)
        if not encoding:
            came.received.become(planned.request.body)
        return planned

    def _mode(self, header: bytes) -> str:
        """Raises MalformedRequest for an unknown mode: a client that misspells `observe` surely does not want
        an edited request."""
        if not self._settings.enabled:
            return "off"
        if not header:
            return self._settings.mode
        mode = header.decode("latin-1").strip().lower()
        if mode not in _MODES:
            raise MalformedRequest(f"{MODE_HEADER.decode()} is {mode[:40]!r}; allowed are {', '.join(sorted(_MODES))}")
        return mode

    def _with_key(self, headers: Headers, wire: Wire = DEFAULT) -> Headers:
        """The client's key is passed on. The configured key is used if the client sends none, and always if this is not
        the upstream that clients have keys for."""
        upstream = self._settings.upstream
        key = upstream.api_key
        if key is not None and isinstance(upstream, RoutedUpstream):
            headers = [pair for pair in headers if pair[0] not in KEY_HEADERS]
        if key is None or any(name in KEY_HEADERS for name, _ in headers):
            return headers
        return [*headers, *wire.credentials(key.get_secret_value())]


def _as_bearer(key: bytes) -> bytes:
    """A key in the form in which endpoints that list models take it."""
    return b"Bearer " + key if key else b""
