"""Generators of inputs of the Responses API: parallel calls of all kinds, outputs in any order and twice, reasoning,
items that refer to others, and unknown types."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from support.shuffled import shuffled
from support.strategies import TEXTS, is_enough

Items = list[dict[str, Any]]

IMAGE = {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,iVBORw0KGgo="}
FILE = {"type": "input_file", "filename": "a.pdf", "file_id": "file_1"}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


CONTENTS = st.one_of(
    TEXTS, st.lists(st.one_of(TEXTS.map(text_part), st.sampled_from([IMAGE, FILE])), min_size=1, max_size=3)
)


def messages(draw: Any) -> Items:
    item = {"role": draw(st.sampled_from(["user", "user", "developer", "system"])), "content": draw(CONTENTS)}
    return [{"type": "message", **item} if draw(st.booleans()) else item]


def thought(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 300}


def answer(number: int, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}


def calls(draw: Any, number: int) -> tuple[dict[str, Any], Items]:
    """A call, and what answers it."""
    name, text = f"call_{number}", draw(TEXTS)
    kind = draw(st.sampled_from(["function", "function", "custom", "shell", "apply_patch", "local_shell", "computer"]))
    output = {"call_id": name, "output": text}
    match kind:
        case "function":
            call = {"type": "function_call", "name": "read_file", "arguments": '{"path": "a.py"}'}
            outputs = [{"type": "function_call_output", **output, "output": draw(CONTENTS)}]
        case "custom":
            call = {"type": "custom_tool_call", "name": "exec", "input": draw(TEXTS)}
            times = draw(st.integers(1, 3))
            outputs = [{"type": "custom_tool_call_output", **output, "output": draw(CONTENTS)} for _ in range(times)]
        case "shell":
            call = {"type": "shell_call", "action": {"commands": ["ls"]}}
            piece = {"stdout": text, "stderr": draw(TEXTS), "outcome": {"type": "exit", "exit_code": 0}}
            outputs = [{"type": "shell_call_output", "call_id": name, "output": [piece] * draw(st.integers(1, 2))}]
        case "apply_patch":
            call = {
                "type": "apply_patch_call",
                "operation": {"type": "delete_file", "path": "a"},
                "status": "completed",
            }
            outputs = [{"type": "apply_patch_call_output", "status": "completed", **output}]
        case "local_shell":
            call = {"type": "local_shell_call", "id": f"lsh_{number}", "action": {"type": "exec", "command": ["ls"]}}
            outputs = [{"type": "local_shell_call_output", "id": f"lsh_{number}", "output": text}]
            if draw(st.booleans()):  # as Codex answers it
                outputs = [{"type": "function_call_output", **output}]
        case _:
            call = {"type": "computer_call", "action": {"type": "screenshot"}, "pending_safety_checks": []}
            shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="}
            outputs = [{"type": "computer_call_output", "call_id": name, "output": shot}]
    return {**call, "call_id": name}, outputs


def exchanges(draw: Any, number: int) -> Items:
    """Parallel calls, and their outputs in any order; now and then with something between."""
    found: Items = []
    outputs: Items = []
    if draw(st.booleans()):
        found.append(thought(number))
    if draw(st.booleans()):
        found.append(answer(number, draw(TEXTS)))
    for position in range(draw(st.integers(1, 3))):
        if position and draw(st.integers(0, 3)) == 0:
            found.append(thought(number + 10 + position))
        call, answers = calls(draw, number + position)
        found.append(call)
        outputs += answers
    outputs = shuffled(draw, outputs)
    if draw(st.integers(0, 7)) == 0:
        match draw(st.integers(0, 2)):
            case 0:
                between = messages(draw)
            case 1 if number % 1_000 == 0:
                between = exchanges(draw, number + 60)
            case _:
                between = odd(draw, number + 50)
        at = draw(st.integers(0, len(outputs)))
        outputs = [*outputs[:at], *between, *outputs[at:]]
    return found + outputs


def odd(draw: Any, number: int) -> Items:
    """Items that belong to no other."""
    search = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": {"type": "search"}}
    tool = {"type": "function", "name": "cat", "parameters": {}}
    found_tools = {"type": "tool_search_output", "call_id": f"ts_{number}", "tools": [tool], "execution": "client"}
    kinds: list[Items] = [
        [thought(number), search, thought(number + 1), answer(number, "found it")],
        [search, {**search, "id": f"ws_{number + 1}"}, answer(number, "found it")],
        [{"type": "mcp_call", "id": f"mcp_{number}", "name": "x", "arguments": "{}", "output": "line\n" * 900}],
        [{"type": "compaction", "id": f"cmp_{number}", "encrypted_content": "gAAA" * 200}],
        [{"type": "additional_tools", "role": "developer", "tools": [tool]}],
        [{"type": "configuration_update", "reasoning": {"effort": "low"}}],
        [{"type": "tool_search_call", "call_id": f"ts_{number}", "arguments": {}}, found_tools],
        [{"type": "hologram", "id": f"h_{number}", "light": [1, 2], "words": "x" * 900}],
        [thought(number), {"type": "hologram", "id": f"h_{number}"}, answer(number, "look")],
        [{"type": "item_reference", "id": f"msg_{number}"}],
        [{"id": f"msg_{number}"}],
    ]
    return kinds[draw(st.integers(0, len(kinds) - 1))]


@st.composite
def inputs(draw: Any, most: int = 12) -> Items:
    """A conversation."""
    found: Items = [{"role": "developer", "content": "Be careful."}, {"role": "user", "content": draw(CONTENTS)}]
    if draw(st.integers(0, 4)) == 0:
        found = []
    for number in range(draw(st.integers(1, most))):
        if number and is_enough(found):
            break
        kind = draw(st.sampled_from(["exchange"] * 6 + ["message", "message", "odd", "answer"]))
        at = number * 1_000
        match kind:
            case "exchange":
                found += exchanges(draw, at)
            case "message":
                found += messages(draw)
            case "odd":
                found += odd(draw, at)
            case _:
                found += [answer(at, draw(TEXTS))]
    return found
