"""A finished request, as it is kept."""

from typing import cast

import pytest

from proxy.core.compaction import Budget
from proxy.core.conversation import MessageReport
from proxy.core.overflow import AttemptKind
from proxy.shell.telemetry import Finished, Line, outcome_of

BLOCKS = (
    MessageReport("system", "", 10, 10),
    MessageReport("tool", "bash", 500, 0, ("old_exchange",), ("tool_messages_0.json",)),
    MessageReport(
        "tool", "bash", 400, 150, ("truncate_tool_output", "omission_note"), ("tool_bash_1.txt", "tool_messages_0.json")
    ),
    MessageReport("user", "", 20, 30, ("omission_note",)),
)


def finished(name="req", blocks=BLOCKS, **members):
    line = {"request_id": name, "outcome": "answered", "tokens_before": 930, **members}
    return Finished(0.0, cast(Line, line), blocks)


def test_a_summary_shows_where_the_tokens_went():
    summary = finished(model="m", edits={"old_exchange": 1}).summary()
    assert summary["message_tokens"] == {"kept": 180, "cut": 250, "left_out": 500}
    assert (summary["messages_left_out"], summary["model"]) == (1, "m")
    assert summary["ended"] == "1970-01-01T00:00:00.000+00:00"


def test_sizes_are_reported_in_the_tokens_of_the_model():
    line = {"request_id": "r", "outcome": "answered", "edits": {"old_exchange": 1}}
    one = Finished(0.0, cast(Line, line), BLOCKS, Budget(room_tokens=1_000, ratio=0.5))
    detail = one.entry()
    assert detail.summary["message_tokens"] == {"kept": 90, "cut": 125, "left_out": 250}
    assert detail.blocks is not None
    assert [block["tokens_before"] for block in detail.blocks] == [5, 250, 200, 10]


def test_a_detail_has_a_block_for_each_message():
    blocks = finished().entry().blocks
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


def test_messages_of_a_long_request_are_kept_only_if_it_was_edited():
    assert finished(blocks=BLOCKS * 20).entry().blocks is None
    kept = finished(blocks=BLOCKS * 20, edits={"old_exchange": 1}).entry().blocks
    assert kept is not None
    assert len(kept) == 80


def test_of_an_original_that_went_up_in_the_end_nothing_was_cut():
    detail = finished(attempt_kind=AttemptKind.ORIGINAL.value, edits={"old_exchange": 1}).entry()
    assert detail.summary["message_tokens"] == {"kept": 930, "cut": 0, "left_out": 0}
    assert detail.blocks is not None
    assert all(block["tokens_after"] == block["tokens_before"] and not block["reasons"] for block in detail.blocks)


def test_a_request_without_a_plan_has_no_blocks():
    detail = finished(blocks=()).entry()
    assert (detail.blocks, detail.summary["message_tokens"]) == ([], {"kept": 0, "cut": 0, "left_out": 0})


def test_what_failed_was_refused_sent_twice_or_warned_about_is_in_trouble():
    for trouble, members in (
        (0, {"outcome": "answered", "status": 200}),
        (1, {"outcome": "answered", "attempts": 2}),
        (2, {"outcome": "client_left"}),
        (2, {"outcome": "refused", "status": 429}),
        (2, {"outcome": "answered", "warning": "window_too_small"}),
    ):
        assert finished(**members).entry().trouble == trouble, members


@pytest.mark.parametrize(
    ("outcome", "sums"),
    [
        ("answered", (False, False)),
        ("refused", (False, True)),
        ("context_length_exceeded", (False, False)),
        ("client_left", (False, False)),
        ("upstream_error", (True, False)),
        ("upstream_unreachable", (True, False)),
        ("upstream_timeout", (True, False)),
        ("server_stopping", (True, False)),
        ("proxy_error", (True, False)),
    ],
)
def test_an_outcome_is_a_failure_a_refusal_or_neither(outcome, sums):
    found = finished(outcome=outcome, status=200).entry().sums
    assert (found["failed"], found["refused"]) == sums


@pytest.mark.parametrize(
    ("outcome", "status", "now"),
    [
        ("answered", 200, "answered"),
        ("answered", 401, "refused"),
        ("answered", 503, "upstream_error"),
        ("malformed_request", 400, "refused"),
        ("body_too_large", 413, "refused"),
        ("request_timeout", 408, "refused"),
        ("upstream_empty", 502, "upstream_error"),
        ("upstream_unreachable", 200, "upstream_unreachable"),
        ("client_left", 200, "client_left"),
        ("refused", 200, "refused"),
        ("upstream_error", 200, "upstream_error"),
    ],
)
def test_the_outcome_of_an_older_line_is_one_of_today(outcome, status, now):
    assert outcome_of({"request_id": "r", "outcome": outcome, "status": status}) == now


BLOCK = {
    "message": 0,
    "role": "tool",
    "tool": "bash",
    "tokens_before": 500,
    "tokens_after": 90,
    "reasons": [],
    "artifacts": [],
}
