"""What is drawn: settings, the conversation of an agent, and how its upstream behaves; small enough to be read, and the
same again from the same numbers.

Rule: a case says everything, so that one that was found is a file; one table maps its names to behaviour.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from drawn.bucket import FAULTS as BUCKET_FAULTS

SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "the window as it is": {"models": {"context_window": 1.0}},
    "a window too large": {"models": {"context_window": 4.0}},
    "a window too small": {"models": {"context_window": 0.7}},
    "no lower reply": {"budget": {"clamp_reply": False}},
    "in Chinese": {"language": "zh"},
    "never our tool": {"artifacts": {"retrieval_tool": "never"}},
    "always our tool": {"artifacts": {"retrieval_tool": "always"}},
    "short results": {"models": {"max_tool_result_chars": 1_500}},
    "few lines": {"tool_output": {"max_lines": 20, "direction": "tail"}},
    "few bytes": {"tool_output": {"max_bytes": 2_000, "direction": "head"}},
    "bash is never cut": {"tool_output": {"never": ["bash"]}},
    "nothing learned": {"learning": {"enabled": False}},
    "unknown media as text": {"media": {"unknown_capability": "text"}},
    "a model that reads text": {"models": {"input": ["text"]}},
    "a model that sees": {"models": {"input": ["text", "vision", "file"]}},
    "images stay in results": {"models": {"tool_images": "keep"}},
    "images after an assistant": {"models": {"tool_images": "user_after_assistant"}},
    "two images": {"models": {"max_images": 2}},
    "an estimate": {"models": {"tokenizer": "bytes"}},
    "an older vocabulary": {"models": {"tokenizer": "cl100k_base"}},
    "no emoji": {"models": {"sanitise": ["non_bmp"]}},
    "half full": {"budget": {"fill": 0.6, "low_mark": 0.4}},
    "rare cuts": {"budget": {"low_mark": 0.95}},
    "no margin": {"budget": {"margin": 0}},
    "few characters": {"defaults": {"max_request_chars": 30_000}},
    "few bytes in all": {"defaults": {"max_request_bytes": 60_000}},
    "comments while it waits": {"overflow": {"keepalive_seconds": 0.005}},
    "nothing can be kept": {"artifacts": {"folder": "/dev/null/kept"}},
    "only observed": {"mode": "observe"},
    "no second send": {"overflow": {"retry": False}},
    "histories as they come": {"history": "off"},
    "read over MCP": {"mcp": True},
    "a gateway's API": {"compress_api": True},
}
"""A section, or members of the one entry of `models`; windows as shares of the true one."""
WORDS: Final = {
    "chat": ("openai", "vllm", "llama.cpp", "dashscope"),
    "messages": (
        "anthropic",
        "anthropic, with the reply",
        "413 context",
        "openai",
        "vllm",
        "llama.cpp",
        "capability",
        "in the stream",
        "stop reason",
    ),
    "responses": (
        "openai",
        "openai, with numbers",
        "error event, flat",
        "error event, nested",
        "failed event",
        "openrouter",
        "vllm",
        "llama.cpp",
        "ollama",
    ),
    "ollama": ("native", "no shift", "cloud"),
}
"""By API, with those of any."""
ON_ANY: Final = ("unnumbered", "kimi, with numbers", "copilot", "ark", "rate", "silent cut")
WITHOUT_NUMBERS: Final = frozenset(
    (
        *("unnumbered", "413 context", "capability", "stop reason", "openai", "error event, flat", "ollama"),
        *("error event, nested", "failed event", "silent cut", "no shift", "cloud"),
    )
)
"""Of messages and responses; `openai` of chat says its numbers."""
REASONS: Final = ("image", "file", "seal", "tool", "count", "items", "text", "blocks")
ACTIONS: Final = (
    *("words", "words", "exchange", "exchange", "exchanges", "exchanges", "parallel", "long result", "one line"),
    *("long words", "same opening", "reminder", "image", "file", "image result", "aborted", "twice", "search"),
    *("foreign thinking", "system", "speech", "long arguments", "emoji", "retry", "branch", "edit", "other key"),
    *("summary",),
)
FAULTS: Final = ("500", "429", "empty", "reset", "broken")


class Turn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Additions to the conversation before the next request, and the upstream's reaction."""

    actions: list[str]
    streamed: bool = False
    fault: str = ""
    """Of the first send."""
    reads: int = 0
    """How often the model reads an artifact, if it can."""
    calls: bool = False
    """Whether it then calls a tool of the client."""
    hours: int = 0
    """That pass before it; then old artifacts are swept."""
    bucket_fault: str = ""
    """As long as it lasts."""


