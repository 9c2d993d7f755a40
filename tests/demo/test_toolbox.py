from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.demo.chat import Call
from proxy.demo.incident import make_incident
from proxy.demo.toolbox import Toolbox


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
