from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import (
    IMAGE,
    MARK,
    assistant,
    histories,
    result,
    spelled,
    system,
    text,
    use,
    user,
)

from proxy.core.text import jsontext
from proxy.wire.messages import ApiMessage, reading
from proxy.wire.messages.reading import (
    begins_with_thinking,
    changes_what_was_read,
    count_of_items,
    ignored,
    joined,
    loop_start,
    may_continue,
)


def counted(*messages):
    """Each message with the number of items that are read once it ends."""
    return reading.read([spelled(message) for message in messages])


def read(*messages):
    return [message for message, _ in counted(*messages)]


def rendered(*messages, changed=None):
    views = read(*messages)
    sent = changed(views) if changed else views
    return json.loads(joined(sent, views))


def test_each_result_is_a_message_and_so_are_a_persons_words_beside_them():
    found = read(user([result(2, "b"), result(1, "a"), text("and now?")]))
    assert [(one.role, one.answers, one.text()) for one in found] == [
        ("tool", "toolu_2", "b"),
        ("tool", "toolu_1", "a"),
        ("user", "", "and now?"),
    ]
    assert [one.is_companion for one in found] == [False, False, False]


@pytest.mark.parametrize(
    ("block", "role"), [(text("<system-reminder>x</system-reminder>"), "reminder"), (IMAGE, "user")]
)
def test_reminders_and_images_beside_results_stay_and_go_with_them(block, role):
    *_, beside = read(user([result(1, "a"), block]))
    assert (beside.role, beside.is_companion) == (role, True)


def test_words_behind_a_reminder_are_a_persons():
    *_, beside = read(user([result(1, "a"), text("<system-reminder>x</system-reminder>\n\nGo on with b.")]))
    assert (beside.role, beside.is_companion) == ("user", False)


def test_content_before_a_result_belongs_to_it():
    assert [(one.role, one.is_companion) for one in read(user([text("hm"), result(1, "a")]))] == [
        ("reminder", True),
        ("tool", False),
    ]


def test_a_lone_result_keeps_the_bytes_of_its_message():
    message = user([result(1, "a")])
    (found,) = read(message)
    assert found.raw == spelled(message)
    assert (found.role, found.answers) == ("tool", "toolu_1")


def test_neighbouring_messages_of_the_assistant_are_one_turn():
    first, second = read(assistant([text("a")]), assistant([use(1)]))
    assert (first.is_companion, second.is_companion) == (False, True)


@pytest.mark.parametrize("others", [[], [result(2, "b", **MARK)]])
def test_a_text_of_a_result_is_changed_and_all_else_keeps_its_bytes(others):
    def shorter(views):
        (at, _), *_ = views[0].texts()
        return [views[0].changed({at: "short"}), *views[1:]]

    found = rendered(user([result(1, [text("long"), IMAGE], is_error=True, **MARK), *others]), changed=shorter)
    assert found == [user([result(1, [text("short"), IMAGE], is_error=True, **MARK), *others])]


def test_everything_before_a_compaction_is_one_opaque_message():
    compaction = assistant([{"type": "compaction", "content": "so far"}, text("on")])
    old = [user("a" * 9999), assistant([text("b")])]
    ignored, kept, question = read(*old, compaction, user("go on"))
    assert (ignored.role, ignored.text(), ignored.must_stay, ignored.parts()) == ("ignored", "", True, None)
    assert (kept.must_stay, kept.text()) == (True, "so far\non")
    assert rendered(*old, compaction, user("go on")) == [*old, compaction, user("go on")]
    assert question.role == "user"


def test_a_system_text_whose_answer_is_left_out_goes_behind_the_users_words_that_follow():
    history = [
        user("a"),
        assistant([use(1)]),
        user([result(1, "x")]),
        system("s"),
        assistant([text("b")]),
        user("c"),
        assistant([text("d")]),
    ]
    found = rendered(*history, changed=lambda views: [view for view in views if view.text() != "b"])
    assert [message["role"] for message in found] == ["user", "assistant", "user", "user", "system", "assistant"]


def test_a_system_text_is_never_left_right_behind_an_assistant_message():
    history = [user("a"), assistant([text("b")]), user("c"), system("s"), assistant([text("d")]), user("e")]
    found = rendered(*history, changed=lambda views: [view for view in views if view.text() != "c"])
    assert [message["role"] for message in found] == ["user", "assistant", "assistant", "user", "system"]


def test_a_system_text_behind_a_servers_result_stays_there():
    searched = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    history = [user("a"), assistant([text("b")]), assistant([searched]), system("s"), assistant([text("d")])]
    found = rendered(*history, changed=lambda views: [view for view in views if view.text() != "b"])
    assert [message["role"] for message in found] == ["user", "assistant", "system", "assistant"]


def test_a_system_text_stays_where_its_client_puts_it():
    history = [user("a"), system("s"), user("b")]
    assert rendered(*history) == history


@given(histories())
def test_messages_that_nothing_changes_are_joined_with_their_very_bytes(history):
    views = read(*history)
    items = jsontext.items(joined(views, views))
    assert list(map(bytes, items)) == [spelled(message) for message in history]


@given(histories())
def test_every_message_of_the_api_makes_one_at_least_and_each_says_which_it_ends_with(history):
    ends = [end for _, end in counted(*history)]
    begun = ends[0] if read(*history)[0].role == "ignored" else 1
    assert sorted(set(ends)) == list(range(begun, len(history) + 1))
    assert ends == sorted(ends)


