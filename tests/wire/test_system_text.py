from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import pipeline

from proxy.core.compaction import Budget, plan
from proxy.core.conversation import SYSTEM_ROLES, Size
from proxy.core.truncation import LEAST_SYSTEM_BYTES
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.responses import RESPONSES

WIRES = (CHAT_COMPLETIONS, MESSAGES, RESPONSES)
LONG = "line of tool output\n" * 60


def message_of(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def parsed(wire: Any, messages: Any) -> Any:
    name = "input" if wire is RESPONSES else "messages"
    return wire.parse(json.dumps({"model": "m", name: messages}).encode())


@st.composite
def histories(draw: Any) -> list[dict[str, str]]:
    """Messages of an agent that sends tool output and reminders as system messages; each text occurs once."""
    roles = st.sampled_from(["system", "developer"])
    sizes = st.sampled_from([20, 200, 900, LEAST_SYSTEM_BYTES - 20, 3_000, 30_000])
    found = [
        message_of(draw(roles), f"rule {number}\n" * draw(st.integers(1, 60)))
        for number in range(draw(st.integers(0, 3)))
    ]
    for turn in range(draw(st.integers(1, 12))):
        if turn == 0 or draw(st.integers(0, 3)) == 0:
            found.append(message_of("user", f"question {turn}"))
        for _ in range(draw(st.integers(0, 3))):
            found.append(message_of("assistant", f"words {len(found)}"))
            for _ in range(draw(st.sampled_from([0, 1, 1, 2, 30]))):
                found.append(message_of("system", f"output {len(found)}\n".ljust(draw(sizes), "x")))
    return found


def left_of(made: Any) -> set[int]:
    return {index for index, block in enumerate(made.blocks) if block.tokens_after}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.path)
@given(histories(), st.integers(1_500, 20_000))
@settings(deadline=None, max_examples=60)
def test_system_text_at_the_beginning_is_apart_and_later_ones_go_with_what_they_follow(wire, history, room):
    request = parsed(wire, history)
    messages = request.conversation.messages
    made, _ = plan(request.conversation, Size(), pipeline(Budget(room)))
    left = left_of(made)
    sent = {message.raw for message in made.sent}
    begins = next(at for at, message in enumerate(messages) if message.role == "user")
    assert all(messages[at].raw in sent for at in range(begins))
    run = 0
    for at in range(begins, len(messages)):
        run = run + 1 if messages[at].role in SYSTEM_ROLES else 0
        if not run:
            continue
        if run <= 8:
            assert (at in left) is (at - run in left), "it goes with what it follows"
        if at in left and len(history[at]["content"]) < LEAST_SYSTEM_BYTES:
            assert messages[at].raw in sent, "a short one is not touched"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.path)
@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("text", ["mind the plan", "mind the plan " * 70, "记住计划" * 80])
def test_a_run_of_two_thousand_small_ones_fits_a_small_window(wire, role, text):
    run = [message_of(role, f"{number}: {text}") for number in range(2_000)]
    for history in (
        [message_of("user", "do it"), *run],
        [message_of("user", "a"), message_of("assistant", "b"), message_of("user", "c"), *run],
    ):
        made, _ = plan(parsed(wire, history).conversation, Size(), pipeline(Budget(7_000)))
        assert made.fits
        assert len(history) - 1 in left_of(made)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.path)
def test_the_task_of_an_agent_whose_tools_answer_in_system_messages_stays_and_its_output_is_quoted(wire):
    history = [message_of("user", "Find the fault in the parser, and keep these words. " * 20)]
    for number in range(40):
        history += [message_of("assistant", f"step {number}"), message_of("system", LONG + f"fault_{number:04}")]
    made, _ = plan(parsed(wire, history).conversation, Size(), pipeline(Budget(6_000)))
    sent = b"".join(made.messages).decode()
    assert made.fits
    assert history[0]["content"] in sent
    assert "fault_0039" in sent
    assert any(f"fault_{number:04}" in made.sent[0].text() for number in range(20))


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.path)
@pytest.mark.parametrize("at", ["first", "last"])
def test_long_output_beside_a_user_message_that_stays_is_cut(wire, at):
    big = message_of("system", "".join(f"line {number} of output\n" for number in range(4_000)))
    between = [message_of("user", "a"), message_of("assistant", "b")]
    history = (
        [*between[:1], big, *between[1:], message_of("user", "c")]
        if at == "first"
        else [*between, message_of("user", "c"), big]
    )
    made, _ = plan(
        parsed(wire, [*history, message_of("assistant", "d"), message_of("system", "ok")]).conversation,
        Size(),
        pipeline(Budget(4_000)),
    )
    assert made.fits
    assert [message.role for message in made.sent if message.role == "user"] == ["user", "user"]
