"""The task reaches the model in every request, whatever protocol an agent speaks and whatever is said last."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.media_samples import png

from proxy.core.notices import MARK

WINDOW = 8_000
TASK = "Find out why build 4711 is red. Report the first commit that broke it. " + "Read every log. " * 20
Say = Callable[[int], tuple[str, str]]
"""Turn → what the agent says, and what its tool prints."""


def mini_swe(turn: int) -> tuple[str, str]:
    output = f"<returncode>0</returncode>\n<output>\n{long_text(40 + turn % 9 * 10, f'log-{turn}')}</output>"
    return f"THOUGHT: look at build {turn}.\n```bash\ncat build-{turn}.log\n```", output


def smolagents(turn: int) -> tuple[str, str]:
    return (
        f"Thought: next.\n<code>read({turn})</code>",
        f"Call id: {turn}\nObservation:\n{long_text(60, f'row-{turn}')}",
    )


def own_loop(turn: int) -> tuple[str, str]:
    return f"RUN read {turn}", f"[step {turn} has finished]\n{long_text(70, f'line-{turn}')}"


def bare(turn: int) -> tuple[str, str]:
    return f"cat log {turn}", long_text(70, f"only-{turn}")


def run_by_text(world: World, turns: int, say: Say) -> None:
    """An agent whose tools answer in user messages."""
    messages = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": TASK}]
    for turn in range(turns):
        answer = world.ask({"model": "m", "messages": messages})
        assert answer.status_code == 200, f"turn {turn}: {answer.text}"
        words, output = say(turn)
        messages += [{"role": "assistant", "content": words}, {"role": "user", "content": output}]


@pytest.mark.parametrize(("say", "turns"), [(mini_swe, 150), (smolagents, 60), (own_loop, 60), (bare, 60)])
def test_the_task_is_in_every_request_of_a_run_by_text_protocol(say: Say, turns: int, build: Any) -> None:
    world = build(WINDOW)
    run_by_text(world, turns, say)
    assert len(world.upstream.sent) == turns
    for received in world.upstream.sent:
        roles = [message["role"] for message in received.messages]
        assert received.messages[1]["content"].removeprefix("[context-proxy: ").endswith(TASK)
        assert roles[:2] == ["system", "user"]
        assert all(one != other for one, other in pairwise(roles[1:])), "roles by turns"


@pytest.mark.parametrize("say", [mini_swe, smolagents, own_loop])
def test_no_output_is_quoted_as_a_users_request(say: Say, build: Any) -> None:
    world = build(WINDOW)
    run_by_text(world, 40, say)
    bodies = [received.body.decode() for received in world.upstream.sent]
    assert any(f"{MARK}" in body and "earlier messages" in body for body in bodies)
    assert not any("What the user said in them" in body for body in bodies)


def test_a_command_goes_with_its_own_output(build: Any) -> None:
    world = build(WINDOW)
    run_by_text(world, 40, mini_swe)
    for received in world.upstream.sent:
        contents = [message["content"] for message in received.messages[2:]]
        for words, output in zip(contents[::2], contents[1::2], strict=True):
            turn = words.partition("look at build ")[2].partition(".")[0]
            assert f"log-{turn} 0:" in output or MARK in output


def test_the_task_is_in_every_request_of_a_run_with_calls_and_several_users(build: Any) -> None:
    world = build(WINDOW)
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for turn in range(130):
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
        messages += [call(turn, "read_log"), result(turn, long_text(50 + turn % 7 * 10, f"log-{turn}"))]
        if turn % 40 == 39:
            messages += [{"role": "assistant", "content": f"Part {turn} is done."}]
            messages += [{"role": "user", "content": f"And now look at part {turn}."}]
    for received in world.upstream.sent:
        assert received.messages[0]["content"].endswith(TASK)


def test_of_a_task_that_is_longer_than_a_tenth_of_the_room_beginning_and_end_stay_and_the_whole_is_kept(
    build: Any,
) -> None:
    world = build(WINDOW)
    task = f"BEGIN {TASK * 12} END"
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}, {"role": "assistant", "content": "Done."}]
    messages += [{"role": "user", "content": "Now the logs."}]
    for turn in range(40):
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
        messages += [call(turn, "read_log"), result(turn, long_text(60, f"log-{turn}"))]
    reported = world.upstream.last.messages[0]["content"]
    assert reported.startswith("BEGIN ")
    assert reported.endswith(" END")
    assert 400 * 3 < len(reported) < 800 * 4
    assert task.encode() in world.upstream.last.files.values()


@pytest.mark.parametrize(
    "pasted", [long_text(3_000), "字" * 40_000, "x y " * 30_000], ids=["lines", "Chinese", "one line"]
)
def test_a_last_user_message_that_does_not_fit_is_cut_in_its_middle_and_kept_whole(pasted: str, build: Any) -> None:
    world = build(WINDOW)
    question = f"What is wrong here? {pasted} Answer in one sentence."
    answer = world.ask({"model": "m", "messages": [{"role": "user", "content": question}]})
    assert answer.status_code == 200
    (message,) = world.upstream.last.messages
    assert message["content"].startswith("What is wrong here? ")
    assert message["content"].endswith(" Answer in one sentence.")
    assert message["content"].count(MARK) == 1
    assert world.upstream.last.files[next(iter(world.kept))] == question.encode()
    assert answer.headers["x-context-proxy-edits"] == "newest_text=1;retrieval_tool=1"


def test_where_the_only_other_message_is_an_image_the_note_has_a_part_of_its_own(build: Any) -> None:
    world = build(WINDOW, models=[{"match": "m", "context_window": WINDOW, "input": ["text", "vision"]}])
    url = f"data:image/png;base64,{base64.b64encode(png(64, 64)).decode()}"
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    messages: list[dict[str, Any]] = [picture]
    for turn in range(30):
        messages += [{"role": "assistant", "content": f"answer {turn} " * 90}, picture]
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
    sent = world.upstream.last
    assert len(sent.messages) < len(messages)
    notes = [part for message in sent.messages for part in message["content"] if isinstance(part, dict)]
    assert (
        sum("earlier messages" in part.get("text", "") for part in notes)
        + sum(
            "earlier messages" in message["content"] for message in sent.messages if isinstance(message["content"], str)
        )
        == 1
    )


def test_of_twelve_images_in_a_small_window_as_many_are_described_as_have_to_be(build: Any) -> None:
    world = build(WINDOW, models=[{"match": "m", "context_window": WINDOW, "input": ["text", "vision"]}])
    url = f"data:image/png;base64,{base64.b64encode(png(1_280, 800)).decode()}"
    shots = [{"type": "image_url", "image_url": {"url": url}} for _ in range(12)]
    messages = [{"role": "user", "content": [{"type": "text", "text": "What do they show?"}, *shots]}]
    answer = world.ask({"model": "m", "messages": messages})
    assert answer.status_code == 200
    sent = json.dumps(world.upstream.last.messages)
    assert "What do they show?" in sent
    described = sent.count("[cannot read]")
    assert 0 < described < 12, "the newest are shown while there is room"
    assert sent.count('"image_url": {') == 12 - described
    assert len(world.kept) == 1


@pytest.mark.parametrize("window", [600, 1_000, 2_000, 3_000])
def test_prompt_and_reply_share_the_smallest_window(window: int, build: Any) -> None:
    world = build(defaults={"context_window": window})
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for turn in range(20):
        answer = world.ask({"model": "m", "messages": messages, "max_tokens": 2_500})
        assert answer.status_code == 200, answer.text
        after = re.search(r"after=(\d+)", answer.headers["x-context-proxy-tokens"])
        assert after is not None
        assert int(after[1]) + json.loads(world.upstream.last.body)["max_tokens"] <= window
        messages += [call(turn), result(turn, long_text(8, f"log-{turn}"))]


def test_a_result_of_the_common_shape_stays_one_under_every_later_cut(build: Any) -> None:
    world = build(WINDOW)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for turn in range(30):
        response = {"status": "success", "data": {"count": turn}, "text": long_text(400, f"log-{turn}")}
        messages += [call(turn), result(turn, json.dumps(response))]
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
        for message in world.upstream.last.messages:
            if message["role"] == "tool":
                shown = json.loads(message["content"])
                assert shown["status"] in ("success", "partial")
                assert "data" in shown


def test_left_out_reasoning_is_named(build: Any) -> None:
    world = build(WINDOW)
    thought = "because of this and that " * 200
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for turn in range(12):
        messages += [{"role": "assistant", "content": f"answer {turn}", "reasoning_content": thought}]
        messages += [{"role": "user", "content": f"And {turn}?"}]
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
    reported = [
        message["reasoning_content"] for message in world.upstream.last.messages if "reasoning_content" in message
    ]
    left_out = [text for text in reported if text.startswith(MARK)]
    assert left_out
    assert all(any(name in text for name in world.kept) for text in left_out)


def old_words(kind: str) -> list[dict[str, Any]]:
    """A first turn whose only exchange always stays, and is long."""
    arguments = json.dumps({"path": "a.py", "content": long_text(400, "old")}) if kind == "arguments" else "{}"
    write = call(0, "write", arguments) | ({"content": long_text(400, "old")} if kind == "text" else {})
    task = TASK + (long_text(900, "task") if kind == "task" else "")
    return [{"role": "user", "content": task}, write, result(0, "written"), {"role": "user", "content": "Now the log."}]


@pytest.mark.parametrize("kind", ["arguments", "text", "task"])
@pytest.mark.parametrize("window", [4_000, 8_000])
def test_the_newest_result_is_shown_before_what_is_old_stays_whole(kind: str, window: int, build: Any) -> None:
    world = build(window)
    messages = [*old_words(kind), call(1, "read_log"), result(1, long_text(58, "newest"))]
    assert world.ask({"model": "m", "messages": messages}).status_code == 200
    assert world.upstream.last.messages[-1]["content"].count("newest ") == 58