@given(histories(), st.integers(1, 40))
def test_what_follows_changes_no_message_but_where_a_compaction_comes(history, cut):
    whole, part = counted(*history), counted(*history[:cut])
    if not any(changes_what_was_read(spelled(message)) for message in history[cut:]):
        assert whole[: len(part)] == part


def test_of_one_message_with_several_views_those_that_are_left_are_put_together():
    message = user([text("hm"), result(1, "a"), result(2, "b"), text("and now?")])
    assert [rendered(message, changed=lambda views, at=at: [*views[:at], *views[at + 1 :]]) for at in range(4)] == [
        [user([*message["content"][:at], *message["content"][at + 1 :]])] for at in range(4)
    ]
    assert rendered(message, changed=lambda _: []) == []


def test_views_of_two_messages_are_two_messages_though_they_read_the_same():
    message = user([result(1, "a"), result(2, "b")])
    assert rendered(message, message) == [message, message]


def test_a_view_whose_bytes_are_gone_is_left_out():
    first, second = read(user([result(1, "a"), result(2, "b")]))
    empty = ApiMessage(b"", second.role, frame=second.frame, place=second.place)
    assert json.loads(joined([first, empty], [])) == [user([result(1, "a")])]
    assert json.loads(joined([empty], [])) == []


def test_blocks_beside_results_that_follow_each_other_are_one_message():
    words, second = text("and"), text("now?")
    *_, beside = read(user([result(1, "a"), words, second]))
    assert beside.raw == spelled(words) + b", " + spelled(second)
    assert beside.text() == "and\nnow?"


def test_a_repeated_result_is_read_at_both_places():
    first, second = read(user([result(1, "a"), result(1, "a")]))
    assert first.raw == second.raw == spelled(result(1, "a"))
    assert (first.place, second.place) == (0, 1)


def test_only_the_result_that_brings_tools_must_stay():
    brings = result(2, [{"type": "tool_reference", "tool_name": "t"}])
    assert [one.must_stay for one in read(user([result(1, "a"), brings, text("x")]))] == [False, True, False]


@pytest.mark.parametrize(
    ("message", "count"),
    [(user([use(1)]), 1), (assistant([result(1, "a"), text("x")]), 1), (user('"tool_result"'), 1), (7, 1), ([], 1)],
)
def test_a_message_without_results_is_one_message(message, count):
    found = read(message)
    assert len(found) == count
    assert found[0].raw == spelled(message)


def test_only_an_assistants_message_may_continue_in_the_next_one():
    assert [may_continue(message) for message in read(assistant("a"), user("b"), system("c"))] == [True, False, False]


def test_the_last_compaction_counts_and_one_in_words_does_not():
    compaction = assistant([{"type": "compaction", "content": "so far"}])
    assert [end for _, end in counted(user("a"), compaction, user("b"), compaction, user("c"))] == [3, 4, 5]
    assert [end for _, end in counted(user("a"), compaction, user("b"))] == [1, 2, 3]
    assert [message.role for message in read(user("a"), compaction)] == ["ignored", "assistant"]
    assert [end for _, end in counted(user("a"), user('"compaction"'), user("c"))] == [1, 2, 3]
    assert [end for _, end in counted(compaction, user("c"))] == [1, 2]


def test_a_compaction_may_change_what_was_read_and_nothing_else_does():
    assert changes_what_was_read(spelled(assistant([{"type": "compaction", "content": "x"}])))
    assert not changes_what_was_read(spelled(assistant([text("a compaction")])))


def test_uninspected_items_are_written_unchanged():
    message = ignored([b"7", b'{"role": "user"}'])
    assert (message.text(), message.must_stay, list(message.texts())) == ("", True, [])
    assert joined([message], [message]) == b'[7,{"role": "user"}]'


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


@pytest.mark.parametrize(
    ("contents", "begins"),
    [
        ([[THOUGHT, use(1)]], True),
        ([[use(1)]], False),
        ([[THOUGHT], [text("so")], [use(1)]], True),
        ([[text("so")], [THOUGHT, use(1)]], False),
        ([[text("Done.")]], True),
        ([], True),
    ],
)
def test_thinking_begins_what_the_api_reads_as_one_message(contents, begins):
    assert begins_with_thinking(read(user("a"), *map(assistant, contents))) is begins


def test_the_views_of_one_message_count_once():
    views = read(user("a"), assistant([use(1), use(2)]), user([result(1, "a"), result(2, "b"), text("on")]), user("b"))
    assert [count_of_items(views[:stop]) for stop in range(len(views) + 1)] == [0, 1, 2, 3, 3, 3, 4]
    assert (loop_start(views), loop_start(views[:4])) == (len(views), 1)


def test_a_tool_loop_begins_after_the_last_words_of_a_person_not_after_a_reminder():
    views = read(
        user("go"), assistant([use(1)]), user([result(1, "a"), text("<system-reminder>mind</system-reminder>")])
    )
    assert [one.is_companion for one in views] == [False, False, False, True]
    media = read(user("go"), assistant([use(1)]), user([result(1, "a"), IMAGE]))
    assert [(one.role, one.is_companion) for one in media[-1:]] == [("user", True)]
    assert loop_start(media) == loop_start(views) == 1


def test_a_text_that_is_called_like_a_result_is_none():
    (view,) = read(user([text("tool_result"), text("b")]))
    assert (view.role, view.text()) == ("user", "tool_result\nb")
