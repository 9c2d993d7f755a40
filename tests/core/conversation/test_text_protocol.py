from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation.text_protocol import is_quotable, opening, opens_as_output


@pytest.mark.parametrize(
    "text",
    [
        "<output>\n3 files\n</output>",
        "\n<tool_response>{}</tool_response>",
        " " * 100_000 + "<output>\n3 files\n</output>",
        "\n " * 50_000 + "[ Observation: 3 files",
        "Observation: 3 files",
        "[Tool Output] 3 files",
        "### Command output:\n3 files",
        "EXECUTION RESULT of [ls]:\n3 files",
        "exit code (1)",
        "```\n3 files\n```",
        "观察：3 个文件",
        "执行结果: 3 个文件",
    ],
)
def test_the_output_of_a_tool_is_known_by_how_agents_begin_it(text):
    assert opens_as_output(text)
    assert not is_quotable(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please go on.",
        "The output: nothing",
        "I have read <output> in the docs",
        "Results are good, go on",
        "输出格式请用 JSON",
        "",
        " " * 100_000,
        "#( " * 50_000,
    ],
)
def test_the_words_of_a_person_are_not_taken_for_output(text):
    assert not opens_as_output(text)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(max_size=40))
def test_an_opening_is_the_same_whatever_its_numbers_are(first, second, rest):
    assert opening(f"[step {first}] ran:\n{rest}") == opening(f"[step {second}] ran:\nanother")


@given(st.text(max_size=300))
def test_an_opening_is_a_short_line_or_nothing(text):
    assert len(opening(text)) <= 80
    assert "\n" not in opening(text)
    assert opening("ok") == ""


@pytest.mark.parametrize(("length", "quotable"), [(0, False), (1, True), (4_000, True), (4_001, False)])
def test_only_a_text_of_a_length_that_people_write_is_quoted(length, quotable):
    assert is_quotable("x" * length) is quotable
