"""What Ollama's decoder takes, and what its templates can render: results behind the calls that they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.upstream.ollama import Refused, check


def complaints(body: Mapping[str, Any]) -> list[str]:
    """What is wrong with a chat."""
    try:
        check(dict(body))
    except Refused as refused:
        return [str(refused)]
    found, waiting = [], 0
    for place, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            waiting -= 1
            found += [f"messages[{place}] answers nothing"] * (waiting < 0)
        else:
            found += [f"messages[{place}] comes before the results"] * (waiting > 0)
            waiting = len(message.get("tool_calls") or ())
    return found
