"""The whole proxy before a server that behaves as Ollama does: it allocates little and cuts the rest without a word."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.journey import World, world
from support.overflow_stage import Stage, client, serving
from support.overflow_words import QUESTION, SYSTEM, conversation, estimate
from support.upstream import Over, ScriptedModel, listening
from support.upstream.ollama_server import OllamaOverChat
from support.upstream.scenes import accepting, saying
from support.upstream.sockets import SocketServer

from proxy.config import Settings
from proxy.core.models import facts
from proxy.shell.models import MIN_SAMPLES
from tools.ports import held_port

MODEL = "gemma3:12b"
LONG = conversation(20_000, model=MODEL)
Running = Callable[..., World]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A proxy with these settings before this server."""
    with contextlib.ExitStack() as stack:
        yield lambda server, **settings: stack.enter_context(world(tmp_path, server, [settings]))


def attempts_of(proxy: World, body: bytes = LONG) -> str:
    """The sends that a request took which is answered."""
    answer = proxy.ask(body)
    assert answer.status_code == 200
    return answer.headers["x-context-proxy-attempts"]


def lessons_in(proxy: World) -> dict[str, float]:
    return {line["lesson"]: line["value"] for line in proxy.log("lesson_learned")}


def saw_all(server: OllamaOverChat) -> bool:
    """Whether the model saw all that was sent, the question included."""
    return server.read[-1] == server.chats[-1]["messages"] and any(
        message.get("content") == QUESTION for message in server.read[-1]
    )


def test_a_request_is_fitted_to_what_was_allocated_before_it_is_sent(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096)
    proxy = running(server)
    assert attempts_of(proxy) == "1"
    assert saw_all(server)
    assert server.others.count("POST /api/generate") == 1
    assert [line["window_tokens"] for line in proxy.log("window_allocated")] == [4_096]
    assert not proxy.log("upstream_truncated_silently")


def test_a_larger_window_is_used(running: Running) -> None:
    server = OllamaOverChat(allocates=32_768)
    running(server).ask(LONG)
    assert server.read == [json.loads(LONG)["messages"]]


