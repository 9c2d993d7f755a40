"""The dashboard's API: overview, conversations, pages of requests, and live events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from support.journey import World, at, growing, one_call
from support.upstream import Sent
from support.waiting import PATIENCE_SECONDS

from proxy.shell.endpoints import shaped
from proxy.shell.operator import OverviewFigures
from proxy.shell.telemetry import Conversation, RequestRecord

CANARY = "canary-of-content"
TASK = f"{CANARY} one"


def found_at(world: World, path: str, proxy: int = 0) -> Any:
    answer = at(world, path, proxy=proxy)
    assert answer.status_code == 200, answer.text
    assert CANARY not in answer.text
    return answer.json()


def test_two_workers_show_the_same_and_a_third_finds_it_after_them(build: Any) -> None:
    world = build(8_000, proxies=[{}, {}])
    for turn in range(1, 6):
        world.ask(growing(turn * 2, TASK), proxy=turn % 2, x_request_id=f"turn-{turn}")
    world.logged("request_done", 5)
    for proxy in (0, 1):
        found_at(world, "/decisions", proxy)  # finished requests are written on the next read
    one, other = found_at(world, "/decisions", 0), found_at(world, "/decisions", 1)
    assert one["decisions"] == other["decisions"]
    assert one["totals"] == other["totals"]
    assert {decision["request_id"] for decision in one["decisions"]} == {f"turn-{turn}" for turn in range(1, 6)}
    assert one["worker"]["shared"]
    edited = next(decision for decision in one["decisions"] if decision["edits"])
    for proxy in (0, 1):
        found = found_at(world, f"/decisions/{edited['request_id']}", proxy)
        assert [block["tokens_after"] for block in found["blocks"]]
    (conversation,) = found_at(world, "/conversations")["conversations"]
    assert (conversation["sums"]["requests"], conversation["turns"][-1]["model"]) == (5, "m")
    TypeAdapter(shaped(Conversation)).validate_python(conversation)


def test_pages_search_and_filters_are_of_all_that_is_kept_and_not_of_a_page(build: Any) -> None:
    world = build(8_000)
    for number in range(6):
        world.ask(one_call("short"), x_request_id=f"short-{number}")
    world.ask(growing(12, TASK), x_request_id="long")
    world.ask({"model": "m", "messages": [{"role": "system", "content": "word " * 20_000}]}, x_request_id="refused")
    world.logged("request_done", 8)
    first = found_at(world, "/decisions?limit=5")
    rest = found_at(world, f"/decisions?limit=5&before={first['decisions'][-1]['id']}")
    assert (len(first["decisions"]), len(rest["decisions"]), first["matching"], rest["matching"]) == (5, 3, 8, 8)
    assert [one["request_id"] for one in found_at(world, "/decisions?limit=1&show=changed")["decisions"]] == ["long"]
    troubled = found_at(world, "/decisions?limit=1&show=troubled")
    assert (troubled["decisions"][0]["request_id"], troubled["matching"]) == ("refused", 1)
    assert [one["request_id"] for one in found_at(world, "/decisions?q=old_exchange+m")["decisions"]] == ["long"]
    named = found_at(world, "/decisions?q=long")["decisions"][0]["conversation"]
    assert [one["request_id"] for one in found_at(world, f"/decisions?conversation={named}")["decisions"]] == ["long"]


def test_requests_are_found_by_model_client_status_and_time(build: Any) -> None:
    world = build(8_000)
    named = f"Why is\tit red?{'!' * 200}"
    world.ask(growing(2, TASK), x_request_id="hers", x_context_proxy_client="crush", x_context_proxy_session=named)
    world.ask(growing(2, TASK), key="key-of-codex", x_request_id="its", user_agent="codex/1.2 (Linux)")
    line = next(line for line in world.logged("request_done") if line["request_id"] == "its")
    assert (line["api"], line["client"], len(line["key"])) == ("chat", "codex", 8)
    assert "key-of-codex" not in json.dumps(line)

    def ids(query: str) -> list[str]:
        return [one["request_id"] for one in found_at(world, f"/decisions?{query}")["decisions"]]

    assert ids("client=codex") == ["its"]
    assert ids("client=crush&model=m&status=2xx&hours=1") == ["hers"]
    assert ids("status=200") == ["its", "hers"]
    assert ids("status=4xx") == ids("model=other") == []
    assert ids(f"q={line['key']}") == ["its"]
    assert {one["turns"][-1]["client"] for one in found_at(world, "/conversations")["conversations"]} <= {
        "codex",
        "crush",
    }
    assert next(line for line in world.logged("request_done") if line["request_id"] == "hers")["session"] == (
        "Why is it red?" + "!" * 66
    )
    assert "session" not in line
    own = {b"x-context-proxy-client", b"x-context-proxy-session"}
    assert all(own.isdisjoint(seen.headers) for seen in world.upstream.sent)


def test_the_overview_says_what_was_not_sent_and_that_all_is_well(build: Any) -> None:
    world = build(8_000)
    world.ask(growing(12, TASK))
    world.logged("request_done")
    found = found_at(world, "/overview?hours=1")
    TypeAdapter(shaped(OverviewFigures)).validate_python(found)
    assert found["health"] == []
    assert found["totals"]["tokens_before"] > found["totals"]["tokens_sent"] > 0
    (upstream,) = found["upstreams"]
    assert (upstream["requests"], upstream["unanswered"], upstream["problem"], upstream["level"]) == (1, 0, "", "good")
    assert len(upstream["first_byte_ms"]) == 2
    (model,) = found["models"]
    assert (model["model"], model["usd"]) == ("m", None)
    assert model["sums"]["prompt_tokens"] > 0, "as the upstream's usage says"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/overview?hours=0", "hours"),
        ("/overview?hours=337", "hours"),
        ("/conversations?limit=101", "limit"),
        ("/decisions?before=0", "before"),
        ("/decisions?show=some", "show"),
        ("/decisions?status=2000", "status"),
        ("/decisions?hours=0", "hours"),
        ("/decisions?client=" + "x" * 257, "client"),
        ("/decisions?q=" + "x" * 201, "q"),
        ("/decisions?conversation=" + "x" * 65, "conversation"),
        ("/-/status?full=x", "full"),
        ("/-/status?full=", "full"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_by_its_name(build: Any, path: str, name: str) -> None:
    answer = at(build(), path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert answer.json()["error"]["message"].startswith(f"`{name}`: ")


def lines_of(stream: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in stream.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_request_is_reported_while_it_runs_and_when_it_ends(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.endpoints.operator.LOOK_SECONDS", 0.05)
    over = threading.Event()

    def hold(_: Sent) -> None:
        over.wait()

    world = build(8_000, hold)
    asking = threading.Thread(target=world.ask, args=(growing(12, TASK),), kwargs={"x_request_id": "now"})
    root = world.proxies[0].removesuffix("/v1")
    try:
        with httpx.stream("GET", f"{root}/events", trust_env=False, timeout=PATIENCE_SECONDS) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            reported = lines_of(stream)
            asking.start()
            running = next(one["running"] for one in reported if one["running"] and world.upstream.sent)
            assert [one["request_id"] for one in running] == ["now"]
            opened = found_at(world, "/decisions/now")
            assert (opened["record"]["outcome"], len(opened["blocks"])) == ("running", 25)
            over.set()
            finished = next(one["decisions"] for one in reported if one["decisions"])
            assert [one["request_id"] for one in finished] == ["now"]
            TypeAdapter(shaped(RequestRecord)).validate_python(finished[0])
    finally:
        over.set()
        asking.join()


def test_only_so_many_pages_listen_at_a_time(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.endpoints.operator.listeners", asyncio.Semaphore(0))
    answer = at(build(), "/events")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_listeners")


def test_a_stream_of_events_ends_so_that_it_keeps_nothing_alive(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.endpoints.operator.LIFE_SECONDS", 0)
    answer = at(build(), "/events")
    assert answer.text.startswith("retry: ")


def test_decisions_that_are_not_kept_are_those_of_the_worker_that_answers(build: Any) -> None:
    world = build(8_000, proxies=[{"decisions": {"stored": 0}}, {"decisions": {"stored": 0}}])
    world.ask(one_call("x"), proxy=0, x_request_id="zero")
    world.logged("request_done")
    assert [one["request_id"] for one in found_at(world, "/decisions", 0)["decisions"]] == ["zero"]
    assert found_at(world, "/decisions", 1)["decisions"] == []
    assert not found_at(world, "/decisions", 0)["worker"]["shared"]
    assert not (world.folder / "decisions-4.db").exists()
