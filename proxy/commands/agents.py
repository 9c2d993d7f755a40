"""Known agents, and how each is sent to a proxy: variables, flags, or a copy of its settings.

Rule: everything that the proxy knows of a single agent is a row here; `docs/agents.md` is written from it. What was not
tried on this project's machines says "unknown". In texts, `{base}` is the proxy's URL with `/v1`, `{root}` without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Api: TypeAlias = Literal["openai", "anthropic", "ollama"]
Known: TypeAlias = Literal["yes", "no", "unknown"]
Variables: TypeAlias = Mapping[str, str]

VARIABLES_OF: Final[Mapping[Api, Variables]] = {
    "openai": {"OPENAI_BASE_URL": "{base}", "OPENAI_API_BASE": "{base}"},
    "anthropic": {"ANTHROPIC_BASE_URL": "{root}"},
    "ollama": {"OLLAMA_HOST": "{root}"},
}
"""Variables that clients of an API read; the second of OpenAI's is LiteLLM's and old releases'."""
API_OF: Final[Mapping[str, Api]] = {name: api for api, names in VARIABLES_OF.items() for name in names}
OPENAI: Final = "https://api.openai.com/v1"
ANTHROPIC: Final = "https://api.anthropic.com/v1"
_ADDRESSES: Final = ("{base}", "{root}")
RUNNERS: Final = frozenset(("npx", "bunx", "pnpx", "uvx"))
"""Commands whose first argument is a package."""


class SettingsFile(Struct, frozen=True, kw_only=True):
    """A file of settings that names an upstream. Where it names the proxy's, `run` gives the agent a changed copy."""

    paths: Sequence[str]
    """The first that exists; `~` is the user's home, and what begins with neither `~` nor `/` is in the folder of the
    work. A variable of the agent's own may lead to another place: `$CODEX_HOME/…`."""
    variable: str = ""
    """The agent's own variable for the copy, or for the folder around it."""
    flag: str = ""
    """The agent's own flag for the copy."""
    holds: Literal["path", "folder", "content"] = "path"
    """What the variable holds."""


class Agent(Struct, frozen=True, kw_only=True):
    """One agent, editor or library."""

    name: str
    command: str = ""
    """Empty: it is no command of its own."""
    package: str = ""
    """`npm NAME` or `pip NAME`; empty: it does not install from a registry."""
    of_api: frozenset[str] = frozenset(API_OF)
    """Variables of an API, from `VARIABLES_OF`, that it reads."""
    provider: str = ""
    """Base URL of its maker's API, where it goes by itself; empty: the user's choice."""
    variables: Variables = {}
    """Whatever the upstream speaks."""
    by_api: Mapping[Api, Variables] = {}
    """By an API that the upstream speaks."""
    at_maker: Variables = {}
    """Only where the upstream is its maker's own."""
    flags: Sequence[str] = ()
    file: SettingsFile | None = None
    setting: str = ""
    """What to write where nothing else works, or where there is no command to wrap."""
    asks_outside: Known = "unknown"
    """Whether it asks its user before it reads a file outside the folder of the work."""
    subscription: Known = "unknown"
    """Whether a login with a subscription, instead of a key, works through the proxy."""
    version: str = ""
    """That was tried; empty: none here."""
    bytes_direct: int | None = None
    """Size of its first request, "hello", without us, as measured with that version."""
    bytes_through: int | None = None
    """Size of the same request through `context-proxy run`."""
    window_tokens: int | None = None
    """Tokens of that request's system text and tools, by our count, and 4,096 for a reply: the least window."""
    note: str = ""
    """What differs because of a proxy, and what cures it."""

    @property
    def naming(self) -> Mapping[str, Api]:
        """Variables by which its user names an upstream, and the API that this one speaks."""
        own = {name: api for api, names in self.by_api.items() for name, text in names.items() if text in _ADDRESSES}
        return {name: api for name, api in API_OF.items() if name in self.of_api} | own


