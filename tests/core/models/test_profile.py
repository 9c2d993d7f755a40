from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES

from proxy.core.models import AgentFileAccess, AgentTools, Certainty, ModelProfile, reach_with
from proxy.wire.chat_completions import CHAT_COMPLETIONS


@pytest.mark.parametrize("certainty", Certainty)
def test_a_window_from_an_authoritative_source_is_certain(certainty):
    profile = ModelProfile("m", window_tokens=9, certainty=certainty)
    assert profile.window_is_guessed is (certainty is Certainty.GUESSED)
    assert profile.certain_window_tokens == (9 if certainty in (Certainty.STATED, Certainty.LEARNED) else None)


def tools(*names):
    return json.dumps([{"type": "function", "function": {"name": name}} for name in names]).encode()


@pytest.mark.parametrize(
    ("names", "reach"),
    [
        (["Task", "Read", "Bash"], AgentFileAccess.SUBAGENT),
        (["dispatch_agent"], AgentFileAccess.SUBAGENT),
        (["Agent", "Read"], AgentFileAccess.SUBAGENT),
        (["Read", "Bash"], AgentFileAccess.PAGE),
        (["read_file"], AgentFileAccess.PAGE),
        (["read_many_files"], AgentFileAccess.PAGE),
        (["str_replace_based_edit_tool"], AgentFileAccess.PAGE),
        (["grep"], AgentFileAccess.PAGE),
        (["Bash"], AgentFileAccess.SHELL),
        (["execute_command"], AgentFileAccess.SHELL),
        (["exec"], AgentFileAccess.SHELL),
        (["get_weather", "task_list", "ReadAloud", "executive"], AgentFileAccess.NOTHING),
        (["str_replace" * 100_000], AgentFileAccess.NOTHING),
        ([], AgentFileAccess.NOTHING),
    ],
)
def test_the_best_way_to_a_file_follows_from_the_tool_names(names, reach):
    assert reach_with(CHAT_COMPLETIONS.tool_names(tools(*names))) is reach


def test_a_sub_agent_is_offered_whether_or_not_files_are_seen():
    names, others = (("Bash", "Task"), ("Bash", "Read", "TaskList", "AgentOutput"))
    for sees_files in (True, False):
        assert AgentTools.of(CHAT_COMPLETIONS.tool_names(tools(*names)), sees_files=sees_files).has_subagent
        assert not AgentTools.of(CHAT_COMPLETIONS.tool_names(tools(*others)), sees_files=sees_files).has_subagent


@pytest.mark.parametrize("tool", [b'{"type":"custom","custom":{"name":"bash"}}', b'{"name":"bash"}'])
def test_a_tool_of_another_shape_has_a_name_too(tool):
    assert reach_with(CHAT_COMPLETIONS.tool_names(b"[" + tool + b"]")) is AgentFileAccess.SHELL


@pytest.mark.parametrize(
    "odd", [b"null", b"{}", b"[null, 1, []]", b'[{"function":"bash"}]', b'[{"function":{"name":7}}]', b"broken", b""]
)
def test_what_is_no_tool_list_reaches_nothing(odd):
    assert reach_with(CHAT_COMPLETIONS.tool_names(odd)) is AgentFileAccess.NOTHING


def test_only_the_first_thousand_tools_are_looked_at():
    assert reach_with(CHAT_COMPLETIONS.tool_names(tools(*["x"] * 999, "bash"))) is AgentFileAccess.SHELL
    assert reach_with(CHAT_COMPLETIONS.tool_names(tools(*["x"] * 1_000, "bash"))) is AgentFileAccess.NOTHING


@given(VALUES)
def test_no_tool_list_raises(raw):
    assert reach_with(CHAT_COMPLETIONS.tool_names(raw)) in AgentFileAccess


def test_without_the_folder_in_sight_only_a_shell_leads_to_an_artifact():
    assert (
        reach_with(CHAT_COMPLETIONS.tool_names(tools("Task", "Read", "Bash")), sees_files=False)
        is AgentFileAccess.SHELL
    )
    assert reach_with(CHAT_COMPLETIONS.tool_names(tools("Task", "Read")), sees_files=False) is AgentFileAccess.NOTHING
