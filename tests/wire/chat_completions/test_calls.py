"""What calls are, whatever they contain."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES

from proxy.core.conversation.message import ToolCall
from proxy.core.text import jsontext
from proxy.wire.chat_completions import calls
from proxy.wire.chat_completions.calls import calls_in, meant_by, name_of, texts_of_call

LOOK = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
PATCH = {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def spelled(*found):
    return [json.dumps(one).encode() for one in found]


def test_calls_of_functions_and_custom_tools_have_an_id_and_a_name():
    found = calls_in(json.dumps([LOOK, PATCH, 7, {"name": "flat"}]).encode())
    assert found == (ToolCall("a", "look"), ToolCall("b", "patch"), ToolCall("", "flat"))
    assert calls_in(b'{"id":"a"}') == ()


@pytest.mark.parametrize("tool", [{}, {"function": "look"}, {"function": {"name": 7}}, {"custom": {}, "name": 7}])
def test_a_tool_of_another_shape_has_no_name(tool):
    assert name_of(tool) == ""


def test_calls_are_compared_by_their_meaning():
    compact = json.loads(json.dumps(LOOK))
    compact["function"]["arguments"] = '{"x":1}'
    assert meant_by(spelled(LOOK)) == meant_by(spelled(compact)) == [["a", "look", {"x": 1}]]
    broken = {"id": "a", "function": {"name": "look", "arguments": "{"}}
    assert meant_by(spelled(broken, PATCH, 7)) == [["a", "look", "{"], [PATCH], [7]]
    assert meant_by(spelled({"function": {"arguments": {"x": 1}}})) == [[None, None, {"x": 1}]]


def test_only_so_many_calls_are_compared(monkeypatch):
    monkeypatch.setattr(calls, "MAX_CALLS", 2)
    assert len(meant_by(spelled(LOOK, LOOK, LOOK))) == 2


def test_a_model_reads_the_name_and_the_arguments_of_a_call():
    assert list(texts_of_call(LOOK)) == ["look", '{"x": 1}']
    assert list(texts_of_call(PATCH)) == ["patch", "*** Begin"]
    assert list(texts_of_call({"function": {"name": 5, "arguments": 7}, "custom": "odd"})) == []


def test_a_model_reads_arguments_that_are_an_object_as_json():
    called = {"function": {"name": "write", "arguments": {"path": "a", "text": "é" * 9}}}
    assert list(texts_of_call(called)) == ["write", '{"path":"a","text":"ééééééééé"}']


@given(VALUES)
def test_any_json_may_be_a_call(raw):
    calls_in(b"[" + raw + b"]")
    meant_by([raw])
    list(texts_of_call(jsontext.opened(raw)))
