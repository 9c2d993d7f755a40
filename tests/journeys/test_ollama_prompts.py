"""The whole proxy in front of an Ollama, for prompts: `POST /api/generate`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.journey import KEY, World, long_text
from support.media_samples import PNG
from support.upstream.ollama import GENERATE, Completion, Json
from support.upstream.ollama_server import Model, OllamaServer

Build = Callable[..., World]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "lines"])
LONG = long_text(1_500)
"""Some 20 000 tokens."""
PAYLOAD = base64.b64encode(PNG).decode()


@pytest.fixture
def ollama(build: Build) -> Build:
    """`build` for an upstream that is an Ollama and states its windows itself."""

    def built(answer: OllamaServer, **stated: Any) -> World:
        return build(behind=answer, **{"defaults": {}, **stated})

    return built


def answer_to(world: World, **members: Any) -> httpx.Response:
    root = world.proxies[0].removesuffix("/v1")
    content = json.dumps({"model": "m", **members}).encode()
    return world.client.post(root + GENERATE, content=content, headers={"authorization": f"Bearer {KEY}"})


def answer_objects(answer: httpx.Response) -> list[Json]:
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [bool(line.get("done")) for line in lines] == [*[False] * (len(lines) - 1), True]
    return lines


def words(answer: httpx.Response) -> str:
    return "".join(line["response"] for line in answer_objects(answer))


@STREAMED
def test_the_middle_of_a_long_prompt_is_kept_elsewhere(stream: bool, ollama: Build) -> None:
    server = OllamaServer(allocates=8_192, replies=[Completion("It is red.", "Hm.")])
    world = ollama(server)
    prompt = f"Why is the build red?\n{LONG}\nAnswer in a word."
    answer = answer_to(world, prompt=prompt, stream=stream, system="Be brief.", keep_alive="5m", options={"seed": 7})
    assert words(answer) == "It is red."
    assert server.cuts == 0
    sent = server.chats[0].sent
    assert list(sent) == ["model", "prompt", "stream", "system", "keep_alive", "options"]
    assert sent["prompt"].startswith("Why is the build red?\n")
    assert sent["prompt"].endswith("\nAnswer in a word.")
    assert next(iter(world.kept)) in sent["prompt"]
    assert prompt.encode() in world.kept.values()
    assert server.chats[0].prompt_tokens > 6_000
    assert world.logged("request_done")[-1]["outcome"] == "answered"


@STREAMED
def test_a_prompt_that_fits_passes_unchanged(stream: bool, ollama: Build) -> None:
    server = OllamaServer(replies=[Completion("Blue.", "Hm.")])
    answer = answer_to(ollama(server), prompt="What colour?", stream=stream)
    assert words(answer) == "Blue."
    assert server.chats[0].sent == {"model": "m", "prompt": "What colour?", "stream": stream}


@pytest.mark.parametrize(
    "members",
    [{"raw": True}, {"suffix": "return x"}, {"context": [*range(9_000)]}, {"template": "{{ .Prompt }}" + "x" * 9_000}],
    ids=lambda members: next(iter(members)),
)
def test_a_prompt_that_is_not_plain_passes_unchanged(members: Json, ollama: Build) -> None:
    server = OllamaServer(allocates=4_096)
    world = ollama(server)
    for _ in range(3):
        assert answer_to(world, prompt=LONG, stream=False, **members).status_code == 200
    assert server.chats[0].sent == {"model": "m", "prompt": LONG, "stream": False, **members}
    assert not world.log("upstream_truncated_silently")
    answer_to(world, prompt=LONG, stream=False)
    assert not server.chats[-1].was_cut, "what was not read has taught nothing"


@pytest.mark.parametrize("members", [{}, {"prompt": ""}, {"prompt": "", "keep_alive": 0}, {"system": LONG}])
def test_loading_and_unloading_pass_unchanged(members: Json, ollama: Build) -> None:
    answer = answer_to(ollama(OllamaServer()), **members, stream=False)
    assert answer.json()["done_reason"] == ("unload" if "keep_alive" in members else "load")


def test_empty_members_as_older_clients_write_them_leave_a_prompt_plain(ollama: Build) -> None:
    server = OllamaServer(allocates=4_096)
    answer_to(ollama(server), prompt=LONG, stream=False, suffix="", template="", context=[], raw=False)
    assert not server.chats[0].was_cut


def test_the_window_and_the_reply_limit_of_a_prompt_are_its_options(ollama: Build) -> None:
    server = OllamaServer(allocates=65_536)
    answer_to(ollama(server), prompt=LONG, stream=False, options={"num_ctx": 6_000, "num_predict": 2_000})
    assert not server.chats[0].was_cut
    assert server.chats[0].prompt_tokens + server.chats[0].sent["options"]["num_predict"] <= 6_000
    assert server.loads == [("m", 6_000)]


@pytest.mark.parametrize("reads", [["text"], ["text", "vision"]], ids=["blind", "seeing"])
def test_images_beside_a_prompt_go_to_models_that_read_them(reads: list[str], ollama: Build) -> None:
    server = OllamaServer(allocates=8_192)
    world = ollama(server, models=[{"match": "*", "input": reads}])
    answer_to(world, prompt="What is it?", images=[PAYLOAD], stream=False)
    sent = server.chats[0].sent
    if "vision" in reads:
        assert sent == {"model": "m", "prompt": "What is it?", "images": [PAYLOAD], "stream": False}
    else:
        assert "images" not in sent
        assert "[cannot read]" in sent["prompt"]
        assert PNG in world.kept.values()


@STREAMED
@pytest.mark.parametrize("model", [Model(is_native=True), Model(shifts=False), Model(remote_window=8_000)])
def test_a_refusal_is_cured_unseen(stream: bool, model: Model, ollama: Build) -> None:
    server = OllamaServer(models={"m": model}, allocates=10_000)
    world = ollama(server, models=[{"match": "*", "context_window": 30_000}])
    answer = answer_to(world, prompt=LONG, stream=stream)
    assert (answer.status_code, words(answer)) == (200, "Done.")
    assert answer.headers["x-context-proxy-attempts"] == "2"


@pytest.mark.parametrize("prompt", [["a"], 7, {"a": 1}])
def test_what_is_no_text_is_the_servers_to_refuse(prompt: Any, ollama: Build) -> None:
    answer = answer_to(ollama(OllamaServer()), prompt=prompt)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert "Request.prompt" in answer.json()["error"]
