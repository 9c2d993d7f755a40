"""Several upstreams behind one address: where each request goes, with which key, and joint reports about all."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.journey import KEY, one_call
from support.upstream import Connection, ScriptedModel, as_json, listening, model_server
from support.upstream.model import deliver
from support.upstream.sockets import Script
from support.waiting import PATIENCE_SECONDS

from proxy.__main__ import main

SMALL, LARGE = 8_000, 128_000


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[ScriptedModel, str]]:
    """A second upstream with a small window, and its base URL."""
    upstream = model_server(SMALL)
    with listening(upstream) as base_url:
        yield upstream, base_url


def asking(model: str, text: str = "hello") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def test_a_request_goes_to_the_first_upstream_whose_glob_matches_its_model(build: Any, other: Any) -> None:
    small, base_url = other
    world = build(upstreams=[{"match": "Qwen*", "base_url": base_url}])
    assert world.ask(asking("qwen3-32b")).json()["model"] == "qwen3-32b"
    world.ask(asking("gpt-6"))
    world.ask({"messages": [{"role": "user", "content": "no model"}]})
    assert [json.loads(one.body)["model"] for one in small.sent] == ["qwen3-32b"]
    assert len(world.upstream.sent) == 2


def test_the_log_and_the_decisions_say_which_upstream_served_a_request(build: Any, other: Any) -> None:
    _, base_url = other
    world = build(upstreams=[{"match": "qwen*", "base_url": base_url}])
    world.ask(asking("qwen3-32b"), x_request_id="one")
    world.ask(asking("gpt-6"), x_request_id="two")
    lines = {line["request_id"]: line for line in world.logged("request_done", 2)}
    assert [lines[name]["route"] for name in ("one", "two")] == ["upstreams[0]", "upstream"]
    assert [lines[name]["upstream"] in base_url for name in ("one", "two")] == [True, False]
    root = world.proxies[0].removesuffix("/v1")
    found = world.client.get(f"{root}/decisions", params={"q": "upstreams[0]"}).json()["decisions"]
    assert [(one["request_id"], one["route"]) for one in found] == [("one", "upstreams[0]")]
    assert world.client.get(f"{root}/decisions/two").json()["record"]["route"] == "upstream"


def test_a_compressed_body_finds_its_upstream_too(build: Any, other: Any) -> None:
    small, base_url = other
    world = build(upstreams=[{"match": "qwen*", "base_url": base_url}])
    body = gzip.compress(json.dumps(asking("qwen3-32b")).encode())
    world.ask(body, content_encoding="gzip")  # which this model server cannot read
    assert ([one.body for one in small.sent], world.upstream.sent) == ([body], [])


def test_what_no_upstream_is_for_goes_to_the_one_that_is(build: Any, other: Any) -> None:
    small, base_url = other
    world = build(upstreams=[{"match": "*", "wire": "messages", "base_url": base_url}])
    assert world.ask(asking("claude-opus-5")).status_code == 200
    assert world.ask(b"no json", content_type="application/json").status_code == 400
    assert (len(small.sent), len(world.upstream.sent)) == (0, 1)


def test_a_key_goes_to_the_upstream_that_it_belongs_to_and_else_the_clients(build: Any, other: Any) -> None:
    small, base_url = other
    own = {"match": "qwen*", "base_url": base_url, "api_key": "sk-of-qwen"}
    world = build(upstreams=[own, {"match": "llama*", "base_url": base_url}])
    for model in ("qwen3-32b", "llama", "gpt-6"):
        world.ask(asking(model))
    sent = [one.headers[b"authorization"] for one in (*small.sent, *world.upstream.sent)]
    assert sent == [b"Bearer sk-of-qwen", *[f"Bearer {KEY}".encode()] * 2]
    assert "sk-of-qwen" not in world.log_text


def test_what_one_upstream_teaches_of_a_model_holds_for_that_one_alone(build: Any, other: Any) -> None:
    """Both call it by the same name, and it is smaller at one of them."""
    _, base_url = other
    world = build(upstreams=[{"match": "*-small", "base_url": base_url}], defaults={"context_window": None})
    long = {**one_call("word " * 20_000), "model": "same-small"}
    healed = world.ask(long)
    assert (healed.status_code, healed.headers["x-context-proxy-attempts"]) == (200, "2")
    limits = [line for line in world.log("lesson_learned") if line["value"] == SMALL]
    assert [line["model"] for line in limits] == ["same-small"]
    again = world.ask({**long, "user": "another"})
    assert (again.status_code, again.headers["x-context-proxy-attempts"]) == (200, "1")
    assert world.upstream.sent == []
    metrics = world.client.get(world.proxies[0].removesuffix("/v1") + "/metrics").text
    assert f'context_proxy_learned_limit_tokens{{model="same-small",scope="window"}} {SMALL}.0' in metrics


def models_of(*names: str, window: int | None = None) -> ScriptedModel:
    return ScriptedModel(lists=[{"id": name, "of": names[0], "context_length": window} for name in names])


def listed(world: Any) -> Any:
    return world.client.get(f"{world.proxies[0]}/models", headers={"authorization": f"Bearer {KEY}"})


def test_the_list_of_models_is_that_of_all_upstreams(build: Any) -> None:
    with listening(models_of("one", "both")) as first, listening(models_of("two", "both")) as second:
        world = build(upstream={"base_url": second}, upstreams=[{"match": "one", "base_url": first}])
        found = listed(world).json()
    assert found["object"] == "list"
    assert [(entry["id"], entry["of"]) for entry in found["data"]] == [("one", "one"), ("both", "one"), ("two", "two")]


def test_an_upstream_without_a_list_is_left_out_and_none_at_all_is_an_error(build: Any) -> None:
    with listening(models_of("one")) as first, listening(ScriptedModel(beside=lambda *_: as_json({}, 500))) as second:
        world = build(upstream={"base_url": second}, upstreams=[{"match": "one", "base_url": first}])
        assert [entry["id"] for entry in listed(world).json()["data"]] == ["one"]
    assert listed(world).status_code == 502


def test_a_list_of_models_takes_a_clients_key_only_where_it_belongs(build: Any) -> None:
    """The upstream of Claude for Anthropic's clients, the default for all others; a setting opens another."""
    seen: list[tuple[str, dict[str, str]]] = []

    def noting(name: str) -> Script:
        async def listed(connection: Connection) -> None:
            while True:
                pairs = (await connection.request()).headers
                seen.append((name, {name.decode(): value.decode() for name, value in pairs}))
                await deliver(connection, as_json({"object": "list", "data": [{"id": name}]}))

        return listed

    names = ("default", "claude", "own", "open")
    with contextlib.ExitStack() as stack:
        default, claude, own, opened = (stack.enter_context(listening(noting(name))) for name in names)
        routed = [
            {"match": "claude-*", "base_url": claude},
            {"match": "own-*", "base_url": own, "api_key": "sk-own"},
            {"match": "open-*", "base_url": opened, "list_with_client_key": True},
        ]
        world = build(upstream={"base_url": default}, upstreams=routed)
        sent = {"cookie": "session=canary", "x-goog-api-key": "canary", "user-agent": "agent/1"}
        found = world.client.get(f"{world.proxies[0]}/models", headers={"authorization": f"Bearer {KEY}", **sent})
        assert {entry["id"] for entry in found.json()["data"]} == {*names}
        keys = {name: headers.get("authorization") for name, headers in seen if headers["user-agent"] == "agent/1"}
        assert keys == {"default": f"Bearer {KEY}", "claude": None, "own": "Bearer sk-own", "open": f"Bearer {KEY}"}
        strangers = [headers for name, headers in seen if name in ("claude", "own")]
        assert "canary" not in str(strangers)
        seen.clear()
        anthropic = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "user-agent": "agent/2"}
        world.client.get(f"{world.proxies[0]}/models", headers=anthropic)
        given = {name: headers.get("x-api-key") for name, headers in seen if headers["user-agent"] == "agent/2"}
        assert given == {"default": None, "claude": KEY, "own": None, "open": KEY}


