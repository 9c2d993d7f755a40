from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import (
    IMAGE,
    MARK,
    assistant,
    body_of,
    histories,
    result,
    spelled,
    system,
    text,
    use,
    user,
)

from proxy.core.text import jsontext
from proxy.wire.messages import MESSAGES, ApiMessage


def parsed(*messages, **members):
    return MESSAGES.parse(spelled(body_of(messages, **members)))


def read(*messages):
    return list(parsed(*messages).conversation)


def listed(request, views):
    """The messages of the API that these views are sent as."""
    return jsontext.items(dict(jsontext.members(MESSAGES.render(request, views, {})))["messages"])


def rendered(*messages, changed=list):
    request = parsed(*messages)
    return [json.loads(bytes(item)) for item in listed(request, changed(list(request.conversation)))]


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
    request = parsed(*history)
    assert list(map(bytes, listed(request, request.conversation))) == [spelled(message) for message in history]


@given(histories(), st.integers(1, 40))
def test_what_follows_changes_no_message_but_where_a_compaction_comes(history, cut):
    whole, part = read(*history), read(*history[:cut])
    if whole[0].role == part[0].role:
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
    def without(*gone):
        def changed(views):
            return [
                ApiMessage(b"", one.role, frame=one.frame, place=at) if at in gone else one
                for at, one in enumerate(views)
            ]

        return changed

    message = user([result(1, "a"), result(2, "b")])
    assert rendered(message, changed=without(1)) == [user([result(1, "a")])]
    assert rendered(message, changed=without(0, 1)) == []


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
    "message", [user([use(1)]), assistant([result(1, "a"), text("x")]), user('"tool_result"'), 7, []]
)
def test_a_message_without_results_is_one_message(message):
    assert [one.raw for one in read(message)] == [spelled(message)]


def test_the_last_compaction_counts_and_one_in_words_does_not():
    compaction = assistant([{"type": "compaction", "content": "so far"}])

    def roles(*messages):
        return [one.role for one in read(*messages)]

    assert roles(user("a"), compaction, user("b"), compaction, user("c")) == ["ignored", "assistant", "user"]
    assert roles(user("a"), compaction) == ["ignored", "assistant"]
    assert roles(compaction, user("c")) == ["assistant", "user"]
    assert roles(user("a"), user('"compaction"'), user("c")) == ["user"] * 3


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
    request = parsed(user("a"), *map(assistant, contents), thinking={"type": "enabled", "budget_tokens": 1_024})
    assert MESSAGES.lacks_reasoning(request) is not begins


RUNNING = [user([result(2, "b"), text("<system-reminder>mind</system-reminder>")]), user([result(2, "b"), IMAGE])]


@pytest.mark.parametrize("running", RUNNING, ids=["a reminder", "an image"])
@pytest.mark.parametrize(("refusal", "left"), [("", [4]), ("messages.4.content.0: Invalid", []), ("messages.1.", [4])])
def test_the_thinking_of_a_running_loop_goes_only_if_a_refusal_names_it(running, refusal, left):
    """The loop begins after the last words of a person, and the views of one message count once."""
    old = [user("a"), assistant([THOUGHT, use(0), use(1)]), user([result(0, "x"), result(1, "a")])]
    request = parsed(*old, user("go"), assistant([THOUGHT, use(2)]), running, thinking={"type": "enabled"})
    unsealed = MESSAGES.unsealed(request, request.conversation.messages, refusal, "en")
    sent = listed(unsealed, unsealed.conversation.messages)
    assert [at for at, item in enumerate(sent) if b'"thinking"' in bytes(item)] == left
    adaptive = parsed(*old, user("go"), assistant([THOUGHT, use(2)]), running, thinking={"type": "adaptive"})
    assert b'"thinking"' not in b"".join(one.raw for one in MESSAGES.unsealed(adaptive, (), refusal, "en").conversation)


def test_a_text_that_is_called_like_a_result_is_none():
    (view,) = read(user([text("tool_result"), text("b")]))
    assert (view.role, view.text()) == ("user", "tool_result\nb")
