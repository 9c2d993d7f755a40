"""Images, files and audio from every source, to models of every capability, by every way that upstreams take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.journey import World, call, result
from support.media_samples import (
    MP4,
    PDF,
    PNG,
    WAV,
    anthropic_block,
    audio_part,
    base64_of,
    data_url,
    file_part,
    image_part,
    mcp_block,
    png,
    resource_block,
    routing_result,
)
from support.strategies import pairing_faults

from proxy.core.content_types import decoded

TARGETS = ["keep", "user_after_batch", "user_after_assistant", "text"]
MODELS = [
    {"match": "blind", "input": ["text"]},
    *(
        {"match": f"all-{target}", "input": ["text", "vision", "audio", "video", "file"], "tool_images": target}
        for target in TARGETS
    ),
    {"match": "seeing", "input": ["text", "vision"]},
    {"match": "mistral-seeing", "input": ["text", "vision"]},
]
TEXT = {"type": "text", "text": "Here it is."}
SOURCES: dict[str, tuple[Any, bytes]] = {
    "image part": ([TEXT, image_part()], PNG),
    "image part, bare": ([TEXT, {"type": "image_url", "image_url": {"url": base64_of(PNG)}}], PNG),
    "audio part": ([TEXT, audio_part()], WAV),
    "file part": ([TEXT, file_part(PDF)], PDF),
    "video part": ([TEXT, {"type": "video_url", "video_url": {"url": data_url(MP4, "video/mp4")}}], MP4),
    "MCP block": ([TEXT, mcp_block()], PNG),
    "MCP audio": ([TEXT, mcp_block(WAV, "audio/wav", "audio")], WAV),
    "MCP resource": ([TEXT, resource_block(PDF, "application/pdf", "file:///d/report.pdf")], PDF),
    "Anthropic block": ([TEXT, anthropic_block()], PNG),
    "Anthropic document": ([TEXT, anthropic_block(PDF, "application/pdf", "document")], PDF),
    "data URI in text": (f"Here: {data_url(PNG, 'image/png')} is it.", PNG),
    "blocks in JSON": (json.dumps({"content": [{"type": "text", "text": "hi"}, mcp_block()], "isError": False}), PNG),
    "Anthropic in JSON": (json.dumps([anthropic_block()]), PNG),
    "base64 member": (json.dumps({"status": "success", "data": {"screenshot": base64_of(PNG)}}), PNG),
    "structured result": (routing_result(), PNG),
    "base64 output": (f"$ base64 -w0 report.pdf\n{base64_of(PDF)}\n$", PDF),
}
IN_TEXT = {
    "data URI in text",
    "blocks in JSON",
    "Anthropic in JSON",
    "base64 member",
    "structured result",
    "base64 output",
}


def request_with(content: Any, model: str, *, name: str = "look") -> dict[str, Any]:
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Look at it."},
            call(1, name),
            {"role": "tool", "tool_call_id": "call_1", "content": content},
        ],
    }


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """All that a model reads as text."""
    found = []
    for message in messages:
        content = message["content"]
        found += [content] if isinstance(content, str) else []
        found += [part["text"] for part in content if "text" in part] if isinstance(content, list) else []
    return found


def media(messages: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    """The parts of messages of a role that are no text."""
    contents = [message["content"] for message in messages if message["role"] == role]
    return [part for content in contents if isinstance(content, list) for part in content if part["type"] != "text"]


def sent(world: World, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = world.ask(body)
    assert answer.status_code == 200, answer.text
    assert pairing_faults([json.dumps(message).encode() for message in world.upstream.last.messages]) == []
    return world.upstream.last.messages


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_goes_where_each_model_can_read_it(build: Callable[..., World], source: str) -> None:
    world = build(models=MODELS, log={"format": "json"})
    content, file = SOURCES[source]
    start = base64_of(file)[:48]

    unknown = sent(world, request_with(content, "nobody-knows"))
    if source in IN_TEXT:
        assert "[cannot read]" in "".join(texts(unknown))
        assert not any(start in text for text in texts(unknown))
    else:
        assert unknown == request_with(content, "nobody-knows")["messages"], "the upstream judges"

    blind = sent(world, request_with(content, "blind"))
    assert [message["role"] for message in blind] == ["system", "user", "assistant", "tool"]
    assert media(blind, "tool") == []
    assert start not in json.dumps(blind)
    (described,) = [text for text in texts(blind) if "[cannot read]" in text]
    assert [name for name, kept in world.kept.items() if kept == file and f"artifact:{name}" in described]
    assert file in world.upstream.last.files.values(), "kept before it was sent"

    for target in TARGETS:
        shown = sent(world, request_with(content, f"all-{target}"))
        assert not any(start in text for text in texts(shown))
        roles = [message["role"] for message in shown[4:]]
        parts = media(shown, "tool") if target == "keep" else media(shown, "user")
        if target == "text":
            assert (roles, parts) == ([], [])
            assert "[cannot read]" in "".join(texts(shown))
            continue
        assert roles == {"keep": [], "user_after_batch": ["user"]}.get(target, ["assistant", "user"])
        (part,) = parts
        assert start in json.dumps(part)
        assert part["type"] in ("image_url", "input_audio", "file", "video_url")
        assert target == "keep" or media(shown, "tool") == []

    assert base64_of(file)[:32] not in world.log_text
    kinds = {line["route"] for line in world.logged("media_routed")}
    assert "description" in kinds


def test_images_of_a_parallel_batch_go_behind_all_of_it_and_the_prefix_stays(build: Callable[..., World]) -> None:
    world = build(models=MODELS)
    calls = [call(number)["tool_calls"][0] for number in (1, 2, 3)]
    batch = [
        {"role": "tool", "tool_call_id": "call_1", "content": [image_part()]},
        result(2, "words"),
        {"role": "tool", "tool_call_id": "call_3", "content": [image_part(png(5, 5))]},
    ]
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": None, "tool_calls": calls}, *batch]
    first = sent(world, {"model": "seeing", "messages": messages})
    assert [message["role"] for message in first] == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert first[3] == batch[1]
    assert media(first, "user") == [image_part(), image_part(png(5, 5))]
    labels = [part["text"] for part in first[5]["content"] if part["type"] == "text"]
    assert labels == [
        "[attachment 1 of the result of bash, call call_1]",
        "[attachment 1 of the result of bash, call call_3]",
    ]
    longer = [*messages, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "And?"}]
    second = sent(world, {"model": "seeing", "messages": longer})
    assert second[: len(first)] == first
    assert world.upstream.sent[1].body.startswith(world.upstream.sent[0].body[:-3])


def test_mistral_gets_a_word_of_the_assistant_between_results_and_images(build: Callable[..., World]) -> None:
    world = build(models=MODELS)
    shown = sent(world, request_with([image_part()], "mistral-seeing"))
    assert [message["role"] for message in shown[3:]] == ["tool", "assistant", "user"]


def test_an_image_that_a_user_sends_needs_nothing_of_us(build: Callable[..., World]) -> None:
    world = build(models=MODELS)
    body = json.dumps({"model": "seeing", "messages": [{"role": "user", "content": [TEXT, image_part()]}]}).encode()
    for model in (b"seeing", b"nobody-knows"):
        world.ask(body.replace(b"seeing", model))
        assert world.upstream.last.body == body.replace(b"seeing", model), "the very bytes"


def test_the_same_image_in_every_turn_is_opened_once(
    build: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = build(models=MODELS)
    opened: list[int] = []
    real: Callable[[str], bytes | None] = decoded

    def counting(payload: str) -> bytes | None:
        opened.append(len(payload))
        return real(payload)

    monkeypatch.setattr("proxy.core.conversation.message.decoded", counting)
    large = png(40, 40, b"\x55") + b"\0" * 9_000
    messages: list[dict[str, Any]] = request_with([image_part(large)], "blind")["messages"]
    for turn in range(6):
        sent(world, {"model": "blind", "messages": messages})
        messages = [*messages, {"role": "assistant", "content": f"Turn {turn}."}, {"role": "user", "content": "On."}]
    assert opened == [len(base64_of(large))]


def test_a_conversation_over_the_room_keeps_results_and_their_images_together(build: Callable[..., World]) -> None:
    models = [{"match": "*", "input": ["text", "vision"], "context_window": 8_000}]
    world = build(8_000, models=models)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at all of them."}]
    for number in range(30):
        content = [TEXT, image_part(png(700, 700 + number))]
        messages += [call(number), {"role": "tool", "tool_call_id": f"call_{number}", "content": content}]
        shown = sent(world, {"model": "m", "messages": messages})
        results = [message for message in shown if message["role"] == "tool"]
        assert len(media(shown, "user")) == len(results)
        assert shown[-1]["role"] == "user"
    assert 1 < len(results) < 30