GONE = "http://127.0.0.1:9/v1"


def ready(world: Any) -> Any:
    return world.client.get(world.proxies[0].removesuffix("/v1") + "/readyz")


def test_one_upstream_that_responds_is_enough_to_be_ready_and_the_others_are_named(build: Any) -> None:
    found = ready(build(upstreams=[{"match": "gone-*", "base_url": GONE}]))
    assert (found.status_code, list(found.json()["unavailable"])) == (200, ["upstreams[0]"])
    assert "cannot be reached" in found.json()["unavailable"]["upstreams[0]"]


def test_without_any_upstream_it_is_not_ready(build: Any) -> None:
    found = ready(build(upstream={"base_url": GONE}, upstreams=[{"match": "gone-*", "base_url": GONE}]))
    assert (found.status_code, list(found.json()["reasons"])) == (503, ["upstreams[0]", "upstream"])


@pytest.fixture
def two_lists() -> Iterator[list[str]]:
    """Two upstreams that state another window for the same models."""
    with listening(models_of("a", "b", window=SMALL)) as small, listening(models_of("a", "b", window=LARGE)) as large:
        yield [small, large]


CHAT = {"messages": [{"role": "user", "content": "hello"}]}
CLAUDE = {"system": "", **CHAT}
EXPLAINED = [("a", CHAT, SMALL), ("b", CHAT, LARGE), ("b", CLAUDE, SMALL), ("c", CLAUDE, LARGE)]
"""Model and body, and the window of the upstream that serves them when `a` and Messages for `b` go to the small one."""


