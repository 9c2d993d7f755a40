"""`python -m tools.e2e.captures [AGENT…]`: the first request of known agents, directly and through `context-proxy run`.

Rule: both roads end in the same bare receiver, which keeps what it gets and answers in the words of each API; the agent
gets the same variables, flags and settings on both. Where a request differs, or a call beside it appears on one road
only, the row says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from support.upstream import Over, SocketServer, worker

from proxy.commands.agents import Agent, agent_named
from proxy.commands.wiring import Upstream, wiring_of
from tools.e2e.clients import INSTALLED, end_all_at, install_npm, install_pip
from tools.e2e.tap import Exchange, Tap

MODEL: Final = "gpt-4.1"
HELLO: Final = "hello"
MOST_SECONDS: Final = 120
WINDOW_TOKENS: Final = 1_000_000
_DRIFT: Final = 0.05
"""Share by which sizes may differ from the table: names of folders, dates, other machines."""
_NPM: Final = INSTALLED / "node_modules"
_OWN: Final = ("content-length", "connection", "host", "x-context-proxy-loop")


@dataclass(frozen=True, slots=True)
class Trial:
    """How an agent of the table is installed, and says "hello" unattended."""

    name: str
    install: Callable[[], None]
    program: Path
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    api: str = "openai"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Files under the home, with `{base}` for the receiver."""
    prepare: Sequence[str] = ()
    """What is run before, with `{base}`."""


def _npm(package: str, program: str) -> Path:
    return _NPM / ".bin" / program if (_NPM / ".bin" / program).exists() else _NPM / package


