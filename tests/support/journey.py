"""The whole proxy on a socket before a model server that counts, refuses and remembers what reached it.

Rule: nothing between client and upstream is faked; what a test asserts is what an upstream, a client, a disk or a log
really got.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from proxy.app import create_app
from proxy.config import Settings
from proxy.shell.models import Learning
from support.serving import serving
from support.upstream import ScriptedModel, listening
from support.waiting import PATIENCE_SECONDS, wait_until
from tools.defects import raise_defects

KEY = "sk-key-canary"


@dataclass
class World:
    """One or more proxies over one data folder, before one upstream."""

    folder: Path
    upstream: ScriptedModel
    proxies: list[str]
    output: io.BytesIO
    client: httpx.Client

    def ask(
        self,
        body: bytes | dict[str, Any],
        *,
        proxy: int = 0,
        key: str = KEY,
        path: str = "/chat/completions",
        **headers: str,
    ) -> httpx.Response:
        """Send a request, for a chat unless the path is another wire's; headers with `_` for `-`."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"content-type": "application/json", "authorization": f"Bearer {key}", **named}
        base = self.proxies[proxy].removesuffix("/v1") if path.startswith("/api/") else self.proxies[proxy]
        return self.client.post(f"{base}{path}", content=content, headers=sent)

    @property
    def kept(self) -> dict[str, bytes]:
        """The artifacts by name."""
        return kept_in(self.folder / "tool-output")

    @property
    def log_text(self) -> str:
        return self.output.getvalue().decode()

    def log(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event so far."""
        lines = [json.loads(line) for line in self.log_text.splitlines()]
        return [line for line in lines if line["event"] == event]

    def logged(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """The log lines of one event, waited for: an answer is there before its last log line."""
        wait_until(lambda: len(self.log(event)) >= count)
        return self.log(event)


@contextlib.contextmanager
def world(
    folder: Path, upstream: ScriptedModel, settings: Sequence[Mapping[str, Any]], *, is_broken: bool = False
) -> Iterator[World]:
    """A world with a proxy for each of `settings`. `is_broken`: whether the test breaks the proxy itself."""
    output, stdout, handlers = io.BytesIO(), sys.stdout, logging.getLogger().handlers[:]
    contents: dict[bytes, bytes] = {}  # what is read again with each request is held once
    upstream.watches = lambda: {name: contents.setdefault(r, r) for name, r in kept_in(folder / "tool-output").items()}
    with contextlib.ExitStack() as stack:
        base_url = stack.enter_context(listening(upstream))
        sys.stdout = io.TextIOWrapper(output, write_through=True)
        try:
            built = [create_app(_settings(folder, base_url, stated)) for stated in settings]
        finally:
            # What was built keeps on writing there; only what is built now does.
            wrapped, sys.stdout = sys.stdout, stdout
        proxies = [stack.enter_context(serving(app)) for app in built]
        client = stack.enter_context(httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_SECONDS))
        try:
            yield World(folder, upstream, proxies, output, client)
        finally:
            stack.close()
            logging.getLogger().handlers[:] = handlers
            structlog.reset_defaults()
            wrapped.detach()
        if not is_broken:
            raise_defects(output.getvalue().decode())


def _settings(folder: Path, base_url: str, stated: Mapping[str, Any]) -> Settings:
    merged = {
        "upstream": {"base_url": base_url},
        "data_dir": folder,
        "log": {"format": "json", "level": "debug"},
        **stated,
    }
    return Settings(**merged)


def kept_in(folder: Path) -> dict[str, bytes]:
    """The artifacts of a folder by name."""
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def call(number: int, name: str = "bash", arguments: str = "{}") -> dict[str, Any]:
    """An assistant message with one tool call."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> dict[str, Any]:
    """What the tool of a call said."""
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
"""A tool that opens paths and addresses, so that an agent with it needs none of the proxy's."""


def one_call(text: str, name: str = "bash", **members: Any) -> dict[str, Any]:
    """A request with one tool result."""
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Look at the log."},
            call(1, name),
            result(1, text),
        ],
        **members,
    }


def cut(world: World, text: str, key: str = KEY) -> str:
    """The name of the artifact that a request with this result leaves."""
    assert world.ask(one_call(text), key=key).status_code == 200
    found = re.findall(r"tool_bash_[0-9a-f]{16}\.\w+", world.upstream.last.messages[3]["content"])
    return str(found[0])


def growing(turns: int, task: str) -> dict[str, Any]:
    """A request after so many calls, whose results have lines that begin with the first word of the task."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for number in range(turns):
        messages += [call(number), result(number, long_text(120, f"{task.split(maxsplit=1)[0]}-{number}"))]
    return {"model": "m", "messages": messages}


def at(world: World, path: str, method: str = "GET", *, proxy: int = 0, **given: Any) -> httpx.Response:
    """What the operator's API responds."""
    return world.client.request(method, world.proxies[proxy].removesuffix("/v1") + path, **given)


def long_text(lines: int, word: str = "line") -> str:
    """Lines that are all different."""
    return "".join(f"{word} {number}: value {number * 7919 % 10007}\n" for number in range(lines))


class Day:
    """The clock of all that is learned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = self.now = time.time()
        self.made: list[Learning] = []
        monkeypatch.setattr("proxy.shell.models.profiles.Learning", self._learning)

    def _learning(self, *args: Any, **more: Any) -> Learning:
        self.made.append(Learning(*args, **more, clock=lambda: self.now))
        return self.made[-1]

    def pass_to(self, hours: float) -> None:
        """Move on, and wait until all processes know the same, as they do within seconds."""
        self.now = self.began + hours * 3600
        for one in self.made:
            one.refresh()  # as the application does every few seconds
        wait_until(lambda: all(one.known == self.made[0].known for one in self.made))
