"""Shortens the arguments of a call that must stay and does not fit: long strings are cut, and the arguments stay JSON.

Rule: the names and all short values stay, so that the model sees what it called, and upstreams that parse the arguments
still can.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.artifact import Artifact
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import Argument
from proxy.core.notices.writing import Notices
from proxy.core.text import jsontext
from proxy.core.text.excerpt import ExcerptLimits, excerpt
from proxy.core.text.lines import utf8_length

_LONG_CHARACTERS: Final = 200
"""Shorter strings are paths, patterns, names."""
_MAX_DEPTH: Final = 16
"""Deeper values stay as they are: the arguments of tools have a few levels at the most."""


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
    return Edit(index, argument.at, shortened, reason, artifact, "", len(text), len(shortened))


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
