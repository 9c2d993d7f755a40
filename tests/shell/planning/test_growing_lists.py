"""Every shape of every wire, in a list that grows from turn to turn: remembering changes no plan."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.planners import TENANT, planner

from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.responses import RESPONSES

OUTPUT = "".join(f"line {number}: value {number * 7919 % 10007}\n" for number in range(300))


def _chat(number):
    function = {"name": "bash", "arguments": "{}"}
    call = {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}
    return [call, {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}\n{OUTPUT}"}]


def _messages(number, **marks):
    use = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number}\n{OUTPUT}", **marks}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _items(number):
    call = {"type": "function_call", "call_id": f"c{number}", "name": "bash", "arguments": "{}"}
    thought = {"type": "reasoning", "id": f"rs{number}", "summary": [], "encrypted_content": "gAAA" * 50}
    output = {"type": "function_call_output", "call_id": f"c{number}", "output": f"{number}\n{OUTPUT}"}
    return [thought, call, output]


def _reminded(number, *words):
    """With words beside the result."""
    call, answered = _messages(number)
    texts = [{"type": "text", "text": f"<system-reminder>{one}</system-reminder>"} for one in words]
    return [call, {**answered, "content": [*answered["content"], *texts]}]


TASK = {"role": "user", "content": "Look at the logs."}
MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "bash"}]}
SUMMARY = {"role": "assistant", "content": [{"type": "compaction", "content": "What was done."}]}
WIRES = {"chat": CHAT_COMPLETIONS, "messages": MESSAGES, "responses": RESPONSES}
SHAPES: dict[str, Callable[[int], Any]] = {
    "chat": lambda turn: [TASK, *_of(_chat, turn)],
    "chat, the name of its list elsewhere, too": lambda turn: [TASK, *_of(_chat, turn)],
    "chat, system messages": lambda turn: [
        TASK,
        *({"role": "system", "content": f"{n}\n{OUTPUT}"} for n in range(turn)),
    ],
    "messages": lambda turn: [TASK, *_of(_messages, turn)],
    "messages, a mark that moves": lambda turn: [TASK, *_of(_messages, turn - 1), *_messages(turn, **MARK)],
    "messages, a reminder only in the newest": lambda turn: [
        TASK,
        *_of(_messages, turn - 1),
        *_reminded(turn, "Mind the plan.", f"It is {turn}."),
    ],
    "messages, a reminder that changes in place": lambda turn: [
        TASK,
        *_of(_messages, 5 + turn // 4),
        *_reminded(9, "Mind the plan.", f"It is {turn}."),
    ],
    "messages, a clock in the task and in a reminder": lambda turn: [
        {"role": "user", "content": f"Look at the logs. It is {turn}."},
        *(*_of(_messages, 5 + turn // 4), *_reminded(9, "Mind the plan.", f"It is {turn}.")),
    ],
    "messages, a clock in the task and in an earlier reminder": lambda turn: [
        {"role": "user", "content": f"Look at the logs. It is {turn}."},
        *(*_of(_messages, 3), *_reminded(9, f"It is {turn}."), *_of(_messages, 9 + turn // 4)[6:]),
    ],
    "messages, words that change beside results": lambda turn: [
        *(TASK, *_of(_messages, 5 + turn // 4), *_reminded(8 - turn // 4, f"It is {turn}.", "")),
        *_reminded(9, f"It is {turn}."),
    ],
    "messages, a compaction": lambda turn: [TASK, *_of(_messages, 3), SUMMARY, TASK, *_of(_messages, turn)],
    "messages, a thread": lambda turn: [TASK, *_of(_messages, turn)],
    "responses": lambda turn: [TASK, *_of(_items, turn)],
    "responses, one text": lambda turn: OUTPUT * turn,
    "responses, truncated upstream": lambda turn: [TASK, *_of(_items, turn)],
    "responses, continued": lambda turn: [TASK, *_of(_items, turn)],
    "responses, a conversation": lambda turn: [TASK, *_of(_items, turn)],
    "responses, a stored prompt": lambda turn: [TASK, *_of(_items, turn)],
    "responses, a reference": lambda turn: [{"type": "item_reference", "id": "msg_1"}, TASK, *_of(_items, turn)],
    "responses, items that add tools": lambda turn: [TOOLS, TASK, *_of(_items, turn)],
    "responses, a compaction": lambda turn: [
        {"type": "compaction", "encrypted_content": "gAAA" * 900},
        TASK,
        *_of(_items, turn),
    ],
    "responses, a compaction asked for": lambda turn: [TASK, *_of(_items, turn), {"type": "compaction_trigger"}],
}
MEMBERS: dict[str, dict[str, Any]] = {
    "chat, the name of its list elsewhere, too": {
        "metadata": {"messages": []},
        "tools": [{"type": "function", "function": {"name": "messages"}}],
    },
    "messages, a thread": {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
    "responses, truncated upstream": {"truncation": "auto"},
    "responses, continued": {"previous_response_id": "resp_1"},
    "responses, a conversation": {"conversation": "conv_1"},
    "responses, a stored prompt": {"prompt": {"id": "p"}},
}
"""Of the shapes that have some beside the list."""


def _of(exchange, count):
    return [message for number in range(count) for message in exchange(number)]


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_is_remembered_of_earlier_turns_changes_no_plan(shape):
    wire, members = WIRES[shape.partition(",")[0]], MEMBERS.get(shape, {})
    name = "input" if wire is RESPONSES else "messages"
    knowing = planner(12_000)
    for turn in range(1, 9):
        body = json.dumps({"model": "m", name: SHAPES[shape](turn), **members}).encode()
        known = await knowing.plan(wire, TENANT, body)
        anew = await planner(12_000).plan(wire, TENANT, body)
        assert known.plan.messages == anew.plan.messages
        assert known.body() == anew.body()