_KEYS: Final = {"OPENAI_API_KEY": "sk-e2e", "ANTHROPIC_API_KEY": "sk-ant-e2e", "CODEX_API_KEY": "sk-e2e"}
_CLAUDE: Final = {"DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "true"}
TRIALS: Final = (
    Trial(
        "claude",
        install_npm,
        _NPM / "claude-code-2.1.330" / "bin" / "claude.exe",
        ("-p", HELLO),
        _CLAUDE,
        api="anthropic",
    ),
    Trial("codex", install_npm, _NPM / ".bin" / "codex", ("exec", "--skip-git-repo-check", HELLO)),
    Trial(
        "copilot",
        install_npm,
        _NPM / ".bin" / "copilot",
        ("-p", HELLO, "--allow-all-tools"),
        {"COPILOT_MODEL": MODEL, "COPILOT_PROVIDER_API_KEY": "sk-e2e", "COPILOT_AUTO_UPDATE": "false"},
    ),
    Trial(
        "opencode",
        install_npm,
        _NPM / ".bin" / "opencode",
        ("run", "-m", f"openai/{MODEL}", HELLO),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    Trial(
        "qwen-code",
        install_npm,
        _NPM / ".bin" / "qwen",
        ("--yolo", "--auth-type", "openai", "--model", MODEL, "--prompt", HELLO),
    ),
    Trial(
        "aider",
        lambda: install_pip("aider"),
        INSTALLED / "aider" / "bin" / "aider",
        (
            *("--model", f"openai/{MODEL}", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable"),
            *("--no-show-model-warnings", "--message", HELLO),
        ),
    ),
    Trial(
        "cline",
        install_npm,
        _NPM / ".bin" / "cline",
        ("--provider", "openai-compatible", f"{HELLO} there"),
        prepare=(
            "auth",
            "--provider",
            "openai-compatible",
            "--modelid",
            MODEL,
            "--apikey",
            "sk-e2e",
            "--baseurl",
            "{base}",
        ),
    ),
    Trial(
        "cn",
        install_npm,
        _NPM / ".bin" / "cn",
        ("-p", HELLO),
        settings={
            ".continue/config.yaml": "name: e2e\nversion: 1.0.0\nschema: v1\nmodels:\n"
            f"  - {{name: e2e, provider: openai, model: {MODEL}, apiKey: sk-e2e, apiBase: '{{base}}', roles: [chat]}}\n"
        },
    ),
    Trial(
        "pi",
        install_npm,
        _NPM / ".bin" / "pi",
        ("-p", "--provider", "e2e", "--model", MODEL, HELLO),
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
    Trial("llm", lambda: install_pip("llm"), INSTALLED / "llm" / "bin" / "llm", ("-m", MODEL, HELLO)),
    Trial(
        "mini-swe-agent",
        lambda: install_pip("llm"),
        INSTALLED / "llm" / "bin" / "mini",
        ("-m", f"openai/{MODEL}", "-t", HELLO, "-y", "--exit-immediately", "-l", "0"),
        {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
    ),
)


@dataclass(frozen=True)
class Capture:
    """What a receiver got from one run."""

    exchanges: Sequence[Exchange]
    output: str
    exit_code: int
    tokens: int = 0
    """Of its largest request, by the proxy's count; 0: it was not there."""

    @property
    def first(self) -> Exchange | None:
        """The first request for a reply to the prompt: the largest of those that ask for one."""
        asking = [one for one in self.exchanges if one.method == "POST" and HELLO.encode() in one.sent]
        return max(asking, key=lambda one: len(one.sent), default=None)

    @property
    def beside(self) -> list[str]:
        """What else was asked."""
        return sorted({f"{one.method} {one.path}" for one in self.exchanges if one is not self.first})


async def captured(trial: Trial, agent: Agent, *, through: bool) -> Capture:
    """One run in a folder and a home of its own."""
    async with contextlib.AsyncExitStack() as stack:
        kept = tempfile.TemporaryDirectory(prefix="context-proxy-e2e-", ignore_cleanup_errors=True)
        place = Path(stack.enter_context(kept))
        model = worker(Over("total", WINDOW_TOKENS), steps=0)
        model.lists = [{"id": MODEL, "object": "model"}]
        upstream = await stack.enter_async_context(SocketServer(model))
        tap = await stack.enter_async_context(Tap(f"http://127.0.0.1:{upstream.port}"))
        exit_code, output = await _run(trial, agent, place, tap.root, through=through)
        asked = [
            one for one in tap.exchanges if one.asked.get("user-agent") != "context-proxy"
        ]  # who looks for a window
        log = place / "home/.local/share/context-proxy/run.log"
        lines = log.read_text().splitlines() if through and log.exists() else []
    done = [json.loads(line) for line in lines if '"event":"request_done"' in line]
    return Capture(asked, output, exit_code, max((line.get("tokens_before", 0) for line in done), default=0))


async def _run(trial: Trial, agent: Agent, place: Path, root: str, *, through: bool) -> tuple[int, str]:
    work, home = place / "work", place / "home"
    work.mkdir()
    home.mkdir()
    base = f"{root}/v1"
    for path, text in trial.settings.items():
        (home / path).parent.mkdir(parents=True)
        (home / path).write_text(text.replace("{base}", base))
    node = _NPM / "node" / "bin"
    environment = {"PATH": f"{node}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
    environment |= {**_KEYS, **trial.variables, "CI": "1"}
    if trial.prepare:
        words = [word.replace("{base}", base) for word in trial.prepare]
        await asyncio.to_thread(
            subprocess.run,
            [trial.program, *words],
            env=environment,
            cwd=work,
            capture_output=True,
            timeout=60,
            check=True,
        )
    if through:
        (place / "bin").mkdir()
        link = place / "bin" / agent.command
        link.write_text(f'#!/bin/sh\nexec {shlex.quote(str(trial.program))} "$@"\n')
        link.chmod(0o755)
        command = [sys.executable, "-m", "proxy", "run", "--upstream", base, str(link), *trial.arguments]
    else:
        apis = ("anthropic",) if trial.api == "anthropic" else ("openai",)
        wiring = wiring_of(agent, Upstream(base, apis), root, environment)
        environment |= wiring.variables
        command = [str(trial.program), *wiring.flags, *trial.arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            output, _ = await process.communicate()
        return process.returncode or 0, output.decode(errors="replace")
    except TimeoutError:
        return -1, f"no end after {MOST_SECONDS} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        end_all_at(home)
        await process.wait()


def differences(direct: Capture, through: Capture) -> list[str]:
    """How the two requests differ, in words."""
    one, other = direct.first, through.first
    for capture, road in ((direct, "directly"), (through, "through the proxy")):
        if capture.first is None:
            return [f"no request {road}: {capture.output.strip()[-300:]}"]
    assert one is not None
    assert other is not None
    found: list[str] = []
    before, after = one.body, other.body
    if len(other.sent) > 1.02 * len(one.sent):
        found.append(f"{len(one.sent)} → {len(other.sent)} bytes")
    found += [f"`{name}` only on one road" for name in sorted(before.keys() ^ after.keys())]
    tools, others = _tools(before), _tools(after)
    if tools != others:
        found.append(f"tools: {sorted(set(tools) ^ set(others))}")
    if one.sent.count(b"cache_control") != other.sent.count(b"cache_control"):
        found.append("cache marks")
    names = {name for name in one.asked.keys() ^ other.asked.keys() if name not in _OWN}
    found += [f"header `{name}`" for name in sorted(names)]
    return found


def _tools(body: Mapping[str, Any]) -> list[str]:
    return [
        str(one.get("name") or one.get("function", {}).get("name") or one.get("type"))
        for one in body.get("tools") or ()
    ]


def main(names: list[str]) -> int:
    """How many agents send anything else through the proxy than directly, or than the table says."""
    console = Console(width=max(160, Console().width))
    table = Table("agent", "directly", "through", "tokens", "calls on one road only", "differs", show_lines=True)
    failed = 0
    for trial in TRIALS:
        agent = agent_named(trial.name)
        if agent is None or (names and not trial.name.startswith(tuple(names))):
            continue
        console.print(f"{trial.name} …", style="dim")
        trial.install()
        direct = asyncio.run(captured(trial, agent, through=False))
        through = asyncio.run(captured(trial, agent, through=True))
        sizes = [len(one.first.sent) if one.first else 0 for one in (direct, through)]
        differs = differences(direct, through)
        for said, size in ((agent.bytes_direct, sizes[0]), (agent.bytes_through, sizes[1])):
            if said is None or abs(size - said) > _DRIFT * said:
                differs.append(f"the table says {said} bytes, found {size}")
        beside = sorted(set(direct.beside) ^ set(through.beside))
        table.add_row(trial.name, *map(str, sizes), str(through.tokens), "\n".join(beside), "\n".join(differs))
        failed += bool(differs)
    console.print(table)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
