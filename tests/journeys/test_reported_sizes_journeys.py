"""Sizes reported to clients and operators are in the model's tokens, whatever the proxy's own estimate."""

from __future__ import annotations

from typing import Any

import pytest
from support.journey import World
from support.upstream import ScriptedModel

WINDOW = 16_000
QUESTION = "Which of these reports names the unit that failed? "


def counting(share: float) -> ScriptedModel:
    """A model that counts so many tokens for one of the estimate's."""
    return ScriptedModel(
        counts=lambda body, _: int(share * sum(len(str(one["content"])) for one in body["messages"]) / 4.4)
    )


def prose(words: int) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": QUESTION * (words // 9)}], "max_tokens": 500}


def header_sizes(header: str) -> dict[str, int]:
    return {name: int(tokens) for name, tokens in (pair.split("=") for pair in header.split(";"))}


def taught(build: Any, share: float) -> World:
    """A world whose model counts otherwise than the estimate, and has taught it."""
    world: World = build(behind=counting(share), models=[{"match": "*", "context_window": WINDOW}])
    for _ in range(4):
        world.ask(prose(3_000))
    assert [line["value"] for line in world.logged("lesson_learned")] != [1.0]
    return world


@pytest.mark.parametrize("share", [0.85, 1.6], ids=["fewer", "more"])
def test_header_log_and_decisions_report_sizes_in_the_models_tokens(share: float, build: Any) -> None:
    world = taught(build, share)
    answer = world.ask(prose(7_000))
    sizes = header_sizes(answer.headers["x-context-proxy-tokens"])
    counted = answer.json()["usage"]["prompt_tokens"]
    assert sizes["after"] == pytest.approx(counted, rel=0.1)
    assert sizes["after"] <= sizes["room"] <= WINDOW
    line = world.logged("request_done", 5)[-1]
    assert sizes == {"before": line["tokens_before"], "after": line["tokens_after"], "room": line["room_tokens"]}
    page = world.proxies[0].removesuffix("/v1")
    shown = world.client.get(f"{page}/decisions/{line['request_id']}").json()
    decision = shown["record"]
    assert (decision["tokens_before"], decision["room_tokens"]) == (sizes["before"], sizes["room"])
    assert sum(block["tokens_after"] for block in shown["blocks"]) == pytest.approx(sizes["after"], abs=5)
    explained = world.client.post(f"{page}/explain", json=prose(7_000)).json()
    assert explained["size"]["tokens"] == {"before": sizes["before"], "after": sizes["after"]}
    assert explained["room"]["tokens"] == sizes["room"]


def test_no_reported_room_is_larger_than_the_window(build: Any) -> None:
    world = taught(build, 0.85)
    system = {"role": "system", "content": QUESTION * 4_000}
    answer = world.ask({"model": "m", "messages": [system, {"role": "user", "content": "Go."}], "max_tokens": 500})
    sizes = header_sizes(answer.headers["x-context-proxy-tokens"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert sizes["room"] <= WINDOW < sizes["after"]
    message = answer.json()["error"]["message"]
    assert f"{sizes['room']:,}" in message
    assert f"({sizes['after']} in the messages, " in message
