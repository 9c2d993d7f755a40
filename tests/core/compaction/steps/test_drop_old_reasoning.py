from __future__ import annotations

import json

from support.strategies import exchange, kept_of, notices, pipeline, planned, user

from proxy.core.compaction.budget import Budget, Mark
from proxy.core.compaction.steps.drop_old_reasoning import DropOldReasoning
from proxy.core.conversation.edit import Reason
from proxy.core.notices.catalogue import MARK

LONG = "because " * 600


def thinking(messages, text=LONG):
    messages[0]["reasoning_content"] = text
    return messages


def reasons(made):
    return [(edit.message, edit.reason) for edit in made.edits]


HISTORY = [
    user("a"),
    *thinking(exchange(["r" * 300])),
    *thinking(exchange(["r" * 300], first_call=2)),
    {"role": "assistant", "content": "done", "reasoning_content": LONG},
    user("b"),
    *thinking(exchange(["r" * 300], first_call=4)),
]


def test_long_reasoning_of_finished_turns_goes_first_and_all_else_stays():
    made = planned(HISTORY, pipeline(Budget(3_365, low_mark=0.59)))
    assert reasons(made) == [(1, Reason.OLD_REASONING), (3, Reason.OLD_REASONING), (5, Reason.OLD_REASONING)]
    dropped = json.loads(made.messages[1])
    assert dropped["reasoning_content"].startswith(MARK)
    assert made.edits[0].artifact.id in dropped["reasoning_content"]
    assert dropped["tool_calls"] == HISTORY[1]["tool_calls"]
    assert all(edit.before_chars > 4_000 for edit in made.edits)


def test_the_reasoning_of_the_running_turn_stays():
    made = planned(HISTORY, pipeline(Budget(1_900)))
    assert json.loads(made.messages[-2])["reasoning_content"] == LONG


def test_short_reasoning_stays():
    history = [user("a"), *thinking(exchange(["r" * 9_000]), "because"), {"role": "assistant", "content": "x"}, user()]
    made = planned(history, pipeline(Budget(2_000)))
    assert Reason.OLD_REASONING not in [edit.reason for edit in made.edits]


def test_chinese_is_measured_in_characters_however_it_is_written():
    history = [user("a"), *thinking(exchange(["r"]), "因为" * 900), user("b"), *thinking(exchange(["r"]), "因" * 2_001)]
    kept = kept_of([*history, {"role": "assistant", "content": "x", "reasoning_content": ["r" * 2_000]}, user()])
    changes = [edit for change in DropOldReasoning(notices())(kept, Mark(0)) for edit in change.edits]
    assert [(edit.message, edit.before_chars) for edit in changes] == [(4, 2_001), (6, 2_004)]


def test_no_more_reasoning_is_dropped_than_is_needed():
    first, second = thinking(exchange(["r"]), LONG * 5), thinking(exchange(["r"], first_call=3))
    made = planned([user("a"), *first, user("b"), *second, user("c" * 3_000)], pipeline(Budget(9_000)))
    assert reasons(made) == [(1, Reason.OLD_REASONING)]
    assert json.loads(made.messages[4])["reasoning_content"] == LONG
