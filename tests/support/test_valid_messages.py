"""Each rule of the Messages API once kept and once broken, with the words that the API has for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.valid_messages import complaints

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
TOOL = {"name": "ls", "input_schema": {"type": "object"}}
MANUAL = {"type": "enabled", "budget_tokens": 1_024}
THOUGHT = {"type": "thinking", "thinking": "It may be there.", "signature": "EuYB1"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "ls", "input": {}}


def result(name: str, content: Any = "a.py") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": content}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks[0] if isinstance(blocks[0], str) else list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def system(words: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": words}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": list(messages), "tools": [TOOL], **more}


WORK = (user("Look."), assistant(call("t1")), user(result("t1")))
WITHOUT_RESULT = "`tool_use` ids were found without `tool_result` blocks immediately after: "
UNEXPECTED = "unexpected `tool_use_id` found in `tool_result` blocks: "
MODIFIED = "blocks in the latest assistant message cannot be modified"

RULES = {
    "there is a limit for the reply": (
        body(user("Look.")),
        {"model": "m", "messages": [user("Look.")]},
        "max_tokens: Field required",
    ),
    "there is a message": (body(user("Look.")), body(), "messages: at least one message is required"),
    "a role is known": (
        body(user("Look.")),
        body({"role": "tool", "content": "x"}),
        'messages: Unexpected role "tool". Allowed roles are "user" or "assistant"',
    ),
    "the user speaks first": (
        body(user("Look."), assistant(text("Yes.")), user("And?")),
        body(assistant(text("Yes.")), user("And?")),
        'messages: first message must use the "user" role',
    ),
    "neighbours of one role are one turn": (
        body(user("Look."), assistant(call("t1")), assistant(call("t2")), user(result("t2")), user(result("t1"))),
        body(user("Look."), assistant(call("t1")), assistant(call("t2")), user(result("t2"))),
        f"messages.1: {WITHOUT_RESULT}t1. Each",
    ),
    "a call has its result in the next turn": (
        body(*WORK),
        body(user("Look."), assistant(call("t1")), user("And?")),
        f"messages.1: {WITHOUT_RESULT}t1. Each `tool_use` block must have a corresponding `tool_result` block in the "
        "next message.",
    ),
    "the last call has its result as well": (
        body(*WORK),
        body(user("Look."), assistant(call("t1"))),
        f"messages.1: {WITHOUT_RESULT}t1",
    ),
    "results stand before any text": (
        body(*WORK[:2], user(result("t1"), text("And?"))),
        body(*WORK[:2], user(text("And?"), result("t1"))),
        f"messages.1: {WITHOUT_RESULT}t1",
    ),
    "a result has its call in the turn before": (
        body(*WORK, assistant(call("t2")), user(result("t2"))),
        body(*WORK, assistant(call("t2")), user(result("t2"), result("t1"))),
        f"messages.4.content.1: {UNEXPECTED}t1. Each `tool_result` block must have a corresponding `tool_use` block in "
        "the previous message.",
    ),
    "a result does not stand first, unless the server holds its call": (
        body(user(result("t1")), thread={"type": "continue", "previous_message_id": "msg_1"}),
        body(user(result("t1"))),
        f"messages.0.content.0: {UNEXPECTED}t1",
    ),
    "a call has one result": (
        body(*WORK),
        body(*WORK[:2], user(result("t1"), result("t1"))),
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
        "t1",
    ),
    "ids of calls are unique": (
        body(*WORK, assistant(call("t2")), user(result("t2"))),
        body(*WORK, assistant(call("t1")), user(result("t1"))),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "calls are the assistant's": (
        body(*WORK),
        body(user(call("t1"))),
        "messages.0: `tool_use` blocks can only be in `assistant` messages",
    ),
    "results are the user's": (
        body(*WORK),
        body(user("Look."), assistant(result("t1")), user("And?")),
        "messages.1: `tool_result` blocks can only be in `user` messages",
    ),
    "a result holds what a result may hold": (
        body(*WORK[:2], user(result("t1", [text("a.py")]))),
        body(*WORK[:2], user(result("t1", [{"type": "audio"}]))),
        "messages.2.content.0.tool_result.content.0: Input tag 'audio' found using 'type' does not match",
    ),
    "a message says something": (
        body(user("Look.")),
        body(user("Look."), assistant(), user("And?")),
        "messages.1: all messages must have non-empty content except for the optional final assistant message",
    ),
    "a text is not empty": (
        body(user(text("Look."))),
        body(user(text(""))),
        "messages: text content blocks must be non-empty",
    ),
    "system text in the conversation follows the user": (
        body(user("Look."), system(), system(), assistant(text("Yes.")), user("And?")),
        body(user("Look."), assistant(text("Yes.")), system(), assistant(text("Well.")), user("And?")),
        "messages.2: role 'system' must follow a 'user' message or a server tool result",
    ),
    "system text in the conversation is never first": (
        body(user("Look."), system()),
        body(system(), assistant(text("Yes.")), user("And?")),
        "messages.0: role 'system' must follow",
    ),
    "system text may follow a server's result": (
        body(
            user("Look."),
            assistant(
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            ),
            system(),
        ),
        body(user("Look."), assistant(text("Yes.")), system()),
        "messages.2: role 'system' must follow",
    ),
    "system text goes before the assistant or ends": (
        body(user("Look."), system(), assistant(text("Yes.")), user("And?"), system()),
        body(user("Look."), system(), user("And?")),
        "messages.1: role 'system' must precede an 'assistant' message or end the array",
    ),
    "a newer model takes no beginning of its answer": (
        body(user("Look."), assistant(text("I")), model="claude-sonnet-4-5"),
        body(user("Look."), assistant(text("I")), model="claude-opus-4-6"),
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    "a server's result has its call before it": (
        body(
            user("Look."),
            assistant(
                {"type": "server_tool_use", "id": "s1", "name": "advisor", "input": {}},
                {"type": "advisor_tool_result", "tool_use_id": "s1", "content": []},
            ),
            user("And?"),
        ),
        body(
            user("Look."), assistant({"type": "advisor_tool_result", "tool_use_id": "s1", "content": []}), user("And?")
        ),
        "messages.1.content.0: unexpected `tool_use_id` found in `advisor_tool_result` blocks: s1. Each "
        "`advisor_tool_result` block must have a corresponding `server_tool_use` block before it.",
    ),
    "thinking is the assistant's": (
        body(user("Look."), assistant(THOUGHT, text("Yes.")), user("And?")),
        body(user(THOUGHT)),
        "messages.0.content.0: `thinking` blocks can only be in `assistant` messages",
    ),
    "with manual thinking a loop's last call has its thinking": (
        body(*WORK[:1], assistant(THOUGHT, call("t1")), WORK[2], thinking=MANUAL, max_tokens=1_025),
        body(*WORK, thinking=MANUAL, max_tokens=1_025),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
    ),
    "the budget of thinking is below the reply limit": (
        body(user("Look."), thinking=MANUAL, max_tokens=1_025),
        body(user("Look."), thinking=MANUAL, max_tokens=1_024),
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    "at most four breakpoints": (
        body(user(*(text(str(n), cache_control=SHORT) for n in range(4)))),
        body(user(*(text(str(n), cache_control=SHORT) for n in range(4))), cache_control=SHORT),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "blocks cached longer come before blocks cached shorter": (
        body(user(text("a", cache_control=SHORT)), system=[text("s", cache_control=LONG)]),
        body(user(text("a", cache_control=LONG)), system=[text("s", cache_control=SHORT)]),
        "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
        "cache_control block.",
    ),
    "thinking bears no breakpoint": (
        body(user("Look."), assistant(THOUGHT, text("Yes.", cache_control=SHORT)), user("And?")),
        body(user("Look."), assistant(THOUGHT | {"cache_control": SHORT}, text("Yes.")), user("And?")),
        "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
    ),
    "an empty text bears no breakpoint": (
        body(user(text("Look.", cache_control=SHORT))),
        body(user(text("", cache_control=SHORT))),
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    ),
    "a tool that is loaded later bears no breakpoint": (
        body(user("Look."), tools=[TOOL | {"cache_control": SHORT}]),
        body(user("Look."), tools=[TOOL | {"cache_control": SHORT, "defer_loading": True}]),
        "tools.0: Tool 'ls' cannot have both defer_loading=true and cache_control set.",
    ),
    "a tool that was found is among the tools": (
        body(*WORK[:2], user(result("t1", [{"type": "tool_reference", "tool_name": "ls"}]))),
        body(*WORK[:2], user(result("t1", [{"type": "tool_reference", "tool_name": "cp"}]))),
        "Tool reference 'cp' not found in available tools",
    ),
}


@pytest.mark.parametrize(("valid", "broken", "words"), RULES.values(), ids=RULES)
def test_a_broken_rule_is_reported(valid, broken, words):
    assert complaints(valid) == []
    assert [reported for reported in complaints(broken) if reported.startswith(words) or words in reported], complaints(
        broken
    )


SAID = [[THOUGHT, call("t1")], [THOUGHT | {"signature": "EuYB2"}, call("t2")]]
LOOP = body(
    user("Look."), assistant(*SAID[0]), user(result("t1")), assistant(*SAID[1]), user(result("t2")), model="claude"
)


def test_thinking_of_the_running_loop_is_as_it_was_said():
    assert complaints(LOOP, SAID) == []
    for wrong in ([call("t1")], [SAID[1][0], call("t1")], [THOUGHT | {"thinking": "Else."}, call("t1")]):
        broken = copy.deepcopy(LOOP)
        broken["messages"][1]["content"] = wrong
        assert [reported for reported in complaints(broken, SAID) if MODIFIED in reported], wrong


def test_a_whole_exchange_of_the_loop_may_be_gone():
    assert complaints(LOOP | {"messages": LOOP["messages"][:1] + LOOP["messages"][3:]}, SAID) == []


def test_thinking_of_a_finished_turn_may_be_gone_but_not_be_another():
    finished = [*LOOP["messages"], assistant(text("a.py")), user("And?")]
    without = [finished[0], assistant(call("t1")), *finished[2:]]
    assert complaints(LOOP | {"messages": without}, SAID) == []
    other = [finished[0], assistant(THOUGHT | {"signature": "EuYB9"}, call("t1")), *finished[2:]]
    assert complaints(LOOP | {"messages": other}, SAID) == [
        "messages.1.content.0: Invalid `signature` in `thinking` block"
    ]


def test_a_breakpoint_that_moves_changes_nothing_that_was_said():
    marked = copy.deepcopy(LOOP)
    marked["messages"][3]["content"][1]["cache_control"] = SHORT
    assert complaints(marked, SAID) == []
