"""The embedded model server, asked as a client asks it."""

from __future__ import annotations

from typing import Any

import httpx

WINDOW = 200
"""In tokens."""
HELLO = [{"role": "user", "content": "hello world"}]
TOO_LONG = [{"role": "user", "content": "hello world " * 200}]


def ask(client: httpx.Client, messages: object, **more: Any) -> httpx.Response:
    """The server's answer."""
    return client.post("/chat/completions", json={"model": "any", "messages": messages, **more})
