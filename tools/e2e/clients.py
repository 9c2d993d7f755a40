"""The clients: how each is installed, and how it runs unattended.

Rule: every version is pinned; a client gets a base URL, a key and a model by the means that its own documents name, and
nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
INSTALLED: Final = HERE.parents[1] / ".e2e"
LOGS: Final = 8
MODEL: Final = "embedded-model"


@dataclass(frozen=True, slots=True)
class Client:
    """One client at work."""

    name: str
    install: Callable[[], None]
    command: Callable[[str], list[str]]
    """The script that the model is to follow → what is run. In its folder lie `log-0.txt` and so on."""
    turn: str = 'call read_log {"path": "log-%d.txt"}'
    """The turn of the script that shows log `%d` by the client's own tools; empty where it sends files by itself."""
    stdin: bool = False
    """Whether the script comes on standard input."""

    @property
    def script(self) -> str:
        turns = [self.turn.replace("%d", str(number)) for number in range(LOGS)] if self.turn else []
        return "\n".join(["Tell me what the logs hold.", *turns])

    @property
    def ending(self) -> str:
        """The model's last words, at the end of the script."""
        return f"Done after {LOGS if self.turn else 0} steps."


def install_pip(environment: str) -> None:
    """From e2e/requirements-ENVIRONMENT.txt, into an environment of its own."""
    requirements = HERE / f"requirements-{environment}.txt"
    folder, done = INSTALLED / environment, INSTALLED / environment / requirements.name
    if done.is_file() and done.read_text() == requirements.read_text():
        return
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python_of(environment), "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    shutil.copy(requirements, done)


def install_npm() -> None:
    """From e2e/package.json."""
    wanted, done = HERE / "package.json", INSTALLED / "package.json"
    if done.is_file() and done.read_text() == wanted.read_text() and (INSTALLED / "node_modules").is_dir():
        return
    INSTALLED.mkdir(exist_ok=True)
    (INSTALLED / "package-lock.json").unlink(missing_ok=True)
    shutil.copy(wanted, done)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=INSTALLED, check=True)


def left_at(home: Path, patience_seconds: float = 0.0) -> list[str]:
    """The command lines of what still runs with this home after a while. Linux only."""
    last_look = time.monotonic() + patience_seconds
    while (left := [_words_of(number) for number in _running_at(home)]) and time.monotonic() < last_look:
        time.sleep(0.1)
    return sorted(filter(None, left))


def end_all_at(home: Path) -> None:
    """End what a client has left running, as cline does its daemon, in a process group of its own: all that has this
    home. Linux only."""
    for number in _running_at(home):
        with contextlib.suppress(OSError):  # it has just ended
            os.kill(number, signal.SIGKILL)


def _running_at(home: Path) -> list[int]:
    found: list[int] = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has just ended, or is not ours
            if f"\0HOME={home}\0".encode() in b"\0" + environment.read_bytes():
                found.append(int(environment.parent.name))
    return found


def _words_of(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def python_of(environment: str) -> str:
    return str(INSTALLED / environment / "bin" / "python")


def _node(module: str, script: str) -> list[str]:
    """Runs a module of tools/e2e/agents, copied to where node finds the packages that it imports."""
    return ["node", str(shutil.copy(HERE / "agents" / module, INSTALLED)), script]


def _qwen_code(script: str) -> list[str]:
    program = str(INSTALLED / "node_modules" / ".bin" / "qwen")
    return [program, "--bare", "--yolo", "--auth-type", "openai", "--model", MODEL, "--prompt", script]


def _opencode(_: str) -> list[str]:
    return [str(INSTALLED / "node_modules" / ".bin" / "opencode"), "run"]


def _cline(script: str) -> list[str]:
    program = str(INSTALLED / "node_modules" / ".bin" / "cline")
    provider = f"--provider openai-compatible --modelid {MODEL}"
    configure = f'"$0" auth {provider} --apikey "$OPENAI_API_KEY" --baseurl "$OPENAI_BASE_URL"'
    return ["sh", "-c", f'{configure} && exec "$0" --provider openai-compatible "$1"', program, script]


def _gptme(script: str) -> list[str]:
    # A compaction of its own would leave out the prompt, and with it the script.
    options = ["--non-interactive", "--tool-format", "markdown", "--tools=-autocompact", "--model", f"local/{MODEL}"]
    return [str(INSTALLED / "gptme" / "bin" / "gptme"), *options, script]


def _aider(script: str) -> list[str]:
    files = [word for number in range(LOGS) for word in ("--read", f"log-{number}.txt")]
    quiet = ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"]
    return [python_of("aider"), "-m", "aider", "--model", f"openai/{MODEL}", *quiet, *files, "--message", script]


CLIENTS: Final = (
    Client(
        "openai-python",
        lambda: install_pip("langchain"),
        lambda script: [python_of("langchain"), str(HERE / "agents" / "openai_python.py"), script],
    ),
    Client("openai-node", install_npm, lambda script: _node("openai_node.mjs", script)),
    Client("Vercel AI SDK", install_npm, lambda script: _node("ai_sdk.mjs", script)),
    Client(
        "LangChain",
        lambda: install_pip("langchain"),
        lambda script: [python_of("langchain"), str(HERE / "agents" / "langchain_agent.py"), script],
    ),
    Client(
        "qwen-code",
        install_npm,
        _qwen_code,
        turn='call run_shell_command {"command": "cat log-%d.txt", "description": "a log", "is_background": false}',
    ),
    Client(
        "opencode",
        install_npm,
        _opencode,
        turn='call bash {"command": "cat log-%d.txt", "description": "a log"}',
        stdin=True,
    ),
    Client(
        "cline",
        install_npm,
        _cline,
        turn='call run_commands {"commands": ["cat log-%d.txt"]}\n'
        'and run_commands {"commands": ["tail -n 700 log-%d.txt"]}',  # it sends 8 KB of a result, so there are two
    ),
    Client(
        "gptme",
        lambda: install_pip("gptme"),
        _gptme,
        turn="write shell head -n 700 log-%d.txt",
    ),
    Client("aider", lambda: install_pip("aider"), _aider, turn=""),
)
