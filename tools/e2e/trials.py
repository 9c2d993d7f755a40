"""The agents of the table at work: how each is installed, what it is given, and one run of it on either road.

Rule: both roads have the same variables, flags and settings; on the second one, all that is added comes from
`context-proxy run`. A run has a folder and a home of its own, and what it leaves running is seen, then ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from proxy.commands.agents import Agent, agent_named
from proxy.commands.wiring import Upstream, wiring_of
from tools.e2e.clients import INSTALLED, NotDelivered, end_all_at, install_npm, install_pip, left_at

MODEL: Final = "gpt-4.1"
MOST_SECONDS: Final = 90
CTRL_C: Final = b"\x03"
_NPM: Final = INSTALLED / "node_modules"
_KEYS: Final = {"OPENAI_API_KEY": "sk-e2e", "ANTHROPIC_API_KEY": "sk-ant-e2e", "CODEX_API_KEY": "sk-e2e"}
_AGAIN_SECONDS: Final = 10.0
"""From one Ctrl-C to the next."""
_LEAVING_SECONDS: Final = 10.0
"""Longest wait for what an agent has started to end after it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How an agent of the table is installed, and works unattended."""

    name: str
    environment: str
    """Of requirements-ENVIRONMENT.txt; empty: npm installs it."""
    program: Path
    arguments: Sequence[str]
    """With `{prompt}`."""
    allowing: Sequence[str] = ()
    """More of them, with which it calls its tools without asking: without a terminal, some have fewer tools else."""
    tools: Sequence[str] = ()
    """More of them, which give it tools."""
    variables: Mapping[str, str] = field(default_factory=dict)
    api: str = "openai"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Files under the home, with `{base}` for the upstream."""
    prepare: Sequence[str] = ()
    """What is run before, with `{base}`."""
    ends_by: str = ""
    """The command by whose output it is told that the work is done; empty: by a reply without a call."""
    sends_files: bool = False
    """Whether it has no tools, but sends the files that its command line names."""

    def install(self) -> None:
        """Install it. Raises NotDelivered."""
        if self.environment:
            install_pip(self.environment)
        else:
            install_npm(self.program)

    def words(self, prompt: str, *more: str) -> list[str]:
        """The arguments for a prompt."""
        return [*more, *(word.replace("{prompt}", prompt) for word in self.arguments)]


