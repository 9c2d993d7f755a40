"""What the core sees of messages of the Messages API."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import (
    IMAGE,
    MARK,
    PNG,
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

from proxy.core.content_types import media_type
from proxy.core.conversation.attachment import Route
from proxy.core.conversation.message import Carried, Parts, Shown, Words
from proxy.errors import MalformedRequest
from proxy.wire.messages.wire import MESSAGES


def read(*messages, **members):
    return list(MESSAGES.parse(spelled(body_of(list(messages), **members))).conversation)


def rendered(*messages, changed=None):
    request = MESSAGES.parse(spelled(body_of(list(messages))))
    views = list(request.conversation)
    sent = changed(views) if changed else views
    return json.loads(MESSAGES.render(request, sent, {}))["messages"]


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


def test_what_stands_before_a_result_belongs_to_it():
    assert [(one.role, one.is_companion) for one in read(user([text("hm"), result(1, "a")]))] == [
        ("reminder", True),
        ("tool", False),
    ]


def test_a_lone_result_keeps_the_bytes_of_its_message():
    message = user([result(1, "a")])
    (found,) = read(message)
    assert found.raw == spelled(message)
    assert (found.role, found.answers) == ("tool", "toolu_1")


def test_calls_are_those_that_a_client_answers():
    (found,) = read(assistant([use(1, "Bash"), {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}]))
    assert [(call.id, call.name) for call in found.calls] == [("toolu_1", "Bash")]


def test_neighbouring_messages_of_the_assistant_are_one_turn():
    first, second = read(assistant([text("a")]), assistant([use(1)]))
    assert (first.is_companion, second.is_companion) == (False, True)


def test_a_system_text_goes_with_what_stands_before_it():
    assert read(user("x"), system("y"))[1].is_companion


def test_thoughts_count_and_signatures_do_not():
    (found,) = read(assistant([{"type": "thinking", "thinking": "because", "signature": "S" * 99}, text("so")]))
    assert found.text() == "because\nso"
    assert [*found.thoughts(), found.reasoning()] == [None]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "web_search_tool_result", "content": [{"title": "T", "encrypted_content": "E"}]}, "T"),
        ({"type": "unheard_of", "inner": [{"words": "w"}]}, "w"),
        ({"type": "redacted_thinking", "data": "E"}, ""),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}}, "page"),
        ({"type": "text", "text": "t", "citations": [{"cited_text": "c"}]}, "t"),
    ],
)
def test_of_any_block_the_texts_count(block, said):
    assert said in read(assistant([block]))[0].text()
    assert "E" not in read(assistant([block]))[0].text()


def test_images_in_results_are_media_there():
    (found,) = read(user([result(1, [text("shot"), IMAGE])]))
    assert found.images == 1
    assert [one is not None for one in found.media()] == [True]
    _, parts = found.parts()
    assert [part.attachment is not None for part in parts] == [False, True]
    assert parts[1].attachment.payload == PNG


@pytest.mark.parametrize("others", [[], [result(2, "b", **MARK)]])
def test_a_text_of_a_result_is_changed_and_all_else_keeps_its_bytes(others):
    def shorter(views):
        (at, _), *_ = views[0].texts()
        return [views[0].changed({at: "short"}), *views[1:]]

    found = rendered(user([result(1, [text("long"), IMAGE], is_error=True, **MARK), *others]), changed=shorter)
    assert found == [user([result(1, [text("short"), IMAGE], is_error=True, **MARK), *others])]


def test_a_result_that_is_a_string_stays_one():
    def noted(views):
        return [views[0].changed({at: "note" + said for at, said in views[0].texts()})]

    assert rendered(user([result(1, "a")]), changed=noted) == [user([result(1, "notea")])]


def test_a_description_keeps_the_mark_of_the_image_in_whose_place_it_stands():
    (found,) = read(user([{**IMAGE, **MARK}]))
    at, (part,) = found.parts()
    changed = found.changed({at: Parts((Words("a picture", instead_of=part.rest),))})
    assert json.loads(changed.raw)["content"] == [text("a picture", **MARK)]


def test_no_mark_stands_on_an_empty_text():
    (found,) = read(user([text("x", **MARK), text("y")]))
    at, (first, second) = found.parts()
    changed = found.changed({at: Parts((Words("", first.raw), Carried(second.raw)))})
    assert json.loads(changed.raw)["content"] == [text(""), text("y")]


def test_an_image_is_written_in_the_shape_of_the_api():
    (found,) = read(user([{**IMAGE, **MARK}]))
    at, (part,) = found.parts()
    content = part.attachment.content()
    shown = Shown(Route.IMAGE, media_type(content, "", ""), content, like=part.rest)
    assert json.loads(found.changed({at: Parts((shown,))}).raw)["content"] == [{**IMAGE, **MARK}]


def test_the_input_of_a_call_stays_an_object():
    (found,) = read(assistant([text("x"), use(1, path="a")]))
    (argument,) = found.arguments()
    assert (json.loads(argument.text), argument.call_id) == ({"path": "a"}, "toolu_1")
    assert json.loads(found.changed({argument.at: '{"path":"b"}'}).raw)["content"][1]["input"] == {"path": "b"}
    assert json.loads(found.changed({argument.at: "cut"}).raw)["content"][1]["input"] == {"text": "cut"}


def test_hidden_calls_come_back_among_the_calls():
    (found,) = read(assistant([text("x"), use(1), use(3)]))
    whole = found.with_calls({0: json.dumps(use(0)).encode(), 2: json.dumps(use(2)).encode()})
    assert [call.id for call in whole.calls] == ["toolu_0", "toolu_1", "toolu_2", "toolu_3"]
    assert json.loads(whole.raw)["content"][0] == text("x")


def test_marks_and_the_form_of_a_lone_text_are_no_part_of_what_is_kept():
    marked, plain = (read(user(content))[0] for content in ([text("a", **MARK)], "a"))
    assert json.loads(marked.unmarked()) == json.loads(plain.unmarked()) == user("a")
    assert (marked.is_marked, plain.is_marked) == (True, False)
    assert marked.conversational() == plain.conversational()


@pytest.mark.parametrize(
    "block",
    [
        result(1, [{"type": "tool_reference", "tool_name": "t"}]),
        {"type": "tool_addition", "tool": {}},
    ],
)
def test_what_brings_tools_must_stay(block):
    assert read(user([block]))[0].must_stay


def test_words_about_such_blocks_bring_no_tools():
    found = read(assistant([use(1, kind="tool_reference")]), user([result(1, '"tool_reference"')]))
    assert [one.must_stay for one in found] == [False, False]


def test_what_stands_before_a_compaction_is_one_message_that_nobody_reads():
    compaction = assistant([{"type": "compaction", "content": "so far"}, text("on")])
    old = [user("a" * 9999), assistant([text("b")])]
    ignored, kept, asked = read(*old, compaction, user("go on"))
    assert (ignored.role, ignored.text(), ignored.must_stay, ignored.parts()) == ("ignored", "", True, None)
    assert (kept.must_stay, kept.text()) == (True, "so far\non")
    assert rendered(*old, compaction, user("go on")) == [*old, compaction, user("go on")]
    assert asked.role == "user"


def test_a_thread_that_the_upstream_holds_is_not_looked_into():
    body = spelled(body_of([user([result(1, "a")])], thread={"type": "continue", "previous_message_id": "m"}))
    request = MESSAGES.parse(body)
    assert [message.role for message in request.conversation] == ["ignored"]
    assert (request.reply_limit, request.ends, request.shape.is_whole) == (None, (), False)
    assert MESSAGES.with_tool(request, "always") is None


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


def test_a_system_text_stays_where_its_client_puts_it():
    history = [user("a"), system("s"), user("b")]
    assert rendered(*history) == history


def test_what_counts_besides_messages_is_the_text_of_system_without_the_header_for_the_bill():
    told = MESSAGES.instructions(
        {"system": spelled([text("x-anthropic-billing-header: cch=1"), text("Be brief.", **MARK)])}
    )
    assert told == b"Be brief."


@given(histories())
def test_a_request_that_nothing_changes_is_rendered_with_the_very_bytes_of_its_messages(history):
    body = spelled(body_of(history))
    request = MESSAGES.parse(body)
    listed = MESSAGES.render(request, request.conversation.messages, {})
    assert json.loads(listed) == json.loads(body)
    for message in history:
        assert spelled(message) in listed


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_the_messages_that_two_bodies_share_are_not_read_again_and_are_the_same(history, cut, kept):
    whole = spelled(body_of(history, system="s"))
    part = spelled(body_of(history[: 1 + cut % len(history)], system="s"))
    known = MESSAGES.parse(part)
    shared = known.shared_messages(whole)
    found = MESSAGES.parse(whole, known, shared)
    assert found.conversation == MESSAGES.parse(whole).conversation
    assert found.ends == MESSAGES.parse(whole).ends


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-9, 9),
        st.sampled_from(["user", "assistant", "tool_result", "tool_use", "compaction", "text", "image", "base64"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "source", "data", "input", "tool_use_id", "id", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=5), JSON)
def test_whatever_stands_in_a_request_it_is_read_or_malformed(messages, other):
    body = spelled({"messages": messages, "system": other, "tools": other, "thread": other, "max_tokens": other})
    try:
        request = MESSAGES.parse(body)
    except MalformedRequest:
        return
    for message in request.conversation:
        message.text()
        list(message.texts())
        list(message.arguments())
        list(message.addresses())
        message.media()
        message.parts()
        message.conversational()
        message.unmarked()
        assert isinstance(message.images, int)
        assert message.may_hold_media in (True, False)
        if message.can_carry_a_note:
            at, new = message.with_note("n", after=True)
            message.changed({at: new})
    assert json.loads(MESSAGES.render(request, request.conversation.messages, {})) == json.loads(body)
    MESSAGES.instructions(request.members)
    MESSAGES.with_tool(request, "always")
