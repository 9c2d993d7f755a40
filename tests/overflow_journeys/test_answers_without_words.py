"""Refusals that say nothing: a success without an answer, which is asked for once more, and a 400 without a body. One
smaller request is tried; if that is not accepted either, the upstream's answer is forwarded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import assert_valid, conversation, estimate, openai_error, window
from support.upstream.scenes import COMPLETION, EVENTS, STREAM, accepting, saying, streaming

from proxy.shell.relay import HELD_BYTES

EMPTY_BODIES = pytest.mark.parametrize(
    "nothing", [b"", b"{}", b'{"choices": []}'], ids=["no bytes", "object", "choices"]
)


def log_of(capfd: pytest.CaptureFixture[str], event: str) -> list[dict[str, object]]:
    lines = (line for line in capfd.readouterr().out.splitlines() if event in line)
    return [json.loads(line) for line in lines]


@EMPTY_BODIES
async def test_a_body_without_an_answer_is_tried_again_shorter(stage: Stage, nothing: bytes) -> None:
    stage.model.plays(saying(200, nothing), saying(200, nothing), accepting)
    answer = await stage.ask(conversation(9_500))
    assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "3")
    first, again, shorter = stage.model.bodies
    assert again == first
    assert_valid(shorter)
    assert estimate(shorter) <= 0.55 * estimate(first)


async def test_a_stream_whose_beginning_is_too_long_to_be_held_is_no_empty_answer(tmp_path: Path) -> None:
    padded = b": " + b"x" * (8 * HELD_BYTES) + b"\n\n" + STREAM
    for stream in (True, False):
        async with staged(tmp_path) as stage:
            stage.model.plays(saying(200, padded, EVENTS), accepting)
            answer = await stage.ask(conversation(9_500, stream=stream))
            assert (answer.status, answer.body, answer.attempts) == (200, padded, "1")
            assert len(stage.model.bodies) == 1


async def test_a_400_without_a_word_is_retried_shorter_if_the_window_is_unknown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cerebras, and gateways: https://github.com/can1357/oh-my-pi/issues/1251"""
    async with staged(tmp_path, log={"format": "json"}) as stage:
        stage.model.plays(saying(400, b""), accepting)
        body = conversation(9_500)
        answer = await stage.ask(body)
        assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
        assert stage.model.bodies[0] == body
        assert estimate(stage.model.bodies[1]) <= 0.55 * estimate(body)
        (detected,) = log_of(capfd, "overflow_detected")
        assert (detected["kind"], detected["status"]) == ("unknown", 400)


NGINX = (
    b"<html>\r\n<head><title>400 Bad Request</title></head>\r\n<body>\r\n<center><h1>400 Bad Request</h1></center>\r\n"
    b"<hr><center>nginx/1.25.3</center>\r\n</body>\r\n</html>\r\n"
)
BARE = [
    openai_error(""),
    openai_error("Bad Request"),
    b"400 Bad Request",
    NGINX,
    b'{"detail":"Bad Request"}',
    b'{"error":{"message":"Provider returned error","code":400,"metadata":{"provider_name":"Chutes"}},"user_id":"u1"}',
    b'{"type":"error","error":{"type":"invalid_request_error","message":""},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}',
    b'{"timestamp":"2026-05-01T10:00:00.000+00:00","status":400,"error":"Bad Request","path":"/v1/chat/completions"}',
    b'{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}',
]
"""OpenRouter: OmniRoute#3044; Google: gemini-cli#15366; the error page
of Spring Boot; the rest are gateways."""


@pytest.mark.parametrize("status", [400, 413])
@pytest.mark.parametrize("refusal", BARE)
async def test_a_refusal_that_names_no_cause_is_bare_whatever_it_is_wrapped_in(
    tmp_path: Path, refusal: bytes, status: int
) -> None:
    body = conversation(9_500)
    async with staged(tmp_path) as stage:
        stage.model.plays(saying(status, refusal), accepting)
        assert (await stage.ask(body)).attempts == "2"
        stage.model.plays(saying(status, refusal), saying(status, refusal))
        assert (await stage.ask(body)).body == refusal
        stage.model.plays(saying(status, refusal))
        assert (await stage.ask(conversation(900))).attempts == "1"
    async with staged(tmp_path / "known", **window(200_000)) as stage:
        stage.model.plays(saying(status, refusal))
        answer = await stage.ask(body)
        assert (answer.status, answer.body, answer.attempts) == (status, refusal, "1")


