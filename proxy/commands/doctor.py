"""`context-proxy check` and `context-proxy doctor`: whether the settings can work, and whether a request goes through
them.

Rule: `check` opens no connection. `doctor` tries the proxy itself, with its settings, its upstreams and its store: each
upstream with a model whose requests go to it. Each finding is one line, and each problem says what to do. Nothing waits
longer than a person would, and no key is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from proxy.app import create_app
from proxy.commands.agents import Agent
from proxy.commands.explain import number, plain
from proxy.config import VARIABLES, WIRE_PATHS, LogSettings, RoutedUpstream, Settings, UpstreamSettings
from proxy.core.models import ModelProfile
from proxy.errors import ProxyError
from proxy.reloading import leads_here
from proxy.shell.artifacts import OWNER_FILE, TRIAL_KEY, TROUBLE, create_folder, reason_of
from proxy.shell.models import HOW_TO_STATE_A_WINDOW, ModelResolver, counter_for, key_headers, stated_by
from proxy.shell.resources import configure_logging
from proxy.shell.upstream import CLOSED, NO_SUCH_HOST, SPEAKS_NO_TLS, THROUGH, UNTRUSTED, Upstream
from proxy.wire import WIRES

WELL, WRONG = 0, 1
"""The exit status."""
INVALID: Final = 2
"""The exit status of every command for settings that cannot work."""
_LOG: Final = LogSettings(level="error")
"""The findings say the rest."""
REACH_SECONDS: Final = 10.0
"""Timeout of the upstream's list of models."""
ANSWER_SECONDS: Final = 60.0
"""Timeout of a reply to three words: a local server may load its model first."""
WORDS: Final = "Say hello, please."
TRIAL: Final = b"context-proxy doctor was here\n"
KEYS_OF_CLIENTS: Final = {"messages": tuple(name for name in VARIABLES if name.startswith("ANTHROPIC_"))}
"""Variables whose key a client of this API sends; `OPENAI_API_KEY` is a setting already."""
_RESET: Final = os.strerror(errno.ECONNRESET)
"""Closing a connection resets it if bytes of the request are still unread."""
SHOWN_CHARS: Final = 300
"""Limit for an upstream's error text."""
_NO_CHAT: Final = re.compile(
    r"embedding|embed(?=[-_:]|$)|whisper|tts|audio|dall-e|image|moderation|rerank|realtime|davinci|babbage|sora"
)
"""Names of models that do not chat, in the lists of OpenAI and of gateways; only used to choose a model to try."""

