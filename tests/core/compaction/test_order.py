from __future__ import annotations

import json

import pytest
from support.strategies import exchange, notices, pipeline, planned, system, user

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.order import compaction_steps
from proxy.core.compaction.steps.describe_media import DescribeOldMedia
from proxy.core.compaction.steps.drop_old_reasoning import DropOldReasoning
from proxy.core.compaction.steps.leave_out_exchanges import LeaveOutExchanges
from proxy.core.compaction.steps.shorten_old_texts import ShortenOldTexts
from proxy.core.conversation.edit import Reason
from proxy.core.text.excerpt import ExcerptLimits
from proxy.core.tokens.counters import ByteClassCounter

LOG = "".join(f"{number:05} a line of a log\n" for number in range(3_000))
UNCUT = ExcerptLimits(10**9, 10**9)


def reasons(messages, room):
    made = planned(messages, pipeline(Budget(room), limits=UNCUT))
    assert made.fits
    return [edit.reason for edit in made.edits if edit.reason is not Reason.OMISSION_NOTE]


def test_what_an_agent_can_do_without_is_given_up_before_whole_exchanges():
    steps = compaction_steps(notices(), Budget(8_000), lambda _: (), ByteClassCounter())
    assert [type(step) for step in steps] == [DescribeOldMedia, DropOldReasoning, ShortenOldTexts, LeaveOutExchanges]


def test_the_newest_result_gives_before_the_words_of_the_user():
    task = user("the task " * 200)
    assert set(reasons([task, *exchange([LOG])], 5_000)) == {Reason.NEWEST_RESULT}


@pytest.mark.parametrize("where", ["first", "last"])
def test_what_the_user_asked_is_cut_only_where_nothing_else_is_left(where):
    asked = user("asked " * 9_000)
    history = [asked, *exchange(["short"])] if where == "first" else [*exchange(["short"]), asked]
    assert Reason.NEWEST_TEXT in reasons(history, 3_000)
    made = planned(history, pipeline(Budget(3_000), limits=UNCUT))
    (cut,) = [json.loads(raw)["content"] for raw in made.messages if b"asked asked" in raw]
    assert cut.startswith("asked ")
    assert len(cut) < 20_000


def test_a_long_last_user_message_gives_way_before_the_newest_result_is_gone():
    history = [user("go on"), *exchange(["old"]), user("asked " * 9_000), *exchange([LOG], first_call=9)]
    made = planned(history, pipeline(Budget(1_200), limits=UNCUT))
    assert made.fits
    asked, result = (json.loads(raw)["content"] for raw in (made.messages[-3], made.messages[-1]))
    assert "00000 a line of a log" in result
    assert len(asked) > 3 * len(result) > 600


def test_a_system_text_is_never_cut():
    text = "You are an agent. " * 900
    made = planned([system(text), user("go on"), *exchange([LOG])], pipeline(Budget(6_000), limits=UNCUT))
    assert json.loads(made.messages[0])["content"] == text
    tight = planned([system(text), user("go on")], pipeline(Budget(500), limits=UNCUT))
    assert not tight.fits
    assert json.loads(tight.messages[0])["content"] == text
