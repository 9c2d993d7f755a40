from __future__ import annotations

import json

import pytest
from core.strategies import TEXTS, notices, part, pipeline, planned, spelled
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.budget import Budget
from proxy.core.conversation import Message
from proxy.core.plan import Pipeline
from proxy.core.steps.sanitise import REPLACEMENT, Sanitise, SanitiseText

KINDS = st.frozensets(st.sampled_from(Sanitise))


def with_step(kinds) -> Pipeline:
    steps = pipeline(Budget(10**9))
    return Pipeline((SanitiseText(kinds),), steps.reliefs, (), steps.notices, steps.counter, steps.budget)


def refused(character: str, kinds) -> bool:
    code = ord(character)
    return (
        (Sanitise.NON_BMP in kinds and code > 0xFFFF)
        or (Sanitise.SURROGATES in kinds and 0xD800 <= code < 0xE000)
        or (Sanitise.CONTROL in kinds and (code < 32 or code == 127) and character not in "\t\n\r")
    )


@given(st.one_of(TEXTS, st.text(st.characters(categories=None))), KINDS, st.sampled_from(["user", "tool", "system"]))
@settings(deadline=None)
def test_every_such_character_becomes_the_replacement_and_no_other_changes(text, kinds, role):
    made = planned([{"role": role, "content": text}], with_step(kinds))
    (message,) = made.messages
    expected = "".join(REPLACEMENT if refused(character, kinds) else character for character in text)
    assert Message.read(message).content() == expected
    assert bool(made.edits) == (expected != text)


@pytest.mark.parametrize("text", ["\b", "\f", "\x7f", "a\x7f" * 50])
def test_a_character_is_replaced_even_where_that_takes_more_bytes(text):
    (message,) = planned([{"role": "tool", "content": text}], with_step(frozenset({Sanitise.CONTROL}))).messages
    assert Message.read(message).content() == text.replace(text[-1], REPLACEMENT)


def test_each_text_of_a_list_is_looked_at():
    message = Message.read(spelled({"role": "user", "content": [part("a"), part("b🙂"), {"type": "image_url"}]}))
    edits = list(SanitiseText(frozenset({Sanitise.NON_BMP}))(0, message, "", notices()))
    assert [(edit.path, json.loads(edit.replacement)) for edit in edits] == [(("content", 1, "text"), "b\ufffd")]


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
    assert list(SanitiseText(frozenset())(0, Message.read(b'{"content":"\\ud800"}'), "", notices())) == []
