"""What each item of the API is to its reader: who speaks, what it calls or answers, its texts and its media."""

from __future__ import annotations

import json

import pytest

from proxy.core.conversation import ImageView
from proxy.wire.responses import ResponsesMessage

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
FILE = {"type": "input_file", "file_id": "file_1"}


def read(item):
    return ResponsesMessage.read(json.dumps(item).encode())


@pytest.mark.parametrize(
    ("item", "role"),
    [
        *(
            ({"type": name, "id": "x_1", "call_id": "c", "name": "ls", "role": "user"}, role)
            for role, names in {
                "user": ["message"],
                "assistant": [
                    *("reasoning", "function_call", "custom_tool_call", "mcp_approval_request", "program"),
                    *("web_search_call", "mcp_call", "teleport_call"),
                ],
                "tool": [
                    *("function_call_output", "custom_tool_call_output", "tool_search_output", "teleport_call_output"),
                    "mcp_approval_response",
                ],
                "item": ["configuration_update", "additional_tools", "mcp_list_tools", "hologram", "teleport"],
                "reference": ["item_reference", "compaction"],
            }.items()
            for name in names
        ),
        ({"type": "teleport_call"}, "item"),
        ({"type": "teleport_call_output"}, "item"),
        ("hi", "user"),
        ({"role": "user", "content": "hi"}, "user"),
        ({"role": "developer", "content": "x"}, "developer"),
        ({"role": "critic", "content": "x"}, "critic"),
        ({"role": "assistant", "id": "m"}, "assistant"),
        ({"type": "message", "role": "assistant", "id": 7}, "assistant"),
        ({"id": "rs_1"}, "reference"),
        ({"type": None, "id": "rs_1"}, "reference"),
        (7, "item"),
        ({}, "item"),
    ],
)
def test_who_speaks_in_an_item_is_known_by_its_type_or_else_by_its_other_members(item, role):
    assert read(item).role == role


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"type": "function_call", "call_id": "c", "id": "fc"}, "c"),
        ({"type": "function_call", "call_id": 7, "id": "fc"}, "fc"),
        ({"type": "mcp_approval_request", "id": "m"}, "m"),
        ({"type": "mcp_approval_response", "approval_request_id": "m", "id": "r"}, "m"),
        ({"type": "local_shell_call", "id": "l"}, "l"),
        ({"type": "local_shell_call_output", "id": "l"}, "l"),
        ({"type": "function_call_output", "id": "fco"}, ""),
        ({"type": "function_call_output", "call_id": "c", "id": "fco"}, "c"),
    ],
)
def test_a_call_and_its_output_name_the_same_id(members, name):
    found = read(members)
    assert name == (found.calls[0].id if found.calls else found.answers)


def test_a_call_without_a_name_has_its_type_for_one():
    calls = ({"type": "function_call", "call_id": "c", "name": "ls"}, {"type": "local_shell_call", "id": "l"})
    assert [read(call).calls[0].name for call in calls] == ["ls", "local_shell"]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("hi", [((), "hi")]),
        ({"role": "user", "content": "hi"}, [(("content",), "hi")]),
        (
            {"content": [{"type": "input_text", "text": "a"}, IMAGE, "odd", {"text": 7}, {"text": "b"}]},
            [(("content", 0, "text"), "a"), (("content", 4, "text"), "b")],
        ),
        ({"type": "function_call_output", "output": "x", "content": "y"}, [(("output",), "x")]),
        (
            {"type": "shell_call_output", "output": [{"stdout": "o", "stderr": "e", "outcome": {}}]},
            [(("output", 0, "stdout"), "o"), (("output", 0, "stderr"), "e")],
        ),
        ({"type": "program_output", "result": "x", "output": "y"}, [(("result",), "x")]),
        ({"type": "function_call", "arguments": "{}", "output": "x"}, []),
        ({"type": "reasoning", "content": [{"text": "hm"}]}, []),
        ({"type": 7, "content": "x"}, []),
        (None, []),
    ],
)
def test_only_what_messages_and_outputs_say_may_be_changed(item, found):
    assert list(read(item).texts()) == [((0, *at), text) for at, text in found]


