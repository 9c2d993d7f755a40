"""A stand-in for the proxy, far simpler than the real one and free of it, so that the demo is tested by itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from support.serving import serving
from support.waiting import PATIENCE_SECONDS

Messages = Sequence[Mapping[str, Any]]


def shortened(messages: Messages, folder: Path, keep: int) -> list[dict[str, Any]]:
    """Long tool results: the newest show `keep` characters, older ones nothing; each says where it is whole."""
    result: list[dict[str, Any]] = []
    spoke_last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=0)
    for index, message in enumerate(messages):
        text = message.get("content")
        if message["role"] == "tool" and isinstance(text, str) and len(text) > keep:
            kept = folder / f"tool_{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
            kept.write_text(text)
            start = text[:keep] if index > spoke_last else ""
            result.append({**message, "content": f"{start}\n[{len(text)} characters; the whole is in {kept}, grep it]"})
        else:
            result.append(dict(message))
    return result


@contextlib.contextmanager
def fake_front(upstream: str, window_tokens: int, folder: Path, port: int) -> Iterator[str]:
    async def chat(request: Request) -> Response:
        wanted = json.loads(await request.body())
        wanted["messages"] = shortened(wanted["messages"], folder, window_tokens // 4)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS, verify=False) as client:
            answer = await client.post(f"{upstream}/chat/completions", json=wanted)
        head = {"x-context-proxy-edits": "truncate_tool_output=1", "x-context-proxy-attempts": "2"}
        return Response(answer.content, answer.status_code, head, answer.headers["content-type"])

    with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        yield url
