"""A lesson from one key's requests binds that key alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.media_samples import image_part
from support.overflow_stage import Received, Stage, staged
from support.overflow_words import conversation, counted, counting, estimate, times, window
from support.upstream import Scene
from support.upstream.scenes import accepting, saying

SETTINGS = window(40_000)

SEARCH = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]


async def answer_to(stage: Stage, body: bytes, key: str, *scenes: Scene) -> Received:
    stage.model.plays(*scenes)
    return await stage.ask(body, authorization=f"Bearer {key}")


async def test_a_ratio_of_one_key_leaves_nothing_of_another_ones_prompt_out(stage: Stage) -> None:
    for _ in range(4):
        await answer_to(stage, conversation(8_000), "one", counting(count=times(2.6)))
    await answer_to(stage, conversation(30_000), "two", accepting)
    assert estimate(stage.model.bodies[0]) > 29_000
    await answer_to(stage, conversation(30_000), "one", accepting)
    assert estimate(stage.model.bodies[0]) < 16_000, "its own key goes by it"


async def test_clients_without_a_key_are_one_key(stage: Stage) -> None:
    for ratio in (1.5, 1.5, 1.5):
        stage.model.plays(counting(count=times(ratio)))
        await stage.ask(conversation(8_000))
    stage.model.plays(accepting)
    await stage.ask(conversation(30_000))
    assert estimate(stage.model.bodies[0]) < 27_000


async def test_a_web_search_on_messages_teaches_its_own_key_nothing(stage: Stage) -> None:
    """Its pages are in `input_tokens`."""
    stage.url = stage.url.replace("/chat/completions", "/messages")
    usage = {"input_tokens": 20_800, "output_tokens": 2}
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    searched = saying(200, json.dumps({**reply, "stop_reason": "end_turn", "usage": usage}).encode())
    messages = json.loads(conversation(8_000, exchanges=1))["messages"][1:2]
    messages[0]["content"] = "the unit started and wrote its state; " * 800
    body = {"model": "claude-x", "max_tokens": 100, "messages": messages, "tools": SEARCH}
    for _ in range(4):
        await answer_to(stage, json.dumps(body).encode(), "one", searched)
    plain = {**body, "messages": messages * 1, "tools": []}
    messages[0]["content"] *= 4
    answer = await answer_to(stage, json.dumps(plain).encode(), "one", saying(200, json.dumps(reply).encode()))
    assert answer.tokens("before") == answer.tokens("after")


async def test_what_fits_by_the_vocabulary_but_not_by_the_upstreams_own_counts_is_not_sent_to_be_refused(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path, **window(10_000)) as stage:
        for _ in range(4):
            await answer_to(stage, conversation(9_000, model="gpt-4o"), "one", counting(count=times(1.4)))
        body = conversation(11_000, model="gpt-4o")
        answer = await answer_to(stage, body, "one", accepting)
        assert (answer.status, answer.attempts) == (200, "1")
        assert len(json.loads(stage.model.bodies[0])["messages"]) < len(json.loads(body)["messages"])
        await answer_to(stage, body, "two", accepting)
        assert len(json.loads(stage.model.bodies[0])["messages"]) == len(json.loads(body)["messages"])


def looking(**members: Any) -> bytes:
    content = [{"type": "text", "text": "Look."}, image_part()]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **members}).encode()


def refusing(message: str) -> Scene:
    return saying(400, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())


def has_image(body: bytes) -> bool:
    return b'"image_url"' in body


async def test_refused_images_are_text_for_the_key_that_met_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        refusal = refusing("image input is not supported")
        await answer_to(stage, looking(), "one", refusal, accepting)
        await answer_to(stage, looking(), "one", accepting)
        assert not has_image(stage.model.bodies[0])
        await answer_to(stage, looking(), "two", refusal, accepting)
        assert has_image(stage.model.bodies[0])
        await answer_to(stage, looking(), "three", accepting)
        assert has_image(stage.model.bodies[0])


@pytest.mark.parametrize(
    "message",
    [
        "Image inputs are not supported when using predicted outputs.",
        "Images are not supported with n > 1.",
        "image_url is not supported with logprobs enabled",
        "Invalid content type. image_url is only supported by certain models.",
        "Vision is unavailable in combination with tools: images are not supported.",
        "使用预测输出时不支持图片输入",
    ],
)
async def test_images_that_are_refused_under_a_condition_are_sent_again(tmp_path: Path, message: str) -> None:
    async with staged(tmp_path) as stage:
        answer = await answer_to(stage, looking(n=2), "one", refusing(message), accepting)
        assert (answer.status, answer.attempts) == (200, "2")
        await answer_to(stage, looking(), "one", accepting)
        assert has_image(stage.model.bodies[0])


async def test_a_silent_cut_of_one_key_cuts_no_prompt_of_another(tmp_path: Path) -> None:
    async with staged(tmp_path, defaults={"context_window": 40_000}) as stage:
        for _ in range(3):
            await answer_to(stage, conversation(7_000), "one", counting())
        await answer_to(stage, conversation(20_000), "one", counted(8_192), accepting)
        assert estimate(stage.model.bodies[1]) < 8_192
        await answer_to(stage, conversation(20_000), "two", accepting)
        assert estimate(stage.model.bodies[0]) > 19_000
        await answer_to(stage, conversation(20_000), "one", accepting)
        assert estimate(stage.model.bodies[0]) < 8_192


TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


async def test_a_refused_tool_of_ours_is_left_out_for_the_key_that_met_it(tmp_path: Path) -> None:
    async with staged(tmp_path, artifacts={"retrieval_tool": "always"}) as stage:

        def offered(body: bytes) -> bool:
            return b'"read_artifact"' in body

        refusal = refusing("Unknown tool: tools[1].function.name")
        body = conversation(1_000, tools=[TOOL])
        await answer_to(stage, body, "one", refusal, accepting)
        assert [offered(sent) for sent in stage.model.bodies] == [True, False]
        await answer_to(stage, body, "one", accepting)
        assert not offered(stage.model.bodies[0])
        await answer_to(stage, body, "two", refusing("Tools are not supported together with logprobs."), accepting)
        assert offered(stage.model.bodies[0])
        await answer_to(stage, body, "two", accepting)
        assert offered(stage.model.bodies[0]), "a condition teaches nothing"
