"""Local steps for limits of one message that an upstream has stated: how long a text or the arguments of a call may be,
and how many parts there may be.

Rule: arguments are cut inside the strings of their JSON, so that they stay valid; the whole is kept in an artifact that
the notice names. A text within the limit is never touched, nor is system text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, structs

from proxy.core.artifact import Artifact
from proxy.core.conversation import SYSTEM_ROLES, Argument, Carried, Edit, Item, Message, Parts, Reason, Spot, Words
from proxy.core.notices import Notices
from proxy.core.text import ExcerptLimits, excerpt, jsontext, utf8_length
from proxy.core.truncation.tool_output import limit_of_a_string, room_in, shortened_result

_LONG_CHARACTERS: Final = 200
"""Shorter strings are paths, patterns, names."""
_MAX_DEPTH: Final = 16
"""Deeper values stay as they are: the arguments of tools have a few levels at the most."""
_SHARES: Final = (1.0, 0.93, 0.8, 0.5, 0.2)
"""Of the limit, tried in turn: how long arguments get is known only after they are written as JSON again."""
_NO_OTHER_LIMIT: Final = 2**31


class CutStrings(Struct, frozen=True):
    """Cuts each text that is over a limit to it."""

    max_chars: int
    """In units of UTF-16, as servers in Java and JavaScript count; of code points there are never more."""

    def __call__(self, index: int, message: Message, tool: str, notices: Notices) -> Iterator[Edit]:
        """One edit for each text."""
        if len(message.raw) <= self.max_chars or message.role in SYSTEM_ROLES:
            return
        limit = limit_of_a_string(self.max_chars)
        for at, text in message.texts():
            if (units := _units(text)) > self.max_chars:
                most = room_in(self.max_chars) * len(text) // units
                limits = ExcerptLimits(_NO_OTHER_LIMIT, _NO_OTHER_LIMIT, max_chars=most, head_share=0.5)
                edit = shortened_result(Spot(index, at, text, tool), limits, notices, Reason.LONG_STRING)
                if edit is not None:
                    yield structs.replace(edit, limit=limit)
        for argument in message.arguments():
            if _units(argument.text) > self.max_chars and (found := self._shorter(index, argument, notices)):
                yield structs.replace(found, limit=limit)

    def _shorter(self, index: int, argument: Argument, notices: Notices) -> Edit | None:
        most_bytes = self.max_chars * utf8_length(argument.text) // _units(argument.text)
        for share in _SHARES:
            edit = shortened_arguments(index, argument, int(most_bytes * share), notices, Reason.LONG_STRING)
            if edit is not None and isinstance(edit.becomes, str) and _units(edit.becomes) <= self.max_chars:
                return edit
        return None


class JoinTexts(Struct, frozen=True):
    """Joins the texts that stand side by side in a message with too many parts."""

    max_parts: int

    def __call__(self, index: int, message: Message, tool: str, _: Notices) -> Iterator[Edit]:
        """One edit, if a message has more parts."""
        found = message.parts()
        if found is None or len(found[1]) <= self.max_parts:
            return
        items: list[Item] = []
        for part in found[1]:
            if part.text is None:
                items.append(Carried(part.raw))
            elif items and isinstance(before := items[-1], Words):  # the last one may have the cache mark
                items[-1] = Words(f"{before.text}\n{part.text}", part.raw)
            else:
                items.append(Words(part.text, part.raw))
        limit = f"parts={self.max_parts}"
        yield Edit(index, found[0], Parts(tuple(items)), Reason.LONG_STRING, tool=tool, limit=limit)


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def shortened_arguments(
    index: int, argument: Argument, max_bytes: int, notices: Notices, reason: Reason
) -> Edit | None:
    """An edit that shortens the arguments to about `max_bytes`; None if that would save nothing."""
    text = argument.text
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), "arguments", "json")
    note = notices.arguments(artifact)
    opened = jsontext.opened(text.encode("utf-8", "surrogatepass"))
    share = max(0.0, (max_bytes - utf8_length(note)) / max(1, utf8_length(text)))
    if isinstance(opened, dict | list):
        shortened = jsontext.dump(_cut(opened, share, note, 0)).decode("utf-8", "surrogatepass")
    else:
        shortened = _cut_text(text, share, note)
    if utf8_length(shortened) >= utf8_length(text):
        return None
    return Spot(index, argument.at, text).edited(shortened, reason, artifact)


def _cut(value: Any, share: float, note: str, depth: int) -> Any:
    """The value with `share` of each of its long strings."""
    if isinstance(value, str):
        return _cut_text(value, share, note) if len(value) > _LONG_CHARACTERS else value
    if depth < _MAX_DEPTH and isinstance(value, dict):
        return {name: _cut(inner, share, note, depth + 1) for name, inner in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list):
        return [_cut(inner, share, note, depth + 1) for inner in value]
    return value


def _cut_text(text: str, share: float, note: str) -> str:
    kept = excerpt(text, ExcerptLimits(len(text), int(utf8_length(text) * share), head_share=0.5))
    return f"{kept.head}{note}{kept.tail}"
