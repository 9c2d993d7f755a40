"""Agents of the Messages API: every request is answered, in the API's own words, and what is sent is valid."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.journey import World, long_text
from support.messages_journey import PATH, ask, marked, request, results_of, said_by, work
from support.upstream import Over, worker

WINDOW = 8_000
PROMPT_TOO_LONG = re.compile(r"prompt is too long: (\d+) tokens > (\d+) maximum\. .+")


def log_of(turn: int) -> str:
    return long_text(60 + turn % 7 * 20, f"build-{turn}")


def sent_by(world: World) -> list[list[dict[str, Any]]]:
    return [json.loads(received.body)["messages"] for received in world.upstream.sent]


def unmarked(messages: list[dict[str, Any]]) -> Any:
    return json.loads(re.sub(r', "cache_control": \{"type": "ephemeral"\}', "", json.dumps(messages)))


@pytest.mark.parametrize("stream", [False, True])
def test_forty_turns_over_a_small_window_are_all_answered_and_valid(build: Any, stream: bool) -> None:
    server = worker(Over("prompt", WINDOW, "anthropic"))
    world = build(WINDOW, behind=server)
    messages = work(world, 40, log_of, stream=stream)
    assert server.complaints == []
    assert server.refusals == 0
    assert len(server.sent) == 40
    assert len(json.dumps(messages)) > 5 * WINDOW * 4
    for received in world.upstream.sent:
        body = json.loads(received.body)
        assert body["messages"][0]["role"] == "user"
        assert body["system"] == request([])["system"]
    assert "earlier messages" in world.upstream.last.body.decode()


@pytest.mark.parametrize("form", ["anthropic", "openai", "vllm", "llama.cpp", "in the stream"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_final_refusal_uses_the_words_that_claude_code_recognises(build: Any, form: str, stream: bool) -> None:
    server = worker(Over("prompt", 50, form))
    world = build(1_000_000, behind=server, defaults={})
    answer = ask(world, request([{"role": "user", "content": "Read all. " * 200}], stream=stream))
    assert answer.status_code == 400
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    reported = PROMPT_TOO_LONG.fullmatch(body["error"]["message"])
    assert reported is not None, body
    assert int(reported[1]) > int(reported[2])
    assert len(server.sent) == 2


def test_what_cannot_fit_is_refused_with_the_size_that_the_client_has(build: Any) -> None:
    server = worker(Over("prompt", 1_000, "vllm"))
    world = build(1_000, behind=server)
    body = request([{"role": "user", "content": "Read all."}], system="word " * 3_000)
    reported = PROMPT_TOO_LONG.fullmatch(ask(world, body).json()["error"]["message"])
    assert reported is not None
    assert (int(reported[1]), int(reported[2])) == (server.sent[0].tokens, 1_000)


def test_a_long_result_is_cut_once_and_stays_so(build: Any) -> None:
    world = build(128_000, behind=worker())
    messages = work(world, 1, lambda _: "x")
    content = messages[1]["content"]
    long = [*messages[:-1], {"role": "user", "content": results_of(content, long_text(9_000))}]
    said_by(world, request(marked(long)))
    shown = sent_by(world)[-1][-1]["content"]
    assert "[context-proxy: " in shown[0]["content"]
    assert "cache_control" in shown[-1]
    assert long_text(9_000).encode() in world.kept.values()
    said_by(world, request([*long, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "Go on."}]))
    assert sent_by(world)[-1][: len(long)] == unmarked(sent_by(world)[-2])


def test_what_needs_nothing_is_forwarded_as_the_very_bytes_with_its_headers(build: Any) -> None:
    world = build(128_000, behind=worker())
    body = b'{ "model":"m", "max_tokens": 9,"messages" : [ {"role":"user", "content":"hi"} ], "unknown":[ 1.0 ] }'
    headers = {"x_api_key": "sk-ant-canary", "anthropic_version": "2023-06-01", "anthropic_beta": "a,b"}
    world.ask(body, path=f"{PATH}?beta=true", **headers)
    assert world.upstream.last.body == body
    for name, value in headers.items():
        assert world.upstream.last.headers[name.replace("_", "-").encode()] == value.encode()


def test_a_thread_that_the_upstream_holds_passes_untouched_and_its_refusal_is_returned(build: Any) -> None:
    server = worker(Over("prompt", 50, "openai"))
    world = build(100_000, behind=server, defaults={})
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": long_text(9_000)}]
    body = request([{"role": "user", "content": content}], thread=thread)
    answer = ask(world, body)
    assert [json.loads(received.body) for received in world.upstream.sent] == [body]
    assert PROMPT_TOO_LONG.fullmatch(answer.json()["error"]["message"])


@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_results_that_do_not_pair_up_are_repaired_once(build: Any, stream: bool) -> None:
    server = worker()
    world = build(128_000, behind=server)
    calls = [{"type": "tool_use", "id": name, "name": "bash", "input": {}} for name in ("toolu_a", "toolu_b")]
    results = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in ("toolu_b", "toolu_lost")]
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]},
    ]
    said_by(world, request(marked(history), stream=stream))
    first, second = server.sent
    assert (bool(first.complaints), second.complaints) == (True, [])
    blocks = [block for message in second.messages[2:] for block in message["content"]]
    assert {block.get("tool_use_id") for block in blocks} == {"toolu_a", "toolu_b", None}
    assert [block["text"] for block in blocks if block["type"] == "text"] == ["Go on."]


def thought(count: int) -> dict[str, str]:
    return {"type": "thinking", "thinking": "I have to think of it. " * count, "signature": "EuYB=="}


@pytest.mark.parametrize("ends_with_a_call", [False, True])
def test_old_thinking_of_the_first_turn_goes_before_the_newest_result_does(build: Any, ends_with_a_call: bool) -> None:
    world = build(4_000, behind=worker())
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "cat log"}}
    newest = [thought(20), {**call, "id": "toolu_2"}]
    first = [thought(600), {"type": "text", "text": "It is red."}, *([call] if ends_with_a_call else [])]
    between = results_of(first, "red") if ends_with_a_call else []
    messages = [
        {"role": "user", "content": "Is the build red?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": [*between, {"type": "text", "text": "Read the log."}]},
        {"role": "assistant", "content": newest},
        {"role": "user", "content": results_of(newest, long_text(58))},
    ]
    said_by(world, request(messages))
    sent = sent_by(world)[-1]
    assert sent[-1]["content"][0]["content"] == long_text(58)
    left, *others = sent[1]["content"]
    assert left["type"] == "text"
    assert left["text"].startswith("[context-proxy: Reasoning of ")
    assert others == first[1:]
    assert sent[3]["content"] == newest
    assert json.dumps(first[0]).encode() in world.kept.values()


def test_the_thinking_before_an_open_result_stays_whatever_a_person_says_beside_it(build: Any) -> None:
    world = build(4_000, behind=worker())
    content = [thought(400), {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "cat log"}}]
    result = [*results_of(content, "red"), {"type": "text", "text": long_text(200)}]
    messages = [{"role": "user", "content": "Read it."}, {"role": "assistant", "content": content}]
    said_by(world, request([*messages, {"role": "user", "content": result}]))
    assert sent_by(world)[-1][1]["content"] == content
