from __future__ import annotations

from typing import Any

from proxy.core.compaction.budget import Budget
from proxy.core.conversation.tracked_message import MessageReport
from proxy.core.overflow.retry import Rung
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.recent import RecentDecisions, Recorded

BLOCKS = (
    MessageReport("system", "", 10, 10),
    MessageReport("tool", "bash", 500, 0, ("old_exchange",), ("tool_messages_0.json",)),
    MessageReport(
        "tool", "bash", 400, 150, ("truncate_tool_output", "omission_note"), ("tool_bash_1.txt", "tool_messages_0.json")
    ),
    MessageReport("user", "", 20, 30, ("omission_note",)),
)


def recorded(name: str = "req", blocks: tuple[MessageReport, ...] = BLOCKS, **members: Any) -> Recorded:
    return Recorded(0.0, {"request_id": name, **members}, blocks)


def ids(recent: RecentDecisions, limit: int = 1000) -> list[str]:
    return [one.line["request_id"] for one in recent.newest(limit)]


def test_the_newest_come_first_and_the_oldest_go():
    recent = RecentDecisions(max_decisions=3)
    for number in range(5):
        recent.add(recorded(str(number)))
    assert ids(recent) == ["4", "3", "2"]
    assert ids(recent, 2) == ["4", "3"]
    assert recent.find("1") is None


def test_what_is_remembered_is_bounded_in_bytes_whatever_comes():
    recent = RecentDecisions(max_bytes=1_000_000)
    for number in range(100):
        recent.add(recorded(str(number), BLOCKS * 200))
    assert 0 < len(recent) < 5
    recent.add(recorded("giant", BLOCKS * 100_000))
    assert len(recent) == 0
    recent.add(recorded("small", problem="x" * 500_000))
    recent.add(recorded("smaller", problem="x" * 600_000))
    assert ids(recent) == ["smaller"]


def test_of_two_requests_with_one_id_the_newer_is_found():
    recent = RecentDecisions()
    recent.add(recorded(outcome="first"))
    recent.add(recorded(outcome="second"))
    found = recent.find("req")
    assert found is not None
    assert found.line["outcome"] == "second"


def test_a_summary_tells_where_the_tokens_went():
    summary = recorded(model="m", edits={"old_exchange": 1}).summary()
    assert summary["message_tokens"] == {"kept": 180, "cut": 250, "left_out": 500}
    assert (summary["messages_left_out"], summary["model"]) == (1, "m")
    assert summary["ended"] == "1970-01-01T00:00:00.000+00:00"


def test_sizes_are_told_in_the_tokens_of_the_model():
    one = Recorded(0.0, {"request_id": "r", "edits": {"old_exchange": 1}}, BLOCKS, Budget(room_tokens=1_000, ratio=0.5))
    detail = one.detail()
    assert detail["message_tokens"] == {"kept": 90, "cut": 125, "left_out": 250}
    assert [block["tokens_before"] for block in detail["blocks"]] == [5, 250, 200, 10]


def test_a_detail_has_a_block_for_each_message():
    blocks = recorded().detail()["blocks"]
    assert [block["message"] for block in blocks] == [0, 1, 2, 3]
    assert blocks[1] == {
        "message": 1,
        "role": "tool",
        "tool": "bash",
        "tokens_before": 500,
        "tokens_after": 0,
        "reasons": ("old_exchange",),
        "artifacts": ("tool_messages_0.json",),
    }


def test_of_an_original_that_went_up_in_the_end_nothing_was_cut():
    detail = recorded(rung=Rung.ORIGINAL.value, edits={"old_exchange": 1}).detail()
    assert detail["message_tokens"] == {"kept": 930, "cut": 0, "left_out": 0}
    assert all(block["tokens_after"] == block["tokens_before"] and not block["reasons"] for block in detail["blocks"])


def test_a_request_without_a_plan_has_no_blocks():
    detail = recorded(blocks=()).detail()
    assert (detail["blocks"], detail["message_tokens"]) == ([], {"kept": 0, "cut": 0, "left_out": 0})


def test_totals_are_since_the_start_and_not_of_what_is_remembered():
    totals = RecentDecisions(max_decisions=1).totals
    assert totals.described()["prefix_kept"] is None
    totals.count(tokens_before=100, tokens_saved=40, survived=None, prefix_kept=None)
    totals.count(tokens_before=100, tokens_saved=0, survived=True, prefix_kept=1.0)
    totals.count(tokens_before=0, tokens_saved=0, survived=False, prefix_kept=0.5)
    assert totals.described() == {
        "requests": 3,
        "tokens_before": 200,
        "tokens_saved": 40,
        "overflows": 2,
        "overflows_survived": 1,
        "prefix_kept": 0.75,
    }


def test_what_failed_was_refused_sent_twice_or_warned_about_is_in_trouble():
    for trouble, members in (
        (0, {"outcome": "answered", "status": 200}),
        (1, {"outcome": "answered", "attempts": 2}),
        (2, {"outcome": "client_left"}),
        (2, {"outcome": "answered", "status": 429}),
        (2, {"outcome": "answered", "warning": "window_too_small"}),
    ):
        assert recorded(**members).trouble == trouble, members


def test_a_request_under_way_is_found_with_what_is_known_of_it():
    recent = RecentDecisions()
    recent.under_way[1] = Decision("now", started=0.0)
    found = recent.find_running("now")
    assert found is not None
    assert (found["outcome"], found["blocks"]) == ("running", [])
    assert recent.find_running("other") is None
