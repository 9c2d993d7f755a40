"""The words for media as an upstream gets them: names, the way to a model that can read them, structured results."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.journey import World, call, one_call, result
from support.media_samples import PDF, PNG, anthropic_block, base64_of, data_url, image_part, mcp_block

from proxy.core.artifact import ARTIFACT_NAME

BLIND = [{"match": "m", "input": ["text"]}]
TASK = {"type": "function", "function": {"name": "Task", "parameters": {"type": "object", "properties": {}}}}


def forwarded(world: World, content: Any, **members: Any) -> str:
    """Content of the last tool result that the upstream received."""
    body = one_call("", **members)
    body["messages"][-1]["content"] = content
    answer = world.ask(body)
    assert answer.status_code == 200, answer.text
    found = world.upstream.last.messages[-1]["content"]
    return found if isinstance(found, str) else "".join(part["text"] for part in found)


@pytest.mark.parametrize(
    "content",
    [
        [image_part() | {"filename": "chart.png"}],
        [image_part() | {"metadata": {"filename": "chart.png"}}],
        [mcp_block() | {"metadata": {"filename": "chart.png"}}],
        json.dumps([anthropic_block() | {"filename": "chart.png"}]),
        json.dumps({"metadata": {"filename": "chart.png"}, "data": base64_of(PNG)}),
        json.dumps({"routing": "image_url", "imageUrl": image_part(), "metadata": {"filename": "chart.png"}}),
    ],
)
def test_a_file_is_called_as_its_metadata_or_its_neighbour_says(build: Callable[..., World], content: Any) -> None:
    world = build(models=BLIND)
    text = forwarded(world, content)
    (name,) = set(re.findall(ARTIFACT_NAME, text))
    assert f"[cannot read] chart.png (artifact:{name})" in text
    assert world.upstream.last.files[name] == PNG, "kept before it was sent"


def test_a_structured_result_that_the_model_cannot_see_arrives_as_one_of_text(build: Callable[..., World]) -> None:
    world = build(models=BLIND)
    metadata = {"filename": "report.pdf", "mimeType": "application/pdf"}
    sent = {"routing": "file", "file": data_url(PDF, "application/pdf"), "metadata": metadata}
    arrived = json.loads(forwarded(world, json.dumps(sent)))
    assert arrived.keys() == {"routing", "content", "metadata"}
    assert (arrived["routing"], arrived["metadata"]) == ("text", metadata)
    assert arrived["content"].startswith("[cannot read] report.pdf (artifact:tool_bash_")
    assert base64_of(PDF)[:12] not in json.dumps(arrived)


@pytest.mark.parametrize(
    ("language", "advice"),
    [("en", "handing it to a sub-agent that can read such files."), ("zh", "建议创建具备相应能力的智能体协助处理。")],
)
@pytest.mark.parametrize("agent_path", [None, "/shared"])
def test_where_a_sub_agent_is_offered_the_file_is_to_be_handed_to_it(
    build: Callable[..., World], language: str, advice: str, agent_path: str | None
) -> None:
    world = build(models=BLIND, language=language, artifacts={"agent_path": agent_path})
    assert forwarded(world, [image_part()], tools=[TASK]).endswith(advice)
    first = world.upstream.last.messages
    assert forwarded(world, [image_part()], tools=[TASK]).endswith(advice)
    assert world.upstream.last.messages == first, "the same in every turn"
    assert advice not in forwarded(world, [image_part()])


@pytest.mark.parametrize("length", [1, 2, 3, 7, 30, 47, 48, 49])
def test_a_declared_binary_of_any_length_arrives_without_base64(build: Callable[..., World], length: int) -> None:
    world = build(models=BLIND)
    file = bytes(range(200, 200 + length))
    encoded = base64.b64encode(file).decode()
    for text in (
        f"see ![a]({data_url(file, 'image/png')})",
        json.dumps([mcp_block(file)]),
        json.dumps({"content": [anthropic_block(file)]}),
        json.dumps({"mimeType": "application/pdf", "data": encoded}),
        json.dumps({"routing": "image_url", "imageUrl": data_url(file, "image/png")}),
    ):
        arrived = forwarded(world, text)
        assert encoded not in arrived
        assert "[cannot read]" in arrived
        assert file in world.upstream.last.files.values()


def test_replaced_characters_are_counted_once_in_each_message_in_every_turn(build: Callable[..., World]) -> None:
    world = build(models=[{"match": "m", "sanitise": ["non_bmp"]}])
    response = json.dumps({"status": "success", "data": "🙂🙂", "text": "Two."}, ensure_ascii=False)
    arguments = json.dumps({"say": "🙂"}, ensure_ascii=False)
    messages = [
        {"role": "user", "content": "Hi 🙂"},
        call(1, arguments=arguments),
        result(1, "a 🙂 b 🙂"),
        call(2),
        result(2, response),
    ]
    world.ask({"model": "m", "messages": messages})
    user, called, plain, _, common = world.upstream.last.messages
    note = "[context-proxy: characters shown as \ufffd here, as the upstream does not take them: {}]\n"
    assert user["content"] == f"Hi \ufffd\n{note.format(1)}"
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"say": "\ufffd"}
    assert plain["content"] == f"a \ufffd b \ufffd\n{note.format(2)}"
    assert json.loads(common["content"]) == {
        "status": "success",
        "data": "\ufffd\ufffd",
        "text": note.format(2) + "Two.",
    }
    first = world.upstream.last.messages
    world.ask({"model": "m", "messages": [*messages, {"role": "assistant", "content": "🙂"}, result(2, "x")][:6]})
    assert world.upstream.last.messages[:5] == first
    assert world.upstream.last.messages[5]["content"] == "\ufffd", "no note in the model's own words"


def test_characters_that_an_upstream_does_not_take_stay_away_when_a_result_is_cut(build: Callable[..., World]) -> None:
    world = build(models=[{"match": "m", "sanitise": ["non_bmp"], "context_window": 4_000}])
    body = one_call("line 🙂 of a long output\n" * 1_800)
    body["messages"] = [{"role": "user", "content": "Please 🙂 " * 9}, *body["messages"][1:]]
    assert world.ask(body).status_code == 200
    assert "🙂" not in json.dumps(world.upstream.last.messages, ensure_ascii=False)
