from __future__ import annotations

import json

import pytest

from proxy.wire.responses.output import missing_result


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}, "function_call_output"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "ls"}, "custom_tool_call_output"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {}}, "apply_patch_call_output"),
        ({"type": "shell_call", "call_id": "c", "action": {}}, "shell_call_output"),
        ({"type": "local_shell_call", "id": "c", "action": {}}, "local_shell_call_output"),
        ({"type": "local_shell_call", "id": "x", "call_id": "c", "action": {}}, "function_call_output"),
    ],
)
def test_a_call_that_lacks_its_result_gets_one_of_the_type_that_belongs_to_it(call, answer):
    other = {"type": "function_call", "call_id": "other", "name": "ls", "arguments": "{}"}
    made = json.loads(missing_result(f"{json.dumps(other)},{json.dumps(call)}".encode(), "c", "interrupted"))
    assert made["type"] == answer
    assert made.get("call_id", made.get("id")) == "c"
    assert "interrupted" in json.dumps(made["output"])
