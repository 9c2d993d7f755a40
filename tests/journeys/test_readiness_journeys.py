"""Responses to readiness probes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.journey import long_text, one_call


def test_decisions_that_cannot_be_kept_are_reported_and_leave_the_proxy_ready(build: Any) -> None:
    world = build()
    root = world.proxies[0].removesuffix("/v1")
    (world.folder / "decisions-4.db").mkdir(parents=True)
    world.client.get(f"{root}/decisions")
    answer = world.client.get(f"{root}/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    assert answer.json()["unavailable"].keys() == {"decisions"}


def test_a_deleted_data_folder_is_created_again_and_the_log_reports_it(build: Any) -> None:
    """Stored content and recorded decisions of a request: artifacts and decisions together."""
    world = build()
    root = world.proxies[0].removesuffix("/v1")
    for number in (1, 2):
        assert world.ask(one_call(long_text(6_000, f"word{number}")), x_request_id=f"one-{number}").status_code == 200
        page = world.client.get(f"{root}/decisions", params={"q": f"one-{number}"}).json()
        assert [one["request_id"] for one in page["decisions"]] == [f"one-{number}"]
        assert page["worker"]["shared"]
        assert len(world.kept) == 1
        shutil.rmtree(world.folder)
    assert world.client.get(f"{root}/decisions").status_code == 200
    reported = {line["reason"] for line in world.logged("decisions_not_kept")}
    assert reported == {"it was removed while it was in use"}
    assert (world.folder / "decisions-4.db").is_file()


def test_without_upstream_or_store_it_says_which(build: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    gone = {"upstream": {"base_url": "http://127.0.0.1:9/v1"}, "artifacts": {"folder": tmp_path / "file" / "kept"}}
    world = build(proxies=[gone])
    root = world.proxies[0].removesuffix("/v1")
    answer = world.client.get(f"{root}/readyz")
    assert (answer.status_code, set(answer.json()["reasons"])) == (503, {"upstream", "store"})
    assert "cannot be reached" in answer.json()["reasons"]["upstream"]
    assert world.client.get(f"{root}/healthz").json() == {"status": "ok"}
