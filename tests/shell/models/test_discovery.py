from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs
from support.asked_upstreams import AskedUpstreams, Reply
from support.scripted_upstream import Connection, ScriptedUpstream
from support.waiting import until

from proxy.config.upstreams import UpstreamSettings
from proxy.errors import UpstreamTimeout, UpstreamUnreachable
from proxy.shell.models import discovery
from proxy.shell.models.discovery import BUSY_SECONDS, REFRESH_SECONDS, RETRY_SECONDS, Discovery
from proxy.shell.models.questions import MAX_ANSWER_BYTES
from proxy.shell.upstream.client import Upstream
from proxy.wire.model_list import ModelLimits

URL = "https://llm.example.org/v1/models"
LIST = {"data": [{"id": "m", "context_length": 32768}]}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def upstream(base_url: str = "https://llm.example.org/v1", key: str | None = None) -> UpstreamSettings:
    return UpstreamSettings(base_url=base_url, api_key=SecretStr(key) if key else None)


async def a_while() -> None:
    """Long enough for a question to be asked, if one were."""
    await asyncio.sleep(0.05)


@asynccontextmanager
async def started(settings: UpstreamSettings, clock: Clock, **wiring: Any) -> AsyncIterator[Discovery]:
    found = Discovery(settings, clock=clock, **wiring)
    found.start()
    try:
        yield found
    finally:
        await found.close()


async def test_the_list_is_asked_for_at_the_start_in_the_background(upstreams: AskedUpstreams) -> None:
    upstreams.route(URL, body=LIST)
    changes: list[int] = []
    async with started(upstream(), Clock(), on_change=lambda: changes.append(1)) as found:
        assert found.limits("m") == ModelLimits()
        await until(lambda: bool(changes))
        assert found.limits("m") == ModelLimits(32768)
        assert found.names == ("m",)


async def test_the_list_is_asked_for_again_after_ten_minutes_when_a_request_comes_and_not_before(
    upstreams: AskedUpstreams,
) -> None:
    clock, changes = Clock(), []
    route = upstreams.route(URL, body=LIST)
    async with started(upstream(), clock, on_change=lambda: changes.append(1)) as found:
        await until(lambda: changes == [1])
        clock.now += REFRESH_SECONDS - 1
        found.nudge()
        await a_while()
        assert len(route.asked) == 1
        route.respond(body={"data": [{"id": "m", "context_length": 4096}]})
        clock.now += 1
        for _ in range(5):
            found.nudge()
        await until(lambda: changes == [1, 1])
        await a_while()
        assert found.limits("m") == ModelLimits(4096)
        assert len(route.asked) == 2


async def test_the_same_list_changes_nothing(upstreams: AskedUpstreams) -> None:
    clock, changes = Clock(), []
    route = upstreams.route(URL, body=LIST)
    async with started(upstream(), clock, on_change=lambda: changes.append(1)) as found:
        await until(lambda: changes == [1])
        clock.now += REFRESH_SECONDS
        found.nudge()
        await until(lambda: len(route.asked) == 2)
        await a_while()
        assert changes == [1]


async def test_the_configured_key_is_sent(upstreams: AskedUpstreams) -> None:
    route = upstreams.route(URL, body=LIST)
    async with started(upstream(key="sk-mine"), Clock()) as found:
        found.offer_key(b"Bearer sk-client")
        await until(lambda: bool(route.asked))
    assert route.asked[-1][b"authorization"] == b"Bearer sk-mine"


async def test_a_clients_key_is_used_when_the_upstream_wants_one_and_none_is_configured(
    upstreams: AskedUpstreams,
) -> None:
    clock, changes = Clock(), []
    route = upstreams.route(URL, body=LIST)
    route.key = "sk-good"
    async with started(upstream(), clock, on_change=lambda: changes.append(1)) as found:
        await until(lambda: found._needs_client_key)
        found.nudge()
        found.offer_key(b"")
        await a_while()
        assert len(route.asked) == 1
        found.offer_key(b"Bearer sk-bad")
        await until(lambda: len(route.asked) == 2)
        found.offer_key(b"Bearer sk-good")
        await a_while()
        assert len(route.asked) == 2
        clock.now += BUSY_SECONDS
        found.offer_key(b"Bearer sk-good")
        await until(lambda: changes == [1])
        found.offer_key(b"Bearer sk-good")
        await a_while()
        assert len(route.asked) == 3


