"""What a probe hears."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_the_proxy_is_ready_when_upstream_and_store_are(build: Any) -> None:
    world = build()
    root = world.proxies[0].removesuffix("/v1")
    answer = world.client.get(f"{root}/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


def test_without_upstream_or_store_it_says_which(build: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    gone = {"upstream": {"base_url": "http://127.0.0.1:9/v1"}, "artifacts": {"folder": tmp_path / "file" / "kept"}}
    world = build(proxies=[gone])
    root = world.proxies[0].removesuffix("/v1")
    answer = world.client.get(f"{root}/readyz")
    assert (answer.status_code, set(answer.json()["reasons"])) == (503, {"upstream", "store"})
    assert "cannot be reached" in answer.json()["reasons"]["upstream"]
    assert world.client.get(f"{root}/healthz").json() == {"status": "ok"}
