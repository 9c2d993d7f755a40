from __future__ import annotations

from itertools import pairwise

import pytest
from support.strategies import conversation, exchange, kept_of, notices, pipeline, planned, system, turn_by_turn, user

from proxy.core.compaction.budget import Budget, Mark
from proxy.core.compaction.plan import NOTE_SHARE, task_tokens
from proxy.core.compaction.steps.leave_out_exchanges import LeaveOutExchanges
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.size import size_of
from proxy.core.notices.catalogue import MARK
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage


def run(count, size=60):
    history = [system(), user("one task")]
    for number in range(count):
        history += exchange([f"line {number:04}\n" * size], first_call=number)
    return history


def gone(made):
    return [edit.message for edit in made.edits if edit.reason is Reason.OLD_EXCHANGE]


def test_the_oldest_exchanges_go_and_the_newest_stays():
    made = planned(run(60), pipeline(Budget(4_000)))
    assert gone(made) == list(range(2, 2 + len(gone(made))))
    assert made.messages[-1] == planned(run(60), pipeline(Budget(10**9))).messages[-1]
    assert made.after.tokens <= 4_000


def test_a_cut_goes_down_to_the_low_mark_and_not_further():
    budget = Budget(4_000)
    every = turn_by_turn(conversation(run(60)), pipeline(budget))
    sizes = [made.after.tokens for made in every[2 + 2 * 15 :: 2]]
    assert max(sizes) <= 4_000
    assert min(sizes) > 4_000 * (budget.low_mark - NOTE_SHARE) * 0.8
    cuts = sum(after < before for before, after in pairwise(sizes))
    assert cuts <= len(sizes) / 5


def test_a_large_result_on_the_edge_of_a_cut_is_cut_and_stays():
    history = [*run(3, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]]
    kept = kept_of(history)
    for change in LeaveOutExchanges(notices(), 700)(kept, Mark(3_500)):
        kept.apply(change)
    assert [edit.reason for edit in kept.edits()] == [Reason.OLD_EXCHANGE] * 6 + [Reason.OLD_RESULT]
    (cut,) = [edit for edit in kept.edits() if edit.reason is Reason.OLD_RESULT]
    assert cut.message == 9
    assert len(cut.artifact.content) == 27 * 900
    assert 2_000 < kept.total.tokens <= 3_500


def test_a_message_that_holds_all_files_is_cut_as_far_as_needed_and_stays():
    """As aider sends them: with the room for half of it, half of it is worth more than none."""
    files = "".join(f"def function_{number}(): return {number}\n" for number in range(4_000))
    history = [system(), user(files), {"role": "assistant", "content": "Ok."}, user("Change function_7.")]
    budget = Budget(30_000)
    made = planned(history, pipeline(budget))
    assert gone(made) == []
    assert {edit.reason for edit in made.edits} <= {Reason.LONG_OLD_TEXT, Reason.NEWEST_TEXT}
    assert 0.85 < made.after.tokens / budget.room_tokens <= 1
    told = ChatMessage.read(made.messages[1]).content()
    assert told.startswith("def function_0()")
    assert told.endswith("return 3999\n")
    assert told.count(MARK) == 1
    assert {artifact.content for artifact in made.artifacts} >= {files.encode()}


def test_over_in_characters_or_bytes_whole_exchanges_go():
    for budget in (Budget(10**9, 9_000), Budget(10**9, None, 9_000)):
        made = planned(run(40), pipeline(budget))
        assert {edit.reason for edit in made.edits} == {Reason.OLD_EXCHANGE, Reason.OMISSION_NOTE}
        assert budget.admits(made.after)


def test_over_in_characters_too_a_large_result_goes_whole():
    kept = kept_of([*run(1, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]])
    for change in LeaveOutExchanges(notices(), 400)(kept, Mark(3_600, 14_400)):
        assert change.edits == ()
        kept.apply(change)
    assert [edit.message for edit in kept.edits()] == [2, 3, 4, 5]


def test_the_first_user_message_stays_and_a_later_turn_goes_with_its_question():
    done = {"role": "assistant", "content": "done"}
    history = [
        user("the task"),
        *exchange(["x" * 2_000]),
        done,
        user("second"),
        *exchange(["y" * 2_000], first_call=5),
        done,
    ]
    made = planned([*history, *run(30)[1:]], pipeline(Budget(3_000)))
    assert {1, 2, 4, 5, 6, 7} <= set(gone(made))
    assert [ChatMessage.read(raw).text() for raw in made.messages[:3]] == ["the task", "done", "one task"]


@pytest.mark.parametrize("words", [200, 900, 5_000])
def test_of_a_long_first_user_message_beginning_and_end_stay_up_to_a_tenth_of_the_room(words):
    task = "BEGIN " + "a word " * words + "END"
    history = [system(), user(task), {"role": "assistant", "content": "done"}, user("second"), *run(60)[2:]]
    budget = Budget(6_000)
    made = planned(history, pipeline(budget))
    told = ChatMessage.read(made.messages[1]).content()
    assert told.startswith("BEGIN ")
    assert told.endswith("END")
    assert (told == task) == (words == 200)
    size = size_of(ChatMessage.read(made.messages[1]), ByteClassCounter()).tokens
    assert size <= task_tokens(budget)
    assert told == task or size > 0.7 * task_tokens(budget)
    assert told == task or {artifact.content for artifact in made.artifacts} >= {task.encode()}


def test_results_that_keep_two_user_messages_apart_are_cut_to_the_low_mark_and_not_anew_in_every_turn():
    reads = exchange([f"result {number} " * 4_000 for number in range(3)])
    history = [system(), user("task"), *reads, user("go on"), user("with this")]
    budget, sent = Budget(8_000), []
    for turn in range(20):
        history += exchange([f"def function_{turn}(): pass\n" * 40], first_call=100 + turn)
        sent.append(planned(history, pipeline(budget)).messages)
    stable = sum(after[: len(before)] == before for before, after in pairwise(sent))
    assert stable >= 17


def test_a_later_cut_stops_at_the_low_mark_too():
    """The note about what went before has a room of its own: it is not paid for a second time."""
    budget = Budget(8_000)
    every = turn_by_turn(conversation(run(130)), pipeline(budget))
    sizes = [made.after.tokens for made in every[2 + 2 * 40 :: 2]]
    assert min(sizes) > 8_000 * (budget.low_mark - NOTE_SHARE)


def test_a_long_last_message_does_not_make_more_go_than_it_needs():
    history = [system(), user("task")]
    for number in range(30):
        history += [{"role": "assistant", "content": f"answer {number} " * 60}, user(f"question {number} " * 30)]
    history += [{"role": "assistant", "content": "the previous answer " * 60}, user("a long question " * 1_200)]
    budget = Budget(14_000)
    made = planned(history, pipeline(budget))
    assert made.after.tokens > 0.6 * budget.room_tokens
    assert "the previous answer" in ChatMessage.read(made.messages[-2]).text()


def test_a_large_system_text_does_not_make_every_turn_a_cut():
    budget, sizes = Budget(10_000), []
    for count in range(1, 40):
        history = run(count, 20)
        history[0] = system("a rule of the house " * 1_300)
        sizes.append(planned(history, pipeline(budget)).after.tokens)
    cuts = sum(after < before for before, after in pairwise(sizes))
    assert sizes[0] > 0.65 * budget.room_tokens
    assert 2 <= cuts < len(sizes) / 4
