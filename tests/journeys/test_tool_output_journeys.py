"""A long tool result: stored before it is forwarded, cut once, and reported to model, client and log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.journey import KEY, call, long_text, one_call, result

CANARY = "canary-7f3a"
LONG = long_text(5_000, CANARY)


def test_the_original_is_on_disk_before_the_upstream_gets_the_request(build: Any) -> None:
    world = build()
    answer = world.ask(one_call(LONG, tools=[{"type": "function", "function": {"name": "bash"}}]))
    assert answer.status_code == 200
    received = world.upstream.last
    assert list(received.files.values()) == [LONG.encode()]
    sent = received.messages[3]["content"]
    assert len(sent.encode()) <= 51_200
    place = re.search(r"/\S+/tool_bash_[0-9a-f]{16}\.txt", sent)
    assert place is not None
    assert Path(place[0]).read_text() == LONG


def test_the_same_content_is_kept_once_and_cut_the_same_way(build: Any) -> None:
    world = build()
    request = one_call(LONG)
    world.ask(request)
    request["messages"] += [{"role": "assistant", "content": "Once more."}, {"role": "user", "content": "Yes."}]
    request["messages"] += [call(2), result(2, LONG)]
    world.ask(request)
    assert list(world.kept.values()) == [LONG.encode()]
    first, second = (received.messages for received in world.upstream.sent)
    assert second[: len(first)] == first
    assert second[-1]["content"] == first[-1]["content"]
    assert len(world.log("artifact_saved")) == 1


def test_client_and_log_learn_what_was_done(build: Any) -> None:
    world = build()
    answer = world.ask(one_call(LONG), x_request_id="req-42")
    assert answer.headers["x-request-id"] == "req-42"
    assert answer.headers["x-context-proxy-edits"] == "retrieval_tool=1;truncate_tool_output=1"
    assert answer.headers["x-context-proxy-attempts"] == "1"
    tokens = re.fullmatch(r"before=(\d+);after=(\d+);room=(\d+)", answer.headers["x-context-proxy-tokens"])
    assert tokens is not None
    before, after, room = map(int, tokens.groups())
    assert after < before <= room

    planned = world.logged("request_planned")[0]
    assert (planned["request_id"], planned["tokens_before"], planned["tokens_after"]) == ("req-42", before, after)
    assert (planned["messages_before"], planned["messages_dropped"], planned["truncated"]) == (4, 0, True)
    assert planned["edits"] == {"retrieval_tool": 1, "truncate_tool_output": 1}
    assert planned["chars_before"] - planned["chars_after"] > 50_000
    truncated = world.logged("tool_output_truncated")[0]
    name = next(iter(world.kept))
    assert (truncated["request_id"], truncated["tool"], truncated["artifact"]) == ("req-42", "bash", name)
    assert (truncated["original_chars"], truncated["kept_chars"]) == (
        len(LONG),
        len(world.upstream.last.messages[3]["content"]),
    )
    saved = world.logged("artifact_saved")[0]
    assert (saved["artifact"], saved["tool"], saved["bytes"]) == (name, "bash", len(LONG.encode()))
    done = world.logged("request_done")[0]
    assert (done["request_id"], done["outcome"], done["status"]) == ("req-42", "answered", 200)
    assert (done["model"], done["messages"], done["edits"]) == (
        "m",
        4,
        {"retrieval_tool": 1, "truncate_tool_output": 1},
    )
    assert done["sent_bytes"] == len(world.upstream.last.body) < done["body_bytes"]
    assert {"own_ms", "first_byte_ms", "total_ms"} <= done.keys()


def test_each_excerpt_is_logged_once_in_the_life_of_a_conversation(build: Any) -> None:
    world = build()
    request = one_call(LONG)
    for _ in range(3):
        assert world.ask(request).status_code == 200
        request["messages"] += [{"role": "assistant", "content": "Go on?"}, {"role": "user", "content": "Yes."}]
    assert len(world.logged("request_done", 3)) == 3
    assert len(world.log("tool_output_truncated")) == 1
    assert len(world.log("request_planned")) == 3


@pytest.mark.usefixtures("counted_as_gpt_4o")
def test_neither_content_nor_keys_reach_the_log(build: Any) -> None:
    world = build(4_000)
    request = one_call(LONG + " sk-in-content-canary", model="gpt-4o")
    request["messages"][0]["content"] = "system-canary " * 900
    request["messages"][1]["content"] = "user-canary"
    world.ask(request)
    request["messages"][0]["content"] = "system-canary " * 9_000
    assert world.ask(request).status_code == 400
    world.ask(b'{"messages": "user-canary"}')
    world.logged("request_done", 3)
    assert "canary" not in world.log_text
    assert KEY not in world.log_text


def test_a_long_system_text_is_reported_once_for_a_conversation(build: Any) -> None:
    world = build(4_000)
    request = one_call("short")
    request["messages"][0]["content"] = "word " * 1_700
    world.ask(request)
    request["messages"] += [{"role": "assistant", "content": "Go on?"}, {"role": "user", "content": "Yes."}]
    world.ask(request)
    world.logged("request_done", 2)
    lines = world.log("system_text_long")
    assert [(line["level"], line["model"]) for line in lines] == [("warning", "m")]
    assert lines[0]["room_tokens"] // 2 < lines[0]["tokens"] < lines[0]["room_tokens"]


def test_an_agent_that_is_larger_than_the_window_is_reported_with_both_figures_at_its_first_request(build: Any) -> None:
    world = build(4_000)
    request = one_call("short")
    request["tools"] = [{"type": "function", "function": {"name": "big", "description": "word " * 5_000}}]
    answer = world.ask(request)
    (line,) = world.logged("agent_too_large")
    assert (line["level"], line["window_tokens"]) == ("warning", 4_000)
    assert line["tokens"] > 4_000
    assert "ENABLE_TOOL_SEARCH=true" in line["advice"]
    assert "tokens, and the window has 4,000, so this agent cannot work" in answer.json()["error"]["message"]


def test_a_long_system_text_is_reported_where_the_window_is_only_guessed(build: Any) -> None:
    world = build(200_000, defaults={})
    request = one_call("short")
    request["model"] = "nobody-knows-it"
    request["messages"][0]["content"] = "word " * 70_000
    world.ask(request)
    (line,) = world.logged("system_text_long")
    assert line["tokens"] > line["room_tokens"] // 2
    assert world.log("model_limits")[0]["window_is"] == "guessed"


def test_what_fits_goes_up_as_it_came_while_nothing_can_be_kept_and_is_cut_once_the_store_works_again(
    build: Any, tmp_path: Path
) -> None:
    world = build()
    place = tmp_path / "kept" / "tool-output"
    place.write_text("a file in the folder's place")
    body = json.dumps(one_call(LONG)).encode()
    answer = world.ask(body)
    assert (answer.status_code, world.upstream.last.body) == (200, body)
    assert "x-context-proxy-edits" not in answer.headers
    assert [line["level"] for line in world.logged("artifact_store_failed")] == ["warning"]
    place.unlink()
    world.ask(body)
    assert list(world.kept.values()) == [LONG.encode()]
    own = [name for name in world.upstream.last.headers if name.startswith(b"x-context-proxy")]
    assert own == [b"x-context-proxy-loop"]
    assert len(world.upstream.last.body) < len(LONG)


def test_where_nothing_can_be_kept_what_must_be_cut_says_that_the_rest_is_gone(build: Any, tmp_path: Path) -> None:
    world = build(8_000)
    (tmp_path / "kept" / "tool-output").write_text("a file in the folder's place")
    answer = world.ask(one_call(LONG))
    assert answer.status_code == 200
    sent = world.upstream.last.messages[3]["content"]
    assert "The rest could not be kept" in sent
    assert "/tool_bash_" not in sent
    assert len(world.log("artifact_store_failed")) == 1


def test_deleted_artifacts_are_stored_again(build: Any) -> None:
    world = build()
    world.ask(one_call(LONG))
    (name,) = world.kept
    (world.folder / "tool-output" / name).unlink()
    world.ask(one_call(LONG))
    assert world.upstream.last.files == {name: LONG.encode()}


def test_tenants_share_neither_what_is_remembered_nor_metadata(build: Any) -> None:
    world = build()
    for key in ("sk-anna-canary", "sk-ben-canary", "sk-anna-canary"):
        assert world.ask(one_call(LONG), key=key).status_code == 200
    bodies = {received.body for received in world.upstream.sent}
    assert len(bodies) == 1, "the same request is the same for everybody"
    world.logged("request_done", 3)
    assert len(world.log("tool_output_truncated")) == 2, "known to Anna the second time, new to Ben"
    assert len(world.kept) == 1
    tenants = {
        json.loads(path.read_bytes())["owner"] for path in (world.folder / "tool-output" / ".meta").glob("*.json")
    }
    assert len(tenants) == 2
    assert not any("canary" in tenant for tenant in tenants)


def page_of(name: str) -> str:
    return f"[context-proxy: lines 1-2 of 5000 of {name}, 24 of 108,000 bytes; go on with lines=3-4]\na\nb\n"


def test_a_page_that_an_agent_has_read_stays_ours_in_every_turn_and_after_a_restart(build: Any) -> None:
    world = build()
    request = one_call(LONG)
    world.ask(request)
    (name,) = world.kept
    pages = [page_of(name), page_of(name.replace(name[10:13], "000"))]
    for number, page in enumerate(pages, 2):
        request["messages"] += [call(number), result(number, page)]
    for asked in (world, world, build()):  # the last shares the folder, not the memory
        asked.ask(request)
        sent = asked.upstream.last.messages
        assert sent[5]["content"] == pages[0]
        assert sent[7]["content"] == pages[1].replace("[context-proxy: ", "[quoted text: ")