def test_a_cut_that_usage_proves_is_cured_before_the_client_sees_its_answer(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    proxy = running(server)
    assert (attempts_of(proxy), len(server.chats)) == ("2", 2)
    assert server.read[0] != server.chats[0]["messages"], "the first was cut"
    assert saw_all(server)
    (cut,) = proxy.log("upstream_truncated_silently")
    assert (cut["window_tokens"], cut["level"]) == (4_096, "warning")
    assert "OLLAMA_CONTEXT_LENGTH" in cut["advice"]
    assert lessons_in(proxy) == {facts.CUT_TO: 4_096}
    assert (attempts_of(proxy), len(server.chats)) == ("1", 3)
    assert server.chats[2] == server.chats[1], "its prefix is the one that is in the server's cache"


@pytest.mark.parametrize("left", [2_050, 2_051, 8_194, 8_195])
def test_half_of_a_window_is_not_the_window(running: Running, left: int) -> None:
    """Behind a gateway, where `/api/ps` cannot be asked: https://github.com/ollama/ollama/issues/17889"""
    proxy = running(OllamaOverChat(has_own_api=False, counted=left))
    proxy.ask(conversation(40_000, model=MODEL, stream=True, stream_options={"include_usage": True}))
    proxy.logged("request_done")
    assert lessons_in(proxy) == {facts.CUT_TO: 2 * (left // 1_024) * 1_024}


async def test_a_user_message_that_the_server_has_cut_off_itself_is_an_overflow(stage: Stage) -> None:
    """https://github.com/ollama/ollama/issues/18107"""
    lost = b'{"error":"no user query found in messages"}'
    stage.model.plays(saying(500, lost), accepting)
    assert (await stage.ask(LONG)).attempts == "2"
    stage.model.plays(saying(500, lost))
    only_results = json.loads(LONG)
    only_results["messages"] = [one for one in only_results["messages"] if one["role"] != "user"]
    answer = await stage.ask(json.dumps(only_results).encode())
    assert (answer.status, answer.body) == (500, lost)


def test_after_a_stream_the_next_turn_knows(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    body = conversation(20_000, model=MODEL, stream=True, stream_options={"include_usage": True})
    proxy = running(server)
    for turn in (1, 2):
        answer = proxy.ask(body)
        assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "1")
        assert answer.content.endswith(b"data: [DONE]\n\n")
        proxy.logged("request_done", turn)
    assert server.read[0] != server.chats[0]["messages"]
    assert saw_all(server)


def test_the_first_answer_is_forwarded_if_the_second_send_fails(running: Running) -> None:
    answer = running(OllamaOverChat(allocates=4_096, has_own_api=False, fails_from=2)).ask(LONG)
    assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "2")
    assert answer.json()["choices"][0]["message"]["content"] == "Done."


def test_a_window_that_settings_state_is_no_reason_to_let_a_cut_pass(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    proxy = running(server, defaults={"context_window": 32_768})
    assert attempts_of(proxy, conversation(20_000, model="gpt-oss:20b")) == "2", "counted exactly"
    assert saw_all(server)


@pytest.mark.parametrize(
    ("samples", "counted"),
    [
        pytest.param(0, 700, id="an estimate, without what was in its cache"),
        pytest.param(MIN_SAMPLES, 3_300, id="a ratio of other content, a table with padded columns"),
    ],
)
def test_a_low_count_within_a_window_that_is_certain_proves_nothing(
    running: Running, samples: int, counted: int
) -> None:
    server = OllamaOverChat(allocates=32_768)
    proxy = running(server)
    for turn in range(1, samples + 1):
        proxy.ask(conversation(10_000 + turn, model=MODEL))
        proxy.logged("request_done", turn)
    assert any(name.startswith(facts.RATIO) for name in lessons_in(proxy)) == bool(samples)
    server.counted = counted
    assert attempts_of(proxy) == "1"
    assert not lessons_in(proxy).keys() & facts.IN_TOKENS


def test_no_second_send_is_made_where_they_are_off_and_the_next_turn_knows(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    proxy = running(server, overflow={"retry": False})
    proxy.ask(LONG)
    assert len(server.chats) == 1
    proxy.ask(LONG)
    assert saw_all(server)
    assert len(proxy.log("upstream_truncated_silently")) == 1


@pytest.mark.parametrize("has_own_api", [True, False])
def test_where_even_what_has_to_stay_is_too_much_it_goes_up_as_small_as_it_can_be(
    running: Running, has_own_api: bool
) -> None:
    sent = json.loads(LONG)
    sent["messages"][0]["content"] = SYSTEM + " Rule." * 6_000
    server = OllamaOverChat(allocates=4_096, has_own_api=has_own_api)
    proxy = running(server)
    answers = [proxy.ask(sent) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(json.dumps(server.chats[-1])) < 50_000
    assert server.chats[-1]["messages"][0] == sent["messages"][0]
    assert "OLLAMA_CONTEXT_LENGTH=64000" in answers[1].headers["x-context-proxy-warning"]
    assert proxy.log("window_too_small")[0]["level"] == "warning"
    assert proxy.logged("request_done", 2)[-1]["warning"] == "window_too_small"


def test_a_larger_allocation_ends_what_usage_has_taught(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    with listening(server) as url:
        settings = [{"upstream": {"base_url": url}}]
        with world(tmp_path, server, settings) as small:
            assert attempts_of(small) == "2"
        server.has_own_api, server.allocates, server.loaded = True, 64_000, None
        with world(tmp_path, server, settings) as large:
            large.ask(LONG)
    assert server.read[-1] == json.loads(LONG)["messages"]


def test_a_small_request_sets_nothing_in_motion(running: Running) -> None:
    server = OllamaOverChat(allocates=4_096)
    attempts_of(running(server), conversation(1_000, model=MODEL, exchanges=2))
    assert "POST /api/generate" not in server.others


def llama_server(window: int) -> ScriptedModel:
    """llama.cpp's server: its list states the window that it was started with."""
    listed = {"id": "m", "object": "model", "meta": {"n_ctx": window}}
    return ScriptedModel([Over("prompt", window)], lists=[listed], counts=lambda _, body: estimate(body))


async def test_a_server_that_comes_back_with_a_larger_window_is_believed_at_once(tmp_path: Path) -> None:
    """llama-server stopped at 4 096 and started again with 16 384."""
    body = conversation(12_000, model="m", exchanges=40)
    small, large = llama_server(4_096), llama_server(16_384)
    with held_port() as port:
        made = Settings(**{"upstream": {"base_url": f"http://127.0.0.1:{port}/v1"}, "data_dir": tmp_path})
        async with serving(made) as url, client() as session:

            async def status_of_post() -> int:
                async with session.post(url, data=body) as answer:
                    return answer.status

            async with SocketServer(small, port):
                assert [await status_of_post(), await status_of_post()] == [200, 200]
            assert small.last.tokens <= 4_096
            assert await status_of_post() == 502
            async with SocketServer(large, port):
                assert [await status_of_post(), await status_of_post()] == [200, 200]
    assert large.bodies == [body] * 2
