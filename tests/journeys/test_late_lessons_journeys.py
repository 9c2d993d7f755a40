"""What an upstream says too late, or only under a condition, or by a count: the turn after it knows.

Rule: whole conversations, turn by turn, on every API; each turn ends well but for a stream that had begun.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.chat_as import SPELLED
from support.journey import World, call, long_text, result
from support.media_samples import image_part, png
from support.upstream import FACES, Over, ScriptedModel, Sent, valid, words
from support.upstream.ollama_server import OllamaServer
from support.upstream.replies import Reply
from support.upstream.script import Scene
from support.upstream.sockets import CHUNKED, LAST_CHUNK, Connection, Request, chunk
from support.waiting import PATIENCE_SECONDS

Json = dict[str, Any]
TASK = "Find out which build is red."


def growing(turns: int, lines: int = 66, *first: Json, **members: Any) -> Iterator[Json]:
    """The chat request of each turn; one more result each time."""
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": TASK}, *first]}]
    for number in range(turns):
        messages += [call(number), result(number, long_text(lines, f"build-{number}"))]
        yield {"model": "m", "messages": messages, **members}


def asked(world: World, api: str, body: Json) -> tuple[int, int, str]:
    """The status of a turn, how often it went up, and what the client got."""
    path, spelled = SPELLED[api]
    before = len(world.upstream.sent)
    answer = world.ask({**spelled(body), "stream": body.get("stream", False)}, path=path)
    return answer.status_code, len(world.upstream.sent) - before, answer.text


class RunsOut:
    """Fails behind its content, once that has reached the client."""

    def __init__(self, limit: int, says: str, code: int) -> None:
        self.limit, self.says, self.code = limit, says, code
        self.reached, self.failed = threading.Event(), 0

    def __call__(self, sent: Sent) -> Scene | None:
        if sent.tokens <= self.limit:
            return None
        self.failed += 1
        self.reached.clear()
        begun = sent.face.answered(sent.json, Reply("So far."), None, sent.number)[0]
        error = sent.face.error_event(self.says.format(limit=self.limit, seen=sent.tokens), code=self.code)

        async def scene(connection: Connection, _: Request) -> None:
            await connection.send(CHUNKED.replace(b"text/event-stream", begun.content_type.encode()))
            for piece in begun.pieces()[:-2]:
                await connection.send(chunk(piece))
            await asyncio.to_thread(self.reached.wait, PATIENCE_SECONDS)
            await connection.send(chunk(error) + LAST_CHUNK)

        return scene

    def streamed(self, world: World, api: str, body: Json) -> bytes:
        """What the client gets of a stream."""
        path, spelled = SPELLED[api]
        root = world.proxies[0].removesuffix("/v1") if api == "ollama" else world.proxies[0]
        got = b""
        with world.client.stream("POST", root + path, json={**spelled(body), "stream": True}) as answer:
            assert answer.status_code == 200
            for piece in answer.iter_bytes():
                got += piece
                self.reached.set()
        return got


LATE = {
    "without a number": ("Context size has been exceeded.", 500),
    "with numbers": ("This model's maximum context length is {limit} tokens, but the request has {seen} tokens.", 400),
}


@pytest.mark.parametrize("said", LATE)
@pytest.mark.parametrize("api", SPELLED)
def test_a_window_that_runs_out_after_content_is_known_in_the_next_turn(build: Any, api: str, said: str) -> None:
    late = RunsOut(7_600, *LATE[said])
    upstream = ScriptedModel([valid, late], faces=[FACES[api]])
    world = build(behind=upstream, defaults={})
    for body in growing(20):
        before = late.failed
        got = late.streamed(world, api, body)
        if late.failed > before:
            assert b"exceeded" in got or b"maximum context length" in got, "the client gets its stream as it is"
            world.logged("lesson_learned")
            for _ in range(3):
                assert b"exceeded" not in late.streamed(world, api, body)
    assert late.failed == 1
    assert len(upstream.sent) == 23


CONDITIONAL = "image_url is only supported by certain models."


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_what_is_refused_twice_under_a_condition_is_a_fact(build: Any, api: str) -> None:
    blind = Over("images", 0, CONDITIONAL)
    upstream = ScriptedModel([valid, blind], words("Fine."), [FACES[api]])
    world = build(behind=upstream, defaults={})
    sends = [asked(world, api, body)[:2] for body in growing(8, 5, image_part())]
    assert [status for status, _ in sends] == [200] * 8
    assert blind.refused <= 2, sends


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_condition_is_no_fact_while_images_are_accepted(build: Any, api: str) -> None:
    def rule(sent: Sent) -> Any:
        is_refused = sent.measured("images") and sent.number % 3 == 1
        return sent.face.error(CONDITIONAL) if is_refused else None

    upstream = ScriptedModel([valid, rule], words("Fine."), [FACES[api]])
    world = build(behind=upstream, defaults={})
    for body in growing(9, 5, image_part()):
        assert asked(world, api, body)[0] == 200
    assert upstream.last.measured("images") or upstream.sent[-2].measured("images")


DEAR = "prompt token count of {seen} exceeds the limit of {limit}"


@pytest.mark.parametrize("api", SPELLED)
def test_media_that_are_counted_as_text_are_described_first_and_from_then_on(build: Any, api: str) -> None:
    upstream = ScriptedModel([valid, Over("prompt", 16_000, DEAR)], words("Fine."), [FACES[api]])
    upstream.counts = lambda _, raw: len(raw) // 3
    world = build(behind=upstream, defaults={})
    picture = image_part(png() + b"\1\2\3" * 30_000)
    sends = []
    for turn, body in enumerate(growing(8, 10)):
        if turn in (0, 3, 5):
            body["messages"].append({"role": "user", "content": [{"type": "text", "text": "And this?"}, picture]})
        status, sent, text = asked(world, api, body)
        assert status == 200, text
        sends.append(sent)
    assert sum(sends) <= len(sends) + 1, sends
    assert "build-7 9" in upstream.last.text
    assert "PNG image" in upstream.last.text, "it is described"


def test_an_acceptance_of_many_images_does_not_disprove_what_was_refused_without_a_number(build: Any) -> None:
    limit = Over("prompt", 40_000, "The prompt is too long for this model.")
    upstream = ScriptedModel([valid, limit], words("Fine."), [FACES["chat"]])
    world = build(behind=upstream, defaults={})
    sends = []
    for body in growing(60, 20):
        body["messages"][-1]["content"] = [
            {"type": "text", "text": body["messages"][-1]["content"]},
            image_part(png() + b"%d" % len(sends)),
        ]
        status, sent, text = asked(world, "chat", body)
        assert status == 200, text
        sends.append(sent)
    assert limit.refused <= 6, sends


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_that_a_count_proves_corrects_a_window_that_was_loaded_before(build: Any, stream: bool) -> None:
    server = OllamaServer(allocates=32_768)
    world = build(behind=server, defaults={})
    for turn, body in enumerate(growing(40, 40, stream=stream)):
        if turn == 10:
            server.allocates, server.loaded = 4_096, {}
        status, _, text = asked(world, "ollama", body | {"options": {"num_predict": 100}})
        assert status == 200, text
    assert server.cuts <= 3, [(chat.prompt_tokens, chat.was_cut) for chat in server.chats]


@pytest.mark.parametrize("api", SPELLED)
def test_a_server_that_comes_back_larger_is_asked_before_the_next_plan(build: Any, api: str) -> None:
    over = Over("prompt", 4_096, "the request exceeds the available context size ({seen} > {limit})")
    upstream = ScriptedModel([valid, over], words("Fine."), [FACES[api]])
    *first, last = growing(14, 40)
    upstream.lists = [{"id": "m", "object": "model", "meta": {"n_ctx": over.limit}}]
    world = build(behind=upstream, defaults={})
    for body in first:
        assert asked(world, api, body)[0] == 200
    assert upstream.last.tokens <= over.limit
    over.limit = 16_384
    upstream.lists = [{"id": "m", "object": "model", "meta": {"n_ctx": over.limit}}]
    assert asked(world, api, last)[0] == 200
    assert upstream.last.tokens > 5_000
