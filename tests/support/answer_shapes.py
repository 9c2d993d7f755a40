"""Answers of models with calls of our tool and of the client's, as bodies and as streams cut into any deltas."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.wire import Reply

TEXTS = st.text('ab "\n\\é🙂{}', max_size=12)
IDS = st.uuids().map(lambda found: f"call_{found.hex[:8]}")


@st.composite
def calls(draw: Any, own: bool | None = None) -> dict[str, Any]:
    """A call; `own`: of our tool, of another one, or either."""
    is_own = draw(st.booleans()) if own is None else own
    name = RETRIEVAL_TOOL if is_own else draw(st.sampled_from(["ls", "read_artifacts", "weather"]))
    arguments = json.dumps({"id": draw(TEXTS), "n": draw(st.integers(0, 9))})
    call = {"id": draw(IDS), "type": "function", "function": {"name": name, "arguments": arguments}}
    if draw(st.integers(0, 4)) == 0:
        call["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    return call


@st.composite
def messages(draw: Any, own: bool | None = None, max_calls: int = 4) -> dict[str, Any]:
    """An assistant message."""
    found: dict[str, Any] = {"role": "assistant", "content": draw(st.one_of(st.none(), TEXTS))}
    if draw(st.booleans()):
        found["reasoning_content"] = draw(TEXTS.filter(bool))
    made = draw(st.lists(calls(own), max_size=max_calls, unique_by=lambda call: call["id"]))
    if made:
        found["tool_calls"] = made
    return found


def is_own(call: dict[str, Any]) -> bool:
    return call["function"]["name"] == RETRIEVAL_TOOL


def pieces_of(draw: Any, text: str) -> list[str]:
    """A text in pieces, none of them empty."""
    ends = (
        sorted({draw(st.integers(1, len(text))) for _ in range(draw(st.integers(0, 3)))} | {len(text)}) if text else []
    )
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@st.composite
def streams(draw: Any, message: dict[str, Any], *, number: int = 0, usage: dict[str, Any] | None = None) -> list[bytes]:
    """The events of a stream that says a message: text first, then calls whose deltas are mixed in any way, each call
    in its own order and begun in theirs; comments anywhere."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces_of(draw, message.get("reasoning_content") or "")]
    deltas += [{"content": piece} for piece in pieces_of(draw, message["content"] or "")]
    queues = []
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        rest = [
            {"index": index, "function": {"arguments": piece}}
            for piece in pieces_of(draw, call["function"]["arguments"])
        ]
        queues.append([opening, *rest])
    begun = 0
    while any(queues):
        ready = [at for at, queue in enumerate(queues[: begun + 1]) if queue]
        batch = []
        for _ in range(draw(st.integers(1, 3))):
            if ready := [at for at, queue in enumerate(queues[: begun + 1]) if queue]:
                at = draw(st.sampled_from(ready))
                begun = max(begun, at + 1)
                batch.append(queues[at].pop(0))
        deltas.append({"tool_calls": batch})
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    events = [chunk([choice(delta)], number) for delta in deltas]
    if draw(st.booleans()):
        events.append(chunk([choice({}, finish)], number))
    else:
        last = deltas[-1] if len(deltas) > 1 else {}
        events[-1] = chunk([choice(last, finish)], number)
        if len(deltas) == 1:
            events = [chunk([choice(deltas[0])], number), chunk([choice({}, finish)], number)]
    if usage is not None:
        events.append(chunk([], number, usage=usage))
    for _ in range(draw(st.integers(0, 2))):
        events.insert(draw(st.integers(0, len(events))), b": still here\n\n")
    return [*events, b"data: [DONE]\n\n"]


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def chunk(choices: list[dict[str, Any]], number: int = 0, **members: Any) -> bytes:
    found = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000 + number,
        "model": "m",
    }
    return b"data: " + json.dumps(found | {"choices": choices} | members).encode() + b"\n\n"


def body(message: dict[str, Any], finish: str = "tool_calls", **members: Any) -> bytes:
    """An answer that is no stream."""
    made = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "chatcmpl-0", "object": "chat.completion", "choices": [made], **members}).encode()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(stream)) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def understood(stream: bytes) -> dict[str, Any]:
    """A stream as a strict client reads it: one answer, one role, calls numbered from 0 in the order they begin."""
    message: dict[str, Any] = {"role": None, "content": "", "reasoning_content": "", "tool_calls": []}
    names: set[tuple[str, int]] = set()
    finish, usage, done = None, None, False
    for event in stream.split(b"\n\n"):
        if not event or event.startswith(b":"):
            continue
        assert not done, "nothing follows the end"
        assert event.startswith(b"data: ")
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            done = True
            continue
        found = json.loads(data)
        names.add((found["id"], found["created"]))
        if found.get("usage"):
            assert usage is None
            usage = found["usage"]
        for one in found["choices"]:
            assert finish is None, "nothing follows a finished choice"
            delta = one["delta"]
            if "role" in delta:
                assert message["role"] is None
                message["role"] = delta["role"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name) or ""
            for item in delta.get("tool_calls", ()):
                _add_call(message["tool_calls"], item)
            finish = one["finish_reason"]
    assert len(names) <= 1
    return {"message": message, "finish": finish, "usage": usage, "done": done}


def _add_call(made: list[dict[str, Any]], item: dict[str, Any]) -> None:
    index = item["index"]
    assert index <= len(made), "no gaps"
    if index == len(made):
        assert item["function"]["name"]
        made.append({name: found for name, found in item.items() if name != "index"})
        made[-1]["function"] = dict(item["function"])
    else:
        made[index]["function"]["arguments"] += item["function"]["arguments"]


def read(reply: Reply, body: bytes) -> AssistantMessage | None:
    """What the model said in a round's body."""
    assert reply.feed(body) == b""
    return reply.end()