CALL = {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "unread"}
OUTPUT = {"type": "function_call_output", "call_id": "c"}
GAVE = {"namespace": "n", "input": "b", "name": "ls", "arguments": "a", "output": "c", "error": "d"}
SEALED = {"encrypted_content": "g" * 8_000, "summary": [{"text": "short"}]}


def sealed(characters):
    """What counts for them by the rule of Codex."""
    return " a" * max(0, (characters * 3 // 4 - 650) // 4)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("hi", "hi"),
        ({"role": "user", "content": "hi"}, "hi"),
        ({"role": "user", "content": [{"text": "a"}, {"refusal": "no"}, "b", IMAGE, 7]}, "a\nno\nb"),
        (CALL, "ls\n{}"),
        *(({"type": name, **GAVE}, "ls\na\nb\nc\nd") for name in ("function_call", "custom_tool_call", "mcp_call")),
        ({"type": "additional_tools", "tools": [{"name": "counted with the tools"}]}, ""),
        ({**OUTPUT, "output": [{"type": "input_text", "text": "o"}, IMAGE]}, "o"),
        ({"type": "shell_call_output", "output": [{"stdout": "o", "stderr": "e"}]}, "o\ne"),
        ({"type": "shell_call", "id": "x", "action": {"type": "exec", "commands": ["ls", "pwd"]}}, "ls\npwd"),
        ({"type": "image_generation_call", "result": "iVBORw0K", "revised_prompt": "a cat"}, "a cat"),
        ({"type": "reasoning", "content": [{"text": "hm"}], "summary": [{"text": "short"}]}, "hm"),
        ({"type": "reasoning", "summary": [{"text": "a"}, {"text": "b"}]}, "a\nb"),
        ({"type": "reasoning", **SEALED}, sealed(8_000)),
        ({"type": "compaction", **SEALED}, sealed(8_000)),
        ({"type": "compaction", "encrypted_content": "g" * 800}, ""),
        ({"type": "compaction", "encrypted_content": 7}, ""),
        *(({"type": name, "role": "user", "content": "a"}, "a") for name in (7, None, ["message"])),
    ],
)
def test_what_a_model_reads_of_an_item_is_its_text(item, text):
    assert read(item).text() == text


@pytest.mark.parametrize(
    "item",
    [
        {"type": "hologram", "light": 7},
        {"type": "tool_search_output", "tools": []},
        [1],
        {},
        {"type": 7, "content": "a"},
    ],
)
def test_unknown_content_counts_by_its_bytes(item):
    assert read(item).text() == json.dumps(item)


def test_the_walk_through_an_output_is_as_deep_as_it_is():
    raw = b'{"type":"computer_call_output","call_id":"c","output":%b"x"%b}' % (b"[" * 400, b"]" * 400)
    assert ResponsesMessage.read(raw).text() == "x"


@pytest.mark.parametrize(
    ("item", "media"),
    [
        (
            {"role": "user", "content": [IMAGE, FILE, {"type": "input_text"}, 7]},
            [ImageView(IMAGE["image_url"], "low"), None],
        ),
        ({"type": "function_call_output", "output": [{"type": "input_audio"}]}, [None]),
        ({"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "u"}}, [("u", None)]),
        ({"type": "code_interpreter_call", "outputs": [{"type": "image", "url": "u", "detail": 7}]}, [("u", None)]),
        ({"type": "image_generation_call", "result": "iVBORw0K"}, [("data:image/png;base64,iVBORw0K", None)]),
        ({"type": "image_generation_call", "result": None}, []),
        ({"role": "user", "content": "input_image"}, []),
        ("input_image", []),
    ],
)
def test_the_media_of_an_item_are_recognised_by_their_types(item, media):
    assert list(read(item).media()) == media
