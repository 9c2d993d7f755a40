"""The lines of the log about a plan."""

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.planners import TENANT, body, planner, run
from support.strategies import system, user

from proxy.shell.telemetry import Recorder
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry.recorder import MAX_RANGES, WARNING_SECONDS, ranges
from proxy.wire.chat_completions import CHAT_COMPLETIONS


async def planned(turns, size=60, **members):
    return await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(turns, size), **members))


def logged(plan):
    recorder = Recorder(Metrics())
    with capture_logs() as log:
        record = recorder.begin("req")
        record.note_plan(plan)
        recorder.plan_made(record, plan)
    return log


async def test_each_changed_message_is_one_line_and_the_summary_names_them_and_their_artifacts():
    plan = await planned(80)
    log = logged(plan)
    (summary,) = [line for line in log if line["event"] == "request_planned"]
    lines = [line for line in log if line["event"] == "edit"]
    saved = sum(line["tokens_before"] - line["tokens_after"] for line in lines)
    assert saved == sum(block.tokens_before - block.tokens_after for block in plan.plan.blocks)
    gone = [line["message"] for line in lines if line["reasons"] == ("old_exchange",)]
    assert summary["left_out"] == f"{gone[0]}-{gone[-1]}"
    assert len(gone) == summary["messages_dropped"] == gone[-1] - gone[0] + 1
    (noted,) = [line for line in lines if "omission_note" in line["reasons"]]
    assert summary["changed"].split(",")[0] == str(noted["message"])
    assert noted["role"]
    assert {name for line in lines for name in line["artifacts"]} == set(summary["artifacts"])
    assert summary["artifacts"][0].startswith("tool_messages_")


async def test_a_change_of_the_request_itself_is_in_the_summary_and_no_message_has_a_line():
    assert "request_planned" not in [line["event"] for line in logged(await planned(1, 2))]
    log = logged(await planned(1, 2, max_tokens=50_000))
    (summary,) = [line for line in log if line["event"] == "request_planned"]
    assert (summary["edits"], summary["changed"], summary["left_out"]) == ({"clamp_reply": 1}, "", "")
    assert "edit" not in [line["event"] for line in log]


async def test_the_first_cut_of_a_conversation_is_one_line_that_says_whose_it_is_at_which_turn_and_what_it_lost():
    recorder = Recorder(Metrics())
    with capture_logs() as log:
        for turns in (1, 80, 81):
            record = recorder.begin(f"req-{turns}")
            record.client = "crush"
            plan = await planned(turns)
            record.note_plan(plan)
            recorder.plan_made(record, plan)
    (line,) = [line for line in log if line["event"] == "conversation_cut"]
    assert (line["request_id"], line["client"], line["model"], line["turn"]) == ("req-80", "crush", "m", 81)
    assert line["conversation"] == plan.last_sent.conversation
    assert line["edits"]["old_exchange"] > 1
    assert line["tokens_before"] > line["room_tokens"] >= line["tokens_after"]


async def test_a_warning_that_repeats_for_a_model_comes_once_in_a_while_with_a_count(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr("proxy.shell.telemetry.recorder.time.monotonic", lambda: now[0])
    recorder = Recorder(Metrics())
    with capture_logs() as log:
        for number in range(7):
            now[0] += WARNING_SECONDS / 4
            record = recorder.begin(f"req-{number}")
            content = body([system("word " * 3_500), user(f"{number}")])
            plan = await planner().plan(CHAT_COMPLETIONS, TENANT, content)
            record.note_plan(plan)
            recorder.plan_made(record, plan)
    told = [line for line in log if line["event"] == "system_text_long"]
    assert [(line["request_id"], line["times"]) for line in told] == [("req-0", 1), ("req-4", 4)]


async def test_the_lines_of_one_plan_are_bounded(monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.recorder.MAX_EDIT_LINES", 2)
    log = logged(await planned(80))
    assert len([line for line in log if line["event"] == "edit"]) == 2


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_each_number_or_say_that_there_are_more(numbers):
    text = ranges(sorted(numbers))
    found: set[int] = set()
    for part in text.removesuffix(",…").split(",") if text else []:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers or (text.endswith(",…") and found < numbers and text.count(",") == MAX_RANGES)
