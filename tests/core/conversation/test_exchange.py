from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.strategies import any_histories, exchange, pairing_faults, user, valid_histories

from proxy.core.conversation import (
    SYSTEM_ROLES,
    Edit,
    Reason,
    ToolExchange,
    TrackedMessage,
    are_interchangeable,
    dialogue,
    first_request,
    is_quotable,
    opening,
    opens_as_output,
    removable,
    separator,
    unpaired,
)
from proxy.core.tokens import ByteClassCounter
from proxy.wire import repaired as wire_repaired
from proxy.wire.chat_completions import CHAT_COMPLETIONS, ChatMessage
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES

ROLES = st.lists(st.sampled_from(["user", "assistant", "assistant", "system", "developer", "tool"]), max_size=14)


def units_of(roles, staying=()):
    return [ToolExchange(at, at + 1, role, must_stay=at in staying) for at, role in enumerate(roles)]


def kept_when_all_go(units):
    gone = {unit.start for together in removable(units) for unit in together}
    return [unit for unit in units if unit.start not in gone]


@given(ROLES, st.sets(st.integers(0, 13)))
def test_what_has_to_stay_is_never_among_what_may_go(roles, staying):
    units = units_of(roles, staying)
    gone = [unit for together in removable(units) for unit in together]
    assert len({unit.start for unit in gone}) == len(gone)
    assert first_request(units) not in gone
    assert units[-1:] == [unit for unit in units[-1:] if unit not in gone]
    assert [unit for unit in gone if unit.role in SYSTEM_ROLES] == []
    assert [unit for unit in gone if unit.must_stay and unit.role != "user"] == []
    users = [unit for unit in units if unit.role == "user"]
    assert users[-1:] == [unit for unit in users[-1:] if unit not in gone]


@given(ROLES)
def test_the_oldest_is_offered_first(roles):
    offered = [together[0].start for together in removable(units_of(roles))]
    assert offered == sorted(offered)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 25), st.sets(st.integers(0, 3)))
def test_no_omission_puts_two_user_messages_in_a_row(turns, held, spared):
    roles = ["system"] + [role for count in turns for role in ("user", *["assistant"] * count)]
    units = units_of([*roles, "user"])
    is_held = roles[held : held + 1] == ["assistant"]
    words = [turn for at, turn in enumerate(dialogue(units)) if at in spared and not is_held]
    offered = removable(units, held if is_held else None, words)
    assert offered[len(offered) - len(words) :] == words
    assert {unit for together in offered for unit in together} == {
        unit for together in removable(units, held if is_held else None) for unit in together
    }
    for count in range(len(offered) + 1):
        gone = {unit.start for together in offered[:count] for unit in together}
        left = [unit.role for unit in units if unit.start not in gone]
        assert "user user" not in " ".join(left)


def test_dialogue_is_later_user_messages_with_the_words_that_end_their_turn():
    units = units_of(["user", "assistant", "user", "assistant", "assistant", "user", "assistant", "user", "assistant"])
    assert dialogue(units) == [(units[2], units[4]), (units[5], units[6])]
    units[4] = replace(units[4], calls=True)
    units[6] = replace(units[6], must_stay=True)
    assert dialogue(units) == []


def test_the_message_that_the_newest_units_answer_goes_last():
    units = units_of(["user", "assistant", "user", "assistant", "assistant", "user"])
    assert removable(units, held_from=4) == [(units[3], units[2], units[1])]
    assert removable([*units[:4], replace(units[4], calls=True), units[5]], held_from=4) == [(units[3], units[2])]
    assert removable(units[:5], held_from=4) == [(units[3],)], "it is the last one of the user"


def test_the_kept_exchange_between_the_first_two_user_messages_is_the_last_of_its_turn():
    units = units_of(["user", "assistant", "assistant", "system", "user", "assistant"])
    assert separator(units) is units[2]
    assert separator(units_of(["user", "assistant"])) is None
    assert separator(units_of(["user", "user"])) is None


def test_without_a_user_there_is_no_first_request():
    assert first_request(units_of(["system", "assistant"])) is None
    assert [unit.role for unit in kept_when_all_go(units_of(["assistant", "assistant"]))] == ["assistant"]


def request_of(messages):
    return CHAT_COMPLETIONS.parse(json.dumps({"model": "m", "messages": messages}).encode())