TRIALS: Final = (
    Trial(
        "claude",
        "",
        _NPM / "claude-code-2.1.330" / "bin" / "claude.exe",
        ("-p", "{prompt}"),
        allowing=("--allowedTools=Bash",),
        variables={"DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "true"},
        api="anthropic",
    ),
    Trial(
        "codex",
        "",
        _NPM / ".bin" / "codex",
        ("exec", "--skip-git-repo-check", "{prompt}"),
        allowing=("--dangerously-bypass-approvals-and-sandbox",),
    ),
    Trial(
        "copilot",
        "",
        _NPM / ".bin" / "copilot",
        ("-p", "{prompt}"),
        allowing=("--allow-all-tools",),
        variables={"COPILOT_MODEL": MODEL, "COPILOT_PROVIDER_API_KEY": "sk-e2e", "COPILOT_AUTO_UPDATE": "false"},
    ),
    Trial(
        "opencode",
        "",
        _NPM / ".bin" / "opencode",
        ("run", "-m", f"openai/{MODEL}", "{prompt}"),
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    Trial(
        "qwen-code",
        "",
        _NPM / ".bin" / "qwen",
        ("--auth-type", "openai", "--model", MODEL, "--prompt", "{prompt}"),
        allowing=("--yolo",),
    ),
    Trial(
        "aider",
        "aider",
        INSTALLED / "aider" / "bin" / "aider",
        (
            *("--model", f"openai/{MODEL}", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable"),
            *("--no-show-model-warnings", "--message", "{prompt}"),
        ),
        sends_files=True,
    ),
    Trial(
        "cline",
        "",
        _NPM / ".bin" / "cline",
        ("--provider", "openai-compatible", "{prompt} there"),  # one word would be a command
        prepare=(
            *("auth", "--provider", "openai-compatible", "--modelid", MODEL),
            *("--apikey", "sk-e2e", "--baseurl", "{base}"),
        ),
    ),
    Trial(
        "cn",
        "",
        _NPM / ".bin" / "cn",
        ("-p", "{prompt}"),
        allowing=("--auto",),
        settings={
            ".continue/config.yaml": "name: e2e\nversion: 1.0.0\nschema: v1\nmodels:\n"
            f"  - {{name: e2e, provider: openai, model: {MODEL}, apiKey: sk-e2e, apiBase: '{{base}}', roles: [chat]}}\n"
        },
    ),
    Trial(
        "pi",
        "",
        _NPM / ".bin" / "pi",
        ("-p", "--provider", "e2e", "--model", MODEL, "{prompt}"),
        settings={
            ".pi/agent/models.json": json.dumps(
                {
                    "providers": {
                        "e2e": {
                            "baseUrl": "{base}",
                            "api": "openai-completions",
                            "apiKey": "sk-e2e",
                            "models": [{"id": MODEL}],
                        }
                    }
                }
            )
        },
    ),
    Trial(
        "llm",
        "llm",
        INSTALLED / "llm" / "bin" / "llm",
        ("-m", MODEL, "{prompt}"),
        tools=(
            "--functions",
            'def read_log(path: str) -> str:\n    """The whole of a log."""\n    return open(path).read()\n',
            *("--chain-limit", "0"),
        ),
    ),
    Trial(
        "mini-swe-agent",
        "llm",
        INSTALLED / "llm" / "bin" / "mini",
        ("-m", f"openai/{MODEL}", "-t", "{prompt}", "-y", "--exit-immediately", "-l", "0"),
        variables={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
        ends_by="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo",
    ),
)


def delivered(names: Sequence[str], console: Console) -> Iterator[tuple[Trial, Agent]]:
    """The agents whose names begin with one of these, or all, each once it is installed; says which one is not."""
    for trial in TRIALS:
        agent = agent_named(trial.name)
        if agent is None or (names and not trial.name.startswith(tuple(names))):
            continue
        console.print(f"{trial.name} …", style="dim")
        try:
            trial.install()
        except NotDelivered as reason:
            console.print(f"{trial.name}: skipped, {reason}", style="yellow", markup=False)
        else:
            yield trial, agent


@dataclass(frozen=True)
class Ended:
    """How a run has ended."""

    exit_code: int | None
    """As a shell states it; None: it was ended for its time."""
    output: str
    left: Sequence[str] = ()
    """The programs that were still running."""


class Place:
    """A folder and a home for one run, with the agent's settings."""

    def __init__(self, folder: Path, trial: Trial, root: str) -> None:
        self.work, self.home, self.bin, self.temporary = (folder / one for one in ("work", "home", "bin", "tmp"))
        self._trial, self._root = trial, root
        for one in (self.work, self.home, self.bin, self.temporary):
            one.mkdir()
        for path, text in trial.settings.items():
            (self.home / path).parent.mkdir(parents=True)
            (self.home / path).write_text(text.replace("{base}", self.base))
        if trial.prepare:
            words = [word.replace("{base}", self.base) for word in trial.prepare]
            command = [trial.program, *words]
            subprocess.run(
                command, env=self.environment, cwd=self.work, capture_output=True, timeout=MOST_SECONDS, check=True
            )

    @property
    def base(self) -> str:
        """The base URL of the upstream."""
        return f"{self._root}/v1"

    @property
    def log(self) -> str:
        """What the proxy of `run` has logged."""
        path = self.home / ".local/share/context-proxy/run.log"
        return path.read_text() if path.exists() else ""

    @property
    def environment(self) -> dict[str, str]:
        """Keys, and nothing of the user who runs this."""
        path = f"{_NPM / 'node' / 'bin'}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb", "CI": "1"}
        own["TMPDIR"] = str(self.temporary)  # some read all that is in it without asking, and we are in /tmp
        return {**own, **_KEYS, **self._trial.variables}

    async def run(
        self,
        agent: Agent,
        words: Sequence[str],
        *,
        through: bool,
        flags: Sequence[str] = (),
        interrupted: asyncio.Event | None = None,
    ) -> Ended:
        """Run the agent to its end; `flags` of `run`; `interrupted`: when Ctrl-C is typed on its terminal."""
        environment = self.environment
        if through:  # a link would not do: some find their files beside their own name
            started = self.bin / agent.command
            started.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self._trial.program))} "$@"\n')
            started.chmod(0o755)
            command = [sys.executable, "-m", "proxy", "run", "--upstream", self.base, *flags, str(started), *words]
        else:
            apis = ("anthropic",) if self._trial.api == "anthropic" else ("openai",)
            wiring = wiring_of(agent, Upstream(self.base, apis), self._root, environment)
            environment |= wiring.variables
            command = [str(self._trial.program), *wiring.flags, *words]
        keys, terminal = pty.openpty()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.work,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
            )
            typing = asyncio.create_task(_type(keys, interrupted))
            try:
                return await self._ended(process)
            finally:
                typing.cancel()
        finally:
            os.close(terminal)
            os.close(keys)

    async def _ended(self, process: asyncio.subprocess.Process) -> Ended:
        assert process.stdout is not None
        reading = asyncio.create_task(process.stdout.read())  # to its end, which what is left running may hold up
        try:
            async with asyncio.timeout(MOST_SECONDS):
                status = await process.wait()
                exit_code: int | None = status if status >= 0 else 128 - status
        except TimeoutError:
            exit_code = None
        try:
            left = await asyncio.to_thread(left_at, self.home, 0.0 if exit_code is None else _LEAVING_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            end_all_at(self.home)
        output = (await reading).decode(errors="replace")
        await process.wait()
        return (
            Ended(exit_code, output, left) if exit_code is not None else Ended(None, f"no end: {output[-300:]}", left)
        )


async def _type(keys: int, interrupted: asyncio.Event | None) -> None:
    if interrupted is not None:
        await interrupted.wait()
        while True:  # some want it twice, and one that comes while they end is another end
            os.write(keys, CTRL_C)
            await asyncio.sleep(_AGAIN_SECONDS)
