from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import notices

from proxy.core.compaction.steps.shorten_arguments import shortened_arguments
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.message import Argument
from proxy.core.notices.catalogue import MARK

PATCH = "+ a line of a patch\n" * 800
LEAVES = st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=40), st.just(PATCH))
ARGUMENTS = st.dictionaries(
    st.text(max_size=8), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5), max_size=4
)


def shortened(text, max_bytes):
    return shortened_arguments(3, Argument(("at",), "call_1", text), max_bytes, notices(), Reason.NEWEST_TEXT)


def short_values(value):
    if isinstance(value, dict):
        return {name: short_values(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [short_values(inner) for inner in value]
    return "long" if isinstance(value, str) and len(value) > 100 else value


@given(ARGUMENTS, st.integers(0, 30_000))
def test_arguments_stay_json_with_all_names_and_all_short_values(arguments, max_bytes):
    text = json.dumps(arguments)
    edit = shortened(text, max_bytes)
    if edit is None:
        return
    found = json.loads(edit.becomes)
    assert short_values(found) == short_values(arguments)
    assert len(edit.becomes.encode()) < len(text)
    assert (edit.message, edit.at, edit.reason) == (3, ("at",), Reason.NEWEST_TEXT)
    assert edit.artifact.content.decode() == text


@pytest.mark.parametrize("max_bytes", [1_000, 4_000, 8_000])
def test_a_long_string_keeps_its_beginning_and_its_end_around_a_notice(max_bytes):
    edit = shortened(json.dumps({"path": "a.py", "patch": PATCH}), max_bytes)
    found = json.loads(edit.becomes)
    head, tail = found["patch"].split(MARK, 1)
    assert found["path"] == "a.py"
    assert PATCH.startswith(head)
    assert PATCH.endswith(tail.partition("]")[2])
    assert 0.5 * max_bytes < len(edit.becomes) < 1.3 * max_bytes


def test_what_would_not_get_shorter_stays():
    assert shortened('{"path":"a.py"}', 5) is None
    assert shortened(json.dumps({"a": PATCH}), 10**6) is None


def test_values_that_are_nested_deeper_than_any_tool_asks_for_stay():
    deep = PATCH
    for _ in range(20):
        deep = [deep]
    assert shortened(json.dumps(deep), 100) is None


def test_what_is_no_json_is_cut_as_a_text():
    edit = shortened(PATCH, 2_000)
    assert edit.becomes.startswith("+ a line ")
    assert MARK in edit.becomes