AGENTS: Final[Sequence[Agent]] = (
    Agent(
        name="claude",
        command="claude",
        package="npm @anthropic-ai/claude-code",
        provider=ANTHROPIC,
        of_api=frozenset(("ANTHROPIC_BASE_URL",)),
        variables={"ANTHROPIC_BASE_URL": "{root}"},
        at_maker={"ENABLE_TOOL_SEARCH": "true"},
        asks_outside="yes",
        version="2.1.330",
    ),
    Agent(
        name="codex",
        command="codex",
        package="npm @openai/codex",
        of_api=frozenset(),
        provider=OPENAI,
        flags=("-c", 'openai_base_url="{base}"'),
        file=SettingsFile(
            paths=("$CODEX_HOME/config.toml", "~/.codex/config.toml"), variable="CODEX_HOME", holds="folder"
        ),
        asks_outside="no",
        version="0.169.0",
    ),
    Agent(
        name="copilot",
        command="copilot",
        package="npm @github/copilot",
        of_api=frozenset(),
        by_api={
            "openai": {"COPILOT_PROVIDER_BASE_URL": "{base}"},
            "anthropic": {"COPILOT_PROVIDER_BASE_URL": "{root}", "COPILOT_PROVIDER_TYPE": "anthropic"},
        },
        asks_outside="yes",
        subscription="no",
        version="1.0.102",
    ),
    Agent(
        name="opencode",
        command="opencode",
        package="npm opencode-ai",
        of_api=frozenset(),
        by_api={
            "openai": {"OPENCODE_CONFIG_CONTENT": '{"provider":{"openai":{"options":{"baseURL":"{base}"}}}}'},
            "anthropic": {"OPENCODE_CONFIG_CONTENT": '{"provider":{"anthropic":{"options":{"baseURL":"{base}"}}}}'},
        },
        file=SettingsFile(
            paths=("opencode.json", "opencode.jsonc", "~/.config/opencode/opencode.json"),
            variable="OPENCODE_CONFIG_CONTENT",
            holds="content",
        ),
        asks_outside="yes",
        version="1.18.33",
    ),
    Agent(
        name="qwen-code",
        command="qwen",
        package="npm @qwen-code/qwen-code",
        asks_outside="yes",
        version="0.15.10",
    ),
    Agent(
        name="aider",
        command="aider",
        package="pip aider-chat",
        by_api={"anthropic": {"ANTHROPIC_API_BASE": "{root}"}, "ollama": {"OLLAMA_API_BASE": "{root}"}},
        asks_outside="no",
        version="0.86.2",
    ),
    Agent(
        name="cline",
        command="cline",
        package="npm cline",
        of_api=frozenset(),
        file=SettingsFile(paths=("~/.cline/data/settings/providers.json",), variable="CLINE_PROVIDER_SETTINGS_PATH"),
        setting="cline auth --provider openai-compatible --modelid MODEL --apikey KEY --baseurl {base}",
        version="3.0.65",
    ),
    Agent(
        name="cn",
        command="cn",
        package="npm @continuedev/cli",
        of_api=frozenset(),
        file=SettingsFile(paths=("~/.continue/config.yaml",), flag="--config"),
        setting="~/.continue/config.yaml, in the model: apiBase: {base}",
        version="1.5.47",
    ),
    Agent(
        name="pi",
        command="pi",
        package="npm @earendil-works/pi-coding-agent",
        of_api=frozenset(),
        file=SettingsFile(
            paths=("$PI_CODING_AGENT_DIR/models.json", "~/.pi/agent/models.json"),
            variable="PI_CODING_AGENT_DIR",
            holds="folder",
        ),
        setting='~/.pi/agent/models.json: {"providers": {"NAME": {"baseUrl": "{base}"}}}',
        asks_outside="no",
        version="1.6.0",
    ),
    Agent(name="llm", command="llm", package="pip llm", asks_outside="no", version="0.36"),
    Agent(
        name="mini-swe-agent",
        command="mini",
        package="pip mini-swe-agent",
        by_api={"anthropic": {"ANTHROPIC_API_BASE": "{root}"}, "ollama": {"OLLAMA_API_BASE": "{root}"}},
        asks_outside="no",
        version="2.4.6",
    ),
)


def agent_named(name: str) -> Agent | None:
    """The agent of this name or this command."""
    return next((one for one in AGENTS if name in (one.name, one.command)), None)


def agent_in(words: Sequence[str]) -> tuple[Agent | None, int]:
    """The agent that a command line starts, and how many words come before its arguments.

    >>> found, words = agent_in(["/usr/bin/claude", "-p", "hi"]); found.name, words
    ('claude', 1)
    >>> found, words = agent_in(["npx", "-y", "@openai/codex@latest", "exec"]); found.name, words
    ('codex', 3)
    """
    if PurePath(words[0]).name in RUNNERS:
        for number, word in enumerate(words[1:], 2):
            packages = {one.package.partition(" ")[2]: one for one in AGENTS if one.package}
            if (found := packages.get(word) or packages.get(word.rpartition("@")[0])) is not None:
                return found, number
            if not word.startswith("-"):
                return None, 1
    name = words[0] if "/" not in words[0] else PurePath(words[0]).name
    return agent_named(name), 1
