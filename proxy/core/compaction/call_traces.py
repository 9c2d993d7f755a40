"""What the tool calls of a message say about files: the path, the text written and the text replaced.

Rule: recognised by the argument names that agents' tools share. For a call that has none of them, the first argument,
mostly a command, takes the place of the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from proxy.core.conversation.message import Message
from proxy.core.text import jsontext

_PATHS: Final = (
    "file_path",
    "path",
    "filename",
    "file",
    "filepath",
    "notebook_path",
    "target_file",
    "absolute_path",
)
_REPLACED: Final = frozenset({"old_string", "old_str", "oldText", "old_text", "old", "search"})
"""Arguments of the edit tools of Claude Code, OpenHands, SWE-agent, Kimi and Aider that hold the old text."""
_WRITTEN: Final = frozenset({"new_string", "new_str", "newText", "new_text", "new", "replace"})
"""Arguments of the same tools that hold the new text."""
_WHOLE: Final = frozenset({"content", "file_text", "contents"})
"""Beside a path: the whole new content of the file."""
_PATCHED: Final = re.compile(r"^(?:\*\*\* (?:Add|Update) File: |\+\+\+ (?:b/)?)(\S.*)$")
"""The envelope of Codex's apply_patch, and the header of a unified diff."""
_PATCH_FRAME: Final = ("*** ", "--- ", "@@", "diff ")
_MAX_SOURCE_CHARACTERS: Final = 120
_MIN_WRITTEN_CHARACTERS: Final = 40
"""A shorter argument of one line is a switch, a pattern or a path."""


class Trace(NamedTuple):
    """What one call did to one file."""

    call_id: str
    source: str
    """The path, or the beginning of the command."""
    written: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    is_whole: bool = False
    """Whether the text written is the whole content of the file."""


def traces_of(message: Message) -> Iterator[Trace]:
    """One trace for each call, or one for each file of a patch."""
    for _, call_id, text in message.arguments():
        arguments = jsontext.opened(text.encode("utf-8", "surrogatepass"))
        found = list(_strings("", arguments)) if isinstance(arguments, dict) else [("", text)]
        named = arguments if isinstance(arguments, dict) else {}
        paths = (named.get(name) for name in _PATHS)
        known_path = next((found for found in paths if isinstance(found, str) and found), None)
        source = _heading(known_path or (found[0][1] if found else ""))
        patched = [trace for _, value in found for trace in _of_patch(call_id, value)]
        if patched:
            yield from patched
            continue
        yield Trace(
            call_id,
            source,
            tuple(value for name, value in found if _is_written(name, value)),
            tuple(value for name, value in found if name in _REPLACED),
            known_path is not None and any(isinstance(named.get(name), str) for name in _WHOLE),
        )


def _strings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """All strings inside arguments, each with the name of the member that holds it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for inner_name, inner in value.items():
            yield from _strings(inner_name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(name, inner)


def _is_written(name: str, value: str) -> bool:
    if name in _WRITTEN or name in _WHOLE:
        return True
    return name not in _REPLACED and ("\n" in value or len(value) >= _MIN_WRITTEN_CHARACTERS)


def _heading(text: str) -> str:
    return " ".join(text[: 2 * _MAX_SOURCE_CHARACTERS].split())[:_MAX_SOURCE_CHARACTERS]


def _of_patch(call_id: str, text: str) -> Iterator[Trace]:
    """One trace for each file that a patch changes."""
    source, written, replaced = None, list[str](), list[str]()
    for line in text.split("\n") if "+++ " in text or "*** " in text else ():
        header = _PATCHED.match(line)
        if header is not None:
            if source is not None:
                yield Trace(call_id, source, ("\n".join(written),), ("\n".join(replaced),))
            source, written, replaced = _heading(header[1]), [], []
        elif source is not None and not line.startswith(_PATCH_FRAME):
            if line[:1] in ("+", " "):
                written.append(line[1:])
            elif line[:1] == "-":
                replaced.append(line[1:])
    if source is not None:
        yield Trace(call_id, source, ("\n".join(written),), ("\n".join(replaced),))
