from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proxy.shell.endpoints import Guard, Readiness, create_api


@pytest.mark.parametrize(
    ("path", "problems", "status", "body"),
    [
        ("/healthz", {"store": "is full"}, 200, {"status": "ok"}),
        ("/readyz", {}, 200, {"status": "ready", "unavailable": {}}),
        ("/readyz", {"upstream": "is gone"}, 200, {"status": "ready", "unavailable": {"upstream": "is gone"}}),
        ("/readyz", {"store": "is full"}, 503, {"status": "not ready", "reasons": {"store": "is full"}}),
        ("/readyz", {"state": "is slow"}, 200, {"status": "ready", "unavailable": {"state": "is slow"}}),
    ],
)
async def test_a_probe_hears(path, problems, status, body):
    def failing(name):
        async def check():
            return problems.get(name)

        return check

    upstreams = {name: failing(name) for name in ("upstreams[0]", "upstream")}
    upstream = SimpleNamespace(base_path=b"/v1")
    services: Any = SimpleNamespace(
        routes=SimpleNamespace(default=SimpleNamespace(upstream=upstream), beside=lambda _: None),
        uses=1,
        let_go=lambda: None,
        guard=Guard(None, frozenset()),
        readiness=Readiness(upstreams, {"store": failing("store")}),
        notes={"state": lambda: problems.get("state")},
    )
    api = create_api()
    api.state.services = services
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://proxy.example") as client:
        heard = await client.get(path)
    assert (heard.status_code, heard.json()) == (status, body)
