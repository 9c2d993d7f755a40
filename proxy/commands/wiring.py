"""Where an agent's requests go, or what sends it to a proxy instead.

Rule: a key goes nowhere that its agent would not send it: where the environment already names a base URL for this
agent, that is its upstream. No file of the agent is changed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from proxy.commands.agents import ANTHROPIC, API_OF, VARIABLES_OF, Agent, Api, SettingsFile, agent_named
from proxy.commands.screen import complain, show
from proxy.commands.status import ask
from proxy.config import Settings, UpstreamSettings
from proxy.shell.operator import Announcement, announcements
from proxy.wire import WIRES

Form = Literal["posix", "fish", "powershell", "json"]
_SHELLS: Final[Mapping[Form, tuple[str, str, Callable[[str], str]]]] = {
    "posix": ("export {}={}", "unset {}", shlex.quote),
    "fish": ("set -gx {} {}", "set -e {}", lambda text: "'{}'".format(re.sub(r"([\\'])", r"\\\1", text))),
    "powershell": (
        "$env:{} = {}",
        "Remove-Item Env:{} -ErrorAction SilentlyContinue",
        lambda text: "'{}'".format(text.replace("'", "''")),
    ),
}
"""Lines that set and unset a variable, and how a text is quoted in them."""
_GREETING_SECONDS: Final = 1.0
"""Timeout of the question whether a server is an Ollama."""
_OLLAMA_PORT: Final = 11434


class Upstream(NamedTuple):
    """Where requests go."""

    base_url: str
    apis: Sequence[Api]
    """That it speaks."""
    proxy: Announcement | None = None
    """It is itself a proxy of this user, which is then used."""


class NoUpstream(Exception):
    """Nothing says where requests go: a sentence."""


def upstream_of(agent: Agent | None, settings: Settings, environment: Mapping[str, str]) -> Upstream:
    """The upstream that is set, else the one that the agent itself would use. Raises NoUpstream and SettingsError."""
    if "base_url" in settings.upstream.model_fields_set:
        return _at(settings, settings.upstream.base_url)
    own = agent.naming if agent is not None else API_OF
    for name, api in (own if agent is not None and agent.provider else {**own, **API_OF}).items():
        if address := environment.get(name, "").strip():
            return _named(settings, name, api, address)
    if agent is not None and agent.provider:
        return _at(settings, agent.provider)
    raise NoUpstream(
        "nothing says where the requests should go: name the API with --upstream, such as "
        "--upstream https://api.openai.com/v1 or --upstream http://127.0.0.1:11434"
    )


def _named(settings: Settings, variable: str, api: Api, address: str) -> Upstream:
    """The upstream that a variable names, in the way of its API."""
    if api == "ollama":
        parts = urlsplit((address if "://" in address else f"http://{address}").replace("//0.0.0.0", "//127.0.0.1"))
        address = f"{parts.scheme}://{parts.netloc}{'' if parts.port else f':{_OLLAMA_PORT}'}"
    if api == "anthropic" and urlsplit(address).path.strip("/") and not address.rstrip("/").endswith("/v1"):
        address = address.rstrip("/") + "/v1"  # its clients add /v1/messages to any path
    try:
        base_url = UpstreamSettings(base_url=address).base_url
    except ValueError:
        raise NoUpstream(f"{variable} names no base URL; --upstream can name one") from None
    found = _at(settings, base_url)
    return found if found.proxy is not None or api == "openai" else found._replace(apis=_APIS[api])


_APIS: Final[Mapping[Api, Sequence[Api]]] = {
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "ollama": ("openai", "ollama"),
}
"""What a server speaks that speaks this."""


def _at(settings: Settings, base_url: str) -> Upstream:
    root = base_url.removesuffix("/v1")
    for one in announcements(settings.data_dir):
        if root in (one.root, one.root.replace("127.0.0.1", "localhost")) and (status := ask(one)) is not None:
            beyond = status["upstreams"][-1]
            return Upstream(beyond, spoken_by(beyond), one)
    return Upstream(base_url, spoken_by(base_url))


def spoken_by(base_url: str) -> Sequence[Api]:
    """The APIs of a server; OpenAI's where nothing is known.

    >>> spoken_by("https://api.anthropic.com/v1"), spoken_by("https://api.openai.com/v1")
    (('anthropic',), ('openai',))
    >>> spoken_by("https://api.deepseek.com/anthropic/v1"), spoken_by("http://127.0.0.1:11434/v1")
    (('anthropic',), ('openai', 'ollama'))
    """
    parts = urlsplit(base_url)
    if base_url == ANTHROPIC or "/anthropic" in parts.path:
        return _APIS["anthropic"]
    is_ollama = parts.port == _OLLAMA_PORT or (parts.scheme == "http" and _greets_as_ollama(parts.netloc))
    return _APIS["ollama" if is_ollama else "openai"]


def _greets_as_ollama(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=_GREETING_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        connection.request("GET", "/", headers={"user-agent": "context-proxy"})
        body = connection.getresponse().read(64)
        return any(wire.greeting and body.startswith(wire.greeting) for wire in WIRES.values())
    return False


class Wiring(NamedTuple):
    """What sends an agent to a proxy."""

    variables: Mapping[str, str]
    flags: Sequence[str] = ()
    lines: str = ""
    """What only its user can write, and where."""


def wiring_of(agent: Agent | None, upstream: Upstream, root: str, environment: Mapping[str, str]) -> Wiring:
    """Variables and flags for a proxy at `root`; what the user has set of those that hold no address stays."""
    agent = agent or Agent(name="")
    at_maker = agent.at_maker if upstream.base_url == agent.provider else {}
    filled = {
        **{name: text for api in upstream.apis for name, text in VARIABLES_OF[api].items()},
        **agent.variables,
        **{name: text for api in upstream.apis for name, text in agent.by_api.get(api, {}).items()},
        **{name: text for name, text in at_maker.items() if name not in environment},
    }
    variables = {name: _filled(text, root) for name, text in filled.items()}
    lines = "" if agent.variables or agent.by_api or agent.flags else _filled(agent.setting, root)
    return Wiring({**variables, **_around_proxies(environment)}, [_filled(one, root) for one in agent.flags], lines)


def _filled(text: str, root: str) -> str:
    return text.replace("{base}", f"{root}/v1").replace("{root}", root)


def _around_proxies(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Where a proxy for the network is set, this machine must not be asked through it."""
    names = {name.lower() for name, text in environment.items() if text}
    if not names & {"http_proxy", "all_proxy"}:
        return {}
    hosts = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    around = ",".join(dict.fromkeys([*filter(None, hosts.split(",")), "127.0.0.1", "localhost"]))
    return {"NO_PROXY": around, "no_proxy": around}


