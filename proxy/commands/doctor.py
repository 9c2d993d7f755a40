"""`context-proxy doctor`, whether a request goes through, beside `check`, whether the settings can work.

Rule: `check` opens no connection. `doctor` tries the proxy itself, with its settings, its upstreams and its store: each
upstream with a model whose requests go to it. Each finding is one line, and each problem says what to do. Nothing waits
longer than a person would, and no key is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from proxy.app import create_app
from proxy.commands.agents import Agent
from proxy.commands.screen import complain, plain
from proxy.config import VARIABLES, WIRE_PATHS, LogSettings, RoutedUpstream, Settings, UpstreamSettings
from proxy.reloading import leads_here
from proxy.shell.artifacts import TRIAL_KEY, TROUBLE, create_folder, reason_of, with_secret
from proxy.shell.models import HOW_TO_STATE_A_WINDOW, ModelResolver, counter_for, stated_by
from proxy.shell.resources import configure_logging
from proxy.shell.upstream import NO_SUCH_HOST, SPEAKS_NO_TLS, THROUGH, UNTRUSTED
from proxy.wire import WIRES, Wire

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
SHOWN_CHARS: Final = 300
"""Limit for an upstream's error text."""
_NO_CHAT: Final = re.compile(
    r"embedding|embed(?=[-_:]|$)|whisper|tts|audio|dall-e|image|moderation|rerank|realtime|davinci|babbage|sora"
)
"""Names of models that do not chat, in the lists of OpenAI and of gateways; only used to choose a model to try."""
_HOW_TO_REACH: Final = (
    (THROUGH, "check HTTP_PROXY or HTTPS_PROXY; NO_PROXY={host} goes around it"),
    (NO_SUCH_HOST, "check the spelling in {place}.base_url, and the DNS of this machine"),
    (SPEAKS_NO_TLS, "set {place}.base_url to {plain}"),
    (
        UNTRUSTED,
        "it must name this host, be in date, and be signed by an authority of this machine or in SSL_CERT_FILE",
    ),
    ("no answer within", "check whether it is busy and whether the address is right"),
    ("", "is it running, and is http:// or https:// right? {place}.base_url is {base_url}"),
)
"""Part of a problem, and what to do."""
_HOW_TO_SATISFY: Final = {
    401: "the upstream wants another key: {key}",
    403: "the upstream wants another key: {key}",
    404: f"try a model that exists (--model NAME), or the API that the upstream speaks (--api {', '.join(WIRE_PATHS)})",
    429: "the upstream limits this key's requests or has no credit left: wait, or look at its account",
}
"""Status of a refusal, and what to do."""

State: TypeAlias = Literal["ok", "wrong", "note", "skipped"]


class Diagnosis(NamedTuple):
    """One finding."""

    about: str
    state: State
    text: str
    advice: str = ""


_TOOL: Final = Diagnosis(
    "tool",
    "note",
    "clients of the Responses API get the tool that reads what was cut only with `store: false`",
    "set that for a client whose tools open neither files nor URLs",
)


def doctor(settings: Settings, model: str | None, api: str | None = None, agent: Agent | None = None) -> int:
    """Check everything that a request needs; the exit status. `api`: what the default upstream speaks, by its name in
    settings; None: chat completions. `agent`: whether it has room in the window, too. Raises SettingsError."""
    configure_logging(_LOG, sys.stderr)
    settings = with_secret(settings)
    states: set[tuple[str, State]] = set()
    for about, state, text, advice in examined(settings, model, api, agent):
        print(f"{state:<8}{about:<11}{plain(text)}")
        if advice:
            print(f"{'':<19}-> {plain(advice)}")
        states.add((about, state))
    if any(state == "wrong" for _, state in states):
        print("Something is wrong.")
        return 1
    was_tried = {state for about, state in states if about == "request"} == {"ok"}
    good = "A request goes through to each upstream." if settings.upstreams else "A request goes through."
    print(good if was_tried else "Nothing is wrong so far; not every upstream was tried with a request.")
    return 0


def examined(
    settings: Settings, model: str | None = None, api: str | None = None, agent: Agent | None = None
) -> Iterator[Diagnosis]:
    """The findings, each as soon as it is known; with several upstreams, those after `upstream` are about it."""
    yield _store(settings)
    of_client = [os.environ[name] for name in KEYS_OF_CLIENTS.get(api or "", ()) if os.environ.get(name)]
    if of_client and settings.upstream.api_key is None:
        default = settings.upstream.model_copy(update={"api_key": SecretStr(of_client[0])})
        settings = settings.model_copy(update={"upstream": default})
    for place, one in settings.named_upstreams.items():
        named = model if model and settings.paths_to(one, model) else None
        is_default = one is settings.upstream
        yield from _examined(settings, place, named, api if is_default else None, agent if is_default else None)


