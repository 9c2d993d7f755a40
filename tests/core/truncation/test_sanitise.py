from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.strategies import (
    TEXTS,
    budgets,
    exchange,
    notices,
    part,
    pipeline,
    planned,
    spelled,
    user,
    valid_histories,
)

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.plan import Pipeline
from proxy.core.compaction.steps import compaction_steps, last_resorts
from proxy.core.conversation.edit import Reason
from proxy.core.text.excerpt import ExcerptLimits
from proxy.core.truncation.sanitise import REPLACEMENT, Sanitise, SanitiseText
from proxy.wire.chat_completions.message import ChatMessage

KINDS = st.frozensets(st.sampled_from(Sanitise))


def with_step(kinds) -> Pipeline:
    steps = pipeline(Budget(10**9))
    return Pipeline((SanitiseText(kinds),), steps.compaction_steps, (), steps.notices, steps.counter, steps.budget)


def refused(character: str, kinds) -> bool:
    code = ord(character)
    return (
        (Sanitise.NON_BMP in kinds and code > 0xFFFF)
        or (Sanitise.SURROGATES in kinds and 0xD800 <= code < 0xE000)
        or (Sanitise.CONTROL in kinds and (code < 32 or code == 127) and character not in "\t\n\r")
    )


@given(st.one_of(TEXTS, st.text(st.characters(categories=None))), KINDS, st.sampled_from(["user", "tool"]))
@settings(deadline=None)
def test_every_such_character_becomes_the_replacement_and_no_other_changes(text, kinds, role):
    made = planned([{"role": role, "content": text}], with_step(kinds))
    (message,) = made.messages
    expected = "".join(REPLACEMENT if refused(character, kinds) else character for character in text)
    count = sum(one != other for one, other in zip(expected, text, strict=True))
    after = ChatMessage.read(message).content()
    assert after == expected or (
        count and after.removesuffix(notices().replaced(count)).rstrip("\n") == expected.rstrip("\n")
    )
    assert bool(made.edits) == bool(count)
    assert (after == expected) == (not count)


@pytest.mark.parametrize("text", ["\b", "\f", "\x7f", "a\x7f" * 50])
def test_a_character_is_replaced_even_where_that_takes_more_bytes(text):
    (message,) = planned([{"role": "tool", "content": text}], with_step(frozenset({Sanitise.CONTROL}))).messages
    assert ChatMessage.read(message).content().startswith(text.replace(text[-1], REPLACEMENT) + "\n[context-proxy: ")


def test_each_text_of_a_list_is_looked_at():
    message = ChatMessage.read(spelled({"role": "user", "content": [part("a"), part("b🙂"), {"type": "image_url"}]}))
    edits = list(SanitiseText(frozenset({Sanitise.NON_BMP}))(0, message, "", notices()))
    assert [(edit.at, edit.becomes) for edit in edits] == [
        (("content", 1, "text"), f"b\ufffd\n{notices().replaced(1)}")
    ]


def test_arguments_of_calls_and_reasoning_are_looked_at_too():
    called = {"id": "c🙂", "type": "function", "function": {"name": "say", "arguments": '{"text": "🙂"}'}}
    custom = {"id": "d", "type": "custom", "custom": {"name": "patch", "input": "+🙂"}}
    message = {"role": "assistant", "content": None, "reasoning_content": "a🙂", "tool_calls": [called, custom, 7]}
    (sent,) = planned([message], with_step(frozenset({Sanitise.NON_BMP}))).messages
    called["function"]["arguments"], custom["custom"]["input"] = '{"text": "\ufffd"}', "+\ufffd"
    assert json.loads(sent) == message | {"reasoning_content": "a\ufffd"}
    odd = [{"role": "assistant", "tool_calls": {}}, {"role": "assistant", "tool_calls": [{"function": "🙂"}]}]
    assert planned(odd, with_step(frozenset(Sanitise))).edits == ()


def test_without_kinds_nothing_is_done():
    assert list(SanitiseText(frozenset())(0, ChatMessage.read(b'{"content":"\\ud800"}'), "", notices())) == []


