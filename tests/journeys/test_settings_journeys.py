"""Settings as people write them, in YAML and in the environment, and what then reaches the upstream."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.journey import BASH, long_text, one_call

from proxy.config import ENV_ALIASES, ENV_PREFIX, load
from proxy.core.notices import MARK

LONG = long_text(5_000)
Load = Callable[..., dict[str, Any]]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The sections that a YAML text and environment variables set."""
    import os

    for name in [*os.environ]:
        if name.startswith(ENV_PREFIX) or name in ENV_ALIASES:
            monkeypatch.delenv(name)

    def read(yaml: str = "", **environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "config.yaml"
        path.write_text(yaml)
        found = load(path)
        return {name: getattr(found, name) for name in ("tool_output", "models", "language", "artifacts", "defaults")}

    return read


def sent(world: Any, text: str = LONG, tool: str = "bash", **members: Any) -> str:
    """Replacement of a tool's result."""
    assert world.ask(one_call(text, tool, **{"tools": [BASH]} | members)).status_code == 200
    found: str = world.upstream.last.messages[3]["content"]
    return found


@pytest.mark.parametrize("by_environment", [True, False])
def test_lines_and_bytes(by_environment: bool, build: Any, loaded: Load) -> None:
    if by_environment:
        stated = loaded(TOOL_OUTPUT_MAX_LINES="100", TOOL_OUTPUT_MAX_BYTES="3000")
    else:
        stated = loaded("tool_output: {max_lines: 100, max_bytes: 3000}")
    text = sent(build(**stated))
    assert text.count("\n") <= 102  # the notice, and the line that it parts
    assert len(text.encode()) <= 3_000
    assert "line 4999:" in text


def test_the_environment_beats_the_file(build: Any, loaded: Load) -> None:
    stated = loaded("tool_output: {max_bytes: 40000}", TOOL_OUTPUT_MAX_BYTES="3000")
    assert len(sent(build(**stated)).encode()) <= 3_000


@pytest.mark.parametrize(
    ("direction", "start", "end"), [("head", True, False), ("tail", False, True), ("both", True, True)]
)
def test_the_direction(direction: str, start: bool, end: bool, build: Any, loaded: Load) -> None:
    text = sent(build(**loaded(TOOL_OUTPUT_TRUNCATE_DIRECTION=direction)))
    assert (text.startswith("line 0:"), "line 4999:" in text) == (start, end)


def test_the_folder(build: Any, loaded: Load, tmp_path: Path) -> None:
    text = sent(build(**loaded(TOOL_OUTPUT_DIR=str(tmp_path / "elsewhere"))))
    (kept,) = (path for path in (tmp_path / "elsewhere").iterdir() if path.is_file())
    assert (kept.read_text(), str(kept) in text) == (LONG, True)


def test_limits_of_one_tool_and_tools_that_are_never_cut(build: Any, loaded: Load) -> None:
    stated = loaded(
        "tool_output: {max_bytes: 3000, never: [Skill], tools: {Read: {max_bytes: 200000, max_lines: 9999}}}"
    )
    world = build(**stated)
    assert len(sent(world, tool="bash").encode()) <= 3_000
    assert sent(world, tool="Read") == LONG
    assert sent(world, tool="Skill") == LONG


def test_the_characters_of_a_model(build: Any, loaded: Load) -> None:
    world = build(
        **loaded('models: [{match: "small*", max_tool_result_chars: 0}, {match: "tiny", max_tool_result_chars: 5}]')
    )
    assert len(sent(world, model="small-1")) <= 4_000
    assert len(sent(world, model="tiny")) <= 1_000
    assert len(sent(world, model="other")) > 4_000


def test_the_length_of_a_preview(build: Any, loaded: Load) -> None:
    world = build(**loaded("tool_output: {preview_chars: 2000}"))
    reported = sent(world)
    notice = reported[reported.index(MARK) :].partition("]\n")[0]
    assert 1_900 < len(reported) - len(notice) <= 2_010, "the notice comes on top"
    short = long_text(200)
    assert sent(world, short) == short, "what is within the limits is no preview"


def test_a_refusal_in_chinese(build: Any, loaded: Load) -> None:
    world = build(**loaded("{language: zh, defaults: {context_window: 4000}}"))
    request = one_call("short", model="gpt-4o")
    request["messages"][0]["content"] = LONG
    answer = world.ask(request)
    assert (answer.status_code, world.upstream.sent) == (400, [])
    assert "请缩短其中最大的部分" in answer.json()["error"]["message"]
    assert json.loads(answer.content)["error"]["code"] == "context_length_exceeded"
