"""What the client of a drawn case does beside its turns: it reads over MCP what was named to it, and has a gateway
compress its messages; each rule is a function whose name says it.

Rule: it is done on both sides, and nothing of it reaches the upstream.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from drawn.agent import Agent
from drawn.sides import Received, Side

_NOBODY: Final = b"Bearer sk-nobody"
"""A key that has brought nothing."""
_MOST: Final = 3
"""Artifacts that are read after each turn."""


async def did(agent: Agent, side: Side, key: bytes) -> list[bytes]:
    """Results the client got beside a turn, the same on both sides."""
    if side.bucket is not None and side.bucket.fault not in ("", "late"):
        return []  # nothing can be read
    sent, found = side.upstream.bodies, []
    if "read over MCP" in agent.case.settings:
        found += await _what_was_named_is_read_with_its_key_only(side, key)
    if "a gateway's API" in agent.case.settings and agent.case.api == "chat":
        found += await _what_is_compressed_can_be_had_back_with_its_key_only(agent, side, key)
    assert side.upstream.bodies == sent, "it reached the upstream"
    return found


async def _what_was_named_is_read_with_its_key_only(side: Side, key: bytes) -> list[bytes]:
    found = []
    for name in sorted(name for name in side.upstream.named if name.endswith((".txt", ".json")))[:_MOST]:
        page = await _read(side, key, name)
        assert not page["isError"], page
        assert (await _read(side, _NOBODY, name))["isError"], f"{name} is read with another key"
        found.append(page["content"][0]["text"].encode())
    return found


async def _read(side: Side, key: bytes, name: str) -> Any:
    params = {"name": "read_artifact", "arguments": {"id": name}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return _json(await side.ask("/mcp", key, json.dumps(call).encode()))["result"]


async def _what_is_compressed_can_be_had_back_with_its_key_only(agent: Agent, side: Side, key: bytes) -> list[bytes]:
    messages = [*agent.spelling.system(agent.system), *agent.items]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    answer = await side.ask("/v1/compress", key, body)
    compressed = _json(answer)
    assert [one["role"] for one in compressed["messages"]] == [one["role"] for one in messages]
    assert compressed["tokens_after"] <= compressed["tokens_before"]
    whole, found = json.dumps(messages), [answer.content]
    for name in compressed["ccr_hashes"][:_MOST]:
        hashed = json.dumps({"hash": name}).encode()
        original = _json(await side.ask("/v1/retrieve", key, hashed))["original_content"]
        as_file = base64.b64encode(original.encode()).decode()
        assert any(form in whole for form in (json.dumps(original)[1:-1], as_file, original)), original[:200]
        assert (await side.ask("/v1/retrieve", _NOBODY, hashed)).status == 404, f"{name} is had with another key"
    return found


def _json(answer: Received) -> Any:
    assert answer.status == 200, f"{answer.status}: {answer.text[:300]}"
    return json.loads(answer.content)
