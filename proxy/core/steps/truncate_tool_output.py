"""Long tool results become excerpts; the whole goes to the store.

Rule: a local step. The excerpt depends on the result, on its call and on settings, never on what follows, so the same
result is the same text in every later turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.core import jsontext
from proxy.core.conversation import TOOL_ROLES, Message
from proxy.core.edits import Artifact, Edit, Path, Reason
from proxy.core.excerpt import Excerpt, Limits, excerpt
from proxy.core.measures import utf8_length
from proxy.core.names import most_telling, names_in
from proxy.core.notices import Notices, is_ours
from proxy.core.pages import is_page
from proxy.core.steps.shorten_response import asks_to_stay, can_be_shortened, shortened_response
from proxy.core.tool_response import tool_response

NAMES_SHARE: Final = 0.15
"""Of an excerpt's room, for the names that stand only in what is left out: measured, see docs/decisions/."""
NOTICE_BYTES: Final = 700
"""Set aside for the words of a notice."""
_OURS_AT_MOST: Final = 4
"""Times the limit: what carries a notice of ours is an excerpt, perhaps with the note of what is left out. A longer
text quotes one, such as the log of an agent, and is cut like any other."""


@dataclass(frozen=True, slots=True)
class TruncateToolOutput:
    """The limits for every tool, for some tools, and the tools that are left alone."""

    limits: Limits
    tools: Mapping[str, Limits] = field(default_factory=dict)
    """By tool name, in place of `limits`."""
    never: frozenset[str] = frozenset()
    preview_chars: int | None = None
    """Length of what is shown of a result that is cut; None: as much as its limits allow."""

    def __call__(self, index: int, message: Message, tool: str, notices: Notices) -> Iterator[Edit]:
        """The edits for one message; `tool` is the name of the tool that it answers for."""
        if message.role not in TOOL_ROLES or tool in self.never:
            return
        limits = self.limits_of(tool)
        if _surely_admitted(message.raw, limits) or is_page(message, tool):
            return
        content = message.content()
        if isinstance(content, str):
            yield from self._text_edits(index, ("content",), content, tool, limits, notices)
        elif isinstance(content, list):
            for position, part in enumerate(content):
                if isinstance(part, dict) and isinstance(text := part.get("text"), str):
                    yield from self._text_edits(index, ("content", position, "text"), text, tool, limits, notices)

    def limits_of(self, tool: str) -> Limits:
        """The limits for one tool."""
        return self.tools.get(tool, self.limits)

    def _text_edits(
        self, index: int, path: Path, text: str, tool: str, limits: Limits, notices: Notices
    ) -> Iterator[Edit]:
        if limits.admit(text) or (is_ours(text) and utf8_length(text) <= _OURS_AT_MOST * limits.max_bytes):
            return
        response = tool_response(text)
        if response is not None and asks_to_stay(response):
            return
        if response is not None and can_be_shortened(response, limits):
            edit = shortened_response(index, path, text, response, tool, limits, self.preview_chars, notices)
        else:
            reason = Reason.TRUNCATE_TOOL_OUTPUT
            edit = shortened_text(index, path, text, tool, limits, notices, reason, self.preview_chars)
        if edit is not None:
            yield edit


def shortened_text(
    index: int,
    path: Path,
    text: str,
    tool: str,
    limits: Limits,
    notices: Notices,
    reason: Reason,
    preview_chars: int | None = None,
) -> Edit | None:
    """An excerpt with a notice in the place of a text; None when that would save nothing."""
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), tool, _suffix(text))
    shown, names = _shown(text, limits, preview_chars)
    excerpted = notices.truncated(shown, artifact, names)
    if utf8_length(excerpted) >= utf8_length(text):
        return None
    return Edit(index, path, jsontext.dump(excerpted), reason, artifact, tool, len(text), len(excerpted))


def _shown(text: str, limits: Limits, preview_chars: int | None) -> tuple[Excerpt, Sequence[str]]:
    """The excerpt, and the names that only the rest holds, within the limits together with the notice."""
    smallest = limits.max_bytes if limits.max_chars is None else min(limits.max_bytes, limits.max_chars)
    for_names = int(min(smallest, preview_chars or smallest) * NAMES_SHARE)
    around = for_names + NOTICE_BYTES
    max_chars = None if limits.max_chars is None else max(0, limits.max_chars - around)
    lines, size = max(0, limits.max_lines - 2), max(0, limits.max_bytes - around)
    room = replace(limits, max_lines=lines, max_bytes=size, max_chars=max_chars)
    shown = excerpt(text, room.previewed(preview_chars))
    known = {*names_in(shown.head), *names_in(shown.tail), *(name for line in shown.rescued for name in names_in(line))}
    return shown, most_telling(dict.fromkeys(names_in(shown.gap), 1), known, (), for_names)


def _surely_admitted(raw: bytes, limits: Limits) -> bool:
    """Whether the bytes of a message alone prove that its text is within the limits: JSON is never shorter than text,
    and an escaped line feed takes two bytes or six."""
    smallest = min(limits.max_bytes, limits.max_chars if limits.max_chars is not None else limits.max_bytes)
    line_feeds = raw.count(b"\\n") + raw.count(b"\\u000")
    return len(raw) <= smallest and (len(raw) < limits.max_lines or line_feeds < limits.max_lines)


def _suffix(text: str) -> str:
    """`json` for what looks like it, so that viewers open it right; else `txt`."""
    return "json" if text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]") else "txt"
