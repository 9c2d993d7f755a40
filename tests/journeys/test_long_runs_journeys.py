"""Long agent runs over small windows: every request is answered, and the prefix stays warm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.upstream import Answer, Sent

WINDOW = 8_000
SYSTEM = {"role": "system", "content": "You find out why the build is red. Never touch the main branch."}
NOTHING_LEARNED = {"enabled": False}
"""For what holds between two lessons: a new ratio moves the cuts once."""
TASK = {"role": "user", "content": "Why is build 4711 red? Look at every log until you know."}


def run(world: World, turns: int, *, proxies: int = 1, result_lines: int = 120) -> list[dict[str, Any]]:
    """An agent that calls a tool or two each turn, over one or several proxies in turns; its conversation."""
    messages: list[dict[str, Any]] = [SYSTEM, TASK]
    for turn in range(turns):
        answer = world.ask({"model": "m", "messages": messages}, proxy=turn % proxies)
        assert answer.status_code == 200, f"turn {turn}: {answer.text}"
        number = 10 * turn
        message = call(number, "read_log", json.dumps({"build": turn}))
        message["content"] = f"Step {turn}: the log of build {turn}."
        messages = [*messages, message]
        if turn % 5 == 4:
            message["tool_calls"].append(call(number + 1, "bash")["tool_calls"][0])
            messages.append(result(number + 1, f"exit status {turn}"))
        messages.append(result(number, long_text(result_lines + turn % 7 * 20, f"build-{turn}")))
    return messages


def test_sixty_turns_over_a_small_window_are_all_answered(build: Any) -> None:
    world = build(WINDOW)
    messages = run(world, 60)
    # The model server refuses what is not paired or over its window: each of these was taken.
    assert len(world.upstream.sent) == 60
    assert len(json.dumps(messages)) > 5 * WINDOW * 4
    for received in world.upstream.sent:
        assert received.messages[0] == SYSTEM
        assert [message for message in received.messages if message["role"] == "user"][-1]["content"].endswith(
            TASK["content"]
        )
        assert len(received.messages) > 2 or received is world.upstream.sent[0]


def test_between_two_cuts_the_prefix_is_the_very_same(build: Any) -> None:
    world = build(WINDOW, learning=NOTHING_LEARNED)
    run(world, 60, result_lines=30)
    cuts = 0
    for before, after in zip(world.upstream.sent, world.upstream.sent[1:], strict=False):
        kept = _before_the_list_ends(before.body)
        if not after.body.startswith(kept):
            cuts += 1
            assert len(after.body) < len(kept), "a prefix is given up for room alone"
    assert 3 <= cuts <= 16, "a cut makes room for several turns"


def _before_the_list_ends(body: bytes) -> bytes:
    body = body.partition(b'],"tools":[')[0] + b"]}" if b'"tools":' in body else body
    assert body.endswith(b"]}")
    return body[:-2]


def test_a_cut_says_where_what_is_left_out_is_kept(build: Any) -> None:
    world = build(WINDOW)
    messages = run(world, 30)
    world.ask({"model": "m", "messages": messages})
    sent = world.upstream.last.body.decode()
    named = [name for name in world.upstream.last.files if name in sent]
    assert named
    newest = next(name for name in named if name.endswith(".json"))
    kept = json.loads(world.kept[newest])
    found = list(kept["messages"])
    for name in kept["earlier"]:
        found = [*json.loads(world.kept[name])["messages"], *found]
    sent_messages = world.upstream.last.messages
    missing = [message for message in messages if message["role"] == "tool" and message not in found]
    assert all(
        any(message["tool_call_id"] == one.get("tool_call_id") for one in sent_messages) for message in missing
    ), "what is neither sent nor kept is lost"


def test_two_workers_over_one_folder_send_the_same_bytes(build: Any) -> None:
    alone = build(WINDOW, learning=NOTHING_LEARNED)
    run(alone, 40)
    bodies = [received.body for received in alone.upstream.sent]
    alone.upstream.sent.clear()
    restarted = build(WINDOW, proxies=[{}, {}], learning=NOTHING_LEARNED)
    run(restarted, 40, proxies=2)
    assert [received.body for received in restarted.upstream.sent] == bodies


def test_what_cannot_fit_is_refused_at_once_with_its_sizes_and_never_sent(build: Any) -> None:
    world = build(WINDOW)
    rules = {"role": "system", "content": long_text(3_000)}
    answer = world.ask({"model": "gpt-4o", "messages": [rules, {"role": "user", "content": "Go."}]})
    assert (answer.status_code, world.upstream.sent) == (400, [])
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "messages[0] (system, " in error["message"]
    assert error["message"].startswith("This model's maximum context length is 8000 tokens. However, you requested ")
    assert "line 17" not in error["message"]
    assert answer.headers["x-context-proxy-tokens"].startswith("before=")
    done = world.logged("request_done")[0]
    assert (done["outcome"], done["sent_bytes"], done["level"]) == ("context_length_exceeded", 0, "warning")


@pytest.mark.usefixtures("counted_as_gpt_4o")
def test_a_window_smaller_than_stated_is_discovered_transparently_and_remembered(build: Any) -> None:
    world = build(8_000, defaults={"context_window": None}, models=[])
    messages = [SYSTEM, TASK]
    for number in range(12):
        messages += [call(number), result(number, long_text(100, f"log-{number}"))]
    first = world.ask({"model": "gpt-4o", "messages": messages})
    assert (first.status_code, first.headers["x-context-proxy-attempts"]) == (200, "2")
    assert len(world.upstream.sent) == 2
    assert len(world.upstream.sent[1].body) < len(world.upstream.sent[0].body)
    assert world.logged("overflow_detected")[0]["limit"] == 8_000


def _always_too_long(sent: Sent) -> Answer:
    message = "This model's maximum context length is 8000 tokens. However, your messages resulted in 9000 tokens."
    return sent.face.error(message, code="context_length_exceeded", param="messages")


def test_an_upstream_that_always_refuses_gets_at_most_two_sends(build: Any) -> None:
    world = build(8_000, _always_too_long)
    messages = [SYSTEM, TASK]
    for number in range(4):
        messages += [call(number), result(number, long_text(100, f"log-{number}"))]
    answer = world.ask({"model": "m", "messages": messages})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert 1 <= len(world.upstream.sent) <= 2


@pytest.mark.parametrize(
    ("limit", "measure"), [("max_request_chars", lambda body: len(body.decode())), ("max_request_bytes", len)]
)
def test_limits_of_characters_and_bytes_hold_for_what_is_sent(limit: str, measure: Any, build: Any) -> None:
    world = build(128_000, defaults={"context_window": 128_000, limit: 40_000})
    messages = [SYSTEM, TASK]
    for number in range(30):
        messages += [call(number), result(number, long_text(150, f"日志-{number}"))]
        answer = world.ask({"model": "m", "messages": messages})
        assert answer.status_code == 200
        sent = json.loads(world.upstream.last.body)
        texts = "".join(str(message["content"]) for message in sent["messages"])
        assert measure(texts.encode()) <= 40_000
    if limit == "max_request_bytes":  # characters are those that the model reads, not those of JSON's escapes
        assert measure(world.upstream.last.body) <= 40_000
    assert "old_exchange" in answer.headers["x-context-proxy-edits"]