def changed_settings(
    file: SettingsFile, base_url: str, root: str, environment: Mapping[str, str]
) -> tuple[Path, str] | None:
    """The agent's file that names an upstream, and its content with the proxy's address instead; None if none does."""
    for pattern in file.paths:
        variable = pattern[1:].partition("/")[0] if pattern.startswith("$") else ""
        if variable and not environment.get(variable):
            continue
        path = Path(pattern.replace(f"${variable}", environment[variable]) if variable else pattern).expanduser()
        with contextlib.suppress(OSError, UnicodeDecodeError):
            written = path.read_text(encoding="utf-8")
            changed = written
            for old, new in ((base_url, f"{root}/v1"), (base_url.removesuffix("/v1"), root)):
                changed = re.sub(rf"{re.escape(old)}/?(?=[\"'\s,}}\]]|\Z)", new, changed)
            if changed != written:
                return path, changed
    return None


def env(name: str, settings: Settings, form: Form, *, off: bool) -> int:
    """Print the lines that send an agent to the running proxy, or that end this; the exit status."""
    agent = agent_named(name)
    if agent is None:
        return complain(f"{name} is not known: docs/agents.md lists what is; `context-proxy run` takes any command", 2)
    wiring = _all_of(agent, settings) if off else _current(agent, settings)
    if form == "json":
        names = dict.fromkeys(wiring.variables) if off else wiring.variables
        show({"variables": names, "flags": wiring.flags, "setting": wiring.lines}, as_json=True)
    else:
        print("\n".join(_lines(wiring, agent, form, off=off)))
    return 0


def _current(agent: Agent, settings: Settings) -> Wiring:
    try:
        upstream = upstream_of(agent, settings, os.environ)
    except NoUpstream:
        upstream = Upstream("", ("openai",))
    return wiring_of(agent, upstream, _root(settings, upstream), os.environ)


def _all_of(agent: Agent, settings: Settings) -> Wiring:
    """Every variable that may have been set for it, with the upstream that is set or its own; without either, any."""
    is_set = "base_url" in settings.upstream.model_fields_set
    base_url = settings.upstream.base_url if is_set else agent.provider
    speaks = spoken_by(base_url) if base_url else tuple(VARIABLES_OF)
    names = [*(name for api in speaks for name in VARIABLES_OF[api]), *agent.variables, *agent.at_maker]
    names += [name for variables in agent.by_api.values() for name in variables]
    return Wiring(dict.fromkeys(names, ""))


def _root(settings: Settings, upstream: Upstream) -> str:
    """The proxy that runs for this upstream, or the first one; else the address where `serve` listens."""
    running = [] if upstream.proxy is None else [upstream.proxy]
    running += [one for one in announcements(settings.data_dir) if one.shared]
    for one in running:
        if (status := ask(one)) is not None and upstream.base_url in (*status["upstreams"], ""):
            return one.root
    return f"http://{settings.server.host}:{settings.server.port}"


def _lines(wiring: Wiring, agent: Agent, form: Form, *, off: bool) -> Iterator[str]:
    setting, unsetting, quoted = _SHELLS[form]
    for name, text in wiring.variables.items():
        yield unsetting.format(name) if off else setting.format(name, quoted(text))
    if wiring.flags and not off:
        yield f"# {agent.name} needs flags, too: {agent.command} {shlex.join(wiring.flags)}"
    if wiring.lines and not off:
        yield f"# {agent.name} needs a setting, which `context-proxy run {agent.name}` makes for it: {wiring.lines}"
