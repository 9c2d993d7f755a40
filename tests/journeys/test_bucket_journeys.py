"""Replicas that share nothing but a bucket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from support.buckets import SERVERS, new_bucket
from support.journey import KEY, at, long_text, one_call
from support.moto_server import moto_server

LONG = long_text(5_000, "word")
SHARED = {"secret": "5e" * 32}


@pytest.fixture(params=SERVERS)
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket that is empty."""
    server, new = SERVERS[request.param]
    with server() as endpoint:
        yield new(endpoint, tmp_path.name, monkeypatch)


def test_what_one_replica_cuts_the_other_gives_back_to_the_same_key_only(
    build: Any, bucket: str, tmp_path: Path
) -> None:
    url = f"{bucket}/kept"
    world = build(
        artifacts={"url": url, "public_url": "http://proxies.example"},
        server=SHARED,
        proxies=[{"data_dir": tmp_path / "one"}, {"data_dir": tmp_path / "two"}],
    )
    request = one_call(LONG, tools=[{"type": "function", "function": {"name": "bash"}}])
    assert [world.ask(request, proxy=number).status_code for number in (0, 1)] == [200, 200]
    first, second = world.upstream.sent
    assert first.body == second.body
    reported = re.search(
        r"'http://proxies\.example/artifacts/(tool_bash_[0-9a-f]{16}\.txt)\?lines=", str(first.messages)
    )
    assert reported is not None
    assert str(tmp_path) not in first.body.decode()
    path, mine = f"/artifacts/{reported[1]}", {"authorization": f"Bearer {KEY}"}
    assert at(world, path, proxy=1, headers=mine).content == LONG.encode()
    assert "word 4000: " in at(world, f"{path}?grep=word+4000:", proxy=1, headers=mine).text
    foreign = {"authorization": "Bearer sk-somebody-else"}
    assert at(world, path, proxy=1, headers=foreign).status_code == 404
    assert len(world.log("artifact_saved")) == 1
    assert not (tmp_path / "one" / "tool-output").exists()


def test_a_bucket_that_fails_costs_a_request_nothing_but_the_cut_and_the_replica_stays_ready(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    world = build(artifacts={"url": "s3://kept"})
    probe = at(world, "/readyz")
    assert (probe.status_code, probe.json()["status"]) == (200, "ready")
    assert probe.json()["unavailable"]["store"].startswith("the artifact store cannot be written: no connection")
    answer = world.ask(one_call(LONG))
    assert answer.status_code == 200
    assert world.upstream.last.messages[3]["content"] == LONG
    read = at(world, "/artifacts/tool_bash_0123456789abcdef.txt")
    assert (read.status_code, read.json()["error"]["code"]) == (503, "artifact_store_unavailable")
    assert len(world.logged("artifact_store_failed")) == 1
    assert "canary" not in world.log_text


def test_a_replica_that_starts_without_its_bucket_uses_it_as_soon_as_it_answers(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto_server("s3") as endpoint:
        artifacts = {"url": new_bucket(endpoint, tmp_path.name, monkeypatch)}
        first = build(artifacts=artifacts, server=SHARED, proxies=[{"data_dir": tmp_path / "one"}])
        first.ask(one_call(LONG))
        name = _named(first)
        with monkeypatch.context() as patched:
            for call in ("head", "get", "put"):
                patched.setattr(obstore, call, _denied)
            late = build(artifacts=artifacts, server=SHARED, proxies=[{"data_dir": tmp_path / "two"}])
            assert late.ask(one_call(LONG)).status_code == 200
            assert late.upstream.last.messages[3]["content"] == LONG
            assert _read(late, name) == 503
        assert _read(late, name) == 200
        late.ask(one_call(LONG + "more"))
        assert _read(first, _named(late)) == 200


def test_a_request_that_does_not_fit_says_that_nothing_could_be_kept(build: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = {"folder": tmp_path / "file" / "kept"}
    window = [{"match": "gpt-4o", "context_window": 8_000}]
    tools = [{"type": "function", "function": {"name": "bash", "description": "Runs a command. " * 4_000}}]
    request = one_call(LONG, tools=tools) | {"model": "gpt-4o"}
    for place, says in ((folder, True), ({}, False)):
        answer = build(artifacts=place, models=window).ask(request)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert ("Nothing could be kept" in error["message"]) is says


def _denied(*_: Any, **__: Any) -> None:
    raise GenericError("status code: 403 Forbidden")


def _named(world: Any) -> str:
    (name,) = set(re.findall(r"tool_bash_[0-9a-f]{16}\.txt", world.upstream.last.body.decode()))
    return name


def _read(world: Any, name: str) -> int:
    return at(world, f"/artifacts/{name}", headers={"authorization": f"Bearer {KEY}"}).status_code


def test_two_replicas_over_a_folder_at_artifacts_url_give_back_what_either_cut(build: Any, tmp_path: Path) -> None:
    places = [{"data_dir": tmp_path / name} for name in ("one", "two")]
    world = build(artifacts={"url": f"file://{tmp_path}/shared"}, server=SHARED, proxies=places)
    world.ask(one_call(LONG))
    path, mine = f"/artifacts/{_named(world)}", {"authorization": f"Bearer {KEY}"}
    assert [at(world, path, proxy=number, headers=mine).content for number in (0, 1)] == [LONG.encode()] * 2