def routed_to(small: str) -> list[dict[str, str]]:
    return [{"match": "A*", "base_url": small}, {"match": "b", "wire": "messages", "base_url": small}]


@pytest.mark.parametrize(("model", "members", "window"), EXPLAINED)
def test_a_dry_run_is_that_of_the_upstream_that_would_serve_the_request(
    build: Any, two_lists: list[str], model: str, members: dict[str, Any], window: int
) -> None:
    small, large = two_lists
    world = build(upstream={"base_url": large}, upstreams=routed_to(small), defaults={})
    listed(world)
    body, last_try = json.dumps({"model": model, **members}).encode(), time.monotonic() + PATIENCE_SECONDS
    while True:  # until the upstreams have been asked, in the background
        shown = world.client.post(world.proxies[0].removesuffix("/v1") + "/explain", content=body).json()
        stated = shown["profile"]["window_tokens"]
        if model == "c" or not stated["from"].startswith("guessed") or time.monotonic() > last_try:
            break
    assert shown["upstream"] == {"base_url": small if window == SMALL else large}
    assert model == "c" or stated == {"value": window, "from": "upstream /v1/models"}


@pytest.fixture
def command(
    two_lists: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command with settings that name both upstreams; its output."""
    for name in ("UPSTREAM", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    small, large = two_lists
    file = tmp_path / "config.yaml"
    settings = {"upstream": {"base_url": large}, "upstreams": routed_to(small), "data_dir": str(tmp_path / "kept")}
    file.write_text(json.dumps(settings))

    def run(name: str, *arguments: str) -> str:
        main([name, "--config", str(file), *arguments])
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("model", "members", "window"), EXPLAINED[:3])
def test_the_command_queries_that_upstream_and_names_it(
    command: Callable[..., str], two_lists: list[str], tmp_path: Path, model: str, members: dict[str, Any], window: int
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "c", **members}))
    shown = json.loads(command("explain", str(request), "--model", model, "--json"))
    where = two_lists[0] if window == SMALL else two_lists[1]
    assert shown["profile"]["window_tokens"] == {"value": window, "from": "upstream /v1/models"}
    assert shown["upstream"] == {"base_url": where, "listed": True, "reason": None}
    assert ["base_url", where] in [
        line.split() for line in command("explain", str(request), "--model", model).splitlines()
    ]
