"""What an operator can learn about a request from the log alone."""

from __future__ import annotations

from typing import Any

from support.journey import growing, long_text, one_call

TASK = "canary of content " * 30


def test_every_line_that_a_request_causes_carries_its_id(build: Any) -> None:
    world = build()
    world.ask(one_call(long_text(9_000)), x_request_id="mine")
    world.logged("request_done")
    for event in ("artifact_saved", "tool_output_truncated", "model_limits", "request_planned", "edit", "request_done"):
        assert {line["request_id"] for line in world.log(event)} == {"mine"}, event


def test_the_lines_of_a_second_send_say_what_it_changes(build: Any) -> None:
    world = build(6_000, defaults={})
    assert world.ask(growing(12, TASK), x_request_id="twice").status_code == 200
    world.logged("request_done")
    (again,) = world.log("overflow_retried")
    assert again["tokens_after"] <= again["goal_tokens"], "the goal that was used"
    assert again["left_out"]
    assert again["artifacts"]
    assert again["edits"]["old_exchange"] == again["messages_dropped"]
    edits = [line for line in world.log("edit") if line["attempt"] == 2]
    assert {"old_exchange", "omission_note"} <= {reason for line in edits for reason in line["reasons"]}
    assert {line["request_id"] for line in world.log("lesson_learned")} == {"twice"}
    assert "canary" not in world.log_text


def test_the_limits_of_a_model_are_logged_when_first_used_and_when_others_hold(build: Any) -> None:
    world = build(6_000, defaults={})
    for _ in range(3):
        world.ask(one_call("short"))
    world.logged("request_done", 3)
    (guessed,) = world.log("model_limits")
    assert (guessed["window_tokens"], guessed["window_from"], guessed["window_is"]) == (128_000, "default", "guessed")
    for _ in range(2):
        world.ask(growing(12, TASK))
    world.logged("request_done", 5)
    _, learned = world.log("model_limits")
    assert (learned["window_tokens"], learned["window_is"]) == (6_000, "learned")


def test_above_the_level_debug_an_edit_has_no_line_of_its_own(build: Any) -> None:
    world = build(log={"format": "json", "level": "info"})
    world.ask(one_call(long_text(9_000)))
    world.logged("request_done")
    (line,) = world.log("request_planned")
    assert (line["changed"], world.log("edit")) == ("3", [])
