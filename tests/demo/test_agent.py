from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.demo.agent import Toolbox, Turn, investigate
from proxy.demo.incident import detective, make_incident
from proxy.demo.model import Call
from proxy.demo.model_server import create_model_server
from proxy.demo.refusals import FLAVOURS
from proxy.demo.servers import serving


def work(window_tokens: int, flavour: str, folder: Path) -> tuple[Turn, ...]:
    incident = make_incident(8)
    with serving(create_model_server(window_tokens, FLAVOURS[flavour], detective)) as url:
        return investigate(url, incident.task, Toolbox(incident, folder), 40, lambda _: None)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_direct_run_dies_where_the_conversation_passes_the_window(flavour: str, tmp_path: Path) -> None:
    turns = work(16_000, flavour, tmp_path)
    assert [bool(turn.refusal) for turn in turns] == [False] * (len(turns) - 1) + [True]
    assert all(turn.conversation_tokens == turn.prompt_tokens < 16_000 for turn in turns[:-1])
    assert turns[-1].conversation_tokens >= 16_000
    assert turns[-1].refusal.startswith("400")


def test_the_refusal_is_told_with_its_code_and_the_servers_words(tmp_path: Path) -> None:
    last = work(16_000, "openai", tmp_path)[-1]
    start = "400 context_length_exceeded: This model's maximum context length is 16000 tokens. However, your messages "
    assert last.refusal.startswith(f"{start}resulted in {last.conversation_tokens} tokens (")


def test_the_same_agent_finishes_where_the_window_is_large(tmp_path: Path) -> None:
    turns = work(200_000, "openai", tmp_path)
    assert len(turns) == 12
    assert turns[-1].answer == f"After 8 services: {make_incident(8).answer}"


def test_an_agent_whose_server_is_gone_ends_with_a_refusal(tmp_path: Path) -> None:
    with serving(create_model_server(1_000)) as url:
        pass
    turns = investigate(url, "task", Toolbox(make_incident(2), tmp_path), 5, lambda _: None)
    assert len(turns) == 1
    assert turns[0].refusal.startswith("ConnectError")


def run(toolbox: Toolbox, call: Call) -> str:
    return toolbox.run(call.name, json.dumps(dict(call.arguments)))


def test_no_tool_prints_an_absolute_path_of_its_own() -> None:
    incident = make_incident(40)
    for text in (*incident.files.values(), *incident.test_output.values()):
        assert re.search(r"(?<![\w.])/\w", text) is None


@pytest.mark.parametrize("path", ["/etc/hostname", "{folder}/../secret.txt", "{folder}/link", "{folder}", "nothing"])
def test_tools_read_nothing_outside_their_folder(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    toolbox = Toolbox(make_incident(2), folder)
    result = run(toolbox, Call("read_file", {"path": path.format(folder=folder)}))
    assert result.startswith("error: no such file")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("read_file", "{"), ("read_file", "{}"), ("grep", "[]"), ("run_tests", "null"), ("rm", "{}")],
)
def test_a_wrong_tool_call_gets_an_error_to_read(name: str, arguments: str, tmp_path: Path) -> None:
    assert Toolbox(make_incident(2), tmp_path).run(name, arguments).startswith("error: ")
