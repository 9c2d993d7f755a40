"""An upstream that refuses an image, a sound or a file gets the request once more without, and is not asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.media_samples import PDF, PNG, audio_part, base64_of, file_part, image_part, mcp_block
from support.overflow_stage import Stage, staged
from support.upstream.scenes import COMPLETION, accepting, saying

CALL = {"id": "call_1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}


def refusing(status: int, message: str, code: str | int | None = None):
    return saying(status, json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode())


def asking(*parts, **members) -> bytes:
    content = [{"type": "text", "text": "Look."}, *parts]
    return json.dumps({"model": "blind", "messages": [{"role": "user", "content": content}], **members}).encode()


def parts_of(body: bytes, message: int = -1):
    return json.loads(body)["messages"][message]["content"]


def types_of(body: bytes) -> list[str]:
    return [part["type"] for part in parts_of(body)]


def events(captured: str, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in captured.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


JSON_LOG = {"log": {"format": "json"}}
REFUSALS = [
    (404, "No endpoints found that support image input"),
    (422, "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text` at line 1"),
    (415, "image input is not supported by this model"),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (500, "Failed to process inputs: this model is missing data required for image input"),
    (400, "Qwen/Qwen3-8B is not a multimodal model"),
    (400, "At most 0 image(s) may be provided in one prompt."),
    (400, "This model does not support image inputs."),
    (400, "The model doesn't support the image field. Remove image and try again."),
    (400, "该模型不支持图片输入"),
]


@pytest.mark.parametrize(("status", "message"), REFUSALS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_image_goes_up_as_text_unseen_and_is_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, message: str, stream: bool
) -> None:
    async with staged(tmp_path, **JSON_LOG) as stage:
        body = asking(image_part(), stream=stream)
        stage.model.plays(refusing(status, message), accepting)
        answer = await stage.ask(body)
        assert (answer.status, answer.attempts) == (200, "2")
        first, second = stage.model.bodies
        assert first == body
        assert parts_of(second).startswith("Look.\n[cannot read] image.png"), "some take no list at all"
        assert base64_of(PNG) not in second.decode()
        kept = [path.read_bytes() for path in (tmp_path / "tool-output").glob("*.png")]
        assert PNG in kept, "kept before it was sent"

        stage.model.plays(accepting)
        again = await stage.ask(body)
        assert again.attempts == "1"
        assert parts_of(stage.model.bodies[0]) == parts_of(second)
    log = capsys.readouterr().out
    (refused,) = events(log, "media_refused")
    assert (refused["cure"], refused["refused"]) == ("without_media", ["vision"])
    assert events(log, "lesson_learned")[0]["lesson"] == "refuses vision"
    routed = events(log, "media_routed")
    assert {(line["kind"], line["mime"], line["route"]) for line in routed} == {("image", "image/png", "description")}
    assert base64_of(PNG)[:20] not in log


async def test_what_was_learned_holds_for_that_model_alone_and_after_a_restart(tmp_path: Path) -> None:
    body = asking(image_part())
    async with staged(tmp_path) as stage:
        stage.model.plays(refusing(400, "image input is not supported"), accepting)
        await stage.ask(body)
    async with staged(tmp_path) as stage:
        other = body.replace(b'"blind"', b'"other"')
        stage.model.plays(accepting)
        await stage.ask(other)
        assert stage.model.bodies == [other]
    learned = json.loads((tmp_path / "lessons.json").read_bytes())
    assert [[(key[0], key[2]) for key, _ in rows] for rows in learned.values()] == [[("blind", "refuses vision")]]


async def test_only_the_kind_that_is_refused_becomes_text(stage: Stage) -> None:
    stage.model.plays(refusing(400, "audio input is not supported"), accepting)
    await stage.ask(asking(image_part(), audio_part(), file_part(PDF)))
    assert types_of(stage.model.bodies[1]) == ["text", "image_url", "text", "file"]


async def test_a_refusal_of_media_in_general_is_of_all_that_was_sent(stage: Stage) -> None:
    stage.model.plays(refusing(400, "this is not a multimodal model"), accepting, accepting)
    await stage.ask(asking(image_part(), file_part(PDF)))
    assert parts_of(stage.model.bodies[1]).count("[cannot read]") == 2
    await stage.ask(asking(audio_part()))
    assert types_of(stage.model.bodies[2]) == ["text", "input_audio"], "which was not sent then"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_file_goes_as_it_came_to_a_model_whose_catalogue_says_nothing_of_files(stage: Stage, path: str) -> None:
    pdf = base64_of(PDF)
    blocks = {
        "/v1/chat/completions": file_part(PDF),
        "/v1/responses": {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{pdf}"},
        "/v1/messages": {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
        },
    }
    content = "input" if path == "/v1/responses" else "messages"
    for model in ("gpt-5", "gpt-5.1-2025-11-13", "openai/gpt-5-mini", "o4-mini", "gpt-4o-2024-08-06"):
        message = {"role": "user", "content": [blocks[path]]}
        body = json.dumps({"model": model, "max_tokens": 9, content: [message]}).encode()
        stage.model.plays(accepting)
        url = stage.url.replace("/v1/chat/completions", path)
        async with stage.client.post(url, data=body, headers={"content-type": "application/json"}) as answer:
            await answer.read()
        assert stage.model.bodies == [body], model


async def test_a_refusal_of_media_in_general_is_not_blamed_on_what_the_model_is_stated_to_read(stage: Stage) -> None:
    body = asking(image_part(), file_part(PDF), model="gpt-4-turbo")
    stage.model.plays(refusing(400, "this is not a multimodal model"), accepting, accepting, accepting)
    assert (await stage.ask(body)).status == 200
    await stage.ask(body)
    assert [part["type"] for part in parts_of(stage.model.bodies[2])] == ["text", "image_url", "text"]


async def test_a_stated_capability_is_healed_too(tmp_path: Path) -> None:
    models = [{"match": "*", "input": ["text", "vision"]}]
    async with staged(tmp_path, models=models) as stage:
        stage.model.plays(refusing(400, "image input is not supported"), accepting, accepting)
        answer = await stage.ask(asking(image_part()))
        assert answer.status == 200
        await stage.ask(asking(image_part()))
        assert "[cannot read] image.png" in parts_of(stage.model.bodies[2])


async def test_a_second_refusal_passes_and_teaches_nothing(stage: Stage) -> None:
    second = json.dumps({"error": {"message": "content must be a string"}}).encode()
    stage.model.plays(refusing(400, "image input is not supported"), saying(400, second))
    answer = await stage.ask(asking(image_part()))
    assert (answer.status, answer.body) == (400, second)
    stage.model.plays(accepting)
    await stage.ask(asking(image_part()))
    assert types_of(stage.model.bodies[0]) == ["text", "image_url"]


@pytest.mark.parametrize(
    "message",
    [
        "You uploaded an unsupported image. Please make sure your image has one of the following formats: ['png'].",
        "Image URLs are only allowed for messages with role 'user', but this message has the role 'tool'.",
    ],
)
async def test_a_refusal_of_one_image_is_healed_and_says_nothing_of_the_model(stage: Stage, message: str) -> None:
    body = asking(image_part())
    stage.model.plays(refusing(400, message), accepting)
    assert (await stage.ask(body)).status == 200
    stage.model.plays(accepting)
    other = asking(image_part(PNG + b"of another"))
    await stage.ask(other)
    assert stage.model.bodies == [other]
    stage.model.plays(accepting)
    assert (await stage.ask(body)).attempts == "1"
    is_of_its_place = "role" in message
    assert (stage.model.bodies == [body]) == is_of_its_place, "what was refused itself is not sent again"


async def test_with_learning_off_it_is_healed_each_time(tmp_path: Path) -> None:
    async with staged(tmp_path, learning={"enabled": False}) as stage:
        for _ in range(2):
            stage.model.plays(refusing(400, "image input is not supported"), accepting)
            assert (await stage.ask(asking(image_part()))).attempts == "2"


async def test_images_of_results_are_healed_like_those_of_users(stage: Stage) -> None:
    messages = [
        {"role": "user", "content": "Take a picture."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [mcp_block()]},
    ]
    stage.model.plays(refusing(422, "unknown variant `image`, expected `text`"), accepting)
    answer = await stage.ask(json.dumps({"model": "m", "messages": messages}).encode())
    assert answer.status == 200
    assert parts_of(stage.model.bodies[1]).startswith("[cannot read] image.png (artifact:tool_shot_")
    assert answer.body == COMPLETION


async def test_an_upstream_that_takes_no_images_in_results_gets_them_behind_the_batch_from_then_on(
    stage: Stage,
) -> None:
    messages = [
        {"role": "user", "content": "Take a picture."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [image_part()]},
    ]
    refusal = (
        "Image URLs are only allowed for messages with role 'user', but this message with role 'tool' contains one."
    )
    body = json.dumps({"model": "m", "messages": messages}).encode()
    stage.model.plays(refusing(400, refusal), accepting)
    assert (await stage.ask(body)).status == 200
    assert parts_of(stage.model.bodies[1]).startswith("[cannot read] image.png")
    stage.model.plays(accepting)
    assert (await stage.ask(body)).attempts == "1"
    sent = json.loads(stage.model.bodies[0])["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[3]["content"][1] == image_part()