State: TypeAlias = Literal["ok", "wrong", "note", "skipped"]
_STYLES: Final[dict[str, str]] = {"ok": "green", "wrong": "bold red", "note": "yellow", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding."""

    about: str
    state: State
    text: str
    advice: str = ""
    heading: str = ""
    """Above the first finding about one of several upstreams."""
    window_tokens: int | None = None
    """The window that it is about."""


def doctor(
    settings: Settings,
    model: str | None,
    console: Console | None = None,
    api: str | None = None,
    agent: Agent | None = None,
) -> int:
    """Check everything that a request needs; the exit status. `api`: what the default upstream speaks, by its name in
    settings; None: chat completions. `agent`: whether it has room in the window, too."""
    configure_logging(_LOG, sys.stderr)
    console = console or Console(highlight=False, soft_wrap=True)
    worst, was_tried = WELL, True
    for finding in examined(settings, model, api, agent):
        if finding.heading:
            console.print(Text(f"\n{plain(finding.heading)}", style="bold"))
        line = Text(f"{finding.state:<8}", style=_STYLES[finding.state])
        line.append(
            f"{finding.about:<11}{plain(finding.text)}", style="dim" if finding.state == "skipped" else "default"
        )
        console.print(line)
        if finding.advice:
            console.print(Text(f"{'':<8}{'':<11}→ {plain(finding.advice)}"))
        worst = max(worst, WRONG if finding.state == "wrong" else WELL)
        was_tried &= finding.about != "request" or finding.state == "ok"
    good = "A request goes through to each upstream." if settings.upstreams else "A request goes through."
    if not was_tried:
        good = "Nothing is wrong so far; not every upstream was tried with a request."
    console.print(Text("Something is wrong." if worst else good, style="bold"))
    return worst


def examined(
    settings: Settings, model: str | None = None, api: str | None = None, agent: Agent | None = None
) -> Iterator[Diagnosis]:
    """The findings, each as soon as it is known."""
    yield _store(settings)
    if api is not None and settings.upstream.api_key is None:
        of_client = [os.environ[name] for name in KEYS_OF_CLIENTS.get(api, ()) if os.environ.get(name)]
        key = SecretStr(of_client[0]) if of_client else None
        settings = settings.model_copy(update={"upstream": settings.upstream.model_copy(update={"api_key": key})})
    for place, one in settings.named_upstreams.items():
        named = model if model and settings.paths_to(one, model) else None
        of_one = _examined_upstream(settings, place, one, named, api if one is settings.upstream else None)
        first = next(of_one)
        of_one = _with_agent(of_one, agent) if agent is not None and one is settings.upstream else of_one
        yield replace(first, heading=f"{one.requests}: {one.base_url}") if settings.upstreams else first
        yield from of_one


def _with_agent(findings: Iterator[Diagnosis], agent: Agent) -> Iterator[Diagnosis]:
    """The findings, and after the window whether the agent has room in it."""
    for finding in findings:
        yield finding
        if finding.window_tokens is not None:
            yield _agent(agent, finding.window_tokens)


def _agent(agent: Agent, window_tokens: int) -> Diagnosis:
    if agent.least_window is None or agent.prompt_tokens is None:
        return Diagnosis("agent", "note", f"how much room {agent.name} needs is unknown")
    needs = f"the system text and tools of {agent.name} {agent.version} have {number(agent.prompt_tokens)} tokens"
    if agent.least_window <= window_tokens:
        return Diagnosis("agent", "ok", f"{needs}; each MCP server adds its own")
    variable = "".join(f", {name}={text}" for name, text in agent.at_maker.items())
    return Diagnosis(
        "agent",
        "wrong",
        f"{needs}, which with a reply need a window of {number(agent.least_window)}; this one has "
        f"{number(window_tokens)}",
        f"a larger window (Ollama: OLLAMA_CONTEXT_LENGTH), another model, or fewer tools{variable}",
    )


def _examined_upstream(
    settings: Settings, place: str, one: UpstreamSettings, model: str | None, api: str | None
) -> Iterator[Diagnosis]:
    # An upstream of one API lists its models with the headers of that API.
    upstream = one if api is None else RoutedUpstream.model_construct(**{**dict(one), "wire": api})
    status, reached = asyncio.run(_upstream(place, upstream))
    yield reached
    resolver = ModelResolver(settings.before(upstream))
    if status is not None:
        yield _key(place, one, status)
        asyncio.run(resolver.ask_now(lambda: filter(None, [model or _one_to_try(settings, one, resolver)])))
    model = model or _one_to_try(settings, one, resolver)
    if model is not None:
        profile = resolver.profile(model)
        yield _window(profile)
        yield _tokenizer(profile)
    if status is None or status in (401, 403):
        why = "cannot be reached" if status is None else "takes no request without another key"
        yield Diagnosis("request", "skipped", f"not tried: the upstream {why}")
    elif model is None and resolver.discovery.names:
        text = f"not tried: requests for the models that it lists go to other upstreams ({place})"
        advice = f"does the glob fit their names, such as {resolver.discovery.names[0]}? --model NAME tries one"
        yield Diagnosis("request", "wrong", text, advice)
    elif model is None:
        yield Diagnosis("request", "note", "not tried: the upstream lists no model", "name one: --model NAME")
    else:
        path = settings.paths_to(one, model)[0] if api is None else WIRE_PATHS[api]
        yield from asyncio.run(_requests(settings, place, path, model))


async def _upstream(place: str, one: UpstreamSettings) -> tuple[int | None, Diagnosis]:
    """The status of its list of models; None if it did not respond."""
    base_url, upstream = one.base_url, Upstream(one)
    started = time.perf_counter()
    try:
        async with asyncio.timeout(REACH_SECONDS):
            answer = await upstream.send("GET", b"/models", [*key_headers(one).items()], None)
            status = answer.status
            await answer.aclose()
    except ProxyError as error:
        return None, Diagnosis("upstream", "wrong", error.message, _how_to_reach(place, base_url, error.message))
    except TimeoutError:
        text = f"{base_url} did not respond within {REACH_SECONDS:g} s"
        return None, Diagnosis("upstream", "wrong", text, "check whether it is busy and whether the address is right")
    finally:
        await upstream.aclose()
    took = f"{base_url} responds ({status} in {1000 * (time.perf_counter() - started):.0f} ms)"
    if status >= 500:
        return status, Diagnosis("upstream", "wrong", took, "its own log says why it fails")
    if status in (404, 405, 501):
        return status, Diagnosis(
            "upstream", "note", f"{took}, and lists no models", "if it should, is /v1 in the URL right?"
        )
    return status, Diagnosis("upstream", "ok", took)


def _how_to_reach(place: str, base_url: str, problem: str) -> str:
    if THROUGH in problem:
        return f"check HTTP_PROXY or HTTPS_PROXY; NO_PROXY={urlsplit(base_url).hostname} goes around it"
    if problem.endswith(NO_SUCH_HOST):
        return f"check the spelling in {place}.base_url, and the DNS of this machine"
    if problem.endswith(SPEAKS_NO_TLS):
        return f"set {place}.base_url to http{base_url.removeprefix('https')}"
    if UNTRUSTED in problem:
        authorities = os.environ.get("SSL_CERT_FILE", "")
        if authorities and not os.access(authorities, os.R_OK):
            return f"SSL_CERT_FILE names {authorities}, which cannot be read"
        return "it must name this host, be in date, and be signed by an authority of this machine or in SSL_CERT_FILE"
    if problem.endswith((CLOSED, _RESET)) and base_url.startswith("http://"):
        return f"a server that expects TLS does this: try https://, {place}.base_url is {base_url}"
    return f"is it running? {place}.base_url is {base_url}"


def _key(place: str, one: UpstreamSettings, status: int) -> Diagnosis:
    is_set, is_refused, how = one.api_key is not None, status in (401, 403), _how_to_set_a_key(place)
    if is_refused and is_set:
        return Diagnosis("key", "wrong", f"the upstream refuses {place}.api_key ({status})", f"set another: {how}")
    if is_refused:
        text = f"the upstream wants a key ({status}), and none is set here"
        return Diagnosis("key", "wrong", text, f"to try it here: {how}; clients that send their own need neither")
    if is_set:
        return Diagnosis("key", "ok", f"{place}.api_key is taken")
    return Diagnosis("key", "ok", "none is set, and the list of models needs none; clients may send their own")


def _how_to_set_a_key(place: str) -> str:
    """The variable is for the default upstream alone."""
    file = f"name a file in {place}.api_key_file"
    return f"export OPENAI_API_KEY=…, or {file}" if place == "upstream" else file


def _one_to_try(settings: Settings, one: UpstreamSettings, resolver: ModelResolver) -> str | None:
    """A model whose requests go to this upstream, preferably one that chats."""
    written = [entry.match for entry in settings.models if not any(sign in entry.match for sign in "*?[")]
    listed = [name for name in resolver.discovery.names if not _NO_CHAT.search(name.lower())]
    names = [*written, *listed, *resolver.discovery.names]
    return next((name for name in names if settings.paths_to(one, name)), None)


def _window(profile: ModelProfile) -> Diagnosis:
    window = f"{number(profile.window_tokens)} tokens for {profile.model}"
    source = stated_by(profile, "window_tokens")
    if profile.window_is_guessed:
        text = f"{window}, {source}: nothing is left out or refused on a guess"
        return Diagnosis("window", "note", text, HOW_TO_STATE_A_WINDOW, window_tokens=profile.window_tokens)
    return Diagnosis("window", "ok", f"{window}, says {source}", window_tokens=profile.window_tokens)


def _tokenizer(profile: ModelProfile) -> Diagnosis:
    counter = counter_for(profile.tokenizer, profile.model)
    if counter.exact:
        return Diagnosis("tokenizer", "ok", f"{counter.name}, the model's own")
    return Diagnosis("tokenizer", "ok", f"{counter.name}, an estimate until the upstream has counted a request")


def _store(settings: Settings) -> Diagnosis:
    folder = create_folder(settings)
    where = f"{folder.address} (data_dir, artifacts.folder or artifacts.url)"
    try:
        folder.put(TRIAL_KEY, TRIAL)
        if folder.get(TRIAL_KEY).content != TRIAL:
            return Diagnosis(
                "store", "wrong", f"{where} returns something other than what was stored", "use another place"
            )
    except TROUBLE as error:
        advice = "make it writable for this user, or name another place; for a bucket, check its credentials"
        return Diagnosis("store", "wrong", f"nothing can be kept in {where}: {reason_of(error)}", advice)
    return Diagnosis("store", "ok", f"{folder.address} can be written and read")


async def _requests(settings: Settings, place: str, path: str, model: str) -> list[Diagnosis]:
    """Three words through the proxy, whole and streamed; no socket is opened for it."""
    quiet = settings.model_copy(update={"log": _LOG})
    with contextlib.redirect_stdout(sys.stderr):  # the log, if there is anything to say
        app = create_app(quiet)
    inside = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with app.router.lifespan_context(app), inside as client:
        return [
            await _request(client, place, path, model, about, stream=stream)
            for about, stream in (("request", False), ("stream", True))
        ]


async def _request(
    client: httpx.AsyncClient, place: str, path: str, model: str, about: str, *, stream: bool
) -> Diagnosis:
    wire = next(wire for wire in WIRES.values() if wire.path == path)
    members, expected = wire.trial(WORDS)
    started = time.perf_counter()
    of_keys = {name for name, _ in wire.credentials("")}
    version = {name: value for name, value in wire.list_headers("").items() if name not in of_keys}
    body = {"model": model, **members, **({"stream": True} if stream else {})}
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await client.post(path, json=body, headers=version)
    except TimeoutError:
        text = f"no response from {model} within {ANSWER_SECONDS:g} s"
        return Diagnosis(about, "wrong", text, "try again once the model is loaded, or with --model NAME")
    except AssertionError:  # httpx's sign of an application that returned without ending its response
        return Diagnosis(about, "wrong", "the response broke off", "the upstream's log says why")
    if answer.status_code != 200:
        text = f"{model} was refused ({answer.status_code}): {_words_of(answer)[:SHOWN_CHARS]}"
        return Diagnosis(about, "wrong", text, _advice_for(answer.status_code, place))
    took = f"{model} responds in {time.perf_counter() - started:.1f} s"
    if stream:
        framing, headers = wire.framing, [(name.lower(), value) for name, value in answer.headers.raw]
        is_one = framing.is_stream(headers) or framing.begins_stream(answer.content)
        events = [event for event in framing.splitter().feed(answer.content) if framing.data_of(event)]
        if not (is_one and events):
            return Diagnosis(
                about, "wrong", f"{took}, but not as a stream", "agents that stream need a server that does"
            )
        return Diagnosis(about, "ok", f"{took}, in {len(events)} events")
    try:
        is_answer = bool(answer.json()[expected])
    except (ValueError, LookupError, TypeError):
        is_answer = False
    if not is_answer:
        return Diagnosis(
            about, "wrong", f"{took}, but not as OpenAI does", "is the base URL that of an OpenAI-compatible API?"
        )
    return Diagnosis(about, "ok", took)


def _words_of(answer: httpx.Response) -> str:
    try:
        error = answer.json()["error"]
        return error if isinstance(error, str) else str(error["message"])
    except (ValueError, LookupError, TypeError):
        return json.dumps(answer.text[:SHOWN_CHARS])


def _advice_for(status: int, place: str) -> str:
    if status in (401, 403):
        return f"the upstream wants another key: {_how_to_set_a_key(place)}"
    if status == 404:
        apis = ", ".join(WIRE_PATHS)
        return f"try a model that exists (--model NAME), or the API that the upstream speaks (--api {apis})"
    if status == 429:
        return "the upstream limits this key's requests or has no credit left: wait, or look at its account"
    if status >= 500:
        return "the upstream fails, or cannot be reached; its log says why"
    return "the upstream's message says what it wants; --model NAME tries another model"


def check(settings: Settings) -> int:
    """Print a summary of the settings; the exit status."""
    server = settings.server
    if problem := leads_here(settings.named_upstreams, server.host, server.port):
        print(problem, file=sys.stderr)
        return INVALID
    mode = settings.mode if settings.enabled else "off"
    print(
        f"Configuration is valid: {server.host} port {server.port}, to {_described(settings.upstream)}, "
        f"mode {mode}, files in {settings.data_dir.absolute()}."
    )
    for one in settings.upstreams:
        print(f"{one.requests} go to {_described(one)}.")
    if settings.state.url is not None and (settings.artifacts.url is None or settings.artifacts.url == "memory://"):
        secret = settings.data_dir.absolute() / OWNER_FILE
        print(
            f"state.url shares with replicas that have the same {secret} only: copy that file to all of them, or set "
            "artifacts.url, which holds it for them."
        )
    return WELL


def _described(one: UpstreamSettings) -> str:
    return f"{one.base_url} with {'the keys of its clients' if one.api_key is None else 'a key of its own'}"