def _examined(
    settings: Settings, place: str, named: str | None, api: str | None, agent: Agent | None
) -> Iterator[Diagnosis]:
    one = settings.named_upstreams[place]
    # An upstream of one API lists its models with the headers of that API.
    upstream = one if api is None else RoutedUpstream.model_construct(**{**dict(one), "wire": api})
    resolver = ModelResolver(settings.before(upstream))
    failure = asyncio.run(
        resolver.ask_now(lambda: filter(None, [named or _one_to_try(settings, one, resolver)]), REACH_SECONDS)
    )
    status, model = resolver.discovery.status, named or _one_to_try(settings, one, resolver)
    yield _reached(settings, place, resolver, failure)
    if status is not None:
        yield _key(place, one, status)
    if model is not None:
        profile = resolver.profile(model)
        state: State = "note" if profile.window_is_guessed else "ok"
        window = f"{profile.window_tokens:,} tokens for {model}: {stated_by(profile, 'window_tokens')}"
        yield Diagnosis("window", state, window, HOW_TO_STATE_A_WINDOW if profile.window_is_guessed else "")
        counter = counter_for(profile.tokenizer, profile.model)
        kind = "the model's own" if counter.exact else "an estimate until the upstream has counted a request"
        yield Diagnosis("tokenizer", "ok", f"{counter.name}, {kind}")
        if agent is not None:
            yield _agent(agent, profile.window_tokens)
    if status is None or status in (401, 403):
        why = "cannot be reached" if status is None else "takes no request without another key"
        yield Diagnosis("request", "skipped", f"not tried: the upstream {why}")
    elif model is not None:
        path = settings.paths_to(one, model)[0] if api is None else WIRE_PATHS[api]
        yield from asyncio.run(_requests(settings, place, path, model))
        paths = settings.paths_to(one, model) if api is None else [path]
        if WIRE_PATHS["responses"] in paths and settings.artifacts.retrieval_tool != "never":
            yield _TOOL
    elif resolver.discovery.names:
        text = f"not tried: requests for the models that it lists go to other upstreams ({place})"
        advice = f"does the glob fit their names, such as {resolver.discovery.names[0]}? --model NAME tries one"
        yield Diagnosis("request", "wrong", text, advice)
    else:
        yield Diagnosis("request", "note", "not tried: the upstream lists no model", "name one: --model NAME")


def _store(settings: Settings) -> Diagnosis:
    folder = create_folder(settings)
    where = f"{folder.address} (data_dir, artifacts.folder or artifacts.url)"
    try:
        folder.put(TRIAL_KEY, TRIAL)
        folder.get(TRIAL_KEY)
    except TROUBLE as error:
        advice = "make it writable for this user, or name another place; for a bucket, check its credentials"
        return Diagnosis("store", "wrong", f"nothing can be kept in {where}: {reason_of(error)}", advice)
    return Diagnosis("store", "ok", f"{folder.address} can be written and read")


def _reached(settings: Settings, place: str, resolver: ModelResolver, failure: str | None) -> Diagnosis:
    """What became of the question for the models."""
    one, status = settings.named_upstreams[place], resolver.discovery.status
    whose = f"{one.requests}: " if settings.upstreams else ""
    where = f"{whose}{one.base_url}"
    if status is None:
        problem = f"{whose}{resolver.upstream.where} {failure}"
        how = next(how for part, how in _HOW_TO_REACH if part in problem)
        plain_url, host = one.base_url.replace("https:", "http:"), urlsplit(one.base_url).hostname
        advice = how.format(place=place, base_url=one.base_url, host=host, plain=plain_url)
        return Diagnosis("upstream", "wrong", problem, advice)
    if status >= 500:
        return Diagnosis("upstream", "wrong", f"{where} responds with {status}", "its own log says why it fails")
    if failure is not None and status not in (401, 403):
        text = f"{where} responds, and lists no models: {failure}"
        return Diagnosis("upstream", "note", text, "if it should, is /v1 in the URL right?")
    return Diagnosis("upstream", "ok", f"{where} responds")


def _key(place: str, one: UpstreamSettings, status: int) -> Diagnosis:
    if status in (401, 403):
        problem = "wants a key, and none is set here" if one.api_key is None else f"refuses {place}.api_key"
        advice = f"to try it here: {_how_to_set_a_key(place)}; clients that send their own need neither"
        return Diagnosis("key", "wrong", f"the upstream {problem} ({status})", advice)
    none = "none is set, and the list of models needs none; clients may send their own"
    return Diagnosis("key", "ok", none if one.api_key is None else f"{place}.api_key is taken")


def _how_to_set_a_key(place: str) -> str:
    """The variable is for the default upstream alone."""
    file = f"name a file in {place}.api_key_file"
    return f"export OPENAI_API_KEY=…, or {file}" if place == "upstream" else file