def repaired(request):
    found = unpaired(request.conversation.messages)
    return request.repaired(
        found,
        lambda message, call: CHAT_COMPLETIONS.message(CHAT_COMPLETIONS.missing_result(message, call, "interrupted")),
    )


def sent(request):
    body = CHAT_COMPLETIONS.render(request, request.conversation.messages, {})
    return [json.dumps(message).encode() for message in json.loads(body)["messages"]]


@given(valid_histories())
def test_what_pairs_up_is_left_alone(messages):
    assert not unpaired(request_of(messages).conversation.messages)


@given(st.one_of(any_histories(), valid_histories(2)), st.data())
def test_a_repaired_history_pairs_up_and_keeps_every_other_message(messages, data):
    messages = [message for message in messages if data.draw(st.integers(0, 4))]  # one in five is lost
    request = request_of(messages)
    found = unpaired(request.conversation.messages)
    assert bool(found) == bool(pairing_faults([message.raw for message in request.conversation.messages]))
    made = repaired(request)
    assert pairing_faults(sent(made)) == []
    kept = [message for index, message in enumerate(request.conversation.messages) if index not in found.orphans]
    added = set(made.put_in)
    assert [m for index, m in enumerate(made.conversation.messages) if index not in added] == kept
    assert found.count == len(found.orphans) + len(added) == len(made.healed)


@pytest.mark.parametrize(
    ("written", "answers"),
    [
        (["a b", ".", "."], ["", "#0", "#1"]),
        (["a b", ".b", ".a"], ["", "#1", "#0"]),
        (["a b a", ".a", ".", ".a"], ["", "#0", "#1", "#2"]),
        (["a", ".x", "."], ["", "#0", ""]),
        (["a b", ".", "a", ".", "."], ["", "#0", "", "#0", ""]),
        ([".", "", "."], ["", "", ""]),
    ],
)
def test_results_that_name_no_call_answer_the_calls_before_them_in_order(written, answers):
    """Calls by the names of their tools; a result behind a dot, with that of its tool if it has one."""
    messages: list[dict[str, Any]] = []
    for one in written:
        if one.startswith("."):
            messages.append({"role": "tool", "content": "x"} | ({"tool_name": one[1:]} if one[1:] else {}))
        else:
            calls = [{"function": {"name": name, "arguments": {}}} for name in one.split()]
            messages.append({"role": "assistant", "tool_calls": calls} if calls else user("go"))
    body = json.dumps({"model": "m", "messages": messages}).encode()
    assert [message.answers for message in OLLAMA.parse(body).conversation] == answers


@given(st.data())
def test_a_repaired_history_without_ids_pairs_up(data):
    """Whatever results are lost: a result answers the first call that is open, and what lacks is added behind it."""
    messages: list[dict[str, Any]] = [user("go")]
    for _ in range(data.draw(st.integers(1, 4))):
        calls = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4))
        called = [{"function": {"name": name, "arguments": {}}} for name in calls]
        messages.append({"role": "assistant", "tool_calls": called})
        messages += [{"role": "tool", "content": "x"}] * data.draw(st.integers(0, 5))
        messages += [user("on")] * data.draw(st.integers(0, 1))
    made = wire_repaired(OLLAMA, OLLAMA.parse(json.dumps({"model": "m", "messages": messages}).encode()), "", "lacking")
    assert not unpaired(made.conversation.messages)
    rendered = OLLAMA.parse(OLLAMA.render(made, made.conversation.messages, {}))
    assert [one.answers for one in rendered.conversation] == [one.answers for one in made.conversation]
    kept = [json.loads(one.raw) for one in made.conversation if one.role != "tool"]
    assert kept == [one for one in messages if one["role"] != "tool"]


def test_calls_at_the_end_lack_their_results_too():
    messages = [user("go"), exchange(["one"])[0]]
    assert unpaired(request_of(messages).conversation.messages).count == 1
    assert not unpaired(request_of([user("go"), {"role": "assistant", "content": "done"}]).conversation.messages)


