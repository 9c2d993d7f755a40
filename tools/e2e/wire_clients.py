"""The clients of `/v1/messages` and `/v1/responses`: what is run, on which API, and in whose words it is refused.

Rule: versions are pinned in package.json and the requirements; a client gets a base URL, a key and a model, as its own
documents name them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.e2e.clients import HERE, INSTALLED, install_npm, install_pip, python_of

MESSAGES: Final = "/v1/messages"
RESPONSES: Final = "/v1/responses"
SCRIPT: Final = "Look at the logs one by one and tell me what they hold."


@dataclass(frozen=True, slots=True)
class WireClient:
    """One row of the table."""

    name: str
    path: str
    """Path of its API."""
    install: Callable[[], None]
    command: Sequence[str]
    refusal: str
    """A form of tests/support/upstream/messages.py or responses.py."""
    configured: Callable[[Path, str], Mapping[str, str]]
    """Home and root of its API → what its environment needs besides; writes its settings there, if it has any."""


def _claude_code(version: str, model: str, refusal: str) -> WireClient:
    program = INSTALLED / "node_modules" / f"claude-code-{version}" / "bin" / "claude.exe"  # its name everywhere
    command = (str(program), "-p", SCRIPT, "--model", model, "--allowedTools", "Bash")
    return WireClient(
        f"Claude Code {version}, {model}", MESSAGES, lambda: install_npm(program), command, refusal, _alone
    )


def _alone(_: Path, __: str) -> Mapping[str, str]:
    return {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


def _codex(model: str, refusal: str, *, built_in: bool = False) -> WireClient:
    program = INSTALLED / "node_modules" / ".bin" / "codex"
    command = (str(program), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", SCRIPT)

    def configured(home: Path, root: str) -> Mapping[str, str]:
        custom = f'base_url = "{root}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
        provider = 'model_provider = "proxied"\n[model_providers.proxied]\nname = "proxied"\n' + custom
        (home / ".codex").mkdir()
        settings = f'openai_base_url = "{root}/v1"\n' if built_in else provider
        (home / ".codex" / "config.toml").write_text(f'model = "{model}"\n{settings}')
        return {"CODEX_HOME": str(home / ".codex"), "CODEX_API_KEY": "sk-e2e"}

    name = f"Codex 0.169.0, {model}, {'built-in' if built_in else 'custom'} provider"
    return WireClient(name, RESPONSES, lambda: install_npm(program), command, refusal, configured)


def _ours(name: str, path: str, environment: str, script: str, mode: str, refusal: str) -> WireClient:
    """A small agent of ours over a library."""
    command = (python_of(environment), str(HERE / "agents" / script), mode, SCRIPT)
    return WireClient(name, path, lambda: install_pip(environment), command, refusal, lambda _, __: {})


def _openai_agents(mode: str, refusal: str = "openai") -> WireClient:
    return _ours(f"openai-agents, {mode}", RESPONSES, "agents", "openai_agents.py", mode, refusal)


def _anthropic(mode: str, refusal: str) -> WireClient:
    return _ours(f"anthropic-python, {mode}", MESSAGES, "agents", "anthropic_python.py", mode, refusal)


def _langchain(name: str, path: str, refusal: str) -> WireClient:
    return _ours(name, path, "langchain", "langchain_wires.py", path.rpartition("/")[2], refusal)


WIRE_CLIENTS: Final = (
    _claude_code("2.1.330", "claude-sonnet-4-6", "anthropic"),
    _claude_code("2.1.330", "claude-opus-5", "in the stream"),
    _claude_code("2.1.330", "local-model", "llama.cpp"),
    _claude_code("2.1.330", "kimi-k2.5", "kimi, with numbers"),
    _claude_code("2.1.330", "doubao-seed-1.6", "ark"),
    _claude_code("2.1.197", "claude-sonnet-4-6", "anthropic"),
    _claude_code("2.1.197", "local-model", "vllm"),
    _codex("gpt-6.1-sol", "openai"),
    _codex("gpt-5.5", "failed event"),
    _codex("local-model", "vllm"),
    _codex("gpt-5.5-codex", "copilot"),
    _codex("gpt-6.1-sol", "openai", built_in=True),
    _openai_agents("list"),
    _openai_agents("session"),
    _openai_agents("previous"),
    _openai_agents("streamed"),
    _openai_agents("image"),
    _openai_agents("truncated", "vllm"),  # which refuses although it was asked to leave something out
    _anthropic("whole", "anthropic"),
    _anthropic("streamed", "vllm"),
    _langchain("ChatAnthropic", MESSAGES, "anthropic"),
    _langchain("ChatOpenAI, Responses", RESPONSES, "vllm"),
)