def noted(content, role="tool", kinds=frozenset({Sanitise.NON_BMP}), language="en"):
    """The content that is sent."""
    steps = pipeline(Budget(10**9), language=language)
    made = Pipeline((SanitiseText(kinds),), steps.compaction_steps, (), steps.notices, steps.counter, steps.budget)
    (message,) = planned([{"role": role, "content": content}], made).messages
    return ChatMessage.read(message).content()


@pytest.mark.parametrize("role", ["tool", "user"])
def test_one_note_says_how_many_characters_of_a_message_were_replaced(role):
    said = "[context-proxy: characters shown as \ufffd here, as the upstream does not take them: 3]\n"
    assert noted("a🙂b🙂🙂", role) == f"a\ufffdb\ufffd\ufffd\n{said}"
    assert noted("a🙂\n🙂🙂\n", role) == f"a\ufffd\n\ufffd\ufffd\n{said}"
    parts = noted([part("🙂"), part("b"), part("🙂🙂"), part("c")], role)
    assert [one["text"] for one in parts] == ["\ufffd", "b", f"\ufffd\ufffd\n{said}", "c"]
    chinese = "[context-proxy: 上游不接受的字符在此显示为 \ufffd，共 1 个]\n"
    assert noted("🙂", role, language="zh") == f"\ufffd\n{chinese}"


def test_a_result_of_the_common_shape_has_the_note_in_its_text():
    text = '{"status": "success", "data": {"say": "🙂"}, "text": "done 🙂"}'
    found = json.loads(noted(text))
    assert found["data"] == {"say": "\ufffd"}
    assert found["text"].endswith("them: 2]\ndone \ufffd")
    assert found.keys() == {"status", "data", "text"}


@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_what_the_assistant_or_the_operator_said_has_no_note(role):
    assert noted("a🙂", role) == "a\ufffd"


@given(st.lists(st.one_of(TEXTS, st.text(st.characters(categories=None))), max_size=3), KINDS)
@settings(deadline=None)
def test_planning_twice_counts_nothing_twice(texts, kinds):
    history = [{"role": "user", "content": [part(text) for text in texts]}]
    made = planned(history, with_step(kinds))
    again = planned([json.loads(raw) for raw in made.messages], with_step(kinds))
    assert again.edits == ()


def cutting(budget, kinds):
    """The steps as the shell puts them together."""
    every, step = pipeline(budget, limits=ExcerptLimits(4_000, 50_000)), SanitiseText(kinds)
    notices, local = structs.replace(every.notices, clean=step.clean), (*every.local, step)
    return replace(
        every,
        local=local,
        always=step,
        notices=notices,
        compaction_steps=compaction_steps(notices, budget, lambda _: local, every.counter),
        last_resorts=last_resorts(notices, budget, lambda _: local, every.counter),
    )


def left(made, kinds):
    """The messages of a plan that still hold such characters."""
    return [
        message
        for message in map(ChatMessage.read, made.messages)
        if any(refused(character, kinds) for _, text in message.texts() for character in text)
    ]


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([user("Go."), *exchange(["line 🙂 of output\n" * 1_500])], Reason.NEWEST_RESULT),
        (
            [*(user(f"Please 🙂 {n} " + "words " * 200) for n in range(12)), user("And now?")],
            Reason.OMISSION_NOTE,
        ),
        ([user("🙂 " * 16_000), {"role": "assistant", "content": "ok"}, user("On.")], Reason.NEWEST_TEXT),
    ],
    ids=["the newest result", "the note quotes the user", "an old text"],
)
def test_no_cut_brings_such_a_character_back(history, reason):
    kinds = frozenset({Sanitise.NON_BMP})
    made = planned(history, cutting(Budget(3_000), kinds))
    assert made.fits
    assert reason in {edit.reason for edit in made.edits}
    assert left(made, kinds) == []


@given(valid_histories(), budgets(), KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_cut_of_any_conversation_brings_such_a_character_back(history, budget, kinds):
    assert left(planned(history, cutting(budget, kinds)), kinds) == []
