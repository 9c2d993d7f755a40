"""The clients: how each is installed, and how it runs unattended.

Rule: every version is pinned; a client gets a base URL, a key and a model by the means that its own documents name, and
nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    """The turn of the script that shows log `%d` by the client's own tools."""

    @property
    def script(self) -> str:
        turns = [self.turn.replace("%d", str(number)) for number in range(LOGS)]
        return "\n".join(["Tell me what the logs hold.", *turns])

    @property
    def ending(self) -> str:
        """The model's last words, at the end of the script."""
        return f"Done after {LOGS} steps."


class NotDelivered(Exception):
    """A registry does not deliver what a client needs: why."""


def install_pip(environment: str) -> None:
    """From e2e/requirements-ENVIRONMENT.txt, into an environment of its own. Raises NotDelivered."""
    requirements = HERE / f"requirements-{environment}.txt"
    folder, done = INSTALLED / environment, INSTALLED / environment / requirements.name
    if done.is_file() and done.read_text() == requirements.read_text():
        return
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    _deliver([python_of(environment), "-m", "pip", "install", "--quiet", "-r", requirements], INSTALLED)
    shutil.copy(requirements, done)


def install_npm(program: Path | None = None) -> None:
    """From e2e/package.json; `program`: the one that is needed. Raises NotDelivered."""
    if reason := reason_of_npm():
        raise NotDelivered(reason)
    if program is not None and not program.exists():
        raise NotDelivered(f"npm does not deliver {program.relative_to(INSTALLED)}")


@functools.cache
def reason_of_npm() -> str:
    """Install what npm delivers of package.json; why it delivers nothing."""
    text = (HERE / "package.json").read_text()
    done = INSTALLED / "package.json"
    if done.is_file() and done.read_text() == text and (INSTALLED / "node_modules").is_dir():
        return ""
    INSTALLED.mkdir(exist_ok=True)
    try:
        _install_packages(text)
    except NotDelivered as reason:
        listed = json.loads(text)
        named = listed["dependencies"].items()
        delivered = {name: version for name, version in named if _is_delivered(name, version)}
        done.unlink(missing_ok=True)
        if not delivered or len(delivered) == len(named):
            return str(reason)
        _install_packages(json.dumps(listed | {"dependencies": delivered}))
    return ""


def _install_packages(text: str) -> None:
    (INSTALLED / "package-lock.json").unlink(missing_ok=True)
    (INSTALLED / "package.json").write_text(text)
    _deliver(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], INSTALLED)


def _is_delivered(name: str, version: str) -> bool:
    package = version.removeprefix("npm:") if version.startswith("npm:") else f"{name}@{version}"
    with contextlib.suppress(OSError):
        asked = subprocess.run(["npm", "view", package, "version"], cwd=INSTALLED, capture_output=True, check=False)
        return bool(asked.stdout)
    return False


def _deliver(command: Sequence[str | Path], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise NotDelivered(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line.lower() and " code " not in line]
        raise NotDelivered((lines or [f"{command[0]} failed"])[0][:200]) from None


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


def _gptme(script: str) -> list[str]:
    # A compaction of its own would leave out the prompt, and with it the script.
    options = ["--non-interactive", "--tool-format", "markdown", "--tools=-autocompact", "--model", f"local/{MODEL}"]
    return [str(INSTALLED / "gptme" / "bin" / "gptme"), *options, script]


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
        "gptme",
        lambda: install_pip("gptme"),
        _gptme,
        turn="write shell head -n 700 log-%d.txt",
    ),
)
