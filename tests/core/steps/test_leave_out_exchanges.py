from __future__ import annotations

from itertools import pairwise

from core.strategies import exchange, kept_of, notices, pipeline, planned, system, user

from proxy.core.budget import Budget
from proxy.core.conversation import Message
from proxy.core.edits import Reason
from proxy.core.notices import MARK
from proxy.core.plan import DIGEST_SHARE, cut_goal
from proxy.core.steps.leave_out_exchanges import LeaveOutExchanges


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
    sizes = []
    for count in range(15, 60):
        made = planned(run(count), pipeline(budget))
        sizes.append(made.after.tokens)
    assert max(sizes) <= 4_000
    assert min(sizes) > 4_000 * (budget.low_mark - DIGEST_SHARE) * 0.8
    cuts = sum(after < before for before, after in pairwise(sizes))
    assert cuts < len(sizes) / 5


def test_a_large_result_on_the_edge_of_a_cut_is_cut_and_stays():
    history = [*run(3, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]]
    kept = kept_of(history)
    budget = Budget(7_000)
    for change in LeaveOutExchanges(notices(), budget, 0.5)(kept):
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
    assert {edit.reason for edit in made.edits} == {Reason.LONG_OLD_TEXT}
    assert 0.3 < made.after.tokens / budget.room_tokens <= cut_goal(budget)
    told = Message.read(made.messages[1]).content()
    assert told.startswith("def function_0()")
    assert told.endswith("return 3999\n")
    assert told.count(MARK) == 1
    assert {artifact.content for artifact in made.artifacts} >= {files.encode()}


def test_over_in_characters_or_bytes_whole_exchanges_go():
    for budget in (Budget(10**9, 9_000), Budget(10**9, None, 9_000)):
        made = planned(run(40), pipeline(budget))
        assert {edit.reason for edit in made.edits} == {Reason.OLD_EXCHANGE, Reason.DIGEST}
        assert budget.admits(made.after)


def test_over_in_characters_too_a_large_result_goes_whole():
    kept = kept_of([*run(1, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]])
    for change in LeaveOutExchanges(notices(), Budget(4_000, 16_000), 0.9)(kept):
        assert change.edits == ()
        kept.apply(change)
    assert [edit.message for edit in kept.edits()] == [2, 3, 4, 5]


def test_a_turn_goes_with_its_question_once_its_last_answer_goes():
    history = [user("first"), *exchange(["x" * 2_000]), {"role": "assistant", "content": "done"}, *run(30)[1:]]
    made = planned(history, pipeline(Budget(3_000)))
    assert {0, 1, 2, 3} <= set(gone(made))
    assert Message.read(made.messages[0]).content() == "one task"
