"""Decisions and explanations, which only the operator can see."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from support.journey import KEY, World, at, growing, kept_in, one_call
from support.upstream import Sent

CANARY = "canary-of-content"
TASK = f"{CANARY} " * 300


def test_each_request_is_listed_and_opens_to_its_messages(build: Any) -> None:
    world = build(8_000)
    for turn in range(1, 12):
        assert world.ask(growing(turn, TASK), x_request_id=f"turn-{turn}").status_code == 200
    done = world.logged("request_done", 11)
    found = at(world, "/decisions?limit=5").json()
    assert [one["request_id"] for one in found["decisions"]] == [f"turn-{turn}" for turn in range(11, 6, -1)]
    assert found["totals"]["requests"] == 11
    assert found["running"] == []
    left_out = found["totals"]["tokens_before"] - found["totals"]["tokens_sent"]
    assert left_out == sum(line["tokens_before"] - line["tokens_after"] for line in done) > 0
    newest = found["decisions"][0]
    assert (
        newest.items() >= {name: done[-1][name] for name in ("tokens_after", "edits", "own_ms", "prefix_kept")}.items()
    )
    detail = at(world, "/decisions/turn-11").json()
    assert [block["role"] for block in detail["blocks"]] == [m["role"] for m in growing(11, TASK)["messages"]]
    assert sum(block["tokens_after"] > 0 for block in detail["blocks"]) == len(world.upstream.last.messages)
    gone = [block for block in detail["blocks"] if not block["tokens_after"]]
    assert gone
    assert {name for block in gone for name in block["artifacts"]} <= set(world.kept)
    assert at(world, "/decisions/unknown").json()["error"]["code"] == "unknown_decision"
    for page in (found, detail):
        assert CANARY not in json.dumps(page)
        assert KEY not in json.dumps(page)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/metrics", "GET, HEAD"),
        ("DELETE", "/decisions/x", "GET, HEAD"),
        ("GET", "/explain", "POST"),
    ],
)
def test_a_wrong_method_is_refused_in_openais_shape(build: Any, method: str, path: str, allowed: str) -> None:
    answer = at(build(), path, method)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert allowed in answer.json()["error"]["message"]


def test_the_number_of_requested_decisions_is_checked_against_what_is_stored(build: Any) -> None:
    world = build()
    for limit in ("", "0", "501", "-1", "x", "²", "٣", "9" * 5_000, "000000001" + "0" * 5_000):
        answer = at(world, "/decisions", params={"limit": limit})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit"), limit
    assert at(world, "/decisions?limit=500").status_code == 200


def test_a_request_that_waits_for_its_answer_is_under_way(build: Any) -> None:
    seen: list[dict[str, Any]] = []

    def look(_: Sent) -> None:
        seen.append(at(world, "/decisions").json())

    world: World = build(8_000, look)
    assert world.ask(growing(12, TASK), x_request_id="waiting").status_code == 200
    world.logged("request_done")
    (running,) = seen[0]["running"]
    assert (running["request_id"], running["model"], running["outcome"]) == ("waiting", "m", "running")
    assert 0 < running["tokens_after"] < running["tokens_before"]
    assert seen[0]["decisions"] == []
    after = at(world, "/decisions").json()
    assert (after["running"], len(after["decisions"])) == ([], 1)


def test_the_prefix_stays_the_same_while_nothing_is_cut(build: Any) -> None:
    world = build(128_000)
    for turn in range(2, 9):
        world.ask(growing(turn, TASK))
    done = world.logged("request_done", 7)
    assert [line.get("prefix_kept") for line in done] == [None] + [1.0] * 6
    for before, after in zip(world.upstream.sent, world.upstream.sent[1:], strict=False):
        assert after.body.startswith(before.body.removesuffix(b"]}"))


def test_an_overflow_that_was_cured_is_counted_as_one(build: Any) -> None:
    world = build(6_000, defaults={"context_window": 128_000})
    assert world.ask(growing(12, TASK)).status_code == 200
    (line,) = world.logged("request_done")
    found = at(world, "/decisions").json()
    assert (found["totals"]["unanswered"], found["totals"]["cured"]) == (0, 1)
    assert found["decisions"][0]["attempts"] == line["attempts"] == 2


def test_a_second_send_is_named_after_its_conversation(build: Any) -> None:
    world = build(6_000, defaults={"context_window": 128_000})
    for turns in (1, 12):
        assert world.ask(growing(turns, TASK)).status_code == 200
    first, refused = world.logged("request_done", 2)
    assert refused["attempts"] == 2
    assert first["conversation"] == refused["conversation"] != ""


def test_what_was_only_observed_saved_nothing(build: Any) -> None:
    world = build(8_000, mode="observe")
    world.ask(growing(12, TASK))
    world.logged("request_done")
    found = at(world, "/decisions").json()
    assert found["totals"]["tokens_saved"] == 0
    assert found["decisions"][0]["mode"] == "observe"


def test_an_id_of_the_client_may_hold_anything_that_is_seen(build: Any) -> None:
    world = build()
    name = "a/b?c=%2F&d#e"
    world.ask(one_call("x"), x_request_id=name)
    world.logged("request_done")
    assert at(world, f"/decisions/{quote(name, safe='')}").json()["record"]["request_id"] == name


def test_a_dry_run_shows_what_a_real_request_then_gets_and_leaves_no_trace(build: Any) -> None:
    world = build(8_000)
    body = json.dumps(growing(12, TASK)).encode()
    before = kept_in(world.folder)
    answer = at(world, "/explain", "POST", content=body)
    assert answer.status_code == 200
    reported = answer.json()
    assert kept_in(world.folder) == before
    assert world.kept == {}
    assert world.upstream.sent == []
    assert at(world, "/decisions").json()["decisions"] == []
    assert CANARY not in answer.text
    world.ask(body, x_request_id="real")
    (line,) = world.logged("request_done")
    detail = at(world, "/decisions/real").json()
    assert reported["messages"] == detail["blocks"]
    assert reported["edits"] == line["edits"]
    assert reported["size"]["tokens"] == {"before": line["tokens_before"], "after": line["tokens_after"]}
    assert {artifact["id"] for artifact in reported["artifacts"]} == set(world.kept)


def test_a_body_that_cannot_be_explained_is_refused_in_the_usual_shape(build: Any) -> None:
    world = build(server={"max_body_bytes": 5_000})
    assert at(world, "/explain", "POST", content=b"{").json()["error"]["code"] == "malformed_request"
    assert at(world, "/explain", "POST", content=b"x" * 6_000).status_code == 413
    packed = at(world, "/explain", "POST", content=b"x", headers={"content-encoding": "br"})
    assert packed.status_code == 400


def test_the_pages_are_for_this_machine_and_for_who_has_the_key(build: Any) -> None:
    paths = ("/", "/decisions", "/decisions/x", "/dashboard/dashboard.js")
    key = "operator-key-0123456789"
    world = build(proxies=[{}, {"server": {"admin_key": key}}])
    foreign = {"host": "evil.example"}
    for path in paths:
        assert at(world, path, headers=foreign).status_code == 403
        assert at(world, path, headers={"x-forwarded-for": "127.0.0.1"}).status_code == 403
    assert at(world, "/explain", "POST", content=json.dumps(one_call("x")), headers=foreign).status_code == 403
    root = world.proxies[1].removesuffix("/v1")
    for path in (*paths, "/overview", "/conversations", "/events"):
        assert world.client.get(f"{root}{path}").status_code == 401
    assert world.client.post(f"{root}/-/reload").status_code == 401
    wrong = world.client.get(f"{root}/decisions", headers={"authorization": "Bearer wrong-canary"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "wrong_key")
    assert [line["path"] for line in world.logged("wrong_admin_key")] == ["/decisions"]
    assert "wrong-canary" not in world.log_text
    through = {"x-forwarded-for": "10.0.0.7", "host": "proxy.example"}
    refused = world.client.get(f"{root}/decisions", headers=through)
    assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
    allowed = world.client.get(f"{root}/decisions", headers={**through, "authorization": f"Bearer {key}"})
    assert allowed.status_code == 200
