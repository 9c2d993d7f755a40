"""Isolation between keys: tools, hashes, chains of responses, refused reasoning, lessons.

Rule: a request of one key is sent as if no other key had ever been here.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from support.upstream import Connection, Request

from tools.faults.stage import COMPLETION, TOO_LONG, Stage, accept, chat, long_text, staged, whole, with_result
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried

_ONE: Final = "sk-key-one"
_OTHER: Final = "sk-key-other"
_HASH: Final = re.compile(rb"hash=([0-9a-f]{16,64})")
_RPC: Final = {"accept": "application/json, text/event-stream"}
_LONG: Final = chat(*({"role": role, "content": "word " * 4_000} for _ in range(15) for role in ("assistant", "user")))
"""Over the window that TOO_LONG states, and under the one that is guessed."""
_SEAL: Final = b"c2VhbA=="
_SEALED: Final = json.dumps(
    {
        "model": "claude-sonnet-4-5",
        "max_tokens": 2_000,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Let me see.", "signature": _SEAL.decode()},
                    {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"}]},
        ],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
    }
).encode()
_REFUSED_SEAL: Final = json.dumps(
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
        },
    }
).encode()
_MESSAGE: Final = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
).encode()
_RESPONSE: Final = json.dumps(
    {
        "id": "resp_one",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [],
        "usage": {"input_tokens": 90_000, "output_tokens": 1, "total_tokens": 90_001},
    }
).encode()


async def keys_apart(_: Extent) -> list[Tried]:
    """One key uses everything that the proxy remembers; another key asks for it."""
    tools = Tried("No tool shows one key what another key stored", "MCP, `/v1/compress` and what it kept")
    chains = Tried("No key continues another's responses", "`previous_response_id` of another key")
    lessons = Tried("No key is bound by limits that another key met", "a limit, and a signature that was refused")
    async with staged(compress_api=True, mcp=True) as stage:
        await _share_tools(stage, tools)
        await _share_chains(stage, chains)
        await _share_lessons(stage, lessons)
    return [tools, chains, lessons]


async def _share_tools(stage: Stage, tried: Tried) -> None:
    await stage.ask(with_result(long_text(1)), key=_ONE)
    name = next(NAME.finditer(stage.upstream.bodies[-1]))[0].decode()
    for key, is_its_own in ((_ONE, True), (_OTHER, False), ("", False)):
        listed = await _called(stage, key, "search_artifacts", {})
        tried.note(f"search_artifacts by {key!r}: {listed[:200]}", held=(name in listed) == is_its_own)
        read = await _called(stage, key, "read_artifact", {"id": name})
        tried.note(f"read_artifact by {key!r}: {read[:200]}", held=("line 1" in read or "0:" in read) == is_its_own)
    content = {"messages": json.loads(with_result(long_text(2)))["messages"], "model": "gpt-4o"}
    heard = await stage.ask(json.dumps(content).encode(), key=_ONE, path="/v1/compress", host="localhost")
    found = _HASH.search(heard.body)
    tried.note(f"/v1/compress: {heard.status} {heard.body[:200]!r}", held=found is not None)
    for key, is_its_own in ((_ONE, True), (_OTHER, False), ("", False)):
        hashed = found[1].decode() if found else ""
        read_back = await stage.get(f"/v1/retrieve/{hashed}", key=key)
        tried.note(f"/v1/retrieve by {key!r}: {read_back.status}", held=(read_back.status == 200) == is_its_own)


async def _called(stage: Stage, key: str, tool: str, arguments: dict[str, Any]) -> str:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return (await stage.ask(json.dumps(call).encode(), key=key, path="/mcp", host="localhost", **_RPC)).body.decode()


async def _share_chains(stage: Stage, tried: Tried) -> None:
    async def respond(connection: Connection, _: Request) -> None:
        await connection.send(whole(200, _RESPONSE))

    stage.upstream.answer = respond
    first = json.dumps({"model": "gpt-4o", "input": "word " * 2_000}).encode()
    next_one = json.dumps({"model": "gpt-4o", "input": "And?", "previous_response_id": "resp_one"}).encode()
    await stage.ask(first, key=_ONE, path="/v1/responses")
    for key in (_OTHER, ""):
        await stage.ask(next_one, key=key, path="/v1/responses")
        tried.note(f"by {key!r}", held=stage.upstream.bodies[-1] == next_one)
    stage.upstream.answer = accept


async def _share_lessons(stage: Stage, tried: Tried) -> None:
    async def refuse(connection: Connection, request: Request) -> None:
        if b"/messages" in request.line:
            await connection.send(whole(400, _REFUSED_SEAL) if _SEAL in request.body else whole(200, _MESSAGE))
        else:
            await connection.send(whole(400, TOO_LONG) if len(request.body) >= len(_LONG) else whole(200, COMPLETION))

    async def take(connection: Connection, request: Request) -> None:
        await connection.send(whole(200, _MESSAGE if b"/messages" in request.line else COMPLETION))

    # What is lost to the limit, and to the refusal of the signature.
    for path, body, lost in (("/v1/chat/completions", _LONG, _LONG), ("/v1/messages", _SEALED, _SEAL)):
        stage.upstream.answer = refuse
        for _ in range(2):
            healed = await stage.ask(body, key=_ONE, path=path)
        tried.note(f"{path}: healed with {healed.status}", held=healed.status == 200)
        tried.note(f"{path}: learned", held=lost not in stage.upstream.bodies[-1])
        stage.upstream.answer = take
        for key in (_OTHER, ""):
            await stage.ask(body, key=key, path=path)
            tried.note(f"{path} by {key!r}", held=lost in stage.upstream.bodies[-1])
