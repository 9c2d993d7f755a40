from __future__ import annotations

import json

import pytest
from support.strategies import conversation, exchange, kept_of, system, user

from proxy.core.conversation import Carried, Change, Edit, Moved, Reason, Size, TrackedMessage, size_of
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage
from proxy.wire.responses import RESPONSES

COUNTER = ByteClassCounter()


def raws(window):
    return [message.raw for message in window.sent()]


def kept(*messages):
    return kept_of(list(messages))


def spans(found):
    return [(unit.role, unit.start, unit.stop) for unit in found.units]


def starts(changes):
    return [[unit.start for unit in units] for units in changes]


DONE = {"role": "assistant", "content": "done"}


def test_results_without_a_call_belong_to_the_message_before_them_but_never_to_a_system_text():
    orphan = {"role": "tool", "tool_call_id": "x", "content": "?"}
    assert spans(kept(orphan, orphan)) == [("tool", 0, 2)]
    assert spans(kept(system(), orphan)) == [("system", 0, 1), ("tool", 1, 2)]
    assert spans(kept(user(), orphan)) == [("user", 0, 2)]


def test_a_result_does_not_join_a_unit_from_which_it_is_apart():
    found = kept(user(), *exchange(["a"]), user("b"))
    found.apply(Change(units=(found.units[2],)))
    found.add(TrackedMessage.of(4, conversation(exchange(["z"]))[1], "", COUNTER))
    assert spans(found)[-1] == ("tool", 4, 5)


def test_the_oldest_short_turns_go_last_if_each_takes_at_most_a_fifth_of_their_room():
    turns = [[user("b"), DONE | {"content": "Done. " * 20}], *[[user("b"), DONE]] * 7]
    found = kept(user("a"), DONE, *(message for turn in turns for message in turn), user("c"))
    room = 5 * sum(entry.size.tokens for entry in found.entries[4:6])
    short = [[at, at + 1] for at in range(4, 13, 2)]
    assert starts(found.removable(found.dialogue(room))) == [[3, 2], [15, 14], [17, 16], *short]
    assert starts(found.removable(found.dialogue(room - 1))) == starts(found.removable())
    found.held_from = 17
    assert found.removable(found.dialogue(room)) == found.removable(), (
        "the request that the held messages answer goes last"
    )


def test_questions_without_an_answer_go_with_what_went_before():
    assert starts(kept(user("a"), user("b"), user("c")).removable()) == [[1]]
    assert starts(kept(user("a"), DONE, user("b"), user("c"), DONE).removable()) == [[2]]


def test_without_any_user_all_but_the_newest_may_go():
    found = kept(*exchange(["a"]), *exchange(["b"], first_call=3), *exchange(["c"], first_call=6))
    assert starts(found.removable()) == [[0], [2]]
    assert found.last_user() == -1
    assert list(found.before(found.last_user())) == []


def test_output_in_user_messages_belongs_to_the_words_before_it_where_nothing_is_called():
    reply = {"role": "assistant", "content": "```bash\nls\n```"}
    texts = ["Observation: a.py", "<output>\na.py\n</output>", "ran step 1:\nok", "And now?", "ran step 2:\nok"]
    found = kept(user("task"), *(message for text in texts for message in (reply, user(text))))
    assert spans(found) == [
        ("user", 0, 1),
        ("assistant", 1, 3),
        ("assistant", 3, 5),
        ("assistant", 5, 6),
        ("user", 6, 7),
        ("assistant", 7, 8),
        ("user", 8, 9),
        ("assistant", 9, 11),
    ]
    assert [entry.index for entry in found.results(found.units[2])] == [4]
    assert found.newest_results() == [], "how it begins was seen before, but is not how tools begin"


def test_the_last_user_message_stays_with_what_it_follows_however_it_begins():
    reply = {"role": "assistant", "content": "yes"}
    found = kept(*(message for turn in range(3) for message in (user(f"Document {turn}\n{turn}"), reply)), reply, reply)
    assert spans(found) == [
        ("user", 0, 1),
        ("assistant", 1, 3),
        ("assistant", 3, 5),
        ("assistant", 5, 6),
        ("assistant", 6, 7),
        ("assistant", 7, 8),
    ]
    assert starts(found.removable()) == [[1], [5], [6]]
    assert found.last_user() == 4
    assert [entry.index for entry in found.last_request()] == [4]
    assert [entry.index for entry in found.tasks()] == [0]


def test_of_user_messages_in_a_row_only_the_first_is_taken_for_output_because_it_begins_like_earlier_ones():
    documents = [user(f"Document {number}\n{number}") for number in range(4)]
    found = kept(documents[0], documents[1], {"role": "assistant", "content": "yes"}, documents[2], documents[3])
    assert spans(found) == [("user", 0, 1), ("user", 1, 2), ("assistant", 2, 4), ("user", 4, 5)]
    assert found.last_user() == 4
    assert starts(found.removable()) == [[2, 1]]


def test_the_last_user_message_stays_beside_the_output_that_follows():
    reply = {"role": "assistant", "content": "```bash\nls\n```"}
    turn = [reply, user("Now the other half."), reply, user("Output: a.py"), reply, user("Output: b.py")]
    found = kept(user("task"), reply, user("Output: c.py"), *turn)
    assert starts(found.removable()) == [[1], [5]]
    assert [entry.index for entry in found.tasks()] == [0, 4]
    assert [entry.index for entry in found.last_request()] == [8]
    assert [entry.index for entry in found.newest_results()] == [8]
    assert found.fixed(1).tokens == 1 + 1 + found.last_request()[0].size.tokens


