"""What was asked, done and said in the messages that are left out, for the omission note.

Rule: a function of the messages alone, bounded, and nothing that looks like a secret is quoted. The newest comes first:
what users said stays whole as long as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.compaction.call_traces import traces_of
from proxy.core.compaction.line_pool import is_never_quoted
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import Counter

_WHOLE_CHARACTERS: Final = 2_000
"""Up to this length, what a user said may be quoted whole. Nearly everything longer is pasted."""
_BEGINNING_CHARACTERS: Final = 200
"""Of what a user said, if it is longer or does not fit."""
_SAID_CHARACTERS: Final = 300
"""Of what the model said: two or three sentences."""
_CALL_CHARACTERS: Final = 110
"""Of the main argument of a call: a path, or a command."""
_MAX_CHARACTERS: Final = 100_000
"""Of all that is remembered: more than is quoted in a window of 200 000 tokens."""
_MARK_TOKENS: Final = 2
"""The end of the line, and the mark before it."""
_LEAST_ROOM_TOKENS: Final = 4
_ARTIFACT: Final = re.compile(f"{ARTIFACT_NAME}|tool_[A-Za-z0-9_-]*$")
"""A whole name, or one cut off at the end of a quotation. They are removed, because an artifact that only a left-out
message names is kept with that message."""


class Kind(StrEnum):
    """What a quotation is."""

    ASKED = "asked"
    """What a user said."""
    SAID = "said"
    """The beginning of what the model said."""
    DONE = "done"
    """A tool, and the main argument of its call."""


class Quotation(NamedTuple):
    """Something that was asked, said or done."""

    kind: Kind
    text: str


Thread: TypeAlias = tuple[Quotation, ...]
"""The newest is last; each stands only once."""


def extended(thread: Thread, gone: Sequence[TrackedMessage], asked: Iterable[str]) -> Thread:
    """The thread after one more cut. `asked`: what people said in the messages that are gone."""
    found = dict.fromkeys(thread)
    for quotation in (*(Quotation(Kind.ASKED, _asked(text)) for text in asked), *_steps(gone)):
        found.pop(quotation, None)
        found[quotation] = None
    newest = list(found)[::-1]
    lengths = accumulate(len(quotation.text) for quotation in newest)
    return tuple(newest[: sum(length <= _MAX_CHARACTERS for length in lengths)])[::-1]


def fitting(thread: Thread, asked_tokens: int, step_tokens: int, counter: Counter) -> Thread:
    """The newest quotations that fit, in order. `asked_tokens`: for what users said, of which only the beginning is
    quoted if the whole does not fit; `step_tokens`: for what was done, and as many for what the model said."""
    left = {Kind.ASKED: asked_tokens, Kind.SAID: step_tokens, Kind.DONE: step_tokens}
    found: list[Quotation] = []
    for kind, text in reversed(thread):
        if left[kind] < _LEAST_ROOM_TOKENS:
            continue
        for quoted in (text, _beginning(text)) if kind is Kind.ASKED else (text,):
            tokens = counter.count(quoted) + _MARK_TOKENS
            if tokens <= left[kind]:
                left[kind] -= tokens
                found.append(Quotation(kind, quoted))
                break
    return tuple(found[::-1])


def _steps(gone: Sequence[TrackedMessage]) -> Iterator[Quotation]:
    for message in (entry.whole for entry in gone if entry.whole.role == "assistant"):
        said = _beginning("\n".join(text for _, text in message.texts()), _SAID_CHARACTERS)
        tools = {call.id: call.name for call in message.calls}
        calls = ((tools.get(trace.call_id, ""), trace.source[:_CALL_CHARACTERS]) for trace in traces_of(message))
        done = [Quotation(Kind.DONE, " ".join(call).strip()) for call in calls]
        for quotation in (Quotation(Kind.SAID, said), *done):
            if quotation.text and not is_never_quoted(quotation.text):
                yield quotation


def _asked(text: str) -> str:
    """What a user said, without lines that look like a secret."""
    if len(text) > _WHOLE_CHARACTERS:
        text = _beginning(text)
    lines = _ARTIFACT.sub("…", text).strip().split("\n")
    return "\n".join("…" if is_never_quoted(line) else line.rstrip() for line in lines)


def _beginning(text: str, most: int = _BEGINNING_CHARACTERS) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else f"{_ARTIFACT.sub('…', line[:most]).rstrip()} …"
