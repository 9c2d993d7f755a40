"""The operator's settings. The only reader of environment and YAML.

Rule: flags beat environment, environment beats YAML, YAML beats the defaults below. A mistake stops the start with one
line that names the key and the allowed values; nothing is guessed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from proxy.config.sources import (
    Variables,
    names_of_variables,
    read_yaml,
    sentence,
    stands_in,
    variable_with,
)
from proxy.config.types import (
    AgentPath,
    Folder,
    History,
    HostName,
    Key,
    KeyFile,
    MaxChars,
    Modalities,
    Mode,
    PublicUrl,
    Secret,
    Section,
    StateUrl,
    StoreUrl,
    Tokenizer,
    needs,
)
from proxy.config.upstreams import WIRE_PATHS, RoutedUpstream, UpstreamSettings
from proxy.core.compaction import LOW_MARK
from proxy.core.media import MAX_BYTES, MAX_IMAGE_PIXELS
from proxy.core.models import ToolImages
from proxy.core.retrieval_tool import RetrievalPolicy
from proxy.core.text import HEAD_SHARE, Direction
from proxy.core.truncation import Sanitise
from proxy.wire import LARGEST_TOKENS, SMALLEST_WINDOW_TOKENS

ENV_PREFIX: Final = "CONTEXT_PROXY_"

ENV_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "UPSTREAM": ("upstream", "base_url"),
    "OPENAI_API_KEY": ("upstream", "api_key"),
    "TOOL_OUTPUT_MAX_LINES": ("tool_output", "max_lines"),
    "TOOL_OUTPUT_MAX_BYTES": ("tool_output", "max_bytes"),
    "TOOL_OUTPUT_TRUNCATE_DIRECTION": ("tool_output", "direction"),
    "TOOL_OUTPUT_DIR": ("artifacts", "folder"),
    "TOOL_OUTPUT_RETENTION_DAYS": ("artifacts", "retention_days"),
}
"""Short names that people already use; the long `CONTEXT_PROXY_…` name beats them."""


HERE: Final = Path(".context-proxy")
"""The data folder of releases before 0.3; in a project, where `context-proxy run` lets agents find tool output."""
IGNORES_ALL: Final = ".gitignore"
"""Makes a folder of tool output, in which no proxy keeps its data, invisible to git."""


def user_data_dir() -> Path:
    """The user's folder for data; without a home, the folder of former releases. Relative paths in the variable are
    ignored: https://specifications.freedesktop.org/basedir-spec/latest/"""
    try:
        base = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (base if base.is_absolute() else Path.home() / ".local" / "share") / "context-proxy"
    except RuntimeError:
        return HERE


def default_data_dir() -> Path:
    """The folder of former releases if there is one here, else the user's."""
    is_data = HERE.is_dir() and ((HERE / "owner-secret").exists() or not (HERE / IGNORES_ALL).exists())
    return HERE if is_data else user_data_dir()


class SettingsError(Exception):
    """The settings are wrong: one line for each mistake."""


