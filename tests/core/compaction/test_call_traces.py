from __future__ import annotations

import json

import pytest
from support.strategies import spelled

from proxy.core.compaction.call_traces import Trace, traces_of
from proxy.wire.chat_completions.message import ChatMessage


def calling(*arguments):
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "t", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    return ChatMessage.read(spelled({"role": "assistant", "tool_calls": calls}))


def traces(**arguments):
    return list(traces_of(calling(json.dumps(arguments))))


def test_an_edit_says_its_path_what_it_wrote_and_what_it_replaced():
    found = traces(file_path="src/a.py", old_string="one\ntwo", new_string="one\nthree", replace_all=False)
    assert found == [Trace("c0", "src/a.py", ("one\nthree",), ("one\ntwo",))]


def test_an_edit_inside_a_member_is_found_too():
    found = traces(path="src/a.py", edit={"old": "one\ntwo", "new": "one\nthree"})
    assert found == [Trace("c0", "src/a.py", ("one\nthree",), ("one\ntwo",))]


@pytest.mark.parametrize("name", ["content", "file_text", "contents"])
def test_a_file_that_is_written_anew_is_whole(name):
    assert traces(path="src/a.py", **{name: "one\ntwo"}) == [Trace("c0", "src/a.py", ("one\ntwo",), (), True)]


def test_a_command_stands_in_the_place_of_a_path():
    assert traces(command="ls   -l\tsrc", timeout=3)[0].source == "ls -l src"
    assert len(traces(command="x" * 500)[0].source) == 120


def test_what_is_written_is_told_however_short_but_switches_and_patterns_are_not():
    assert traces(file_path="a", new_string="x")[0].written == ("x",)
    assert traces(pattern="x", path="a")[0].written == ()


def test_content_without_a_path_is_no_file():
    assert traces(content="a note\nof two lines")[0].is_whole is False


def test_each_call_has_its_own_trace_and_what_is_no_json_is_its_own_source():
    found = list(traces_of(calling('{"path": "a.py"}', "not json", "[1]")))
    assert [(trace.call_id, trace.source) for trace in found] == [("c0", "a.py"), ("c1", "not json"), ("c2", "[1]")]


def test_a_patch_has_a_trace_for_each_file():
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n context\n-old\n+new\n*** Add File: b.py\n+all\n"
    expected = [Trace("c0", "src/a.py", ("context\nnew",), ("old",)), Trace("c0", "b.py", ("all",), ("",))]
    assert traces(input=patch) == expected


def test_a_unified_diff_has_one_too():
    diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"
    assert traces(command=diff) == [Trace("c0", "x.py", ("new",), ("old",))]


def test_a_message_without_calls_has_none():
    assert list(traces_of(ChatMessage.read(spelled({"role": "assistant", "content": "words"})))) == []
