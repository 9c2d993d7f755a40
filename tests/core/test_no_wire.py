"""The core knows no API: no member name of a request or an answer stands in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import proxy.core

CORE = Path(proxy.core.__file__).parent
MEMBERS = frozenset(
    """tool_calls tool_call_id function_call tool_choice reasoning_content image_url input_audio video_url audio_url
    file_data choices finish_reason max_completion_tokens cache_control tool_use tool_result input_schema
    function_call_output custom_tool_call reasoning_details max_output_tokens previous_response_id""".split()  # noqa: SIM905 - a list of words
)
READS_ERRORS = frozenset({"codes.py", "digits.py", "nested.py", "patterns.py", "unwrap.py", "words.py"})
"""Of core/overflow: what upstreams write into errors is told by names of theirs, whatever the API."""


def strings_of(module: Path) -> list[str]:
    """The strings of a module, without its docstrings."""
    tree = ast.parse(module.read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told)
    values = (node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value for node in constants)
    return [value for value in values if isinstance(value, str)]


@pytest.mark.parametrize("module", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_no_member_name_of_an_api_stands_in_the_core(module: Path) -> None:
    if module.parent.name == "overflow" and module.name in READS_ERRORS:
        return
    words = {word for text in strings_of(module) for word in re.findall(r"\w+", text)}
    names = {node.attr for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
    assert (words | names) & MEMBERS == set()


def test_a_member_name_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""tool_calls"""\nfound = message[b"tool_call_id"]\n', "utf-8")
    assert strings_of(module) == ["tool_call_id"]
