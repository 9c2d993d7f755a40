"""The lines of the log about a plan."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.planners import Models

from proxy.config import Settings
from proxy.core.models import ModelProfile
from proxy.shell.planning import Pipelines, Planner
from proxy.shell.telemetry import described_changes, edit_lines
from proxy.shell.telemetry.recorder import MAX_RANGES, ranges
from proxy.wire.chat_completions import CHAT_COMPLETIONS


def conversation(turns, lines=120):
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why?"}]
    for turn in range(turns):
        function = {"name": "bash", "arguments": "{}"}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}],
            }
        )
        text = "".join(f"turn {turn} line {number}\n" for number in range(lines))
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": text})
    return messages


async def planned(messages, window_tokens=8000, **members):
    planner = Planner(Pipelines(Settings()), Models(lambda model, _: ModelProfile(model, window_tokens)))
    body = json.dumps({"model": "m", "messages": messages, **members}).encode()
    return await planner.plan(CHAT_COMPLETIONS, b"tenant", body)


async def test_each_change_is_one_line_and_the_lines_together_say_what_the_plan_saves():
    plan = await planned(conversation(12))
    lines = list(edit_lines(plan))
    assert lines
    changed = [line for line in lines if "message" in line]
    saved = sum(line["tokens_before"] - line["tokens_after"] for line in changed)
    assert saved == plan.tokens_before - plan.tokens_after
    (gone,) = [line for line in changed if "last_message" in line]
    assert gone["reasons"] == ("old_exchange",)
    assert gone["tokens_after"] == 0
    assert all(name.startswith("tool_messages_") for name in gone["artifacts"])
    noted = next(line for line in changed if "omission_note" in line["reasons"])
    assert noted["role"]
    assert noted["artifacts"]


async def test_a_summary_names_the_messages_and_the_artifacts():
    summary = described_changes(await planned(conversation(12)))
    assert {"changed", "left_out", "artifacts"} <= set(summary)
    assert "-" in summary["left_out"]
    assert summary["artifacts"][0].startswith("tool_messages_")


async def test_nothing_is_said_of_what_is_sent_as_it_came():
    plan = await planned(conversation(1, 2))
    assert list(edit_lines(plan)) == []


async def test_a_change_of_the_request_itself_has_a_line_too():
    plan = await planned(conversation(1, 2), max_tokens=50_000)
    (line,) = edit_lines(plan)
    assert line["reasons"] == ("clamp_reply",)
    assert line["tokens_before"] == 50_000 > line["tokens_after"]


async def test_the_lines_of_one_plan_are_bounded_and_the_last_says_how_many_are_missing(monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.recorder.MAX_EDIT_LINES", 1)
    plan = await planned(conversation(12))
    lines = list(edit_lines(plan))
    assert len(lines) == 2
    assert lines[1]["not_told"] >= 1


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_each_number_or_say_that_there_are_more(numbers):
    text = ranges(sorted(numbers))
    found: set[int] = set()
    for part in text.removesuffix(",…").split(",") if text else []:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers or (text.endswith(",…") and found < numbers and text.count(",") == MAX_RANGES)
