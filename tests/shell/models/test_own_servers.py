"""Self-hosted servers on a real socket, each queried over its own API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.upstream.ollama_server import OllamaOverChat
from support.upstream.sockets import Connection, Script, SocketServer
from support.waiting import PATIENCE_SECONDS, Clock, until

from proxy.config import Settings, UpstreamSettings
from proxy.shell.models import Discovery, ModelResolver
from proxy.shell.models.discovery import LOADED_SECONDS, RETRY_SECONDS
from proxy.shell.upstream import Upstream
from tools.ports import held_port

LISTED = {"data": [{"id": "m", "object": "model"}]}


def serving(answers: Mapping[str, Any], paths: list[str] | None = None) -> Script:
    """A server that has these paths and no others."""

    async def script(connection: Connection) -> None:
        while True:
            request = await connection.request()
            path = request.line.split(b" ")[1].decode()
            if paths is not None:
                paths.append(path)
            body = json.dumps(answers.get(path, {"error": "not found"})).encode()
            head = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (200 if path in answers else 404, len(body))
            await connection.send(head + body)

    return script


@asynccontextmanager
async def discovery_for(script: Script, path: str = "/v1") -> AsyncIterator[Discovery]:
    """The result of one query."""
    async with SocketServer(script) as upstream:
        settings = UpstreamSettings(base_url=f"http://127.0.0.1:{upstream.port}{path}")
        async with aclosing(Upstream(settings)) as one:
            found = Discovery(one)
            assert await found.ask() is None
            yield found


@asynccontextmanager
async def started(base_url: str, clock: Clock | None = None, **defaults: Any) -> AsyncIterator[ModelResolver]:
    """A resolver that queries this upstream in the background."""
    settings = Settings(upstream={"base_url": base_url}, defaults=defaults)
    async with aclosing(Upstream(settings.upstream)) as upstream:
        found = ModelResolver(settings, upstream=upstream, clock=clock or Clock(1000.0))
        found.discovery.start()
        telling = asyncio.create_task(found.tell_guesses())
        try:
            yield found
        finally:
            telling.cancel()
            await found.discovery.close()


@asynccontextmanager
async def resolving(server: Script, clock: Clock | None = None) -> AsyncIterator[ModelResolver]:
    """A resolver in front of this server, once it has the list."""
    async with SocketServer(server) as upstream, started(upstream.base_url, clock) as found:
        await until(lambda: found.discovery._was_answered)
        yield found


LM_STUDIO = {"models": [{"key": "m", "loaded_instances": [{"id": "m", "config": {"context_length": 4096}}]}]}
PROPS = {"default_generation_settings": {"n_ctx": 8192}}


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"/api/v1/models": LM_STUDIO}, "LM Studio /api/v1/models"),
        (
            {"/api/v0/models": {"data": [{"id": "m", "state": "loaded", "loaded_context_length": 4096}]}},
            "LM Studio /api/v0/models",
        ),
        ({"/props": {"default_generation_settings": {"n_ctx": 4096}}}, "llama.cpp /props"),
        (
            {"/api/version": {"version": "0.7.0"}, "/api/extra/true_max_context_length": {"value": 4096}},
            "KoboldCpp /api/extra/true_max_context_length",
        ),
        (
            {"/api/version": {"version": "0.15.5"}, "/api/ps": {"models": [{"name": "m", "context_length": 4096}]}},
            "Ollama /api/ps",
        ),
    ],
)
@pytest.mark.parametrize("has_list", [True, False])
async def test_each_server_is_recognised_and_says_what_it_allocated(
    answers: dict[str, Any], says: str, has_list: bool
) -> None:
    listed = {"/v1/models": LISTED} if has_list else {}
    async with discovery_for(serving(answers | listed)) as found:
        allocated = found.allocated("m")
        assert allocated is not None
        assert (allocated[0].window_tokens, allocated[1]) == (4096, says)
        assert bool(allocated[0].cuts_silently) is says.startswith(("Ollama", "KoboldCpp"))


async def test_a_server_below_a_gateways_path_is_queried_beside_that_path() -> None:
    async with discovery_for(serving({"/gpu/v1/models": LISTED, "/gpu/props": PROPS}), "/gpu/v1") as found:
        assert found.allocated("m") is not None


async def test_models_of_a_router_and_of_docker_are_queried_by_name() -> None:
    router = {"/props": {"role": "router"}, "/props?autoload=false&model=org%2Fm": PROPS}
    docker = {"/engines/_configure?model=org%2Fm": [{"Config": {"context-size": 8192}}]}
    for answers, path in ((router, "/v1"), (docker, "/engines/v1")):
        async with discovery_for(serving({f"{path}/models": LISTED, **answers}), path) as found:
            await found.ask_for("org/m")
            allocated = found.allocated("org/m")
            assert allocated is not None
            assert allocated[0].window_tokens == 8192


async def test_a_server_that_states_its_windows_gets_no_more_queries() -> None:
    paths: list[str] = []
    states_all = {"data": [{"id": "m", "max_model_len": 32768}]}
    async with discovery_for(serving({"/v1/models": states_all}, paths)) as found:
        assert (found.allocated("m"), paths) == (None, ["/v1/models"])


async def test_an_unknown_server_keeps_its_list_and_gets_few_queries() -> None:
    paths: list[str] = []
    async with discovery_for(serving({"/v1/models": LISTED}, paths)) as found:
        assert (found.names, found.allocated("m")) == (("m",), None)
        assert len(paths) <= 9
        assert await found.ask() is None
        assert len(paths) <= 10, "and not again for a while"


async def test_a_server_that_leaves_other_questions_open_keeps_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.models.discovery.OWN_TIMEOUT_SECONDS", 1.0)

    async def silent(connection: Connection) -> None:
        while True:
            request = await connection.request()
            if b"/v1/models" not in request.line:
                await connection.until_closed()
                return
            body = json.dumps(LISTED).encode()
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with discovery_for(silent) as found:
        assert found.names == ("m",)


async def test_an_ollama_model_is_loaded_as_the_request_would_and_then_queried() -> None:
    server = OllamaOverChat(allocates=4096)
    async with resolving(server) as found:
        assert found.profile("gemma3:12b").window_is_guessed
        assert await found.settle("gemma3:12b", "")
        profile = found.profile("gemma3:12b")
        assert (profile.window_tokens, profile.window_is_guessed, profile.cuts_silently) == (4096, False, True)
        assert profile.sources["window_tokens"] == "Ollama /api/ps"
        count = len(server.others)
        assert not await found.settle("gemma3:12b", "")
        assert len(server.others) == count


async def test_what_a_modelfile_sets_is_known_without_loading() -> None:
    server = OllamaOverChat(num_ctx=16_384)
    async with resolving(server) as found:
        await found.settle("gemma3:12b", "")
        assert found.profile("gemma3:12b").window_tokens == 16_384
        assert "POST /api/generate" not in server.others


async def test_the_least_that_ollama_gives_holds_where_a_model_cannot_be_loaded() -> None:
    async with resolving(OllamaOverChat(allocates=32_768, can_load=False)) as found:
        await found.settle("gemma3:12b", "")
        profile = found.profile("gemma3:12b")
        assert (profile.window_tokens, profile.window_is_guessed, profile.cuts_silently) == (4096, True, True)


async def test_an_unlisted_model_is_not_loaded() -> None:
    server = OllamaOverChat()
    async with resolving(server) as found:
        assert not await found.settle("no-such-model", "")
        assert "POST /api/show" not in server.others


async def test_requests_at_once_load_a_model_once() -> None:
    server = OllamaOverChat()
    async with resolving(server) as found:
        assert all(await asyncio.gather(*(found.settle("gemma3:12b", "") for _ in range(5))))
    assert server.others.count("POST /api/generate") == 1


async def test_an_unloaded_model_is_queried_again_and_may_have_another_window() -> None:
    server, clock = OllamaOverChat(allocates=4096), Clock(1000.0)
    async with resolving(server, clock) as found:
        await found.settle("gemma3:12b", "")
        for loaded, allocates, expected in ((8192, 8192, 8192), (None, 32_768, 32_768)):
            server.loaded, server.allocates = loaded, allocates
            clock.now += LOADED_SECONDS
            count = server.others.count("GET /api/ps")
            found.profile("gemma3:12b")
            await until(lambda: server.others.count("GET /api/ps") > count and found.discovery._question.done())  # noqa: B023
            if loaded is None:
                assert found.profile("gemma3:12b").window_tokens == 8192, "until it is known better"
            await found.settle("gemma3:12b", "")
            assert found.profile("gemma3:12b").window_tokens == expected


@pytest.mark.parametrize("pause", [RETRY_SECONDS, RETRY_SECONDS / 100], ids=["due", "at once"])
async def test_the_first_request_waits_for_a_server_that_has_just_come_up(pause: float) -> None:
    clock = Clock(1000.0)
    with held_port() as port, capture_logs() as events:
        async with started(f"http://127.0.0.1:{port}/v1", clock) as found:
            await until(lambda: found.discovery._question is not None and found.discovery._question.done())
            async with SocketServer(OllamaOverChat(), port):
                clock.now += pause
                assert await found.settle("gemma3:12b", "")
                assert found.profile("gemma3:12b").window_tokens == 4096
    reported = [event for event in events if event["event"] == "models_not_listed"]
    assert [event["log_level"] for event in reported] == ["warning"], "where an operator sees it"


async def test_an_upstream_without_a_list_is_no_warning_if_a_window_is_configured() -> None:
    with held_port() as port, capture_logs() as events:
        async with started(f"http://127.0.0.1:{port}/v1", context_window=8_000) as found:
            await until(lambda: found.discovery._question is not None and found.discovery._question.done())
    (reported,) = [event for event in events if event["event"] == "models_not_listed"]
    assert (reported["log_level"], "advice" in reported) == ("info", False)


async def test_no_request_waits_twice_for_an_upstream_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.models.discovery.PATIENCE_SECONDS", 0.05)

    async def silent(connection: Connection) -> None:
        await connection.until_closed()

    async with SocketServer(silent) as upstream, started(upstream.base_url) as found:
        with capture_logs() as events:
            assert not await found.settle("nobody-knows-1", "")
            monkeypatch.setattr("proxy.shell.models.discovery.PATIENCE_SECONDS", 60)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert not await found.settle("nobody-knows-1", "")
    guesses = [event for event in events if event["event"] == "window_guessed"]
    assert [(event["model"], event["window_tokens"]) for event in guesses] == [("nobody-knows-1", 128_000)]
    assert "--context-window" in guesses[0]["advice"]


async def test_the_start_says_which_windows_are_guesses_and_how_to_state_them() -> None:
    listed = {"data": [{"id": "nobody-knows-1"}, {"id": "m", "context_length": 8192}]}
    with capture_logs() as events:
        async with resolving(serving({"/v1/models": listed})):
            await until(lambda: any(event["event"] == "windows_guessed" for event in events))
    (reported,) = [event for event in events if event["event"] == "windows_guessed"]
    assert (reported["models"], reported["count"]) == (["nobody-knows-1"], 1)
    assert "--context-window" in reported["advice"]