def test_where_tools_are_called_a_user_message_is_a_persons():
    found = kept(user("task"), *exchange(["x"]), DONE, user("Output: is what I want to see"))
    assert [unit.role for unit in found.units] == ["user", "assistant", "assistant", "user"]


def test_an_edit_that_takes_more_tokens_than_it_saves_is_not_made():
    found = kept(*exchange([" " * 4_000]))
    before = found.total
    dense = "0123456789" * 390
    found.apply(Change((Edit(1, ("content",), dense, Reason.OLD_RESULT),)))
    assert found.total == before
    assert list(found.edits()) == []


def moved(text, spoken=None):
    content = Carried(json.dumps(text).encode())
    return Edit(0, ("content",), "see below", Reason.ROUTE_MEDIA, moved=Moved((content,), spoken))


def with_moved(messages, texts, spoken=None):
    """All of these messages; the results move a part out for each text."""
    found, left = kept(), list(texts)
    for index, message in enumerate(conversation(messages)):
        entry = TrackedMessage.of(index, message, "", COUNTER)
        if message.role == "tool" and left:
            entry = entry.edited((moved(left.pop(0), spoken),), COUNTER)
        found.add(entry)
    return found


def sent(found):
    return [json.loads(raw) for raw in raws(found)]


def roles(found):
    return [message["role"] for message in sent(found)]


def measured(found):
    return sum((size_of(ChatMessage.read(raw), COUNTER) for raw in raws(found)), Size())


def test_what_is_moved_out_of_results_goes_into_one_message_behind_the_whole_batch():
    found = with_moved([user("a"), *exchange(["x", "y", "z"]), DONE], ["one", "two"])
    assert roles(found) == ["user", "assistant", "tool", "tool", "tool", "user", "assistant"]
    assert sent(found)[5] == {"role": "user", "content": ["one", "two"]}
    assert found.total == measured(found)


BATCH = [user("a"), *exchange(["x", "y"])]


@pytest.mark.parametrize(
    ("messages", "spoken", "seen"),
    [
        (BATCH, None, "user assistant tool tool user"),
        (BATCH, "I look.", "user assistant tool tool assistant user"),
        ([*BATCH, user("b"), DONE], "I look.", "user assistant tool tool assistant user assistant user assistant"),
        ([*BATCH[:3], user("b")], None, "user assistant tool user user"),
    ],
    ids=["one message", "words before it", "words on both sides", "calls that are open"],
)
def test_what_is_moved_out_follows_its_batch_with_words_between_it_and_what_is_no_answer(messages, spoken, seen):
    found = with_moved(messages, ["one", "two"], spoken)
    assert " ".join(roles(found)) == seen
    assert found.total == measured(found)
    if messages[: len(BATCH)] == BATCH:
        before = raws(with_moved(BATCH, ["one", "two"], spoken))
        assert raws(found)[: len(before)] == before


def test_what_is_done_again_of_one_batch_does_not_turn_up_behind_the_next_one_of_its_unit():
    again = {"role": "tool", "tool_call_id": "stray", "content": "y"}
    history = [user("a"), *exchange(["x"]), again]
    found = with_moved(history, ["one", "two"])
    assert roles(found) == ["user", "assistant", "tool", "user", "tool", "user"]
    found.redo(TrackedMessage.of(2, conversation(history)[2], "", COUNTER).edited((moved("three"),), COUNTER))
    assert [sent(found)[place]["content"] for place in (3, 5)] == [["three"], ["two"]]
    assert found.total == measured(found)


def test_a_batch_ends_with_the_request_though_calls_are_open():
    found = with_moved([user("a"), *exchange(["x", "y"])[:2]], ["one"])
    assert roles(found) == ["user", "assistant", "tool"]
    found.end_batch()
    assert roles(found) == ["user", "assistant", "tool", "user"]
    assert found.total == measured(found)


def of_items(*items):
    """The window of an API whose messages may be companions, or have to stay."""
    found = kept()
    body = json.dumps({"model": "m", "input": items}).encode()
    for index, message in enumerate(RESPONSES.parse(body).conversation):
        found.add(TrackedMessage.of(index, message, "", COUNTER))
    return found


ODD = {"type": "hologram"}


def test_a_companion_with_nothing_before_it_stays():
    found = of_items(system(), ODD, DONE, ODD, user())
    assert spans(found) == [("system", 0, 1), ("item", 1, 2), ("assistant", 2, 4), ("user", 4, 5)]
    assert starts(found.removable()) == [[2]]


def test_words_of_a_user_among_what_must_stay_stay():
    calls = [{"type": "function_call", "call_id": name, "name": "ls", "arguments": "{}"} for name in "ab"]
    results = [{"type": "function_call_output", "call_id": name, "output": "x"} for name in "ab"]
    overlapping = [calls[0], calls[1], results[0], user("b"), results[1]]
    found = of_items(user("a"), DONE, *overlapping, DONE, user("c"))
    asked = next(at for at, entry in enumerate(found.entries) if entry.message.text() == "b")
    assert all(unit.start != asked for units in found.removable() for unit in units)
