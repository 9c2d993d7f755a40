"""The first designs of docs/recipes.md do to a tool result what the text above them says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.journey import long_text, one_call

DOCUMENT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
LONG = long_text(4_000)
LINES = LONG.splitlines()


def recipe(title: str) -> dict[str, Any]:
    section = DOCUMENT.partition(f"## {title}")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    settings: dict[str, Any] = yaml.safe_load(found[1])
    return settings


def shown(build: Any, title: str, text: str = LONG, tool: str = "bash") -> str:
    """The result as the model reads it."""
    world = build(**recipe(title))
    assert world.ask(one_call(text, tool)).status_code == 200
    content: str = world.upstream.last.messages[3]["content"]
    return content


def test_a_fixed_number_of_characters(build: Any) -> None:
    text = shown(build, "A fixed number of characters")
    assert len(text) <= 4_000
    assert LINES[0] in text
    assert LINES[-1] not in text


def test_2000_lines_or_50_kb_from_the_beginning(build: Any) -> None:
    text = shown(build, "2000 lines or 50 KB")
    assert len(text.encode()) <= 51_200
    assert len(text.splitlines()) <= 2_001  # the notice is none of them
    assert LINES[0] in text
    assert LINES[-1] not in text


def test_the_first_20_lines_and_the_last_10(build: Any) -> None:
    lines = shown(build, "The first 20 lines and the last 10").splitlines()
    assert [line for line in lines if line in set(LINES)] == LINES[:20] + LINES[-10:]


@pytest.mark.parametrize(("lines", "changed"), [(30, False), (31, True)])
def test_a_short_result_stays(lines: int, changed: bool, build: Any) -> None:
    text = "".join(f"{line:060d} {'x' * 100}\n" for line in range(lines)).rstrip("\n")
    assert (shown(build, "The first 20 lines and the last 10", text) != text) == changed


def test_some_tools_whole_and_others_by_their_end(build: Any) -> None:
    assert shown(build, "Some tools whole", LONG, "Skill") == LONG
    assert shown(build, "Some tools whole", LONG, "Read") == LONG
    lines = shown(build, "Some tools whole", LONG, "Bash").splitlines()
    assert LINES[-1] in lines
    assert LINES[0] not in lines
