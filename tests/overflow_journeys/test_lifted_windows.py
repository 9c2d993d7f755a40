"""Claude Code's `claude-…[1m]`: a header of the request lifts the window of its model. The windows here are a tenth of
the real ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.overflow_stage import Stage, staged
from support.upstream.scenes import saying
from support.upstream.sockets import Connection, Request

from proxy.core.tokens import ByteClassCounter
from proxy.shell.models import Catalogue
from proxy.wire import ModelLimits

LIFT = {"anthropic_beta": "claude-code-20250219,context-1m-2025-08-07"}
WORDS = "the unit started and wrote its state, then it waited for the next message; "
REPLY = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}


def turn(tokens: int) -> bytes:
    """A request of about so many tokens, which begins as the shorter ones do."""
    messages = [{"role": "user", "content": "Look at the log."}]
    for number in range(tokens // 1_000):
        messages.append({"role": "assistant", "content": f"{number}: {WORDS * 50}"})
        messages.append({"role": "user", "content": f"And {number + 1}?"})
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": messages}).encode()


def estimate(body: bytes) -> int:
    return ByteClassCounter().count(body.decode())


def taking(plain_tokens: int, lifted_tokens: int) -> Any:
    """A model server with these two windows, which counts as the estimate does."""

    async def scene(connection: Connection, request: Request) -> None:
        is_lifted = any(b"context-1m" in value for value in request.values(b"anthropic-beta"))
        limit, tokens = lifted_tokens if is_lifted else plain_tokens, estimate(request.body)
        if tokens > limit:
            words = {
                "type": "invalid_request_error",
                "message": f"prompt is too long: {tokens} tokens > {limit} maximum",
            }
            await saying(400, json.dumps({"type": "error", "error": words}).encode())(connection, request)
        else:
            usage = {"input_tokens": tokens, "output_tokens": 2}
            reply = {**REPLY, "content": [{"type": "text", "text": "Done."}], "usage": usage}
            await saying(200, json.dumps(reply).encode())(connection, request)

    return scene


@asynccontextmanager
async def claude(folder: Path, monkeypatch: pytest.MonkeyPatch, window_tokens: int) -> AsyncIterator[Stage]:
    """A stage of the Messages API, for which the catalogue states this window."""
    stated = ModelLimits(window_tokens=window_tokens), "catalogue anthropic"
    monkeypatch.setattr(Catalogue, "find", lambda *_: stated)
    async with staged(folder) as stage:
        stage.url = stage.url.replace("/chat/completions", "/messages")
        yield stage


async def sends(stage: Stage, tokens: int, plain_tokens: int, lifted_tokens: int, **headers: str) -> list[int]:
    """The sizes of what is sent for one turn that the client gets a reply to."""
    scene = taking(plain_tokens, lifted_tokens)
    stage.model.plays(scene, scene, scene)
    assert (await stage.ask(turn(tokens), **headers)).status == 200
    return [estimate(body) for body in stage.model.bodies]


async def test_a_conversation_that_lifts_its_window_grows_past_the_catalogues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with claude(tmp_path, monkeypatch, 20_000) as stage:
        for tokens in range(14_000, 40_000, 3_000):
            size = estimate(turn(tokens))
            assert await sends(stage, tokens, 20_000, 100_000, **LIFT) == [size]
            (fitted,) = await sends(stage, tokens, 20_000, 100_000)
            assert fitted == size if size < 15_000 else fitted < 20_000


async def test_a_lifted_window_that_the_upstream_does_not_grant_is_learned_from_one_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with claude(tmp_path, monkeypatch, 20_000) as stage:
        first, second = await sends(stage, 26_000, 20_000, 20_000, **LIFT)
        assert second < 20_000 < first
        for tokens in (28_000, 30_000, 34_000):
            (fitted,) = await sends(stage, tokens, 20_000, 20_000, **LIFT)
            assert fitted < 20_000


@pytest.mark.parametrize("is_lifted", [True, False], ids=["lifted", "plain"])
async def test_a_refusal_binds_only_requests_that_lift_the_window_as_the_refused_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lifted: bool
) -> None:
    refused, other = (LIFT, {}) if is_lifted else ({}, LIFT)
    limits = (90_000, 24_000) if is_lifted else (24_000, 90_000)
    async with claude(tmp_path, monkeypatch, 40_000) as stage:
        assert len(await sends(stage, 30_000, *limits, **refused)) == 2
        assert await sends(stage, 30_000, *limits, **other) == [estimate(turn(30_000))]
        (fitted,) = await sends(stage, 30_000, *limits, **refused)
        assert fitted < 24_000
