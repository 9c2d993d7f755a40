"""Clients of Ollama's own API at work: a loop of 60 turns, directly and through the proxy.

Rule: the server cuts prompts without a word, as its source says (support.upstream.ollama_server). Directly, the row
shows in how many turns it did; it fails if that is none. Through the proxy it fails for any turn that was cut, for a
task that did not reach the model, and without a good end.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.live_proxy import running
from support.upstream import listening
from support.upstream.ollama import Completion
from support.upstream.ollama_server import OllamaServer

from tools.e2e.clients import HERE, INSTALLED, install_npm, install_pip, python_of

TURNS: Final = 60
WINDOWS: Final = (4_096, 8_192)
MOST_SECONDS: Final = 120
TASK: Final = "Read the log page by page and tell me what it holds."
_JS: Final = "ollama_js.mjs"


@dataclass(frozen=True)
class OllamaClient:
    """One row of the table."""

    name: str
    script: str
    mode: Sequence[str] = ()

    def install(self) -> None:
        """Install with pip or npm."""
        if self.script == _JS:
            install_npm()
        else:
            install_pip("ollama")

    @property
    def command(self) -> list[str]:
        """The command line of the client."""
        if self.script == _JS:
            copied = INSTALLED / _JS
            copied.write_text((HERE / "agents" / _JS).read_text())
            return ["node", str(copied), TASK]
        return [python_of("ollama"), str(HERE / "agents" / self.script), *self.mode, TASK]


OLLAMA_CLIENTS: Final = (
    OllamaClient("ollama-python, whole", "ollama_python.py", ("whole",)),
    OllamaClient("ollama-python, streamed", "ollama_python.py", ("streamed",)),
    OllamaClient("ollama-js", _JS),
    OllamaClient("ChatOllama", "chat_ollama.py"),
)


@dataclass(frozen=True)
class OllamaRun:
    """How one run went."""

    output: str
    seconds: float
    model: OllamaServer

    @property
    def ended_well(self) -> bool:
        """Whether the client shows the model's last words."""
        return f"Done after {TURNS} turns." in self.output

    @property
    def cuts(self) -> int:
        """Turns in which the server left something out."""
        return self.model.cuts

    @property
    def without_task(self) -> int:
        """Turns in which the model did not see the task."""
        return sum(TASK not in str(chat.seen) for chat in self.model.chats)

    @property
    def is_right(self) -> bool:
        """Whether a run through the proxy was as it should be."""
        return self.ended_well and not self.cuts and not self.without_task

    @property
    def reported(self) -> str:
        """A cell of the table."""
        end = "ended well" if self.ended_well else f"died: {self.output.strip()[-100:]}"
        turns = len(self.model.chats)
        return f"{end}, {self.seconds:.0f} s; {self.cuts} of {turns} turns cut, {self.without_task} without the task"


def work(client: OllamaClient, window: int, *, proxied: bool) -> OllamaRun:
    """One run."""
    says = [Completion(calls=[("read_log", {"number": number})]) for number in range(TURNS)]
    model = OllamaServer(replies=[*says, Completion(f"Done after {TURNS} turns.")], allocates=window)
    with listening(model) as address, tempfile.TemporaryDirectory(prefix="context-proxy-e2e-") as place:
        root = address.removesuffix("/v1")
        if not proxied:
            return _run(client, root, model)
        with running(Path(place), upstream_port=int(root.rpartition(":")[2])) as proxy:
            return _run(client, f"http://127.0.0.1:{proxy.port}", model)


def _run(client: OllamaClient, root: str, model: OllamaServer) -> OllamaRun:
    begun = time.monotonic()
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OLLAMA_HOST": root}
    try:
        output = subprocess.run(
            client.command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        output = f"no end after {MOST_SECONDS} s"
    return OllamaRun(output, time.monotonic() - begun, model)
