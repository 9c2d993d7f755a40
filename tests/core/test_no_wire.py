"""The core and the planning shell know no API: they contain no member name of a request or an answer."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import proxy.core

CORE = Path(proxy.core.__file__).parent
SHELL = CORE.parent / "shell"
HTTP_STATUS = "status_code"
"""What a client library calls it, too."""
MEMBERS = frozenset(
    """tool_calls tool_call_id function_call tool_choice reasoning_content image_url input_audio video_url audio_url
    file_data choices finish_reason max_completion_tokens cache_control tool_use tool_result input_schema
    function_call_output custom_tool_call reasoning_details max_output_tokens previous_response_id
    error_code error_type error_msg error_message err_code err_msg errmsg status_code status_msg base_resp
    provider_error_code failed_generation incomplete_details native_finish_reason stop_reason prompt_filter_results
    n_ctx n_prompt_tokens completion_tokens prompt_token_count max_prompt_tokens max_context_length max_model_len
    """.split()  # noqa: SIM905 - a list of words
)
PHRASES = frozenset({CORE / "overflow" / "patterns.py", CORE / "overflow" / "words.py"})
"""What upstreams write to people: sentences that repeat names of members. Nothing is looked up by a phrase."""
OPENS_JSON = frozenset({CORE / "content_types" / "texts.py", CORE / "text" / "jsontext.py"})
"""What tools print may be JSON, whatever the API."""
ESCAPES = re.compile(r"\\[a-zA-Z]")
"""Of a regular expression: `\\bfile_data\\b` has the word in it."""


def nodes_of(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text("utf-8"))))


def strings_of(module: Path) -> list[str]:
    """The strings of a module, without its docstrings."""
    nodes = nodes_of(module)
    reported = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in reported)
    values = (node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value for node in constants)
    return [value for value in values if isinstance(value, str)]


def words_of(module: Path) -> set[str]:
    """The words in the strings of a module, and the names of its attributes."""
    words = {word for text in strings_of(module) for word in re.findall(r"\w+", ESCAPES.sub(" ", text))}
    return words | {node.attr for node in nodes_of(module) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize(
    "module", sorted(set(CORE.rglob("*.py")) - PHRASES), ids=lambda path: str(path.relative_to(CORE))
)
def test_no_member_name_of_an_api_is_in_the_core(module: Path) -> None:
    assert words_of(module) & MEMBERS == set()


@pytest.mark.parametrize("module", sorted(PHRASES), ids=lambda path: path.name)
def test_phrases_need_their_exception_and_nothing_is_looked_up_by_them(module: Path) -> None:
    nodes = nodes_of(module)
    assert words_of(module) & MEMBERS
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    assert not [key for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    assert not any(isinstance(node, ast.Attribute) and node.attr in {"get", "pop"} for node in nodes)


@pytest.mark.parametrize("folder", ["planning", "references", "relay"])
def test_no_member_name_of_an_api_is_where_the_shell_plans_and_sends(folder: str) -> None:
    found = {module.name: words_of(module) & (MEMBERS - {HTTP_STATUS}) for module in (SHELL / folder).glob("*.py")}
    assert {module: words for module, words in found.items() if words} == {}


def test_no_module_opens_json_but_those_that_read_what_tools_print() -> None:
    opens = {module for module in CORE.rglob("*.py") if "\nimport json\n" in module.read_text("utf-8")}
    assert opens == OPENS_JSON


def test_a_member_name_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""tool_calls"""\nfound = message[b"tool_call_id"], r"\\bfile_data\\b", said.choices\n', "utf-8")
    assert words_of(module) == {"tool_call_id", "file_data", "choices"}
