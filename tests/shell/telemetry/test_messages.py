"""The messages of a finished request, as its page shows them, and the figures of its record that come from them."""

import pytest

from proxy.core.compaction import Budget
from proxy.core.conversation import MessageReport
from proxy.shell.telemetry import Block, Ended, Messages

REPORTS = (
    MessageReport("system", "", 10, 10),
    MessageReport("tool", "bash", 500, 0, ("old_exchange",), ("tool_messages_0.json",)),
    MessageReport(
        "tool", "bash", 400, 150, ("truncate_tool_output", "omission_note"), ("tool_bash_1.txt", "tool_messages_0.json")
    ),
    MessageReport("user", "", 20, 30, ("omission_note",)),
)


def row(messages, **fields):
    return Ended(0.0, {"request_id": "req", **fields}, messages).row()


def test_a_record_says_where_the_tokens_went():
    record = row(Messages(REPORTS, None, was_edited=True), model="m").record
    assert (record.tokens_cut, record.tokens_left_out, record.messages_left_out) == (250, 500, 1)
    assert (record.tool, record.model, record.ended) == ("bash", "m", "1970-01-01T00:00:00.000+00:00")


def test_sizes_are_reported_in_the_tokens_of_the_model():
    found = row(Messages(REPORTS, Budget(room_tokens=1_000, ratio=0.5), was_edited=True))
    assert (found.record.tokens_cut, found.record.tokens_left_out) == (125, 250)
    assert [block.tokens_before for block in found.blocks] == [5, 250, 200, 10]


def test_each_message_is_a_block():
    blocks = row(Messages(REPORTS, None, was_edited=True)).blocks
    assert [block.message for block in blocks] == [0, 1, 2, 3]
    assert blocks[1] == Block(1, "tool", "bash", 500, 0, ("old_exchange",), ("tool_messages_0.json",))


@pytest.mark.parametrize(("edits", "kept"), [({}, None), ({"old_exchange": 1}, 80)])
def test_messages_of_a_long_request_are_kept_only_if_it_was_edited(edits, kept):
    blocks = row(Messages(REPORTS * 20, None, was_edited=bool(edits)), edits=edits).blocks
    assert (None if blocks is None else len(blocks)) == kept


def test_of_an_original_that_went_up_in_the_end_nothing_was_cut():
    found = row(Messages(REPORTS, None, was_edited=False), edits={"old_exchange": 1})
    assert (found.record.tokens_cut, found.record.tokens_left_out) == (0, 0)
    assert all(block.tokens_after == block.tokens_before and not block.reasons for block in found.blocks)


def test_a_request_without_a_plan_has_no_blocks():
    assert row(Messages()).blocks == []


def test_names_that_have_no_utf_8_are_made_to_have_one():
    (block,) = row(Messages((MessageReport("tool", "\ud800", 1, 1),))).blocks
    assert block.tool == "?"