async def test_no_key_is_kept_and_none_is_logged(upstreams: AskedUpstreams) -> None:
    upstreams.route(URL, body=LIST).key = "sk-good"
    with capture_logs() as events:
        async with started(upstream(), Clock()) as found:
            await until(lambda: found._needs_client_key)
            found.offer_key(b"Bearer sk-bad-and-secret")
            await until(lambda: len(events) == 2)
            await a_while()
            assert "sk-bad" not in repr(vars(found))
    assert "sk-bad" not in repr(events)
    assert [event["log_level"] for event in events] == ["debug", "warning"], "that a key is needed is no failure yet"


async def test_a_refused_key_of_our_own_is_not_replaced_by_a_clients(upstreams: AskedUpstreams) -> None:
    route, clock = upstreams.route(URL, body=403), Clock()
    async with started(upstream(key="sk-mine"), clock) as found:
        await until(lambda: found._due == clock.now + REFRESH_SECONDS)
        clock.now += REFRESH_SECONDS
        found.offer_key(b"Bearer sk-client")
        await a_while()
        assert len(route.asked) == 1


FAILURES: list[tuple[dict[str, Any], str, float]] = [
    ({"failure": UpstreamUnreachable("it cannot be reached")}, "cannot be reached", RETRY_SECONDS),
    ({"failure": UpstreamTimeout("it began no response")}, "began no response", RETRY_SECONDS),
    ({"reply": Reply(503)}, "it answered 503", RETRY_SECONDS),
    ({"reply": Reply(429)}, "it answered 429", BUSY_SECONDS),
    ({"reply": Reply(404)}, "it answered 404", REFRESH_SECONDS),
    ({"reply": Reply(307)}, "it answered 307", REFRESH_SECONDS),
    ({"reply": Reply(200, b"<html>")}, "its answer is no list of models", REFRESH_SECONDS),
    ({"reply": Reply(200, b" " * (MAX_ANSWER_BYTES + 1))}, "longer than", REFRESH_SECONDS),
]


@pytest.mark.parametrize(("said", "reason", "pause"), FAILURES, ids=[failure[1] for failure in FAILURES])
async def test_a_failure_is_told_in_plain_words_and_tried_again_later(
    said: dict[str, Any], reason: str, pause: float, upstreams: AskedUpstreams
) -> None:
    route, clock = upstreams.route(URL), Clock()
    for name, value in said.items():
        setattr(route, name, value)
    async with started(upstream(key="sk-mine"), clock) as found:
        await until(lambda: found._due == clock.now + pause)
        clock.now += pause / 2
        found.nudge()
        await a_while()
        assert len(route.asked) == 1
        told = await found.ask()
    assert told is not None
    assert reason in told


async def test_a_failure_keeps_what_was_known(upstreams: AskedUpstreams) -> None:
    route = upstreams.route(URL, body=LIST)
    found = Discovery(upstream())
    assert await found.ask() is None
    route.respond(500)
    assert await found.ask() == "it answered 500"
    assert found.limits("m") == ModelLimits(32768)


async def test_an_upstream_that_never_answers_is_given_up(upstreams: AskedUpstreams) -> None:
    upstreams.route(URL).is_silent = True
    assert await Discovery(upstream()).ask(timeout_seconds=0.2) == "no answer within 0.2 s"


async def test_closing_gives_up_the_question_and_ends_all_others(upstreams: AskedUpstreams) -> None:
    route = upstreams.route(URL)
    route.is_silent = True
    found = Discovery(upstream())
    found.start()
    await until(lambda: bool(route.asked))
    await found.close()
    found.nudge()
    found.offer_key(b"Bearer sk")
    await a_while()
    assert len(route.asked) == 1


async def test_a_hosted_upstream_is_asked_one_question_only(upstreams: AskedUpstreams) -> None:
    upstreams.route(URL, body={"data": [{"id": "m"}]})
    assert await Discovery(upstream()).ask() is None
    assert upstreams.count == 1


async def test_a_real_socket_is_asked_too() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(LIST).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = Discovery(upstream(f"http://127.0.0.1:{port}"))
        assert await found.ask(timeout_seconds=discovery.TIMEOUT_SECONDS) is None
    assert found.limits("m") == ModelLimits(32768)


async def test_a_request_takes_the_connection_over_which_the_list_came() -> None:
    opened: list[Connection] = []

    async def script(connection: Connection) -> None:
        opened.append(connection)
        while True:
            await connection.request()
            body = json.dumps(LIST).encode()
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with ScriptedUpstream(script) as server:
        settings = upstream(server.base_url)
        requests = Upstream(settings)
        try:
            assert await Discovery(settings, connections=requests).ask() is None
            response = await requests.send("POST", b"/chat/completions", [], b"{}")
            assert response.status == 200
            await response.aclose()
        finally:
            await requests.aclose()
    assert len(opened) == 1