@pytest.mark.parametrize(
    "text",
    [
        "<output>\n3 files\n</output>",
        "\n<tool_response>{}</tool_response>",
        " " * 100_000 + "<output>\n3 files\n</output>",
        "\n " * 50_000 + "[ Observation: 3 files",
        "Observation: 3 files",
        "[Tool Output] 3 files",
        "### Command output:\n3 files",
        "EXECUTION RESULT of [ls]:\n3 files",
        "exit code (1)",
        "```\n3 files\n```",
        "观察：3 个文件",
        "执行结果: 3 个文件",
    ],
)
def test_the_output_of_a_tool_is_known_by_how_agents_begin_it(text):
    assert opens_as_output(text)
    assert not is_quotable(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please go on.",
        "The output: nothing",
        "I have read <output> in the docs",
        "Results are good, go on",
        "输出格式请用 JSON",
        "",
        " " * 100_000,
        "#( " * 50_000,
    ],
)
def test_the_words_of_a_person_are_not_taken_for_output(text):
    assert not opens_as_output(text)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(max_size=40))
def test_an_opening_is_the_same_whatever_its_numbers_are(first, second, rest):
    assert opening(f"[step {first}] ran:\n{rest}") == opening(f"[step {second}] ran:\nanother")


@given(st.text(max_size=300))
def test_an_opening_is_a_short_line_or_nothing(text):
    assert len(opening(text)) <= 80
    assert "\n" not in opening(text)
    assert opening("ok") == ""


@pytest.mark.parametrize(("length", "quotable"), [(0, False), (1, True), (4_000, True), (4_001, False)])
def test_only_a_text_of_a_length_that_people_write_is_quoted(length, quotable):
    assert is_quotable("x" * length) is quotable


def tracked(role: str = "user", content: object = "It is 16:10.", **members: object) -> TrackedMessage:
    raw = json.dumps({"role": role, "content": content, **members}).encode()
    return TrackedMessage.of(0, ChatMessage.read(raw), "", ByteClassCounter())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tracked("assistant"), tracked("assistant", "It is 16:11.")),
        (tracked("tool", tool_call_id="a"), tracked("tool", "It is 16:11.", tool_call_id="a")),
        (tracked("system"), tracked()),
        (tracked("system"), tracked("developer")),
        (tracked(), tracked(content="It is noon.")),
        (tracked(content="see a/b.c"), tracked(content="see a/b.d")),
        (tracked(content="Output: 16:10"), tracked(content="Stdout: 16:10")),
    ],
)
def test_what_may_bear_on_others_or_be_cut_itself_is_not_interchangeable(one, other):
    assert not are_interchangeable(one, other, 1_000)


@pytest.mark.parametrize(
    ("words", "task_tokens", "expected"), [(400, 2_000, True), (400, 500, False), (2_000, 20_000, False)]
)
def test_a_task_that_may_have_been_shortened_is_itself(words, task_tokens, expected):
    one, other = (f"It is {time}." + " and so on" * words for time in ("16:10", "16:11"))
    assert are_interchangeable(tracked(content=one), tracked(content=other), task_tokens) is expected
    assert are_interchangeable(tracked("system", one), tracked("system", other), task_tokens)


def test_an_edited_message_replaces_none_but_itself():
    entry, edit = tracked(), Edit(0, ("content",), "other", Reason.SANITISE)
    edited = replace(entry, edits=(edit,))
    assert not are_interchangeable(edited, entry, 1_000)
    assert not are_interchangeable(entry, edited, 1_000)
    followed = replace(entry, following=(entry.message,))
    assert not are_interchangeable(followed, entry, 1_000)


def test_calls_without_reasoning_do_not_separate_the_first_two_questions_where_others_reason():
    first, again = ToolExchange(0, 1, "user", last_user=0), ToolExchange(6, 7, "user", last_user=6)
    thought = ToolExchange(1, 3, "assistant", calls=True, reasons=True)
    bare, words = ToolExchange(3, 5, "assistant", calls=True), ToolExchange(5, 6, "assistant")
    assert separator([first, thought, bare, again]) == thought
    assert separator([first, replace(thought, reasons=False), bare, again]) == bare
    assert separator([first, thought, bare, words, again]) == words


def test_words_behind_what_belongs_to_no_call_do_not_become_the_caller():
    items = [
        user("go"),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "hologram"},
    ]
    messages = RESPONSES.parse(json.dumps({"model": "m", "input": items}).encode()).conversation.messages
    assert [message.is_companion for message in messages] == [False, False, True]
    (left,) = unpaired(messages).unanswered
    assert (left.message, [call.id for call in left.calls]) == (1, ["c"])
