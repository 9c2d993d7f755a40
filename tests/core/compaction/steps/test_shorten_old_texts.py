from __future__ import annotations

import pytest
from support.strategies import kept_of, notices, part, user

from proxy.core.compaction.budget import Mark
from proxy.core.compaction.steps.shorten_old_texts import ShortenOldTexts
from proxy.core.conversation.edit import Reason

PASTED = "".join(f"{number:05} a pasted line\n" for number in range(3_000))
ANSWER = {"role": "assistant", "content": "yes"}
STEP = ShortenOldTexts(notices())
GOAL = Mark(0)


def edits(*history):
    """Of a history, each edit once; what is shortened once is not shortened again."""
    kept = kept_of(list(history))
    changes = list(STEP(kept, GOAL))
    for change in changes:
        kept.apply(change)
    assert list(STEP(kept, GOAL)) == []
    return [edit for change in changes for edit in change.edits]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_long_text_of_a_finished_turn_is_cut_in_its_middle_once(role):
    (edit,) = edits({"role": role, "content": PASTED}, ANSWER, user("next"))
    told = edit.becomes
    assert told.startswith("00000 a pasted line\n")
    assert told.endswith("02999 a pasted line\n")
    assert 0.7 < len(told) / len(PASTED) <= 0.8
    assert edit.artifact.content.decode() == PASTED
    assert edit.artifact.id.startswith("tool_messages_")
    assert (edit.message, edit.at, edit.reason) == (0, ("content",), Reason.LONG_OLD_TEXT)


def test_a_text_of_chinese_keeps_as_large_a_share():
    text = "一行粘贴的文字\n" * 5_000
    (edit,) = edits(user(text), ANSWER, user("next"))
    assert 0.7 < len(edit.becomes) / len(text) <= 0.8


@pytest.mark.parametrize("role", ["system", "developer", "tool", ""])
def test_texts_of_others_stay(role):
    assert edits({"role": role, "content": PASTED}, user("a"), ANSWER, user("next")) == []


def test_the_last_user_message_and_what_follows_stay():
    assert edits(user("a"), ANSWER, user(PASTED), {"role": "assistant", "content": PASTED}) == []


def test_texts_that_are_not_so_long_stay():
    parts = [part(PASTED[:16_000]), part(PASTED[:30_000]), part(PASTED), {"type": "image_url"}]
    assert [edit.at for edit in edits(user(parts), ANSWER, user("next"))] == [("content", 2, "text")]


def test_a_text_that_a_notice_would_not_shorten_stays():
    lines = "\n".join(f"name_{number}" for number in range(9))
    step = ShortenOldTexts(notices(), over_chars=50)
    assert list(step(kept_of([user(lines), ANSWER, user("next")]), GOAL)) == []
