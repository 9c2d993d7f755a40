"""`/v1/compress` and `/v1/retrieve`: what a gateway gets, who may ask, and what lies on the disk by then."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from pydantic import SecretStr
from support.journey import KEY, World, call, long_text, one_call, result
from support.media_samples import base64_of, image_part, png
from support.waiting import PATIENCE_SECONDS

from proxy.shell.relay import Routes

ADMIN = "operator-key-0123456789"
LOG = long_text(6_000)
FIGURES = {
    "messages",
    "tokens_before",
    "tokens_after",
    "tokens_saved",
    "compression_ratio",
    "transforms_applied",
    "transforms_summary",
    "ccr_hashes",
}


@pytest.fixture
def gateway(build: Any) -> World:
    found: World = build(compress_api=True)
    return found


def compress(world: World, body: Any, **headers: str) -> httpx.Response:
    return world.ask(body, path="/compress", **headers)


def retrieve(world: World, digest: str, key: str = KEY, **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {key}", **headers}
    return world.client.get(f"{world.proxies[0]}/retrieve/{digest}", headers=sent)


def test_a_long_result_comes_back_as_an_excerpt_with_the_hash_of_its_whole(gateway: World) -> None:
    sent = one_call(LOG)
    answer = compress(gateway, sent)
    reported = answer.json()
    assert (answer.status_code, reported.keys()) == (200, FIGURES)
    assert reported["messages"][:3] == sent["messages"][:3]
    (digest,) = reported["ccr_hashes"]
    assert re.fullmatch("[a-f0-9]{12,24}", digest)
    assert f"hash={digest}" in reported["messages"][3]["content"]
    assert reported["tokens_saved"] == reported["tokens_before"] - reported["tokens_after"] > 0
    assert reported["compression_ratio"] == pytest.approx(
        reported["tokens_after"] / reported["tokens_before"], abs=0.0001
    )
    assert (reported["transforms_applied"], reported["transforms_summary"]) == (
        ["truncate_tool_output"],
        {"truncate_tool_output": 1},
    )
    original = retrieve(gateway, digest).json()
    assert original == {
        "hash": digest,
        "original_content": LOG,
        "original_tokens": original["original_tokens"],
        "original_item_count": 6_000,
        "compressed_item_count": reported["messages"][3]["content"].count("\n"),
        "tool_name": "bash",
        "retrieval_count": 1,
    }
    assert original["original_tokens"] < reported["tokens_before"]
    assert gateway.upstream.sent == []


def test_the_figures_are_those_of_explain(gateway: World) -> None:
    sent = one_call(LOG)
    explained = gateway.client.post(f"{gateway.proxies[0].removesuffix('/v1')}/explain", json=sent).json()
    counted = sum(block["tokens_before"] for block in explained["messages"])
    assert abs(compress(gateway, sent).json()["tokens_before"] - counted) <= len(sent["messages"])


def test_retrieve_takes_a_post_too_and_counts(gateway: World) -> None:
    (digest,) = compress(gateway, one_call(LOG)).json()["ccr_hashes"]
    found = [gateway.ask({"hash": digest, "query": "value"}, path="/retrieve").json() for _ in range(2)]
    assert [one["retrieval_count"] for one in found] == [1, 2]
    assert found[0]["original_content"] == LOG


def test_a_hash_leads_nowhere_for_another_key(gateway: World) -> None:
    (digest,) = compress(gateway, one_call(LOG)).json()["ccr_hashes"]
    for other in (retrieve(gateway, digest, "sk-other"), gateway.client.get(f"{gateway.proxies[0]}/retrieve/{digest}")):
        assert (other.status_code, other.json()["error"]["type"]) == (404, "artifact_not_found")
    sent = {"content-type": "application/json", "authorization": "Bearer sk-other"}
    mine = gateway.client.post(f"{gateway.proxies[0]}/compress", json=one_call(LOG), headers=sent).json()
    assert mine["ccr_hashes"] == [digest]
    assert retrieve(gateway, digest, "sk-other").json()["retrieval_count"] == 1


@pytest.mark.parametrize("digest", ["0" * 24, "zz", "0" * 25, "A" * 24, ""])
def test_what_is_no_hash_of_anything_is_not_found(gateway: World, digest: str) -> None:
    assert retrieve(gateway, digest).status_code == 404


def test_the_same_content_of_two_tools_has_two_hashes_that_both_lead_to_it(gateway: World) -> None:
    hashes = [compress(gateway, one_call(LOG, name)).json()["ccr_hashes"][0] for name in ("bash", "Read")]
    assert len(set(hashes)) == 2
    assert [retrieve(gateway, digest).json()["original_content"] for digest in hashes] == [LOG, LOG]


def test_originals_outlive_the_process_that_kept_them(build: Any) -> None:
    world = build(proxies=[{"compress_api": True}, {"compress_api": True}])
    (digest,) = compress(world, one_call(LOG)).json()["ccr_hashes"]
    found = world.client.get(f"{world.proxies[1]}/retrieve/{digest}", headers={"authorization": f"Bearer {KEY}"})
    assert found.json()["original_content"] == LOG


def test_everything_that_changes_nothing_comes_back_byte_for_byte(gateway: World) -> None:
    body = b'{"model":"m", "messages":[ {"role":"user",  "content":"h\\u0069"} ,{"role":"odd"}]}'
    answer = compress(gateway, body)
    assert b'"messages":[{"role":"user",  "content":"h\\u0069"},{"role":"odd"}]' in answer.content
    assert answer.json()["compression_ratio"] == 1.0
    assert compress(gateway, {"messages": [], "model": "m"}).json() == {
        "messages": [],
        "tokens_before": 0,
        "tokens_after": 0,
        "tokens_saved": 0,
        "compression_ratio": 1.0,
        "transforms_applied": [],
        "transforms_summary": {},
        "ccr_hashes": [],
    }


def test_a_conversation_far_over_the_window_keeps_all_its_rows(build: Any) -> None:
    world = build(4_000, compress_api=True)
    messages = [{"role": "user", "content": "task " * 5_000}]
    for number in range(20):
        messages += [call(number), result(number, LOG[:2_000])]
    reported = compress(world, {"model": "m", "messages": messages}).json()
    assert [one["role"] for one in reported["messages"]] == [one["role"] for one in messages]
    assert reported["messages"][0] == messages[0]


def long_talk(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Count the errors in these logs."}]
    for number in range(turns):
        messages += [call(number), result(number, f"log {number}\n{LOG[:3_000]}")]
    return messages


def test_a_budget_holds_the_whole_conversation_and_what_is_left_out_can_be_retrieved(gateway: World) -> None:
    sent = {"model": "m", "messages": long_talk(40), "token_budget": 16_000}
    fitted = compress(gateway, sent).json()
    assert fitted["tokens_after"] <= 16_000 < fitted["tokens_before"]
    assert fitted["transforms_summary"]["old_exchange"] > 0
    assert len(fitted["messages"]) < len(sent["messages"])
    assert fitted["messages"][-2:] == sent["messages"][-2:]
    text = json.dumps(fitted["messages"])
    assert f"hash={fitted['ccr_hashes'][-1]}" in text
    found = [retrieve(gateway, digest).json() for digest in fitted["ccr_hashes"]]
    kept = text + "".join(one["original_content"] for one in found)
    assert [number for number in range(40) if f"log {number}\\n" not in kept] == []
    assert found[0]["original_tokens"] > 1_000


def test_the_prompt_that_fits_begins_alike_from_turn_to_turn(gateway: World) -> None:
    turns = [
        compress(gateway, {"model": "m", "messages": long_talk(n), "token_budget": 16_000}).json()["messages"]
        for n in range(30, 40)
    ]
    changes = sum(now[: len(before)] != before for before, now in pairwise(turns))
    assert changes <= 3


def test_a_budget_cuts_nothing_if_all_messages_come_back_as_they_are(gateway: World) -> None:
    sent = {"model": "m", "messages": long_talk(40), "token_budget": 16_000}
    assert compress(gateway, sent, x_headroom_bypass="true").json()["messages"] == sent["messages"]


def test_a_larger_budget_than_the_window_is_the_window(build: Any) -> None:
    world = build(8_000, compress_api=True)
    fitted = compress(world, {"model": "m", "messages": long_talk(40), "token_budget": 100_000}).json()
    assert fitted["tokens_after"] <= 8_000 < fitted["tokens_before"]


def test_recent_messages_are_protected_on_request_and_all_with_the_bypass(gateway: World) -> None:
    sent = one_call(LOG)
    assert compress(gateway, sent | {"config": {"protect_recent": 1}}).json()["messages"] == sent["messages"]
    passed = compress(gateway, sent, x_headroom_bypass="True").json()
    assert (passed["messages"], passed["tokens_saved"], passed["ccr_hashes"]) == (sent["messages"], 0, [])
    assert passed["tokens_before"] == passed["tokens_after"] > 0
    assert gateway.kept == {}


def test_an_image_that_the_model_cannot_read_is_described_and_comes_back_as_a_data_url(build: Any) -> None:
    world = build(compress_api=True, models=[{"match": "blind", "input": ["text"]}])
    messages = [{"role": "user", "content": [image_part(png())]}]
    reported = compress(world, {"model": "blind", "messages": messages}).json()
    assert reported["transforms_applied"] == ["route_media"]
    (digest,) = reported["ccr_hashes"]
    assert f"hash={digest}" in json.dumps(reported["messages"])
    assert retrieve(world, digest).json()["original_content"] == f"data:image/png;base64,{base64_of(png())}"
    assert compress(world, {"model": "other", "messages": messages}).json()["messages"] == messages


def test_what_cannot_be_kept_stays_in_the_message(build: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    world = build(compress_api=True, artifacts={"folder": tmp_path / "file" / "inside"})
    sent = one_call(LOG)
    reported = compress(world, sent).json()
    assert (reported["messages"], reported["tokens_saved"], reported["ccr_hashes"]) == (sent["messages"], 0, [])
    assert world.logged("artifact_store_failed")


def test_packed_bodies_are_read(gateway: World) -> None:
    packed = gzip.compress(json.dumps(one_call(LOG)).encode())
    assert compress(gateway, packed, content_encoding="gzip").json()["tokens_saved"] > 0
    refused = compress(gateway, packed, content_encoding="lzma")
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request")


def test_mistakes_are_reported_in_the_shape_of_this_api(build: Any) -> None:
    world = build(compress_api=True, server={"max_body_bytes": 2_000})
    wrong = compress(world, {"messages": "hello", "model": "m"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request")
    assert wrong.json()["error"].keys() == {"type", "message"}
    large = compress(world, one_call(LOG))
    assert (large.status_code, large.json()["error"]["type"]) == (413, "body_too_large")
    method = world.client.get(f"{world.proxies[0]}/compress")
    assert (method.status_code, method.json()["error"]["type"]) == (405, "method_not_allowed")
    assert world.client.post(f"{world.proxies[0]}/retrieve/{'0' * 24}").status_code == 405
    assert world.client.head(f"{world.proxies[0]}/retrieve/{'0' * 24}").content == b""


def test_a_request_that_came_through_another_proxy_needs_the_operators_key(build: Any) -> None:
    closed = build(compress_api=True)
    answer = compress(closed, one_call(LOG), x_forwarded_for="10.0.0.7")
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "not_from_here")
    assert (compress(closed, one_call(LOG), origin="https://evil.example").status_code, closed.kept) == (403, {})


def test_with_the_operators_key_others_are_let_in_and_it_is_their_tenant(build: Any) -> None:
    world = build(compress_api=True, server={"admin_key": SecretStr(ADMIN)})
    far = {"x_forwarded_for": "10.0.0.7"}
    refused = compress(world, one_call(LOG), **far)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    reported = compress(world, one_call(LOG), authorization=f"Bearer {ADMIN}", **far).json()
    (digest,) = reported["ccr_hashes"]
    assert retrieve(world, digest, ADMIN, **{"x-forwarded-for": "10.0.0.7"}).json()["original_content"] == LOG
    assert retrieve(world, digest).status_code == 401  # the key is asked of clients on this machine, too


@pytest.mark.parametrize("stated", [{}, {"compress_api": False}, {"compress_api": True, "enabled": False}])
def test_without_the_setting_these_paths_pass_through(build: Any, stated: dict[str, Any]) -> None:
    world = build(**stated)
    sent = one_call(LOG)
    compress(world, sent)
    assert [json.loads(body) for body in world.upstream.posted] == [sent]
    retrieve(world, "0" * 24)
    assert world.log("artifact_read") == []


def test_the_log_has_figures_and_neither_key_nor_content(gateway: World) -> None:
    (digest,) = compress(gateway, one_call(LOG), x_request_id="one").json()["ccr_hashes"]
    answer = retrieve(gateway, digest, **{"x-request-id": "two"})
    assert answer.headers["x-request-id"] == "two"
    (line,) = gateway.logged("messages_compressed")
    assert (line["request_id"], line["messages"], line["edits"]) == ("one", 4, {"truncate_tool_output": 1})
    assert gateway.logged("artifact_read")[0]["request_id"] == "two"
    assert KEY not in gateway.log_text
    assert "value 7919" not in gateway.log_text


@pytest.mark.breaks_the_proxy
@pytest.mark.parametrize(
    ("planning", "most_seconds", "kind"),
    [
        (asyncio.Event().wait, 0.01, "compression_timeout"),
        (AsyncMock(side_effect=ZeroDivisionError), PATIENCE_SECONDS, "compression_error"),
    ],
    ids=["never ends", "breaks"],
)
def test_what_takes_too_long_or_breaks_is_a_503_that_callers_know(
    gateway: World, monkeypatch: pytest.MonkeyPatch, planning: Any, most_seconds: float, kind: str
) -> None:
    monkeypatch.setattr("proxy.shell.endpoints.compress_api.COMPRESS_SECONDS", most_seconds)
    monkeypatch.setattr(Routes, "of", lambda *_: planning())
    answer = compress(gateway, one_call("x"))
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, kind)
