from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
import respx
from pydantic import SecretStr
from structlog.testing import capture_logs
from support.respx_upstream import RespxUpstream
from support.upstream.sockets import Connection, Request, SocketServer
from support.waiting import Clock, until

from proxy.config import UpstreamSettings
from proxy.errors import UpstreamTimeout, UpstreamUnreachable
from proxy.shell.models import Discovery
from proxy.shell.models.discovery import BUSY_SECONDS, REFRESH_SECONDS, RETRY_SECONDS
from proxy.shell.models.own_servers import MAX_ANSWER_BYTES
from proxy.shell.upstream import Upstream
from proxy.wire import ModelLimits

URL = "https://llm.example.org/v1/models"
LIST = {"data": [{"id": "m", "context_length": 32768}]}


def upstream(key: str | None = None) -> RespxUpstream:
    settings = UpstreamSettings(base_url="https://llm.example.org/v1", api_key=SecretStr(key) if key else None)
    return RespxUpstream(settings)


def opened(base_url: str) -> aclosing[Upstream]:
    return aclosing(Upstream(UpstreamSettings(base_url=base_url)))


async def a_while() -> None:
    """Long enough for a question to be asked, if one were."""
    await asyncio.sleep(0.05)


@asynccontextmanager
async def started(upstream: Upstream, clock: Clock, **wiring: Any) -> AsyncIterator[Discovery]:
    found = Discovery(upstream, clock=clock, **wiring)
    found.start()
    try:
        yield found
    finally:
        await found.close()


@respx.mock
async def test_the_list_is_queried_at_the_start_in_the_background() -> None:
    respx.get(URL).respond(json=LIST)
    changes: list[int] = []
    async with started(upstream(), Clock(1000.0), on_change=lambda: changes.append(1)) as found:
        assert found.limits("m") == ModelLimits()
        await until(lambda: bool(changes))
        assert found.limits("m") == ModelLimits(32768)
        assert found.names == ("m",)


@respx.mock
async def test_the_list_is_queried_again_after_ten_minutes_with_the_next_request_and_not_before() -> None:
    clock, changes = Clock(1000.0), []
    route = respx.get(URL).respond(json=LIST)
    async with started(upstream(), clock, on_change=lambda: changes.append(1)) as found:
        await until(lambda: changes == [1])
        clock.now += REFRESH_SECONDS - 1
        found.nudge()
        await a_while()
        assert route.call_count == 1
        clock.now += 1
        found.nudge()
        await until(lambda: route.call_count == 2)
        await a_while()
        assert changes == [1], "the same list changes nothing"
        route.respond(json={"data": [{"id": "m", "context_length": 4096}]})
        clock.now += REFRESH_SECONDS
        for _ in range(5):
            found.nudge()
        await until(lambda: changes == [1, 1])
        await a_while()
        assert found.limits("m") == ModelLimits(4096)
        assert route.call_count == 3


@respx.mock
async def test_the_configured_key_is_sent() -> None:
    route = respx.get(URL).respond(json=LIST)
    async with started(upstream(key="sk-mine"), Clock(1000.0)) as found:
        found.offer_key(b"Bearer sk-client")
        await until(lambda: route.called)
    assert route.calls.last.request.headers["authorization"] == "Bearer sk-mine"


def only_for_keys(request: httpx.Request) -> httpx.Response:
    known = request.headers.get("authorization") == "Bearer sk-good"
    return httpx.Response(200, json=LIST) if known else httpx.Response(401, json={"error": {"message": "no sk-bad"}})


@respx.mock
async def test_a_clients_key_is_used_when_the_upstream_wants_one_and_none_is_configured() -> None:
    clock, changes = Clock(1000.0), []
    route = respx.get(URL).mock(side_effect=only_for_keys)
    async with started(upstream(), clock, on_change=lambda: changes.append(1)) as found:
        await until(lambda: found._needs_client_key)
        found.nudge()
        found.offer_key(b"")
        await a_while()
        assert route.call_count == 1
        found.offer_key(b"Bearer sk-bad")
        await until(lambda: route.call_count == 2)
        found.offer_key(b"Bearer sk-good")
        await a_while()
        assert route.call_count == 2
        clock.now += BUSY_SECONDS
        found.offer_key(b"Bearer sk-good")
        await until(lambda: changes == [1])
        found.offer_key(b"Bearer sk-good")
        await a_while()
        assert route.call_count == 3


@respx.mock
async def test_no_key_is_kept_and_none_is_logged() -> None:
    respx.get(URL).mock(side_effect=only_for_keys)
    with capture_logs() as events:
        async with started(upstream(), Clock(1000.0)) as found:
            await until(lambda: found._needs_client_key)
            found.offer_key(b"Bearer sk-bad-and-secret")
            await until(lambda: len(events) == 2)
            await a_while()
            assert "sk-bad" not in repr(vars(found))
    assert "sk-bad" not in repr(events)
    assert [event["log_level"] for event in events] == ["debug", "warning"], "that a key is needed is no failure yet"


