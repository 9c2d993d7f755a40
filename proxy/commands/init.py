"""`context-proxy init`: a settings file from what can be found out.

Rule: nothing is asked of the user, no key is written, and no file is replaced. A window that is only guessed is a
comment: as a setting it would be taken for certain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from proxy.commands.agents import ANTHROPIC, OPENAI
from proxy.commands.screen import complain
from proxy.commands.wiring import NoUpstream, upstream_of
from proxy.config import Settings, UpstreamSettings
from proxy.shell.models import ModelResolver, stated_by
from proxy.shell.resources import configure_logging

LOCAL_SERVERS: Final[Mapping[int, str]] = {11434: "Ollama", 8000: "vLLM", 1234: "LM Studio", 8080: "llama.cpp"}
"""Usual ports of servers on this machine, by the order in which they are tried."""
_PROVIDERS: Final[Mapping[str, str]] = {"OPENAI_API_KEY": OPENAI, "ANTHROPIC_API_KEY": ANTHROPIC}
_LOCAL_SECONDS: Final = 1.0
"""Timeout of each of them."""
MAX_MODELS: Final = 100


def init(settings: Settings, path: Path) -> int:
    """Write a settings file; the exit status."""
    configure_logging(settings.log.model_copy(update={"level": "error"}), sys.stderr)
    if path.exists():
        return complain(f"{path} is there already; --config names another file")
    base_url = _base_url(settings)
    if base_url is None:
        return complain(
            "no upstream was found: no variable names one or holds a key, and no server answers at the ports "
            f"{', '.join(map(str, LOCAL_SERVERS))} of this machine; name one with --upstream"
        )
    upstream = settings.upstream.model_copy(update={"base_url": base_url})
    resolver = ModelResolver(settings.model_copy(update={"upstream": upstream, "upstreams": ()}))
    failure = asyncio.run(resolver.ask_now(lambda: resolver.discovery.names[:MAX_MODELS]))
    lines = list(_lines(base_url, resolver))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        return complain(f"{path} cannot be written: {error.strerror}")
    if failure is not None:
        print(f"{base_url} did not list its models: {failure}", file=sys.stderr)
    print(f"{path} has the upstream {base_url} and its models, as far as it lists them. Next:")
    print(f"  context-proxy doctor --config {path}\n  context-proxy serve --config {path}")
    return 0


def _base_url(settings: Settings) -> str | None:
    """The upstream that is named, that runs on this machine, or that a key is for; None if there is none."""
    with contextlib.suppress(NoUpstream):
        return upstream_of(None, settings, os.environ).base_url
    for port in LOCAL_SERVERS:
        address = f"http://127.0.0.1:{port}/v1"
        with contextlib.suppress(httpx.HTTPError, ValueError, TypeError):
            if "data" in httpx.get(f"{address}/models", timeout=_LOCAL_SECONDS, trust_env=False).json():
                return address
    return next(
        (UpstreamSettings(base_url=url).base_url for name, url in _PROVIDERS.items() if os.environ.get(name)), None
    )


def _lines(base_url: str, resolver: ModelResolver) -> Iterator[str]:
    yield "# Written by `context-proxy init`. All settings: docs/settings.md, config.example.yaml."
    yield f"upstream: {{base_url: {json.dumps(base_url)}}}"
    profiles = [resolver.profile(name) for name in resolver.discovery.names[:MAX_MODELS]]
    known = [one for one in profiles if not one.window_is_guessed]
    yield "models:" if known else "# models:"
    for one in profiles:
        entry = f"- {{match: {json.dumps(one.known_as)}, context_window: {one.window_tokens}}}"
        sign = "# " if one.window_is_guessed else ""
        yield f"  {sign}{entry}  # {stated_by(one, 'window_tokens')}"
