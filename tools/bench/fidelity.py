"""Fidelity: the share of what an agent's true next step uses that is in the text sent.

Rule: the measures of docs/decisions/0003-what-to-give-up.md. A name counts only in a line of the conversation itself,
not in a list of names or in the proxy's words; a block counts only if every line of it is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Chat: TypeAlias = Mapping[str, Any]
"""A message of a chat request."""

_NAME: Final = re.compile(r"[A-Za-z_][\w./:-]{5,}|\d{4,}")
_NUMBER: Final = re.compile(r"^\s*(?:[\w./@+-]+[:-])?\d+(?:→|\t|:|-|\||  )\s?")
_REPLACED: Final = frozenset({"old_string", "old_str", "oldText", "old_text", "old", "search"})
_LEAST_OF_A_BLOCK: Final = 4
"""Characters of a block's line that has to be present: shorter lines occur everywhere."""
_LEAST_QUOTED: Final = 20
"""Characters of a copied line: shorter ones are as often written anew."""


@dataclass(frozen=True)
class Needs:
    """Names and lines of the next step that only earlier messages contain."""

    names: frozenset[str]
    lines: frozenset[str]
    blocks: tuple[frozenset[str], ...]


@dataclass
class Tally:
    """How much was needed, and how much of it was present."""

    names: int = 0
    real: int = 0
    lines: int = 0
    lines_held: int = 0
    blocks: int = 0
    blocks_held: int = 0

    def add(self, needs: Needs, names: frozenset[str], lines: frozenset[str]) -> None:
        """One step, and what was sent for it."""
        self.names += len(needs.names)
        self.real += len(needs.names & names)
        self.lines += len(needs.lines)
        self.lines_held += len(needs.lines & lines)
        self.blocks += len(needs.blocks)
        self.blocks_held += sum(block <= lines for block in needs.blocks)

    def shares(self) -> dict[str, float]:
        """In per cent; 100 if nothing was needed."""
        pairs = {"real": (self.real, self.names), "edits": (self.blocks_held, self.blocks)}
        pairs["lines"] = (self.lines_held, self.lines)
        return {name: round(100 * held / of, 1) if of else 100.0 for name, (held, of) in pairs.items()}


class History:
    """The content of a conversation so far."""

    def __init__(self) -> None:
        self._told_names, self._told_lines = set[str](), set[str]()
        self._seen_names, self._seen_lines, self._own_lines = set[str](), set[str](), set[str]()
        self._raw_lines = set[str]()

    def add(self, messages: Iterable[Chat]) -> None:
        """The next messages."""
        for message in messages:
            text = text_of(message)
            names, lines = set(_NAME.findall(text)), set(lines_of(message))
            self._raw_lines.update(line.strip() for line in text.split("\n"))
            if message["role"] == "tool":
                self._seen_names |= names
                self._seen_lines |= lines
            elif message["role"] == "assistant":
                self._own_lines |= lines
            else:
                self._told_names |= names
                self._told_lines |= lines

    def needs(self, step: Chat) -> Needs:
        """Needs of the assistant's next message."""
        names = (set(_NAME.findall(text_of(step))) - self._told_names) & self._seen_names
        lines = {line for line in lines_of(step) if len(line) >= _LEAST_QUOTED}
        known = self._seen_lines | self._own_lines
        blocks = (frozenset(line for line in block if line in known) for block in _blocks_of(step))
        return Needs(
            frozenset(names),
            frozenset((lines & self._seen_lines) - self._told_lines),
            tuple(block for block in blocks if block),
        )

    def standing(self, sent: Iterable[Chat]) -> tuple[frozenset[str], frozenset[str]]:
        """Names and lines present in what is sent, in lines of the conversation itself."""
        names, lines = set[str](), set[str]()
        held = (self._raw_lines, self._seen_lines, self._own_lines)
        for message in sent:
            for line in text_of(message).split("\n"):
                if any(line.strip() in those for those in held):
                    names.update(_NAME.findall(line))
            lines |= set(lines_of(message))
        return frozenset(names), frozenset(lines)


def text_of(message: Chat) -> str:
    """Everything in a message that a model reads."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content or []]
    called = [call.get("function") or {} for call in message.get("tool_calls") or []]
    return "\n".join([*parts, *(f"{one.get('name')} {one.get('arguments')}" for one in called)])


def lines_of(message: Chat) -> Iterator[str]:
    """Its lines as in files: without surrounding blanks, and without the line numbers that file readers add."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content or []]
    for text in [*parts, *(value for _, value in _strings(message))]:
        for line in text.split("\n"):
            if len(line.strip()) >= _LEAST_OF_A_BLOCK:
                yield line.strip()
                if numbered := _NUMBER.match(line):
                    yield line[numbered.end() :].strip()


def _blocks_of(step: Chat) -> list[list[str]]:
    found = [value.split("\n") for name, value in _strings(step) if name in _REPLACED]
    return [[line.strip() for line in block if len(line.strip()) >= _LEAST_OF_A_BLOCK] for block in found]


def _strings(message: Chat) -> Iterator[tuple[str, str]]:
    """The texts inside the arguments of its calls, by the name of their member."""
    for call in message.get("tool_calls") or []:
        text = (call.get("function") or {}).get("arguments") or ""
        try:
            pending: list[tuple[str, Any]] = [("", json.loads(text))]
        except ValueError:
            pending = [("", text)]
        while pending:
            name, value = pending.pop()
            if isinstance(value, str):
                yield name, value
            elif isinstance(value, dict):
                pending += value.items()
            elif isinstance(value, list):
                pending += [(name, inner) for inner in value]
