"""The completion scripts, as the shells that are here run them."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from proxy.__main__ import _parser, main
from proxy.commands.completion import HOW_TO, script

BASH = shutil.which("bash") or ""
CASES = [
    (["se"], ["serve"]),
    (["artifacts", ""], ["ls", "rm", "show", "--help"]),
    (["artifacts", "ls", "--m"], ["--max"]),
    (["serve", "--w"], ["--workers"]),
    (["serve", "--port", ""], []),
    (["demo", "--flavour", "v"], ["vllm"]),
    (["completion", ""], ["bash", "fish", "zsh", "--help"]),
    (["--v"], ["--version"]),
    (["serve", "--config", "pyproj"], ["pyproject.toml"]),
    (["explain", "pyproj"], ["pyproject.toml"]),
    (["models", "--data-dir", "prox"], ["proxy"]),
]


def asked(*command: str, given: str) -> list[str]:
    ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.skipif(not BASH, reason="bash is not installed")
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_bash_offers_what_the_command_line_takes(words: list[str], offered: list[str]) -> None:
    line = " ".join(shlex.quote(word) for word in ["context-proxy", *words])
    turn = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _context_proxy; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert sorted(asked(BASH, "--norc", given=script(_parser(), "bash") + turn)) == sorted(offered)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_fish_offers_what_the_command_line_takes(words: list[str], offered: list[str]) -> None:
    line = shlex.quote(" ".join(["context-proxy", *words]))
    given = script(_parser(), "fish") + f"complete -C {line} | string replace -r '\\t.*|/$' ''\ntrue\n"
    found = asked("fish", "--no-config", given=given)
    flags = {word for word in offered if word.startswith("-")} if not words[-1].startswith("-") else set()
    assert set(offered) - flags <= set(found)


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_takes_the_script() -> None:
    asked("zsh", "-f", given=script(_parser(), "zsh"))


@pytest.mark.parametrize("shell", HOW_TO)
def test_each_script_names_all_commands_and_says_where_it_goes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"# For the startup file of {shell}: {HOW_TO[shell]}"
    for name in ("serve", "check", "doctor", "demo", "explain", "models", "artifacts", "completion", "upstream"):
        assert name in shown