async def test_a_reply_that_is_cut_before_its_first_token_is_tried_again_shorter(stage: Stage) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    usage = {"prompt_tokens": 9_500, "completion_tokens": 0, "total_tokens": 9_500}
    cut = json.dumps({"choices": [choice], "usage": usage}).encode()
    stage.model.plays(saying(200, cut), accepting)
    answer = await stage.ask(conversation(9_500))
    assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
    stage.model.plays(saying(200, cut))
    assert (await stage.ask(conversation(9_500, model="snug/other", max_tokens=1))).body == cut


ROLE = b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
CUT = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":9500,"completion_tokens":0,"total_tokens":9500}}\n\n'
)


@pytest.mark.parametrize("end", [CUT + b"data: [DONE]\n\n", b"data: [DONE]\n\n"], ids=["cut", "no word of a finish"])
async def test_a_stream_that_ends_behind_its_role_is_tried_again_shorter(stage: Stage, end: bytes) -> None:
    body = conversation(9_500, stream=True)
    stage.model.plays(streaming(ROLE, end), accepting)
    answer = await stage.ask(body)
    assert (answer.status, answer.body, answer.attempts) == (200, STREAM, "2")
    stage.model.plays(streaming(ROLE, ROLE, STREAM))
    answer = await stage.ask(conversation(900, stream=True))
    assert (answer.status, answer.body, answer.attempts) == (200, ROLE + ROLE + STREAM, "1")


ENDED = b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
USED = b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":9500,"completion_tokens":%d}}\n\n'


@pytest.mark.parametrize(("spent", "attempts"), [(0, "2"), (40, "1")])
async def test_the_usage_that_comes_behind_a_cut_says_whether_the_reply_had_begun(
    stage: Stage, spent: int, attempts: str
) -> None:
    """In reads of their own, as most servers send them; what was spent without a word was reasoning."""
    reads = [ROLE, ENDED, b": still here\n\n", USED % spent, b"data: [DONE]\n\n"]
    stage.model.plays(streaming(*reads), accepting)
    answer = await stage.ask(conversation(9_500, stream=True))
    assert (answer.status, answer.attempts) == (200, attempts)
    assert answer.body == (STREAM if attempts == "2" else b"".join(reads))


async def taken_shorter(stage: Stage, tokens: int) -> int:
    """Have a request refused without a word, and half of it taken; the tokens that were refused."""
    stage.model.plays(saying(400, b""), accepting)
    assert (await stage.ask(conversation(tokens, model="m"))).status == 200
    return estimate(stage.model.bodies[0])


async def test_a_400_without_a_word_teaches_only_when_less_was_taken(stage: Stage) -> None:
    for _ in range(3):
        stage.model.plays(saying(400, b""), saying(400, b""))
        await stage.ask(conversation(9_500, model="m"))
    stage.model.plays(accepting)
    await stage.ask(conversation(9_500, model="m"))
    assert estimate(stage.model.bodies[0]) > 9_000, "nothing was learned"
    refused = await taken_shorter(stage, 9_500)
    taken = stage.model.bodies[1]
    stage.model.plays(accepting)
    answer = await stage.ask(conversation(9_500, model="m"))
    assert answer.attempts == "1"
    assert stage.model.bodies == [taken]
    assert estimate(taken) <= refused / 2


async def test_what_was_concluded_and_is_still_too_much_is_tried_again_shorter(stage: Stage) -> None:
    refused = [await taken_shorter(stage, tokens) for tokens in (40_000, 40_000, 50_000)]
    assert refused == sorted(refused, reverse=True), "each time less"
