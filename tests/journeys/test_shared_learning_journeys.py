"""Replicas share lessons through Redis or Valkey, and keep working without it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.journey import World, at, one_call
from support.state_server import StateServer, needs_state_server
from support.waiting import wait_until

from proxy.__main__ import main

pytestmark = needs_state_server

WINDOW = 8_192
SECRET = "5e" * 32
LONG = " ".join(f"word-{number}" for number in range(9_000))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateServer]:
    monkeypatch.setattr("proxy.shell.models.shared_state.COMPARE_SECONDS", 0.05)
    monkeypatch.setattr("proxy.shell.endpoints.services.READY_SECONDS", 0.0)
    found = StateServer(tmp_path)
    found.start()
    yield found
    found.stop()


def replicas(build: Any, server: StateServer, folder: Path, **settings: Any) -> World:
    """Two of them, with nothing in common but the artifacts, the secret and the server."""
    world: World = build(
        WINDOW,
        defaults={},
        artifacts={"folder": folder / "artifacts"},
        state={"url": server.url},
        server={"secret": SECRET},
        proxies=[{"data_dir": folder / "one"}, {"data_dir": folder / "two"}],
        **settings,
    )
    return world


def chat(question: str) -> dict[str, Any]:
    """A request that is over the window, and can be made to fit."""
    return one_call(LONG, model="m", messages=[*one_call(LONG)["messages"], {"role": "user", "content": question}])


def known_to(world: World, proxy: int) -> bool:
    """Whether a replica knows the limit."""
    metrics = world.client.get(world.proxies[proxy].removesuffix("/v1") + "/metrics").text
    return f'learned_limit_tokens{{model="m",scope="window"}} {float(WINDOW)}' in metrics


def ready(world: World, proxy: int) -> dict[str, Any]:
    answer = world.client.get(world.proxies[proxy].removesuffix("/v1") + "/readyz")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_a_refusal_met_on_one_replica_is_spared_the_other_which_sends_the_same_bytes(
    build: Any, server: StateServer, tmp_path: Path
) -> None:
    world = replicas(build, server, tmp_path)
    assert world.ask(chat("why?"), proxy=0).headers["x-context-proxy-attempts"] == "2"
    wait_until(lambda: known_to(world, 1))
    again, other = (world.ask(chat("why?"), proxy=number) for number in (0, 1))
    assert [answer.headers["x-context-proxy-attempts"] for answer in (again, other)] == ["1", "1"]
    assert world.upstream.sent[-1].body == world.upstream.sent[-2].body
    assert ready(world, 1) == {"status": "ready", "unavailable": {}}


def test_a_conversation_continues_while_the_server_is_away_and_is_shared_once_it_is_back(
    build: Any, server: StateServer, tmp_path: Path
) -> None:
    world = replicas(build, server, tmp_path)
    server.stop()
    assert world.ask(chat("why?"), proxy=0).status_code == 200
    wait_until(lambda: "unavailable" in ready(world, 0))
    assert set(ready(world, 0)["unavailable"]) == {"state"}
    overview = world.client.get(world.proxies[0].removesuffix("/v1") + "/overview").json()
    assert [finding["words"].split(",")[0] for finding in overview["health"]] == ["Replicas share nothing"]
    assert not known_to(world, 1)
    assert world.ask(chat("why?"), proxy=1).headers["x-context-proxy-attempts"] == "2"
    metrics = world.client.get(world.proxies[0].removesuffix("/v1") + "/metrics").text
    assert "context_proxy_state_failures_total 0.0" not in metrics
    assert world.ask(chat("and then?"), proxy=0).headers["x-context-proxy-attempts"] == "1"
    server.start()
    world.logged("state_found", 2)
    assert len(world.log("state_lost")) == 2
    assert ready(world, 0) == ready(world, 1) == {"status": "ready", "unavailable": {}}
    assert known_to(world, 0)
    assert known_to(world, 1)


def test_the_command_makes_all_replicas_forget(
    build: Any, server: StateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = replicas(build, server, tmp_path)
    world.ask(chat("why?"), proxy=0)
    wait_until(lambda: known_to(world, 1))
    monkeypatch.setenv("CONTEXT_PROXY_STATE__URL", server.url)
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__SECRET", SECRET)
    argv = ["models", "--forget", "--all", "--data-dir", str(tmp_path / "one"), "--upstream", "http://127.0.0.1:9/v1"]
    assert main(argv) == 0
    wait_until(lambda: not known_to(world, 0) and not known_to(world, 1))
    server.stop()
    assert main(argv) == 1
    assert "only this machine has forgotten" in capsys.readouterr().err


def test_each_replica_shows_what_it_has_served_and_names_itself_and_its_log(
    build: Any, server: StateServer, tmp_path: Path
) -> None:
    world = replicas(build, server, tmp_path)
    for number in range(3):
        world.ask(chat("why?"), proxy=number % 2, x_request_id=f"r{number}")
    shown = [at(world, "/decisions", proxy=proxy).json()["decisions"] for proxy in (0, 1)]
    assert [[row["request_id"] for row in rows] for rows in shown] == [["r2", "r0"], ["r1"]]
    about = at(world, "/overview", proxy=1).json()["proxy"]
    assert about["replica"] == socket.gethostname()
    assert about["log"]


def test_neither_keys_nor_content_are_on_the_server(build: Any, server: StateServer, tmp_path: Path) -> None:
    world = replicas(build, server, tmp_path)
    key, words = "sk-canary-of-a-key", "canary-of-content"
    body = chat(words)
    body["messages"][0]["content"] += words
    world.ask(body, proxy=0, authorization=f"Bearer {key}")
    wait_until(lambda: known_to(world, 1))
    with redis.Redis.from_url(server.url) as client:
        names = list(client.scan_iter())
        found = b"".join(client.dump(one) for one in names)
    assert names
    assert not any(name.endswith(b":decisions") for name in names), "requests stay with the replica that served them"
    assert b"canary" not in found