class ServerSettings(Section):
    """Where the proxy listens."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on; 0.0.0.0 in a container."""
    port: int = Field(default=8787, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the port."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Largest chat request that is read, before and after decompression; a larger one gets a 413."""
    max_waiting_bytes: int = Field(default=96 * 1024 * 1024, ge=0)
    """Most memory of one worker for requests that wait for their response, so that they can be sent again if it is a
    refusal. Beyond it they are compressed, the longest waiting first; if that is not enough, the longest waiting is let
    go, and a refusal reaches its client as it comes."""
    max_header_bytes: int = Field(default=32 * 1024, ge=1024)
    """Most bytes of a request's first line and headers together; more get a 431. As nginx's
    `large_client_header_buffers`: 4 of 8 KB."""
    header_timeout_seconds: float = Field(default=60, gt=0)
    """Longest time for a client to send line and headers; after it, a 408. As nginx's `client_header_timeout`."""
    body_timeout_seconds: float = Field(default=60, gt=0)
    """Longest pause of a client within its body; after it, a 408. As nginx's `client_body_timeout`."""
    max_connections: int = Field(default=20_000, ge=1)
    """Most clients of one worker at a time; the system's limit on open files may lower it. One more closes the
    connection that has been idle longest; if all wait for responses, it gets a 503."""
    admin_key: Annotated[Key, Field(min_length=16)] | None = None
    """The key of the dashboard, `/decisions`, `/explain` and the operator's other pages for every client, those on this
    machine included; sent as `Authorization: Bearer …` or as the password that a browser asks for. Empty: only clients
    on this machine can open them, and they need no key. Set it behind any reverse proxy."""
    admin_key_file: KeyFile | None = None
    """A file that holds this key and nothing else; `admin_key` beats it."""
    secret: Secret | None = None
    """64 hexadecimal digits that turn API keys into names of tenants, the same on all replicas; `openssl rand -hex 32`
    makes them. Required with `artifacts.url` and `state.url`; what is stored under another secret can no longer be
    read. Empty: the file `owner-secret` in the data folder, created at the first start."""
    secret_file: KeyFile | None = None
    """A file that holds these digits and nothing else; `secret` beats it."""
    host_names: frozenset[HostName] = frozenset({"host.docker.internal", "host.containers.internal"})
    """Names, besides `localhost` and loopback addresses, by which clients on this machine may open those pages. While
    the proxy listens on loopback and adds a key of its own (`upstream.api_key`), every request to another name, or of a
    web page from another host, gets a 403: name here what a reverse proxy on this machine passes on as `Host`."""
    shutdown_grace_seconds: float = Field(default=25, ge=0)
    """How long running streams may continue after a signal to stop; less than the 30 seconds that Kubernetes grants."""


class DefaultSettings(Section):
    """For models about which nothing better is known."""

    context_window: int | None = Field(default=None, ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)
    """Context window in tokens of every model that `models` does not name. Empty: ask the upstream, then the
    catalogue."""
    max_request_chars: int | None = Field(default=None, ge=1000)
    """Most characters of text in a request, for upstreams that count them: 900000 for a limit of a million."""
    max_request_bytes: int | None = Field(default=None, ge=1000)
    """Most bytes of a request, for upstreams that limit them."""
    input: Modalities | None = None
    """What such a model can read: text, vision, audio, video, file. Empty: as the catalogue says, else unknown."""


class ModelSettings(Section):
    """For models whose name matches; what is not set is found out as for other models."""

    match: str = Field(min_length=1, examples=["qwen-vl*"])
    """Glob over the model's name, ignoring case: `qwen-vl*`."""
    context_window: int | None = Field(default=None, ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)
    """Context window in tokens, prompt and reply together."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of a reply."""
    input: Modalities | None = None
    """What the model can read: text, vision, audio, video, file."""
    tool_images: ToolImages | None = None
    """Where images of tool results go: `keep`, `user_after_batch` (in one user message after all results of the batch),
    `user_after_assistant` (the same, after a short assistant message), `text` (a description). Empty:
    `user_after_batch`, and `user_after_assistant` for Mistral."""
    max_images: int | None = Field(default=None, ge=1)
    """Most images in a request; if there are more, the oldest are described until half are left. Empty: any number."""
    max_tool_result_chars: MaxChars | None = None
    """Most characters of a tool result for this model: 0 or less means 4000, 1 to 999 means 1000. It replaces the
    default `tool_output.max_lines` and `max_bytes`; the share of the window still holds."""
    sanitise: frozenset[Sanitise] = frozenset()
    """Characters to replace, for upstreams that fail on them: `non_bmp` (emoji and the like), `surrogates`,
    `control`."""
    tokenizer: Tokenizer | None = None
    """tiktoken encoding for counting (`o200k_base`, `cl100k_base`), or `bytes` for the estimate by bytes."""


class ToolLimits(Section):
    """Limits for one tool's results; what is not set is as for every tool."""

    max_lines: int | None = Field(default=None, ge=1)
    """Most lines of a result."""
    max_bytes: int | None = Field(default=None, ge=256)
    """Most bytes of a result."""
    max_chars: MaxChars | None = None
    """Most characters of a result: 0 or less means 4000, 1 to 999 means 1000."""
    direction: Direction | None = None
    """`head`, `tail` or `both`."""


class ToolOutputSettings(Section):
    """When a tool's result becomes an excerpt."""

    max_lines: int = Field(default=2_000, ge=1)
    """Most lines of a result. Also `TOOL_OUTPUT_MAX_LINES`."""
    max_bytes: int = Field(default=51_200, ge=256)
    """Most bytes of a result, but never more than 30 % of the window. Also `TOOL_OUTPUT_MAX_BYTES`."""
    direction: Direction = Direction.BOTH
    """What is kept: `head`, `tail` or `both`. Also `TOOL_OUTPUT_TRUNCATE_DIRECTION`."""
    head_share: float = Field(default=HEAD_SHARE, ge=0, le=1)
    """Share of what `both` keeps that comes from the beginning; the rest comes from the end."""
    preview_chars: int | None = Field(default=None, ge=100)
    """Characters that a cut result keeps, besides the notice; empty: as many as the limits allow."""
    never: frozenset[str] = frozenset()
    """Tools whose results are never cut on arrival."""
    tools: dict[str, ToolLimits] = Field(default={}, examples=["Read"])
    """Other limits by tool name: `{Read: {max_bytes: 200000}}`."""


class BudgetSettings(Section):
    """How the window is used."""

    fill: float = Field(default=1.0, ge=0.1, le=1)
    """Share of the room that may be used before something is given up."""
    low_mark: float = Field(default=LOW_MARK, ge=0.3, le=0.95)
    """How much of that share is still in use after a cut; lower: fewer cuts and warmer caches, but less context."""
    margin: int | None = Field(default=None, ge=0)
    """Tokens kept free for errors of the estimate; empty: 1 % of the window, 4 % until usage has been seen, or 6 %
    where the upstream cuts silently and its vocabulary is unknown."""
    clamp_reply: bool = True
    """Lower a request's reply limit when prompt and reply together do not fit. If not, at most 4 096 tokens or half of
    the window are kept free for the reply, and the upstream judges the sum, unless a refusal has shown a window or a
    rate that the reply limit alone fills."""


class LearningSettings(Section):
    """What is learned from the upstream's responses."""

    enabled: bool = True
    """Learn limits from refusals, and from usage how far the estimate is off."""


class OverflowSettings(Section):
    """What happens when the upstream still says "too long"."""

    retry: bool = True
    """Send one smaller request that the client never notices; `false`: the refusal is passed on untouched."""
    keepalive_seconds: float | None = Field(default=None, gt=0)
    """Interval of the SSE comments for a client that waits for a stream, until the first event, and while an artifact
    is read for its model; a refusal that follows one is an event in a 200. Empty: send nothing before the response."""
    forbid_silent_cuts: bool = False
    """`true`: a request that the proxy has shortened for Ollama's own API says `"truncate": false`, unless it states
    `truncate` itself. The server should then refuse what it would cut, and the refusal is cured. Off, because it was
    not tried on a real server."""


class MediaSettings(Section):
    """Images, audio and files."""

    fetch_remote_images: bool = False
    """Download images that messages name by an `http` or `https` address and send their bytes instead; `false`: the
    address goes to the upstream as it is."""
    max_bytes: int = Field(default=MAX_BYTES, ge=1024)
    """Most bytes of an image, sound or file; a larger one is described."""
    max_image_pixels: int = Field(default=MAX_IMAGE_PIXELS, ge=1024)
    """Most pixels of an image; a larger one is described, as most servers take it for a decompression bomb."""
    unknown_capability: Literal["pass", "text"] = "pass"
    """For a model whose input types are unknown: `pass` on what arrived as media and learn from a refusal, or send
    `text`."""
    fetch_timeout_seconds: float = Field(default=10, gt=0)
    """Longest time for the download of one image, from the lookup of its host to its last byte."""
    allow_private_addresses: bool = False
    """`true`: images may also come from private networks and from this machine, on any port. Anyone who can send a
    request can then make the proxy call such addresses. Addresses of cloud metadata stay closed."""


class ArtifactSettings(Section):
    """Where content taken out of requests is kept."""

    retention_days: float = Field(default=7, gt=0)
    """Days without use after which an artifact is deleted. Also `TOOL_OUTPUT_RETENTION_DAYS`."""
    max_bytes: int = Field(default=2 * 1024**3, ge=1024 * 1024)
    """Most bytes of all artifacts together; above it, tenants that hold more than their equal share lose what they used
    least recently."""
    url: StoreUrl | None = None
    """A bucket instead of a folder: `s3://bucket/prefix`, `gs://bucket`, `az://container/prefix`; also
    `file:///folder`, and `memory://` for one worker. Credentials are found as by each cloud's own tools:
    `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, the
    machine's role."""
    retrieval_tool: RetrievalPolicy = "auto"
    """Offer models the tool `read_artifact`, which the proxy answers itself: `auto` (to agents whose tools cannot
    run commands), `always` or `never`."""
    folder: Folder | None = None
    """Folder for artifacts; empty: `tool-output` in the data folder. Also `TOOL_OUTPUT_DIR`."""
    agent_path: AgentPath | None = None
    """Path under which agents see that folder, if it differs, as with a volume. Empty: its own path, for clients on
    this machine; others, and all if it contains an apostrophe, get the proxy's address instead."""
    public_url: PublicUrl | None = None
    """How agents reach this proxy, without `/v1`: `https://proxy.example`. Empty: the `Host` of each request."""
    shared: bool = False
    """`true`: every client may read every artifact; otherwise only the API key of the request that it was taken
    from."""
    open_on_loopback: bool = False
    """`true`: clients on this machine read all artifacts without a key. Never behind a reverse proxy on this
    machine."""


class StateSettings(Section):
    """What replicas share. Without it, the file in `data_dir` serves the workers of one machine."""

    url: StateUrl | None = None
    """A server of Redis or Valkey, `redis://host:6379/0` (`rediss://` with TLS), through which replicas share what they
    learn (limits, ratios, refused media and tools). Needs the extra `redis`;
    requests never wait for it ([operations](operations.md#what-replicas-share))."""
    url_file: KeyFile | None = None
    """A file that holds this URL and nothing else, as it may have a password in it; `url` beats it."""


class LogSettings(Section):
    """What is logged to standard output."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object a line; `console`: coloured, for people; `auto`: console on a terminal, else json."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""


class DecisionSettings(Section):
    """The record of finished requests, for `/decisions` and the dashboard: sizes, names and reasons, never content."""

    stored: int = Field(default=5_000, ge=0, le=100_000)
    """How many of the latest requests to keep in the data folder, where all workers share them and find them again
    after a restart. 0: each worker remembers only its own, in memory."""


class TracingSettings(Section):
    """OpenTelemetry traces: one span for each chat request."""

    enabled: Annotated[bool, needs("otel", "opentelemetry.exporter.otlp.proto.http")] = False
    """Send spans to a collector over HTTP. Needs the extra `otel`; the standard variables set the destination:
    `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and the others."""


class Settings(BaseSettings):
    """All settings. `load` reads them from every source; an instance made directly holds only its arguments."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, case_sensitive=True)

    upstream: UpstreamSettings = UpstreamSettings()
    upstreams: tuple[RoutedUpstream, ...] = ()
    """Further upstreams; the first match wins. Requests that match none go to `upstream`."""
    server: ServerSettings = ServerSettings()
    data_dir: Folder = Field(default_factory=default_data_dir, examples=["~/.local/share/context-proxy"])
    """Folder for all stored data. `$XDG_DATA_HOME` replaces `~/.local/share`; a `.context-proxy` in the current folder,
    as made by releases before 0.3, is used if it is there."""
    enabled: bool = True
    """`false`: a plain pass-through, whatever else is set."""
    mode: Mode = "on"
    """`on`; `observe`: plan and log only; `off`: neither. The header `x-context-proxy-mode` beats it."""
    history: History = "heal"
    """`heal`: when an upstream refuses a request whose tool calls and results do not pair up, as after an aborted turn,
    whose encrypted or signed reasoning it cannot verify, or that has another fault which the refusal names (ids of
    calls, arguments, empty messages, cache marks and more), send it once more, repaired. Never before a refusal."""
    compress_api: bool = False
    """`true`: answer `/v1/compress` and `/v1/retrieve` here, as headroom does, for gateways whose guardrails call them
    (LiteLLM, Portkey); `false`: they pass through like all other paths. Clients elsewhere need `server.admin_key`."""
    mcp: Annotated[bool, needs("mcp", "mcp")] = False
    """`true`: answer `/mcp`, where MCP clients read and search artifacts with the key that these came with
    ([MCP](mcp.md)). Needs the extra `mcp`."""
    language: Literal["en", "zh"] = "en"
    """Language of the notices that models read."""
    defaults: DefaultSettings = DefaultSettings()
    models: tuple[ModelSettings, ...] = ()
    """Models by name; the first match wins."""
    tool_output: ToolOutputSettings = ToolOutputSettings()
    budget: BudgetSettings = BudgetSettings()
    overflow: OverflowSettings = OverflowSettings()
    learning: LearningSettings = LearningSettings()
    media: MediaSettings = MediaSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    state: StateSettings = StateSettings()
    log: LogSettings = LogSettings()
    decisions: DecisionSettings = DecisionSettings()
    tracing: TracingSettings = TracingSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the arguments: settings made by tests and tools do not depend on the environment."""
        return (init_settings,)

    @property
    def named_upstreams(self) -> Mapping[str, UpstreamSettings]:
        """All upstreams by their places in the settings, in the order in which they are tried."""
        return {**{f"upstreams[{index}]": one for index, one in enumerate(self.upstreams)}, "upstream": self.upstream}

    def paths_to(self, upstream: UpstreamSettings, model: str) -> Sequence[str]:
        """The wires, by their paths (`/messages`), over which requests for a model go to one of these upstreams."""
        tried = self.named_upstreams.values()
        chosen = {path: next(one for one in tried if one.takes(path, model)) for path in WIRE_PATHS.values()}
        return [path for path, one in chosen.items() if one is upstream]

    def before(self, upstream: UpstreamSettings) -> Settings:
        """The settings of a proxy that has only this upstream."""
        return self.model_copy(update={"upstream": upstream, "upstreams": ()})


def load(config_file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Settings from all sources; `flags` is nested like the YAML. Raises SettingsError, one line for each mistake."""
    logging.getLogger("pydantic_settings").disabled = True  # on request it logs all values, keys included
    mistakes: list[str] = []
    written = read_yaml(config_file, mistakes) if config_file else {}
    long = names_of_variables(os.environ, ENV_PREFIX, Settings, mistakes)
    short = {place: name for name, place in ENV_ALIASES.items() if os.environ.get(name)}
    read = [(Variables(Settings, names)(), names) for names in (long, short)]
    given = dict(flags or {})
    sources = [InitSettingsSource(Settings, values) for values in (given, *(one for one, _ in read), written)]
    try:
        settings = Settings(_build_sources=(sources, {}))  # type: ignore[call-arg] # the library's, which mypy cannot see
    except ValidationError as error:
        for mistake in error.errors():
            variable = None if stands_in(given, mistake) else variable_with(mistake, read)
            mistakes.append(sentence(mistake, Settings, variable))
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings
