from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.json_bytes import VALUES

from proxy.core.conversation import ImageView, ToolCall
from proxy.wire.responses.items import (
    Head,
    Kind,
    call_of,
    head_of,
    is_sealed,
    meant_by,
    media_in,
    read_texts,
    said_at,
    sealed,
    texts_at,
)

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
FILE = {"type": "input_file", "file_id": "file_1"}


def head(**members):
    return head_of(json.dumps(members).encode())


def read(item):
    found = read_texts(item)
    return [json.dumps(item)] if found is None else found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("message", Kind.MESSAGE),
        ("reasoning", Kind.REASONING),
        ("function_call", Kind.CALL),
        ("mcp_approval_request", Kind.CALL),
        ("program", Kind.CALL),
        ("custom_tool_call_output", Kind.OUTPUT),
        ("tool_search_output", Kind.OUTPUT),
        ("mcp_approval_response", Kind.OUTPUT),
        ("web_search_call", Kind.DONE),
        ("mcp_call", Kind.DONE),
        ("configuration_update", Kind.TOOLS),
        ("additional_tools", Kind.TOOLS),
        ("item_reference", Kind.REFERENCE),
        ("compaction", Kind.COMPACTION),
        ("compaction_trigger", Kind.TRIGGER),
        ("mcp_list_tools", Kind.LISTED),
        ("hologram", Kind.OTHER),
    ],
)
def test_an_item_is_known_by_its_type(name, kind):
    found = head(type=name, id="x_1", call_id="c", name="ls", role="user")
    assert (found.kind, found.type, found.item_id, found.name) == (kind, name, "x_1", "ls")
    assert found.is_own == (kind in (Kind.REASONING, Kind.CALL, Kind.DONE))
    assert found.id == ("c" if name != "hologram" else found.id)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"role":"user","content":"hi"}', Head(Kind.MESSAGE, role="user")),
        (b'{"role":"assistant","id":"m"}', Head(Kind.MESSAGE, role="assistant", item_id="m", is_own=True)),
        (b'{"id":"rs_1"}', Head(Kind.REFERENCE, item_id="rs_1")),
        (b'{"type":null,"id":"rs_1"}', Head(Kind.REFERENCE, item_id="rs_1")),
        (b'"hi"', Head(Kind.MESSAGE, role="user")),
        (b"7", Head(Kind.OTHER)),
        (b"{}", Head(Kind.OTHER)),
        (b"no json", Head(Kind.OTHER)),
        (b'{"type":"message","role":"assistant","id":7}', Head(Kind.MESSAGE, "message", "assistant", is_own=True)),
    ],
)
def test_an_item_without_a_usual_type_is_recognised_by_its_other_members(raw, found):
    assert head_of(raw) == found


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"type": "function_call", "call_id": "c", "id": "fc"}, "c"),
        ({"type": "function_call", "call_id": 7, "id": "fc"}, "fc"),
        ({"type": "mcp_approval_request", "id": "m"}, "m"),
        ({"type": "mcp_approval_response", "approval_request_id": "m", "id": "r"}, "m"),
        ({"type": "local_shell_call_output", "id": "l"}, "l"),
        ({"type": "function_call_output", "id": "fco"}, ""),
        ({"type": "function_call_output", "call_id": "c", "id": "fco"}, "c"),
    ],
)
def test_a_call_and_its_output_name_the_same_id(members, name):
    assert head(**members).id == name


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"type": "teleport_call", "call_id": "c"}, Kind.CALL),
        ({"type": "teleport_call"}, Kind.OTHER),
        ({"type": "teleport_call_output", "call_id": "c"}, Kind.OUTPUT),
        ({"type": "teleport_call_output"}, Kind.OTHER),
        ({"type": "teleport", "call_id": "c"}, Kind.OTHER),
    ],
)
def test_a_new_type_is_a_call_or_an_output_if_it_is_called_so_and_has_an_id(members, kind):
    assert head(**members).kind is kind


@given(VALUES)
def test_any_json_value_has_a_head(raw):
    found = head_of(raw)
    assert found.is_own <= (found.kind in (Kind.MESSAGE, Kind.REASONING, Kind.CALL, Kind.DONE))


def test_a_call_without_a_name_has_its_type_for_one():
    assert call_of(head(type="function_call", call_id="c", name="ls")) == ToolCall("c", "ls")
    assert call_of(head(type="local_shell_call", id="l")) == ToolCall("l", "local_shell")


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
    assert list(texts_at(item, ())) == found
    assert list(texts_at(item, (3,))) == [((3, *at), text) for at, text in found]


@pytest.mark.parametrize(
    ("item", "member"),
    [
        ({"role": "user"}, "content"),
        ({"type": "message"}, "content"),
        ({"type": "function_call_output"}, "output"),
        ({"type": "custom_tool_call_output"}, "output"),
        ({"type": "shell_call_output"}, None),
        ({"type": "reasoning"}, None),
        ("hi", None),
    ],
)
def test_a_text_may_become_parts_only_where_the_api_takes_both(item, member):
    assert said_at(item) == member


@pytest.mark.parametrize(
    ("item", "texts"),
    [
        ("hi", ["hi"]),
        ({"role": "user", "content": "hi"}, ["hi"]),
        ({"role": "user", "content": [{"text": "a"}, {"refusal": "no"}, "b", IMAGE, 7]}, ["a", "no", "b"]),
        (
            {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "unread"},
            ["ls", "{}"],
        ),
        ({"type": "custom_tool_call", "name": "exec", "input": "x", "status": "unread"}, ["exec", "x"]),
        ({"type": "mcp_call", "name": "x", "arguments": "{}", "output": "o", "error": None}, ["x", "{}", "o"]),
        ({"type": "additional_tools", "tools": [{"name": "counted with the tools"}]}, []),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}, IMAGE]},
            ["o"],
        ),
        ({"type": "shell_call_output", "output": [{"stdout": "o", "stderr": "e"}]}, ["o", "e"]),
        ({"type": "shell_call", "id": "x", "action": {"type": "exec", "commands": ["ls", "pwd"]}}, ["ls", "pwd"]),
        ({"type": "image_generation_call", "result": "iVBORw0K", "revised_prompt": "a cat"}, ["a cat"]),
        ({"type": "reasoning", "content": [{"text": "hm"}], "summary": [{"text": "short"}]}, ["hm"]),
        ({"type": "reasoning", "summary": [{"text": "a"}, {"text": "b"}]}, ["a\nb"]),
    ],
)
def test_what_a_model_reads_of_an_item_is_its_text(item, texts):
    assert read(item) == texts


@pytest.mark.parametrize(
    "item", [{"type": "hologram", "light": 7}, {"type": "tool_search_output", "tools": []}, [1], {}]
)
def test_unknown_content_counts_by_its_bytes(item):
    assert read(item) == [json.dumps(item)]


def test_sealed_content_counts_by_the_rule_of_codex():
    sealed_item = {"encrypted_content": "g" * 8_000, "summary": [{"text": "short"}]}
    assert read({"type": "reasoning", **sealed_item}) == [sealed("g" * 8_000)] == [" a" * ((6_000 - 650) // 4)]
    assert read({"type": "compaction", **sealed_item}) == [sealed("g" * 8_000)]
    assert sealed("g" * 800) == sealed(None) == sealed(7) == ""


def test_the_walk_through_an_output_is_as_deep_as_it_is():
    nested = "x"
    for _ in range(20_000):
        nested = [nested]
    assert list(read_texts({"type": "computer_call_output", "output": nested})) == ["x"]


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
    assert list(media_in(item)) == media


def test_a_call_means_the_same_however_its_arguments_are_written():
    call = {"type": "function_call", "call_id": "c", "name": "ls"}
    spelled = [meant_by({**call, "arguments": text}) for text in ('{"a": 1}', '{"a":1}')]
    assert spelled == [["c", "ls", {"a": 1}]] * 2
    assert meant_by({"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "ls -l"}) == [
        "c",
        "exec",
        "ls -l",
    ]
    assert meant_by({"type": "shell_call", "call_id": "c"}) == ["c", "shell_call", None]
    assert meant_by(7) == [7]


@pytest.mark.parametrize("name", ["function_call", "custom_tool_call", "mcp_call"])
def test_of_a_call_a_model_reads_what_it_wrote_and_got(name):
    item = {"type": name, "namespace": "n", "input": "b", "name": "ls", "arguments": "a", "output": "c", "error": "d"}
    assert read_texts(item) == ["ls", "a", "b", "c", "d"]


@pytest.mark.parametrize("name", [7, None, ["message"]])
def test_an_item_with_an_odd_type_is_read_by_its_role(name):
    assert read_texts({"type": name, "role": "user", "content": "a"}) == ["a"]
    assert read_texts({"type": name, "content": "a"}) is None


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({"type": "reasoning", "encrypted_content": "g"}, True),
        ({"type": "reasoning", "encrypted_content": ""}, False),
        ({"type": "compaction", "encrypted_content": "g"}, False),
        ("reasoning", False),
    ],
)
def test_only_reasoning_that_is_encrypted_is_sealed(item, found):
    assert is_sealed(item) is found
