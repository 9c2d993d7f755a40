"""What a scripted model says, whatever the API: words, thought and calls; and how it chooses what to call.

Rule: where it is in its work it reads off the request alone, from the last "Step N of M" in it, so a request that comes
again is answered alike, and one whose oldest part is gone as well.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.demo import count

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/x-ndjson"
Json = dict[str, Any]
_STEP = re.compile(r"Step (\d+) of \d+")
_SUMMARY_WANTED = re.compile(r"detailed summary|handoff summary|CONTEXT CHECKPOINT|TEXT ONLY")
"""How Claude Code and Codex ask for a summary."""
IMAGE_TOKENS = 1_500
"""About a picture of 1 024 × 1 024 by either vendor's rule; only that it is no text matters here."""
_MEDIA = ("image", "document", "input_image", "input_file", "computer_screenshot")
_UNREAD = ("type", "id", "cache_control", "signature", "encrypted_content", "status", "role")


@dataclass(frozen=True)
class Call:
    """A call of one of the client's tools; what a custom tool gets is text."""

    name: str
    given: Mapping[str, Any] | str
    namespace: str | None = None


@dataclass(frozen=True)
class Reply:
    """One turn of the model."""

    text: str
    calls: Sequence[Call] = ()
    thought: str = ""
    content: Sequence[Json] | None = None
    """In the place of all that: blocks or items as the API has them."""


@dataclass(frozen=True)
class Answer:
    """What goes over the line."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    refuses: bool = False
    """Whether it says no, wherever it says it."""
    piece_bytes: int | None = None
    """Of the pieces in which a stream goes out; one event each if it is not stated."""

    @property
    def is_stream(self) -> bool:
        return self.content_type.startswith(("text/event-stream", LINES))

    def pieces(self) -> list[bytes]:
        """A stream as it goes out."""
        if self.piece_bytes is not None:
            starts = range(0, len(self.body), self.piece_bytes)
            return [self.body[start : start + self.piece_bytes] for start in starts]
        end = b"\n" if self.content_type.startswith(LINES) else b"\n\n"
        return [event + end for event in self.body.split(end) if event]


Refusal = Callable[[Mapping[str, Any], int, int], Answer]
"""Body, tokens counted, the limit → what is said."""


@dataclass(frozen=True)
class Usage:
    """Tokens as they are billed; `cached` is a part of the prompt."""

    prompt: int
    cached: int
    reply: int


def as_json(content: object, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(content).encode(), JSON, headers)


def as_events(events: Sequence[Mapping[str, Any]]) -> Answer:
    """Each with its name, as both APIs write them."""
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return Answer(200, "".join(lines).encode(), EVENTS)


def pieces(text: str, size: int = 40) -> list[str]:
    """A text as deltas."""
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def _given(file: str, picture: str) -> dict[str, Mapping[str, Any] | str]:
    """Tool → what it gets to show a file. The last is Codex's: it takes JavaScript."""
    command = f"cat {file}"
    return {
        "read_log": {"path": file},
        "look": {"path": picture},
        "Bash": {"command": command, "description": "Show a log"},
        "shell": {"command": ["bash", "-lc", command]},
        "shell_command": {"command": command},
        "exec_command": {"cmd": command, "max_output_tokens": 10_000},
        "bash": {"command": command, "description": "Show a log"},
        "run_shell_command": {"command": command, "description": "Show a log", "is_background": False},
        "run_commands": {"commands": [command]},
        "exec": f"const shown = await tools.exec_command({json.dumps({'cmd': command})}); text(shown.output);",
    }


def calls_of(tools: Sequence[tuple[str, str | None]], step: int) -> tuple[Call, ...]:
    """The call that shows log number `step`, with the first that can: `read_log`, `look` for a picture, a shell; in
    every third step a second one beside it, for a short file. Empty: no tool will do."""
    found: list[Call] = []
    for name in (f"log-{step}.txt", *(["notes.txt"] if step % 3 == 1 else [])):
        given = _given(name, f"picture-{step}.png")
        offered = ((tool, namespace) for wanted in given for tool, namespace in tools if tool == wanted)
        found += [Call(tool, given[tool], namespace) for tool, namespace in itertools.islice(offered, 1)]
    return tuple(found)


def next_reply(text: str, last_user: str, tools: Sequence[tuple[str, str | None]], steps: int) -> Reply:
    """The next turn for a request: `text` is all of it, `last_user` the newest words of the user."""
    done = steps_done(text)
    wants_summary = bool(_SUMMARY_WANTED.search(last_user))
    calls = () if wants_summary or done >= steps else calls_of(tools, done)
    if calls:
        return Reply(f"Step {done + 1} of {steps}.", calls, thought=f"Log {done} may hold it.")
    if done >= steps and not wants_summary:
        return Reply(f"Done after {done} steps.", thought="All of it is read.")
    return Reply(f"<summary>Step {done} of {steps} is done; the next log is log-{done}.txt.</summary>")


def steps_done(text: str) -> int:
    """The last step that a request contains."""
    return max((int(number) for number in _STEP.findall(text)), default=0)


def tokens(value: object) -> int:
    """Tokens of all texts in it, really tokenised (o200k); a medium has a price, and what no model reads has none."""
    match value:
        case str():
            return count(value)
        case {"type": kind} if kind in _MEDIA:
            return IMAGE_TOKENS
        case dict():
            return sum(tokens(inner) for name, inner in value.items() if name not in _UNREAD)
        case list():
            return sum(tokens(inner) for inner in value)
        case _:
            return 0


def _enveloped(message: str, kind: str, code: str, param: str) -> Answer:
    return as_json({"error": {"message": message, "type": kind, "param": param, "code": code}}, 400)


ON_EVERY_API: dict[str, Refusal] = {
    "kimi, with numbers": lambda _, sent, limit: as_json(
        {
            "error": {
                "message": f"Invalid request: Your request exceeded model token limit: {limit} (requested: {sent})",
                "type": "invalid_request_error",
            }
        },
        400,
    ),
    "copilot": lambda _, sent, limit: _enveloped(
        f"prompt token count of {sent} exceeds the limit of {limit}", "", "", ""
    ),
    "ark": lambda _, sent, limit: _enveloped(
        f"Input length {sent} exceeds the maximum length {limit}", "BadRequest", "InvalidParameter", ""
    ),
}
"""Of upstreams that say the same on each of their APIs: MoonshotAI/kimi-cli#2011, jjleng/copilot-more#35; Volcengine
Ark's envelope as in langgenius/dify#14376."""
