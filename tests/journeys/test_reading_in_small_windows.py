"""While the proxy reads for a model, what the model works on stays: the newest exchange, and every page it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.upstream import Call, Over, Reply, ScriptedModel, reads, thinking

from proxy.demo import prompt_tokens

TASK = "Find the row that is wrong. " + "Read everything. " * 30
FETCH = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
NEWEST = long_text(120, "newest")
PAGES = 5


def run(exchanges: int) -> dict[str, Any]:
    """A run of an agent whose last result stays whole, and which fills any of the windows here."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for number in range(exchanges):
        lines = 4_000 if number == exchanges - 1 else 250
        messages += [call(number, "fetch"), result(number, long_text(lines, f"log-{number}"))]
    messages += [call(exchanges, "fetch"), result(exchanges, NEWEST)]
    return {"model": "m", "messages": messages, "tools": [FETCH]}


class Reader:
    """A model that reads page after page, and calls the agent's tool once it has read enough or has to continue."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.shown: list[list[str]] = []
        """The results of its readings in each of its requests."""

    def __call__(self, messages: Sequence[dict[str, Any]]) -> Reply:
        own = {one["id"] for m in messages for one in m.get("tool_calls") or () if one["function"]["name"] != "fetch"}
        pages = [m["content"] for m in messages if m["role"] == "tool" and m["tool_call_id"] in own]
        self.shown.append(pages)
        if len(pages) == PAGES or (pages and "no room for a page" in pages[-1]):
            return Reply("", (Call("fetch", {"page": 9}),))
        name = min(name for name in self._world.kept if name.startswith("tool_fetch_"))
        return reads(name, lines=f"{1 + 400 * len(pages)}-{400 + 400 * len(pages)}")


def becomes(upstream: ScriptedModel, limit: int, model: Reader, *, numbered: bool = True) -> None:
    """Give an upstream this mind, and a window of its own, whatever the settings say. It counts the messages."""
    numbers = "This model's maximum context length is {limit} tokens. Your messages resulted in {seen} tokens."
    said = numbers if numbered else "Input is too long."
    upstream.rules = [Over("prompt", limit, said, members={"code": "context_length_exceeded"})]
    upstream.says = thinking(model)
    upstream.counts = lambda body, _: prompt_tokens(body["messages"])


def assert_nothing_left(world: World, model: Reader) -> None:
    for received in world.upstream.sent:
        contents = [message["content"] for message in received.messages]
        assert any(content and TASK in content for content in contents)
        assert any(content and NEWEST in content for content in contents), "the newest exchange"
    for before, after in zip(model.shown, model.shown[1:], strict=False):
        assert after[: len(before)] == before, "every page that was read"


@pytest.mark.parametrize("window", [8_000, 16_000, 32_000])
@pytest.mark.parametrize("exchanges", [1, 30])
def test_pages_never_push_out_what_the_model_works_on(window: int, exchanges: int, build: Any) -> None:
    world = build(window)
    model = Reader(world)
    becomes(world.upstream, window, model)
    answer = world.ask(run(exchanges))
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"].get("content")) == ("tool_calls", None)
    assert_nothing_left(world, model)
    assert len(model.shown[-1]) > 1
    assert all(prompt_tokens(received.messages) <= window for received in world.upstream.sent)


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "without a number"])
def test_a_refused_round_gives_up_its_page_and_nothing_that_the_model_works_on(numbered: bool, build: Any) -> None:
    world = build(16_000, defaults={"context_window": 32_000})
    model = Reader(world)
    becomes(world.upstream, 16_000, model, numbered=numbered)
    reported = world.ask(run(12))
    assert reported.status_code == 200, reported.text
    assert reported.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert_nothing_left(world, model)
