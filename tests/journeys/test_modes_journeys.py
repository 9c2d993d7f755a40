"""Requests forwarded unchanged, and what is still recorded about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.journey import BASH, long_text, one_call
from support.upstream import Answer, Sent

LONG = long_text(5_000)
BODY = json.dumps(one_call(LONG, tools=[BASH])).encode()
ODD = (
    b'{ "z":1.0, "model":"m","model" : "m2",\r\n\t"messages": [ {"role":"user", "content":"caf\\u00e9 \xe4\xb8\xad",'
    b' "name":"a", "name":"b", "x": 1e3}  ], "seed":  7, "z": [ ] , "stream" :false}  \n'
)


@pytest.mark.parametrize(
    ("stated", "headers"),
    [
        pytest.param({"enabled": False}, {}, id="disabled"),
        pytest.param({"enabled": False}, {"x_context_proxy_mode": "on"}, id="disabled, whatever a header says"),
        pytest.param({"mode": "off"}, {}, id="off"),
        pytest.param({}, {"x_context_proxy_mode": "off"}, id="off by a header"),
    ],
)
def test_when_it_is_off_the_very_bytes_pass_and_nothing_is_kept(
    stated: dict[str, Any], headers: dict[str, str], build: Any
) -> None:
    world = build(**stated)
    answer = world.ask(BODY, **headers)
    assert (answer.status_code, world.upstream.last.body, world.kept) == (200, BODY, {})
    assert b"x-context-proxy-mode" not in world.upstream.last.headers
    assert not [name for name in answer.headers if name.startswith("x-context-proxy-")]
    done = world.logged("request_done")[0]
    assert done["sent_bytes"] == done["body_bytes"] == len(BODY)


def test_when_it_is_off_a_body_that_is_no_request_passes_too(build: Any) -> None:
    world = build(enabled=False)
    answer = world.ask(b"\x00 no json")
    assert (answer.status_code, world.upstream.last.body) == (400, b"\x00 no json")


def test_an_unknown_mode_is_refused_and_nothing_is_sent(build: Any) -> None:
    world = build(overflow={"keepalive_seconds": 5})
    answer = world.ask(BODY, x_context_proxy_mode="obsreve")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == ("x-context-proxy-mode is 'obsreve'; allowed are observe, off, on")
    assert not world.upstream.sent
    assert [line["status"] for line in world.logged("request_done")] == [400]


@pytest.mark.parametrize("by_header", [False, True])
def test_observing_sends_the_very_bytes_and_says_what_would_have_been_done(by_header: bool, build: Any) -> None:
    world = build() if by_header else build(mode="observe")
    answer = world.ask(BODY, **({"x_context_proxy_mode": "observe"} if by_header else {}))
    assert (answer.status_code, world.upstream.last.body, world.kept) == (200, BODY, {})
    assert answer.headers["x-context-proxy-edits"] == "truncate_tool_output=1"
    assert answer.headers["x-context-proxy-tokens"].startswith("before=")
    planned = world.logged("request_planned")[0]
    assert planned["tokens_after"] < planned["tokens_before"]
    assert world.logged("request_done")[0]["sent_bytes"] == len(BODY)
    assert not world.log("artifact_saved")


def test_observing_says_what_the_upstream_refused_and_passes_it_as_it_is(build: Any) -> None:
    world = build(8_000, mode="observe")
    too_long = json.dumps(one_call(long_text(9_000))).encode()
    answer = world.ask(too_long)
    assert (answer.status_code, world.upstream.last.body) == (400, too_long)
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    done = world.logged("request_done")[0]
    assert (done["status"], done["refusal"], done["mode"], done.get("attempts")) == (400, "prompt", "observe", None)
    assert world.log("overflow_detected")[0]["kind"] == "prompt"
    assert not world.log("lesson_learned")


@pytest.mark.parametrize("mode", ["on", "observe"])
def test_a_refused_key_is_reported_as_such_in_every_mode(mode: str, build: Any) -> None:
    def refuse(sent: Sent) -> Answer:
        return sent.face.error("Incorrect API key provided.", 401, code="invalid_api_key")

    world = build(128_000, refuse, mode=mode)
    assert world.ask(BODY).status_code == 401
    assert world.logged("request_done")[0]["refusal"] == "auth"


def test_observing_refuses_nothing(build: Any) -> None:
    world = build(8_000, mode="observe")
    request = one_call("short")
    request["messages"][1]["content"] = LONG
    body = json.dumps(request).encode()
    answer = world.ask(body)
    assert [received.body for received in world.upstream.sent] == [body]
    assert answer.json()["error"]["message"].startswith("This model's maximum context length"), "the upstream's own"


def test_the_header_turns_on_what_observes(build: Any) -> None:
    world = build(mode="observe")
    world.ask(BODY, x_context_proxy_mode="ON")
    assert len(world.upstream.last.body) < len(BODY)
    assert b"x-context-proxy-mode" not in world.upstream.last.headers


@pytest.mark.parametrize("body", [json.dumps(one_call("short"), indent=3).encode(), ODD])
def test_a_request_that_needs_nothing_passes_as_the_very_bytes(body: bytes, build: Any) -> None:
    world = build()
    answer = world.ask(body)
    assert (answer.status_code, world.upstream.last.body) == (200, body)
    assert "x-context-proxy-edits" not in answer.headers
    assert answer.headers["x-context-proxy-attempts"] == "1"
    assert world.logged("request_done")[0]["edits"] == {}
    assert not world.log("request_planned")


def test_members_around_an_edited_list_keep_their_bytes_and_order(build: Any) -> None:
    messages = json.dumps(one_call(LONG)["messages"])
    before, after = b'"model":"m", "seed":  7,"n":1.0', b'"top_p":0.10 , "x": [ 1,2 ],"stop" : null'
    world = build()
    answer = world.ask(b"{" + before + b', "messages": ' + messages.encode() + b", " + after + b"}")
    assert answer.headers["x-context-proxy-edits"] == "retrieval_tool=1;truncate_tool_output=1"
    sent = world.upstream.last.body
    assert sent.index(b'"seed"') < sent.index(b'"n"') < sent.index(b'"messages"') < sent.index(b'"top_p"')
    for value in (b"7", b"1.0", b"0.10", b"[ 1,2 ]", b"null"):
        assert b":" + value in sent.replace(b": ", b":")


def test_a_compressed_request_that_is_edited_goes_up_plain(build: Any) -> None:
    world = build()
    answer = world.ask(gzip.compress(BODY), content_encoding="gzip")
    assert answer.status_code == 200
    assert b"content-encoding" not in world.upstream.last.headers
    assert world.upstream.last.headers[b"content-length"] == str(len(world.upstream.last.body)).encode()
    assert world.upstream.last.messages[2] == one_call(LONG)["messages"][2]
    assert list(world.kept.values()) == [LONG.encode()]


def test_a_compressed_request_that_needs_nothing_goes_up_as_it_came(build: Any) -> None:
    world = build()
    packed = gzip.compress(json.dumps(one_call("short")).encode())
    world.ask(packed, content_encoding="gzip")
    assert world.upstream.last.body == packed
    assert world.upstream.last.headers[b"content-encoding"] == b"gzip"


def test_observing_touches_no_disk_but_for_the_secret(build: Any) -> None:
    world = build(mode="observe")
    world.ask(BODY)
    written = {path.relative_to(world.folder) for path in world.folder.rglob("*") if path.is_file()}
    assert written <= {Path("owner-secret"), Path("lessons.json"), Path("lessons.lock")}


@pytest.mark.parametrize("model", ["\ud800", "m" * 10_000, "", None, 7, {"a": 1}])
def test_an_odd_name_of_a_model_is_the_upstreams_to_judge(model: Any, build: Any) -> None:
    world = build()
    answer = world.ask(json.dumps({**one_call(LONG), "model": model}).encode())
    assert answer.status_code == 200
    assert len(world.upstream.sent) == 1
    assert len(world.logged("request_done")[0].get("model", "")) <= 256
