"""Later instructions: developer messages, and system messages in requests with tools, that stand in the middle of a
conversation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import conversation as conversation_of
from support.strategies import exchange, pairing_faults, pipeline, planned, system, turn_by_turn, user

from proxy.core.compaction import Budget
from proxy.core.text import jsontext
from proxy.wire.chat_completions import ChatMessage

RULES = "".join(f"Rule {number}: mind the permissions of folder_{number}.\n" for number in range(110))
"""About 1 700 tokens."""


def developer(content, role="developer"):
    return {"role": role, "content": content}


def made(room=12_000, *, has_tools=True):
    return replace(pipeline(Budget(room)), has_tools=has_tools)


def run(*first, count=30, size=40):
    history = [system(), user("one task"), *first]
    for number in range(count):
        history += exchange([f"line {number:04}\n" * size * 4], first_call=number)
    return history


def contents(plan):
    return [ChatMessage.read(raw).content() for raw in plan.messages]


@pytest.mark.parametrize("role", ["developer", "system"])
def test_a_later_instruction_stays_whole_when_older_exchanges_go(role):
    instruction = f"<permissions>\n{RULES}"
    plan = planned(run(developer(instruction, role)), made())
    assert any(edit.becomes is None for edit in plan.edits)
    assert instruction in contents(plan)


@pytest.mark.parametrize(("role", "is_output"), [("developer", False), ("system", True)])
def test_without_tools_a_later_system_message_is_output_and_a_developer_message_is_not(role, is_output):
    text = f"<permissions>\n{RULES}" * 3
    plan = planned(
        [user("task"), {"role": "assistant", "content": "I look."}, developer(text, role)],
        made(100_000, has_tools=False),
    )
    assert (contents(plan)[-1] != text) is is_output


def test_the_newest_of_two_versions_stays_and_the_older_one_is_kept_in_an_artifact_and_counted_in_the_note():
    old, new = f"<permissions>\nold\n{RULES}", f"<permissions>\nnew\n{RULES}"
    history = run(developer(old), *exchange(["small"], first_call=900), developer(new))
    plan = planned(history, made(10_000))
    sent = contents(plan)
    assert new in sent
    assert old not in sent
    assert any(jsontext.dump(old)[1:-1] in artifact.content for artifact in plan.artifacts)
    assert any("earlier messages" in str(text) for text in sent)


def test_what_does_not_fit_a_quarter_of_the_room_goes_the_newest_of_each_opening_last():
    kinds = [developer(f"<kind_{chr(97 + number)}>\n{RULES}") for number in range(6)]
    plan = planned(run(*kinds), made(20_000))
    kept = [text for text in contents(plan) if isinstance(text, str) and text.startswith("<kind_")]
    assert kept == [one["content"] for one in kinds[-len(kept) :]]
    assert 1 <= len(kept) < 6


def test_an_instruction_between_a_call_and_its_result_breaks_no_pair():
    first, *rest = exchange(["a\n" * 900, "b\n" * 900], first_call=700)
    plan = planned(run(first, rest[0], developer("<mode>\nplan"), rest[1]), made(8_000))
    assert pairing_faults(plan.messages) == []


INSTRUCTIONS = st.builds(
    lambda kind, version, times, role: developer(f"<kind_{kind}>\n{version}\n" + "rule of it\n" * times, role),
    st.sampled_from("abc"),
    st.integers(0, 9),
    st.sampled_from([1, 100, 700, 3_000]),
    st.sampled_from(["developer", "system"]),
)


@st.composite
def histories(draw):
    found = [system(), user("one task")]
    for number in range(draw(st.integers(1, 8))):
        found += draw(st.lists(INSTRUCTIONS, max_size=2))
        if draw(st.integers(0, 3)) == 0:
            found += [{"role": "assistant", "content": f"done {number}"}, user(f"question {number}")]
            found += draw(st.lists(INSTRUCTIONS, max_size=1))
        found += exchange(
            ["line\n" * draw(st.sampled_from([10, 400, 1_600]))] * draw(st.integers(1, 2)), first_call=2 * number
        )
    return found


def left_out(plan):
    return {edit.message for edit in plan.edits if edit.becomes is None and edit.at == ()}


@given(histories(), st.sampled_from([1_500, 4_000, 9_000]))
@settings(deadline=None, max_examples=30)
def test_instructions_are_sent_whole_or_not_at_all_and_what_has_gone_stays_away(history, room):
    messages, steps = conversation_of(history), made(room)
    whole, gone = {message.raw for message in messages}, set()
    for plan in turn_by_turn(messages, steps):
        sent = [ChatMessage.read(raw) for raw in plan.messages]
        assert all(one.raw in whole for one in sent if one.role in ("system", "developer"))
        if not pairing_faults(plan.messages) and sent and sent[-1].role != "assistant":
            assert gone <= left_out(plan)
            gone = left_out(plan)
    assert planned(messages, steps).messages == plan.messages
