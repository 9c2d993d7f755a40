"""The messages of a finished request, as its page shows them, and the figures of its record that come from them."""

import pytest

from proxy.core.compaction import Budget
from proxy.core.conversation import MessageReport
from proxy.shell.telemetry import Block, RequestRecord

REPORTS = (
    MessageReport("system", "", 10, 10),
    MessageReport("tool", "bash", 500, 0, ("old_exchange",), ("tool_messages_0.json",)),
    MessageReport(
        "tool", "bash", 400, 150, ("truncate_tool_output", "omission_note"), ("tool_bash_1.txt", "tool_messages_0.json")
    ),
    MessageReport("user", "", 20, 30, ("omission_note",)),
)


def described(reports, ratio=1.0, **fields):
    record = RequestRecord.of({"request_id": "req", "edits": {"old_exchange": 1}, **fields})
    record.finished_at, record.reports, record.budget = 0.0, reports, Budget(1_000, ratio=ratio)
    return record.described()


@pytest.mark.parametrize(("ratio", "cut", "left_out"), [(1.0, 250, 500), (0.5, 125, 250)])
def test_a_record_says_where_the_tokens_of_the_model_went(ratio, cut, left_out):
    record, blocks = described(REPORTS, ratio, model="m")
    assert (record.tokens_cut, record.tokens_left_out, record.messages_left_out) == (cut, left_out, 1)
    assert (record.tool, record.model, record.ended) == ("bash", "m", "1970-01-01T00:00:00.000+00:00")
    assert [block.message for block in blocks] == [0, 1, 2, 3]
    assert [block.tokens_before for block in blocks] == [int(ratio * tokens) for tokens in (10, 500, 400, 20)]
    assert blocks[1] == Block(1, "tool", "bash", 2 * cut, 0, ("old_exchange",), ("tool_messages_0.json",))


@pytest.mark.parametrize(("edits", "kept"), [({}, 0), ({"old_exchange": 1}, 80)])
def test_messages_of_a_long_request_are_kept_only_if_it_was_edited(edits, kept):
    _, blocks = described(REPORTS * 20, edits=edits)
    assert len(blocks) == kept


def test_of_an_original_that_went_up_in_the_end_nothing_was_cut():
    record, blocks = described(REPORTS, attempt_kind="original")
    assert (record.tokens_cut, record.tokens_left_out) == (0, 0)
    assert all(block.tokens_after == block.tokens_before and not block.reasons for block in blocks)


def test_a_request_without_a_plan_has_no_blocks_and_names_without_utf_8_are_made_to_have_one():
    assert described(())[1] == []
    (block,) = described((MessageReport("tool", "\ud800", 1, 1),))[1]
    assert block.tool == "?"