@respx.mock
async def test_a_refused_key_of_our_own_is_not_replaced_by_a_clients() -> None:
    route, clock = respx.get(URL).respond(403), Clock(1000.0)
    async with started(upstream(key="sk-mine"), clock) as found:
        await until(lambda: found._due == clock.now + REFRESH_SECONDS)
        clock.now += REFRESH_SECONDS
        found.offer_key(b"Bearer sk-client")
        await a_while()
        assert route.call_count == 1


TOO_MUCH = bytes(MAX_ANSWER_BYTES + 1)
FAILURES: list[tuple[dict[str, Any], str, float]] = [
    ({"side_effect": UpstreamUnreachable("the upstream https://llm.example.org is away")}, "is away", RETRY_SECONDS),
    ({"side_effect": UpstreamTimeout("the upstream https://llm.example.org is slow")}, "is slow", RETRY_SECONDS),
    ({"return_value": httpx.Response(503)}, "it answered 503", RETRY_SECONDS),
    ({"return_value": httpx.Response(429)}, "it answered 429", BUSY_SECONDS),
    ({"return_value": httpx.Response(404)}, "it answered 404", REFRESH_SECONDS),
    ({"return_value": httpx.Response(307, headers={"location": URL})}, "it answered 307", REFRESH_SECONDS),
    ({"return_value": httpx.Response(200, text="<html>")}, "its answer is no list of models", REFRESH_SECONDS),
    ({"side_effect": lambda _: httpx.Response(200, content=TOO_MUCH)}, "longer than", REFRESH_SECONDS),
]


@pytest.mark.parametrize(("answer", "reason", "pause"), FAILURES, ids=[failure[1] for failure in FAILURES])
@respx.mock
async def test_a_failure_is_reported_in_plain_words_and_retried_later(
    answer: dict[str, Any], reason: str, pause: float
) -> None:
    route, clock = respx.get(URL).mock(**answer), Clock(1000.0)
    async with started(upstream(key="sk-mine"), clock) as found:
        await until(lambda: found._due == clock.now + pause)
        clock.now += pause / 2
        found.nudge()
        await a_while()
        assert route.call_count == 1
        reported = await found.ask()
    assert reported is not None
    assert reason in reported
    assert "the upstream" not in reported, "its readers have its name beside it"
    assert "sk-mine" not in reported


@respx.mock
async def test_a_failure_keeps_what_was_known() -> None:
    route = respx.get(URL).respond(json=LIST)
    found = Discovery(upstream())
    assert await found.ask() is None
    route.respond(500)
    assert await found.ask() == "it answered 500"
    assert found.limits("m") == ModelLimits(32768)


async def never(_: httpx.Request) -> httpx.Response:
    await asyncio.sleep(60)
    raise AssertionError


@respx.mock
async def test_an_upstream_that_never_answers_is_given_up() -> None:
    respx.get(URL).mock(side_effect=never)
    assert await Discovery(upstream()).ask(timeout_seconds=0.2) == "no answer within 0.2 s"


@respx.mock
async def test_closing_gives_up_the_question_and_ends_all_others() -> None:
    requests: list[httpx.Request] = []
    respx.get(URL).mock(side_effect=lambda request: requests.append(request) or never(request))
    found = Discovery(upstream())
    found.start()
    await until(lambda: bool(requests))
    await found.close()
    found.nudge()
    found.offer_key(b"Bearer sk")
    await a_while()
    assert len(requests) == 1


@respx.mock
async def test_a_hosted_upstream_gets_one_query_only() -> None:
    respx.get(URL).respond(json={"data": [{"id": "m"}]})
    assert await Discovery(upstream()).ask() is None
    assert len(respx.calls) == 1


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_list_is_read_from_a_real_socket_even_if_it_is_compressed_unasked(encoding: str) -> None:
    content = json.dumps(LIST).encode()
    body = gzip.compress(content) if encoding == "gzip" else content
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(body))
    seen: list[Request] = []

    async def script(connection: Connection) -> None:
        seen.append(await connection.request())
        await connection.send(head + body)

    async with SocketServer(script) as scripted, opened(scripted.base_url) as one:
        found = Discovery(one)
        assert await found.ask() is None
    assert found.limits("m") == ModelLimits(32768)
    assert seen[0].values(b"accept-encoding") == [b"identity"]
    assert seen[0].values(b"user-agent") == [b"context-proxy"]


async def test_a_body_that_cannot_be_unpacked_is_no_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n"

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(head + b"oops")

    async with SocketServer(script) as scripted, opened(scripted.base_url) as one:
        reported = await Discovery(one).ask()
    assert reported is not None
    assert reported.startswith("its answer cannot be read: ")