class Case(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One agent, one upstream, and what is between."""

    api: str
    turns: list[Turn]
    settings: list[str] = []
    window: int = 8_000
    words: str = "unnumbered"
    """Wording of the refusal for length."""
    reasons: list[str] = []
    """Other refusals, in this order."""
    once: bool = False
    """Whether each of these is refused once only."""
    counts: float = 1.0
    """The upstream's tokens for four bytes."""
    usage: float | None = 1.0
    """What it says that it counted, as a share of that; None: nothing."""
    states_window: bool = False
    """Whether its list of models has the window; on Ollama's API the request itself."""
    tools: tuple[str, ...] = ("bash",)
    reply_tokens: int | None = None
    formatted: bool = False
    system_lines: int = 10
    marked: bool = False
    """Whether the newest message has a mark for a prompt cache, as Claude Code moves it with each turn."""
    tells_time: bool = False
    """Whether the system text begins otherwise at each turn."""
    thinks: bool = False
    """Whether extended thinking is switched on."""
    has_bucket: bool = False
    """Whether artifacts are kept in a bucket."""
    replicas: bool = False
    """Whether two proxies serve it in turn, which share what they learn through Redis."""


def drawn(draw: random.Random) -> Case:
    """A case; the same numbers give the same one."""
    api = draw.choice(list(WORDS))
    return Case(
        api,
        [_turn(draw) for _ in range(draw.choice((2, 2, 3, 3, 4)))],
        sorted(draw.sample(list(SETTINGS), draw.choice((0, 1, 2, 2, 3, 4)))),
        draw.choice((5_000, 8_000, 8_000, 16_000, 32_000)),
        draw.choice((*WORDS[api], *ON_ANY)),
        draw.sample(REASONS, draw.choice((0, 0, 1, 1, 2, 3))),
        once=draw.random() < 0.15,
        counts=draw.choice((1.0, 1.0, 0.8, 1.25)),
        usage=draw.choice((1.0, 1.0, 1.0, None, 1.5)),
        states_window=draw.random() < 0.2,
        tools=draw.choice((("bash",), ("bash",), ("bash",), (), ("read_log",), ("read_log",))),
        reply_tokens=draw.choice((None, None, 300, 2_000, 20_000)),
        formatted=draw.random() < 0.1,
        system_lines=draw.choice((1, 10, 60)),
        marked=draw.random() < 0.5,
        tells_time=draw.random() < 0.15,
        thinks=draw.random() < 0.25,
        has_bucket=draw.random() < 0.25,
        replicas=draw.random() < 0.25,
    )


def _turn(draw: random.Random) -> Turn:
    return Turn(
        draw.sample(ACTIONS, draw.choice((1, 2, 2, 3, 4))),
        streamed=draw.random() < 0.4,
        fault=draw.choice(FAULTS) if draw.random() < 0.06 else "",
        reads=draw.choice((0, 0, 1, 2, 4, 10)),
        calls=draw.random() < 0.5,
        hours=draw.choice((0, 0, 0, 1, 1, 3)),
        bucket_fault=draw.choice(BUCKET_FAULTS) if draw.random() < 0.2 else "",
    )