def _one_to_try(settings: Settings, one: UpstreamSettings, resolver: ModelResolver) -> str | None:
    """A model whose requests go to this upstream, preferably one that chats."""
    written = [entry.match for entry in settings.models if not any(sign in entry.match for sign in "*?[")]
    listed = sorted(resolver.discovery.names, key=lambda name: bool(_NO_CHAT.search(name.lower())))
    return next((name for name in (*written, *listed) if settings.paths_to(one, name)), None)


def _agent(agent: Agent, window_tokens: int) -> Diagnosis:
    if agent.least_window is None or agent.prompt_tokens is None:
        return Diagnosis("agent", "note", f"how much room {agent.name} needs is unknown")
    needs = f"the system text and tools of {agent.name} {agent.version} have {agent.prompt_tokens:,} tokens"
    if agent.least_window <= window_tokens:
        return Diagnosis("agent", "ok", f"{needs}; each MCP server adds its own")
    sizes = f"{agent.least_window:,}; this one has {window_tokens:,}"
    variable = "".join(f", {name}={text}" for name, text in agent.at_maker.items())
    advice = f"a larger window (Ollama: OLLAMA_CONTEXT_LENGTH), another model, or fewer tools{variable}"
    return Diagnosis("agent", "wrong", f"{needs}, which with a reply need a window of {sizes}", advice)


async def _requests(settings: Settings, place: str, path: str, model: str) -> list[Diagnosis]:
    """Three words through the proxy, whole and streamed; no socket is opened for it."""
    with contextlib.redirect_stdout(sys.stderr):  # the log, if there is anything to say
        app = create_app(settings.model_copy(update={"log": _LOG}))
    inside = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    wire = next(wire for wire in WIRES.values() if wire.path == path)
    async with app.router.lifespan_context(app), inside as client:
        return [await _request(client, place, wire, model, stream=stream) for stream in (False, True)]


async def _request(client: httpx.AsyncClient, place: str, wire: Wire, model: str, *, stream: bool) -> Diagnosis:
    members, expected = wire.trial(WORDS)
    keys = dict(wire.credentials(""))
    version = {name: value for name, value in wire.list_headers("").items() if name not in keys}
    about, started = "stream" if stream else "request", time.perf_counter()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            body = {"model": model, **members, **({"stream": True} if stream else {})}
            answer = await client.post(wire.path, json=body, headers=version)
    except TimeoutError:
        text = f"no response from {model} within {ANSWER_SECONDS:g} s"
        return Diagnosis(about, "wrong", text, "try again once the model is loaded, or with --model NAME")
    except AssertionError:  # httpx's sign of an application that returned without ending its response
        return Diagnosis(about, "wrong", "the response broke off", "the upstream's log says why")
    if answer.status_code != 200:
        text = f"{model} was refused ({answer.status_code}): {_words_of(answer)[:SHOWN_CHARS]}"
        failed = "the upstream fails, or cannot be reached; its log says why"
        other = "the upstream's message says what it wants; --model NAME tries another model"
        how = _HOW_TO_SATISFY.get(answer.status_code, failed if answer.status_code >= 500 else other)
        return Diagnosis(about, "wrong", text, how.format(key=_how_to_set_a_key(place)))
    took = f"{model} responds in {time.perf_counter() - started:.1f} s"
    if stream:
        events = [one for one in wire.framing.splitter().feed(answer.content) if wire.framing.data_of(one)]
        if events:
            return Diagnosis(about, "ok", f"{took}, in {len(events)} events")
        advice = "agents that stream need a server that does"
        return Diagnosis(about, "wrong", f"{took}, but not as a stream", advice)
    with contextlib.suppress(ValueError, LookupError, TypeError):
        if answer.json()[expected]:
            return Diagnosis(about, "ok", took)
    advice = "is the base URL that of an OpenAI-compatible API?"
    return Diagnosis(about, "wrong", f"{took}, but not as OpenAI does", advice)


def _words_of(answer: httpx.Response) -> str:
    """The upstream's own words about a refusal."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        error = answer.json()["error"]
        return error if isinstance(error, str) else str(error["message"])
    return repr(answer.text)


def check(settings: Settings) -> int:
    """Print a summary of the settings; the exit status. Raises SettingsError."""
    server = with_secret(settings).server
    if problem := leads_here(settings.named_upstreams, server.host, server.port):
        return complain(problem, INVALID)
    mode = settings.mode if settings.enabled else "off"
    print(
        f"Configuration is valid: {server.host} port {server.port}, to {_described(settings.upstream)}, "
        f"mode {mode}, files in {settings.data_dir.absolute()}."
    )
    for one in settings.upstreams:
        print(f"{one.requests} go to {_described(one)}.")
    return 0


def _described(one: UpstreamSettings) -> str:
    return f"{one.base_url} with {'the keys of its clients' if one.api_key is None else 'a key of its own'}"
