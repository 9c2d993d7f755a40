"""The installed package: its command, its metadata, and the licenses it carries."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.waiting import PATIENCE_SECONDS

import context_proxy
from proxy import __main__
from proxy.shell.models.tokenizer import _VOCABULARIES
from tools import build_hooks

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def started_in(folder, *arguments):
    """The command as if it were installed in that folder."""
    shutil.copy(ROOT / "context_proxy.py", folder)
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); "]
    command[-1] += f"sys.argv[1:] = {list(arguments)!r}; import context_proxy; sys.exit(context_proxy.main())"
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_the_installed_command_is_the_one_of_the_package(tmp_path):
    (tmp_path / "proxy").symlink_to(ROOT / "proxy")
    ended = started_in(tmp_path, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert PROJECT["scripts"] == {"context-proxy": "context_proxy:main"}


def test_a_package_of_the_same_name_is_a_sentence_and_is_not_imported(tmp_path):
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "__init__.py").write_text("raise SystemExit('imported')\n")
    ended = started_in(tmp_path, "serve")
    assert ended.returncode == 1
    assert ended.stderr.startswith("context-proxy cannot run: `import proxy` leads to ")
    assert "an environment of its own: python3 -m venv" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_package_of_both_is_a_sentence_however_they_were_installed(tmp_path):
    (tmp_path / "proxy").mkdir()
    shutil.copy(ROOT / "proxy" / "__init__.py", tmp_path / "proxy")
    (tmp_path / "proxy" / "proxy.py").write_text("raise SystemExit('imported')\n")
    ended = started_in(tmp_path, "serve")
    assert ended.returncode == 1
    assert "proxy.py is installed in the same environment" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_no_package_at_all_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert context_proxy.main() == 1
    assert "`import proxy` finds nothing" in capsys.readouterr().err


def test_windows_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    assert __main__.main(["serve"]) == 1
    assert "runs on Linux and macOS" in capsys.readouterr().err


def test_the_platforms_are_stated():
    stated = PROJECT["classifiers"]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(stated)
    assert [line for line in stated if "System ::" in line] == [
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
    ]


@pytest.mark.parametrize("source", [None, "https://host/repository"])
def test_no_link_of_the_readme_leads_nowhere_on_an_index(source):
    written = (ROOT / "README.md").read_text()
    shown = build_hooks.for_an_index(written, source)
    targets, as_written = (re.findall(r"\]\(([^)\s]+)\)", text) for text in (shown, written))
    assert [target for target in targets if not target.startswith(("https://", "http://", "#"))] == []
    inside = [target for target in as_written if not target.startswith(("https://", "http://", "#"))]
    assert inside
    assert (len(targets) == len(as_written)) == (source is not None)


def test_what_a_picture_shows_stays_where_its_place_is_known():
    text = "a\n\n![seen](docs/b.png)\n\nc [link](https://elsewhere/d)\n"
    assert build_hooks.for_an_index(text, None) == "a\n\nc [link](https://elsewhere/d)\n"
    assert "![seen](https://host/r/blob/main/docs/b.png?raw=true)" in build_hooks.for_an_index(text, "https://host/r/")


def test_the_notice_names_each_vocabulary_that_is_carried():
    notice = (ROOT / "NOTICE").read_text()
    assert [v.file_name for v in _VOCABULARIES.values() if f"proxy/vocabulary/{v.file_name}" not in notice] == []
    assert "Copyright (c) 2022 OpenAI, Shantanu Jain" in notice
    assert PROJECT["license-files"] == ["LICENSE", "NOTICE"]
