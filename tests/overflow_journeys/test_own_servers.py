"""The whole proxy before a server that behaves as Ollama does: it allocates little and cuts the rest without a word."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.overflow_stage import Stage, client, serving
from support.overflow_words import QUESTION, SYSTEM, conversation, estimate, too_long
from support.upstream.ollama_server import OllamaOverChat
from support.upstream.scenes import COMPLETION, accepting, saying
from support.upstream.sockets import Connection, SocketServer
from support.waiting import PATIENCE_SECONDS, until

from proxy.config import Settings
from proxy.core.models import facts
from proxy.shell.models import MIN_SAMPLES
from tools.ports import held_port

MODEL = "gemma3:12b"
LONG = conversation(20_000, model=MODEL)


@dataclass
class World:
    """The running proxy before its server."""

    url: str
    client: aiohttp.ClientSession
    output: io.BytesIO

    async def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        async with self.client.post(
            self.url, data=body, timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        ) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()

    def log(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def lessons_in(world: World) -> dict[str, float]:
    return {line["lesson"]: line["value"] for line in world.log("lesson_learned")}


@contextlib.contextmanager
def _logged() -> Iterator[io.BytesIO]:
    output, stdout = io.BytesIO(), sys.stdout
    sys.stdout = wrapped = io.TextIOWrapper(output, write_through=True)
    try:
        yield output
    finally:
        sys.stdout = stdout
        wrapped.detach()


@contextlib.asynccontextmanager
async def running(folder: Path, server: OllamaOverChat, **settings: Any) -> AsyncIterator[World]:
    """A proxy before this server."""
    async with SocketServer(server) as upstream:
        made = Settings(
            **{
                "upstream": {"base_url": upstream.base_url},
                "data_dir": folder,
                "log": {"format": "json", "level": "debug"},
                **settings,
            }
        )
        with _logged() as output:
            async with serving(made) as url, client() as session:
                yield World(url, session, output)


def saw_all(server: OllamaOverChat) -> bool:
    """Whether the model saw all that was sent, the question included."""
    return server.read[-1] == server.chats[-1]["messages"] and any(
        message.get("content") == QUESTION for message in server.read[-1]
    )


async def test_a_request_is_fitted_to_what_was_allocated_before_it_is_sent(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096)
    async with running(tmp_path, server) as world:
        status, headers, _ = await world.ask(LONG)
        assert (status, headers["x-context-proxy-attempts"]) == (200, "1")
        assert saw_all(server)
        assert server.others.count("POST /api/generate") == 1
        assert [line["window_tokens"] for line in world.log("window_allocated")] == [4_096]
        assert not world.log("upstream_truncated_silently")


async def test_a_larger_window_is_used(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=32_768)
    async with running(tmp_path, server) as world:
        await world.ask(LONG)
        assert len(server.chats) == 1
        assert server.read[-1] == json.loads(LONG)["messages"]


async def test_a_cut_that_usage_proves_is_cured_before_the_client_sees_its_answer(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    async with running(tmp_path, server) as world:
        status, headers, _ = await world.ask(LONG)
        assert (status, headers["x-context-proxy-attempts"], len(server.chats)) == (200, "2", 2)
        assert server.read[0] != server.chats[0]["messages"], "the first was cut"
        assert saw_all(server)
        (cut,) = world.log("upstream_truncated_silently")
        assert (cut["window_tokens"], cut["level"]) == (4_096, "warning")
        assert "OLLAMA_CONTEXT_LENGTH" in cut["advice"]
        assert lessons_in(world) == {facts.CUT_TO: 4_096}
        status, headers, _ = await world.ask(LONG)
        assert (headers["x-context-proxy-attempts"], len(server.chats)) == ("1", 3)
        assert server.chats[2] == server.chats[1], "its prefix is the one that is in the server's cache"


@pytest.mark.parametrize("left", [2_050, 2_051, 8_194, 8_195])
async def test_half_of_a_window_is_not_the_window(tmp_path: Path, left: int) -> None:
    """Behind a gateway, where `/api/ps` cannot be asked: https://github.com/ollama/ollama/issues/17889"""
    server = OllamaOverChat(has_own_api=False, counted=left)
    body = conversation(40_000, model=MODEL, stream=True, stream_options={"include_usage": True})
    async with running(tmp_path, server) as world:
        await world.ask(body)
        await until(lambda: bool(world.log("request_done")))
        assert lessons_in(world) == {facts.CUT_TO: 2 * (left // 1_024) * 1_024}


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


async def test_after_a_stream_the_next_turn_knows(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    body = conversation(20_000, model=MODEL, stream=True, stream_options={"include_usage": True})
    async with running(tmp_path, server) as world:
        for turn in (1, 2):
            status, headers, answer = await world.ask(body)
            assert (status, headers["x-context-proxy-attempts"]) == (200, "1")
            assert answer.endswith(b"data: [DONE]\n\n")
            await until(lambda: len(world.log("request_done")) == turn)  # noqa: B023
        assert server.read[0] != server.chats[0]["messages"]
        assert saw_all(server)


async def test_the_first_answer_is_forwarded_if_the_second_send_fails(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    async with running(tmp_path, server) as world:
        server.fails_from = 2
        status, headers, answer = await world.ask(LONG)
        assert (status, headers["x-context-proxy-attempts"]) == (200, "2")
        assert json.loads(answer)["choices"][0]["message"]["content"] == "Done."


async def test_a_window_that_settings_state_is_no_reason_to_let_a_cut_pass(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    counted_exactly = conversation(20_000, model="gpt-oss:20b")
    async with running(tmp_path, server, defaults={"context_window": 32_768}) as world:
        _, headers, _ = await world.ask(counted_exactly)
        assert headers["x-context-proxy-attempts"] == "2"
        assert saw_all(server)


async def test_a_low_count_within_a_window_that_is_certain_proves_nothing_against_an_estimate(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=32_768)
    server.counted = 700  # without what was in its cache
    async with running(tmp_path, server) as world:
        _, headers, _ = await world.ask(LONG)
        assert headers["x-context-proxy-attempts"] == "1"
        assert not lessons_in(world).keys() & facts.IN_TOKENS


async def test_nor_does_it_against_a_ratio_that_other_content_has_taught(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=32_768)
    async with running(tmp_path, server) as world:
        for turn in range(1, MIN_SAMPLES + 1):
            await world.ask(conversation(10_000 + turn, model=MODEL))
            await until(lambda: len(world.log("request_done")) == turn)  # noqa: B023
        assert any(name.startswith(facts.RATIO) for name in lessons_in(world))
        server.counted = 3_300  # as of a table whose columns are padded with blanks
        _, headers, _ = await world.ask(LONG)
        assert headers["x-context-proxy-attempts"] == "1"
        assert not lessons_in(world).keys() & facts.IN_TOKENS


async def test_no_second_send_is_made_where_they_are_off_and_the_next_turn_knows(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    async with running(tmp_path, server, overflow={"retry": False}) as world:
        await world.ask(LONG)
        assert len(server.chats) == 1
        await world.ask(LONG)
        assert saw_all(server)
        assert len(world.log("upstream_truncated_silently")) == 1


@pytest.mark.parametrize("has_own_api", [True, False])
async def test_where_even_what_has_to_stay_is_too_much_it_goes_up_as_small_as_it_can_be(
    tmp_path: Path, has_own_api: bool
) -> None:
    sent = json.loads(LONG)
    sent["messages"][0]["content"] = SYSTEM + " Rule." * 6_000
    server = OllamaOverChat(allocates=4_096, has_own_api=has_own_api)
    async with running(tmp_path, server) as world:
        for _ in range(2):
            status, headers, _ = await world.ask(json.dumps(sent).encode())
            assert status == 200
        assert len(json.dumps(server.chats[-1])) < 50_000
        assert server.chats[-1]["messages"][0] == sent["messages"][0]
        assert "OLLAMA_CONTEXT_LENGTH=64000" in headers["x-context-proxy-warning"]
        assert world.log("window_too_small")[0]["level"] == "warning"
        await until(lambda: len(world.log("request_done")) == 2)
        assert world.log("request_done")[-1]["warning"] == "window_too_small"


async def test_a_larger_allocation_ends_what_usage_has_taught(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096, has_own_api=False)
    async with running(tmp_path, server) as world:
        await world.ask(LONG)
        assert len(server.chats) == 2
        server.has_own_api, server.allocates, server.loaded = True, 64_000, None
    known = json.loads((tmp_path / "lessons.json").read_text())
    async with SocketServer(server) as upstream:
        (tmp_path / "lessons.json").write_text(json.dumps({upstream.base_url: next(iter(known.values()))}))
        settings = Settings(upstream={"base_url": upstream.base_url}, data_dir=tmp_path)
        async with serving(settings) as url, client() as session:
            await World(url, session, io.BytesIO()).ask(LONG)
    assert server.read[-1] == json.loads(LONG)["messages"]


async def test_a_small_request_sets_nothing_in_motion(tmp_path: Path) -> None:
    server = OllamaOverChat(allocates=4_096)
    async with running(tmp_path, server) as world:
        status, _, _ = await world.ask(conversation(1_000, model=MODEL, exchanges=2))
        assert status == 200
        assert "POST /api/generate" not in server.others


@dataclass
class LlamaServer:
    """llama.cpp's server: its list states the window that it was started with."""

    window: int
    seen: list[int] = field(default_factory=list)

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            if request.line.startswith(b"GET "):
                status, reply = 200, {"data": [{"id": "m", "object": "model", "meta": {"n_ctx": self.window}}]}
            else:
                tokens = estimate(request.body)
                self.seen.append(tokens)
                status, reply = 200, json.loads(COMPLETION)
                if tokens > self.window:
                    status, reply = 400, json.loads(too_long(self.window, tokens))
            body = json.dumps(reply).encode()
            head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            await connection.send(head % (status, len(body)) + body)


async def test_a_server_that_comes_back_with_a_larger_window_is_believed_at_once(tmp_path: Path) -> None:
    """llama-server stopped at 4 096 and started again with 16 384."""
    body = conversation(12_000, model="m", exchanges=40)
    small, large = LlamaServer(4_096), LlamaServer(16_384)
    with held_port() as port:
        made = Settings(**{"upstream": {"base_url": f"http://127.0.0.1:{port}/v1"}, "data_dir": tmp_path})
        async with serving(made) as url, client() as session:

            async def status_of_post() -> int:
                async with session.post(url, data=body) as answer:
                    return answer.status

            async with SocketServer(small, port):
                assert [await status_of_post(), await status_of_post()] == [200, 200]
            assert small.seen[-1] <= 4_096
            assert await status_of_post() == 502
            async with SocketServer(large, port):
                assert [await status_of_post(), await status_of_post()] == [200, 200]
    assert large.seen == [estimate(body)] * 2
