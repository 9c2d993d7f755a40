"""Known agents, each with the variables or flags that send it to a proxy.

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
    api: str = "chat_completions"
    """That it speaks, by its name in settings."""
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
    prompt_tokens: int | None = None
    """Tokens of that request by our count: system text, tools, one word."""
    least_window: int | None = None
    """The least context window, by trial, in which a turn with one short call of a tool ends well through the proxy."""
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
        api="messages",
        command="claude",
        package="npm @anthropic-ai/claude-code",
        provider=ANTHROPIC,
        of_api=frozenset(("ANTHROPIC_BASE_URL",)),
        variables={"ANTHROPIC_BASE_URL": "{root}"},
        at_maker={"ENABLE_TOOL_SEARCH": "true"},
        asks_outside="yes",
        version="2.1.330",
        bytes_direct=48_064,
        bytes_through=48_064,
        prompt_tokens=14_402,
        least_window=15_000,
        note="2.1.197 and others send all tools to a base URL that is not their maker's: 85,260 bytes in 25 tools "
        "instead of 48,420 in 9 with `ENABLE_TOOL_SEARCH=true`, which `run` sets where the upstream is its maker's. "
        "2.1.330 sends 48,000 in 12 in either case, and 88,000 in 22 after a server has refused a request with a 400",
    ),
    Agent(
        name="codex",
        api="responses",
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
        bytes_direct=67_877,
        bytes_through=67_815,
        prompt_tokens=19_422,
        least_window=21_000,
        note="asks for a WebSocket first; the proxy refuses that with a 426, and HTTP follows",
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
        bytes_direct=49_654,
        bytes_through=49_654,
        prompt_tokens=15_037,
        least_window=16_500,
    ),
    Agent(
        name="opencode",
        api="responses",
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
        bytes_direct=32_626,
        bytes_through=32_626,
        prompt_tokens=9_868,
        least_window=10_500,
    ),
    Agent(
        name="qwen-code",
        command="qwen",
        package="npm @qwen-code/qwen-code",
        asks_outside="yes",
        version="0.15.10",
        bytes_direct=77_413,
        bytes_through=77_413,
        prompt_tokens=23_491,
        least_window=25_500,
    ),
    Agent(
        name="aider",
        command="aider",
        package="pip aider-chat",
        by_api={"anthropic": {"ANTHROPIC_API_BASE": "{root}"}, "ollama": {"OLLAMA_API_BASE": "{root}"}},
        asks_outside="no",
        version="0.86.2",
        bytes_direct=10_412,
        bytes_through=10_412,
        prompt_tokens=3_039,
        least_window=5_500,
    ),
    Agent(
        name="cline",
        command="cline",
        package="npm cline",
        of_api=frozenset(),
        file=SettingsFile(paths=("~/.cline/data/settings/providers.json",), variable="CLINE_PROVIDER_SETTINGS_PATH"),
        setting="cline auth --provider openai-compatible --modelid MODEL --apikey KEY --baseurl {base}",
        asks_outside="no",
        version="3.0.65",
        bytes_direct=21_522,
        bytes_through=21_522,
        prompt_tokens=6_531,
        least_window=7_000,
    ),
    Agent(
        name="cn",
        command="cn",
        package="npm @continuedev/cli",
        of_api=frozenset(),
        file=SettingsFile(paths=("~/.continue/config.yaml",), flag="--config"),
        setting="~/.continue/config.yaml, in the model: apiBase: {base}",
        asks_outside="no",
        version="1.5.47",
        bytes_direct=9_356,
        bytes_through=9_356,
        prompt_tokens=2_819,
        least_window=3_000,
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
        bytes_direct=5_389,
        bytes_through=5_389,
        prompt_tokens=1_583,
        least_window=2_000,
    ),
    Agent(
        name="llm",
        command="llm",
        package="pip llm",
        asks_outside="no",
        version="0.36",
        bytes_direct=120,
        bytes_through=120,
        prompt_tokens=9,
        least_window=1_000,
    ),
    Agent(
        name="mini-swe-agent",
        command="mini",
        package="pip mini-swe-agent",
        by_api={"anthropic": {"ANTHROPIC_API_BASE": "{root}"}, "ollama": {"OLLAMA_API_BASE": "{root}"}},
        asks_outside="no",
        version="2.4.6",
        bytes_direct=4_458,
        bytes_through=4_458,
        prompt_tokens=1_297,
        least_window=1_500,
    ),
    Agent(
        name="goose",
        command="goose",
        by_api={"openai": {"OPENAI_HOST": "{root}"}, "anthropic": {"ANTHROPIC_HOST": "{root}"}},
        setting="`OPENAI_HOST={root}` or `ANTHROPIC_HOST={root}`, which `run` sets",
    ),
    Agent(
        name="crush",
        command="crush",
        setting='`crush.json`: `{"providers": {"NAME": {"base_url": "{base}"}}}`',
    ),
    Agent(
        name="kimi",
        command="kimi",
        by_api={"openai": {"KIMI_BASE_URL": "{base}"}},
        setting="`KIMI_BASE_URL={base}`, which `run` sets",
    ),
    Agent(
        name="openhands",
        command="openhands",
        by_api={"openai": {"LLM_BASE_URL": "{base}"}, "anthropic": {"LLM_BASE_URL": "{root}"}},
        setting="`LLM_BASE_URL={base}`, which `run` sets",
    ),
    Agent(
        name="VS Code",
        setting="`github.copilot.chat.customOAIModels`, in each model `url`: `{base}/chat/completions`; for models of "
        "an Ollama `github.copilot.chat.byok.ollamaEndpoint`: `{root}`",
    ),
    Agent(
        name="Cursor",
        setting="Settings › Models › Override OpenAI Base URL; its maker's servers make the requests, so the address "
        "must be [one with TLS that they can reach](tls.md)",
    ),
    Agent(
        name="Zed",
        setting="`settings.json`, in `language_models`: `openai_compatible.NAME.api_url` `{base}`, `anthropic.api_url` "
        "and `ollama.api_url`: `{root}`",
    ),
    Agent(
        name="JetBrains AI Assistant",
        setting="Settings › Tools › AI Assistant › Models, an OpenAI-compatible provider with the URL `{base}`",
    ),
    Agent(name="Open WebUI", setting="`OPENAI_API_BASE_URL={base}` or `OLLAMA_BASE_URL={root}`"),
    Agent(name="openai-python", version="3.52", setting="`OPENAI_BASE_URL`, or `base_url=`"),
    Agent(name="openai-node", version="6.30", setting="`OPENAI_BASE_URL`, or `baseURL`"),
    Agent(name="Vercel AI SDK", version="7.0", setting="`OPENAI_BASE_URL`, or `baseURL`"),
    Agent(name="LangChain", version="1.4", setting="`OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL`, or `base_url=`"),
    Agent(name="OpenAI Agents SDK", version="0.24", setting="`OPENAI_BASE_URL`"),
    Agent(name="anthropic-python", version="2.12", setting="`ANTHROPIC_BASE_URL`, or `base_url=`"),
    Agent(name="gptme", version="0.35", setting="`OPENAI_BASE_URL` with a model `local/NAME`"),
    Agent(name="ollama-python, ollama-js", version="0.6", setting="`OLLAMA_HOST`"),
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
