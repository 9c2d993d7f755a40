from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from proxy.shell.endpoints.probes import probes
from proxy.shell.operator.readiness import Check, Readiness

ASKED = """
import asyncio, pathlib, sys, tempfile
from proxy.app import create_app
from proxy.config.settings import Settings

async def ask(app, path):
    async def send(message):
        if "status" in message:
            print(message["status"], "fastapi" in sys.modules)
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await app(scope, None, send)

app = create_app(Settings(data_dir=pathlib.Path(tempfile.mkdtemp()), log={"level": "error"}))
asyncio.run(ask(app, "/healthz"))
asyncio.run(ask(app, "/metrics"))
"""


def test_a_process_that_has_just_started_tells_that_it_lives_without_the_framework() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["200", "False", "200", "True"]


@pytest.mark.parametrize(
    ("path", "problems", "status", "said"),
    [
        ("/healthz", {"store": "is full"}, 200, {"status": "ok"}),
        ("/readyz", {}, 200, {"status": "ready"}),
        ("/readyz", {"upstream": "is gone"}, 200, {"status": "ready", "unavailable": {"upstream": "is gone"}}),
        ("/readyz", {"store": "is full"}, 503, {"status": "not ready", "reasons": {"store": "is full"}}),
    ],
)
async def test_a_probe_hears(path: str, problems: dict[str, str], status: int, said: dict[str, Any]) -> None:
    def failing(name: str) -> Check:
        async def check() -> str | None:
            return problems.get(name)

        return check

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody asks for a body")

    upstreams = {name: failing(name) for name in ("upstreams[0]", "upstream")}
    await probes(Readiness(upstreams, {"store": failing("store")}))[path]({"type": "http"}, receive, send)
    start, body = sent
    assert (start["status"], json.loads(body["body"])) == (status, said)
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
