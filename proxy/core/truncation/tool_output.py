"""The local steps for one tool result, of which the first makes an excerpt of a long one. The whole is stored. The
other replaces characters that an upstream cannot process, for models whose settings say so.

Rule: local steps. What they put in depends on the message, its call and the settings, never on later messages, so the
same result is the same text in every later turn.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, field, structs

from proxy.core.artifact import Artifact
from proxy.core.conversation import SYSTEM_ROLES, TOOL_ROLES, Address, Edit, Message, Reason, Resolved, Spot
from proxy.core.notices import (
    LABEL_REACH,
    NAMES_WORDS_BYTES,
    QUOTED,
    Language,
    Notices,
    PageSize,
    as_text,
    imitates,
    is_split,
    may_imitate,
    quoted,
)
from proxy.core.retrieval_tool import is_page
from proxy.core.text import Excerpt, ExcerptLimits, count_lines, excerpt, most_telling, names_in, utf8_length
from proxy.core.truncation.response import (
    asks_to_stay,
    has_its_bulk_in_shape,
    json_object,
    shortened_response,
    tool_response,
    with_note,
)

REPLACEMENT: Final = "\ufffd"


class Sanitise(StrEnum):
    """Kinds of characters that some upstreams refuse."""

    NON_BMP = "non_bmp"
    """Beyond the Basic Multilingual Plane: refused by relays with three-byte UTF-8 databases."""
    SURROGATES = "surrogates"
    """Halves of a pair, left by broken truncation; they have no UTF-8."""
    CONTROL = "control"
    """Control characters except tab, line feed and carriage return."""


_CLASSES: Final = {
    Sanitise.NON_BMP: "\U00010000-\U0010ffff",
    Sanitise.SURROGATES: "\ud800-\udfff",
    Sanitise.CONTROL: "\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f",
}


_UNNOTED_ROLES: Final = frozenset({"assistant", *SYSTEM_ROLES})


class SanitiseText(Struct, frozen=True):
    """Replaces the kinds that are set, in the texts of every message."""

    kinds: frozenset[Sanitise]

    def __call__(self, index: int, message: Message, tool: str, notices: Notices) -> Iterator[Edit]:
        """One edit for each text with such characters; the content's last edit has the note about all of them."""
        if not self.kinds:
            return
        refused = _refused(self.kinds)
        cleaned = [(at, text, *refused.subn(REPLACEMENT, text)) for at, text in message.texts()]
        cleaned = [found for found in cleaned if found[3]]
        total = sum(count for *_, count in cleaned)
        for number, (at, text, clean, _) in enumerate(cleaned, 1):
            is_last = number == len(cleaned) and message.role not in _UNNOTED_ROLES
            shown = _noted(clean, notices.replaced(total), message.role, notices.language) if is_last else clean
            yield Spot(index, at, text, tool).edited(shown, Reason.SANITISE)
        for at, text in _other_texts(message):
            clean = refused.sub(REPLACEMENT, text)
            if clean != text:
                yield Spot(index, at, text, tool).edited(clean, Reason.SANITISE)

    def clean(self, text: str) -> str:
        """The text without such characters, for words of our own that quote others."""
        return _refused(self.kinds).sub(REPLACEMENT, text) if self.kinds else text


@functools.cache
def _refused(kinds: frozenset[Sanitise]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(_CLASSES[kind] for kind in sorted(kinds))}]")


def _noted(text: str, note: str, role: str, language: Language) -> str:
    """The text followed by a note on a line of its own; a result of the common shape has the note in its `text`."""
    response = tool_response(text)
    if response is not None:
        return with_note(response, note)
    noted = text + note if text.endswith("\n") else f"{text}\n{note}"
    return as_text(noted, language) if role in TOOL_ROLES else noted


def _other_texts(message: Message) -> Iterator[tuple[Address, str]]:
    """The texts of an assistant besides its content: reasoning, and the arguments of its calls."""
    if message.role != "assistant":
        return
    yield from message.thoughts()
    for argument in message.arguments():
        yield argument.at, argument.text


NAMES_SHARE: Final = 0.05
"""At most, of an excerpt's room, for the names that occur only in the omitted part."""
_NOTE_CHARS: Final = 16_384
"""Of an omission note, at most."""
NOTICE_SHARE: Final = 0.085
"""Share of an excerpt's room, for its notice and those names; if a full notice takes more, a brief one replaces it."""
LEAST_SYSTEM_BYTES: Final = 1_024
"""Shortest system message that is cut like a result: a shorter one is a reminder, not output, and stays as it is while
its exchange stays."""


class TruncateToolOutput(Struct, frozen=True):
    """The limits for every tool, for some tools, and the tools that are left alone."""

    limits: ExcerptLimits
    tools: Mapping[str, ExcerptLimits] = field(default_factory=dict)
    """Limits by tool name, instead of `limits`."""
    never: frozenset[str] = frozenset()
    preview_chars: int | None = None
    """Length of the preview of a result that is cut; None: as much as its limits allow."""
    bound_by: str = "settings"
    """Source of the byte limit: `settings`, or `window` for its share of the window."""
    resolved: Resolved = field(default_factory=dict)
    """Artifacts that exist, by the names in pages' headers: these headers are ours."""
    may_cut: bool = True
    """Whether results are cut; if not, imitations of notices are marked all the same."""
    longest: int | None = None
    """Characters of the longest text that the upstream takes."""

    def __call__(self, index: int, message: Message, tool: str, notices: Notices) -> Iterator[Edit]:
        """The edits for one message; `tool` is the name of the tool that was called."""
        is_system = message.role in SYSTEM_ROLES
        if not (message.role in TOOL_ROLES or (is_system and tool == message.role)):
            return
        limits, may_cut = self.limits_of(tool), self.may_cut and tool not in self.never
        is_short = not may_cut or _surely_admitted(message.raw, limits)
        if (is_short and not may_imitate(message.raw)) or (notices.way.tool and is_page(message, tool)):
            return
        before = ""
        for at, text in message.texts():
            spot = Spot(index, at, text, tool)
            stays = not may_cut or (is_system and utf8_length(text) < LEAST_SYSTEM_BYTES) or limits.admit(text)
            edit = None if stays else self._cut(spot, limits, notices)
            shown = quoted(text, self.resolved) if edit is None else str(edit.becomes)
            if is_split(before, text):
                before, shown = "", as_text(f"{QUOTED}] {shown}", notices.language)
            before = (before + text)[-LABEL_REACH:]
            if edit is not None:
                yield structs.replace(edit, becomes=shown, after_chars=len(shown))
            elif shown != text:
                yield spot.edited(shown, Reason.QUOTED_NOTICE)

    def limits_of(self, tool: str) -> ExcerptLimits:
        limits = self.tools.get(tool, self.limits)
        if self.longest is None:
            return limits
        most = room_in(self.longest)
        return structs.replace(limits, max_chars=min(most, limits.max_chars or most))

    def _cut(self, spot: Spot, limits: ExcerptLimits, notices: Notices) -> Edit | None:
        """The excerpt of a long result; None if it has to stay, or would not be shorter."""
        found = json_object(spot.text)
        if found is not None and asks_to_stay(found):
            return None
        if spot.tool in self.tools:
            notices = structs.replace(notices, page=PageSize.within(self.limits, limits))
        edit = shortened_result(spot, limits, notices, Reason.TRUNCATE_TOOL_OUTPUT, self.preview_chars)
        return None if edit is None else structs.replace(edit, limit=self._exceeded(spot.text, spot.tool, limits))

    def _exceeded(self, text: str, tool: str, limits: ExcerptLimits) -> str:
        """The first limit that a text exceeds, as its setting is called."""
        prefix = f"tool_output.tools.{tool}." if tool in self.tools else "tool_output."
        if limits.max_chars is not None and len(text) > limits.max_chars:
            if self.longest is not None and limits.max_chars == room_in(self.longest):
                return limit_of_a_string(self.longest)
            is_of_tool = tool in self.tools and limits.max_chars != self.limits.max_chars
            return f"{f'{prefix}max_chars' if is_of_tool else 'models.max_tool_result_chars'}={limits.max_chars}"
        if count_lines(text) > limits.max_lines:
            is_of_tool = limits.max_lines != self.limits.max_lines
            return f"{prefix if is_of_tool else 'tool_output.'}max_lines={limits.max_lines}"
        if limits.max_bytes != self.limits.max_bytes:
            return f"{prefix}max_bytes={limits.max_bytes}"
        return f"{'window' if self.bound_by == 'window' else 'tool_output.max_bytes'}={limits.max_bytes}"


def room_in(longest: int) -> int:
    """Characters that are left of a text which is cut to a limit: it may have to carry an omission note.

    >>> room_in(8_000), room_in(1_048_576)
    (6000, 1032192)
    """
    return longest - min(longest // 4, _NOTE_CHARS)


def limit_of_a_string(longest: int) -> str:
    """How a limit of one text is called in `Edit.limit`."""
    return f"characters of a string={longest}"


def shortened_result(
    spot: Spot, limits: ExcerptLimits, notices: Notices, reason: Reason, preview_chars: int | None = None
) -> Edit | None:
    """An excerpt with a notice instead of a text, in the common shape of a tool response if the text has it; None if
    that would save nothing."""
    text = spot.text
    response = tool_response(text)
    if response is not None and has_its_bulk_in_shape(response):
        return shortened_response(spot, response, limits, notices, reason, preview_chars)
    is_json = text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")
    suffix = "json" if is_json else "txt"  # for viewers
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), spot.tool, suffix)
    text_bytes = utf8_length(text)
    # A text of many short lines may have fewer bytes than its limit; its replacement is still shorter.
    shortened = _excerpted(
        text, structs.replace(limits, max_bytes=min(limits.max_bytes, text_bytes - 1)), artifact, notices, preview_chars
    )
    return spot.edited(shortened, reason, artifact) if utf8_length(shortened) < text_bytes else None


def _excerpted(
    text: str, limits: ExcerptLimits, artifact: Artifact, notices: Notices, preview_chars: int | None
) -> str:
    """Cut a text to the limits together with the notice, and with names that only the rest contains."""
    smallest = limits.max_bytes if limits.max_chars is None else min(limits.max_bytes, limits.max_chars)
    notice = notices.longest_truncated(text, artifact, brief=False)
    brief = utf8_length(notice) > smallest * NOTICE_SHARE
    if brief:
        notice = notices.longest_truncated(text, artifact, brief=True)
    left = smallest * NOTICE_SHARE - utf8_length(notice)
    names_bytes = max(0, int(min(left, min(smallest, preview_chars or smallest) * NAMES_SHARE)))
    around = names_bytes + 1  # the head gets a line feed if it ends inside a line
    max_chars = None if limits.max_chars is None else max(0, limits.max_chars - len(notice) - around)
    room = structs.replace(
        limits, max_bytes=max(0, limits.max_bytes - utf8_length(notice) - around), max_chars=max_chars
    )
    shown = excerpt(text, room.previewed(preview_chars))
    names = _names_left_out(shown, names_bytes)
    return notices.truncated(shown, artifact, names, brief=brief)


def _names_left_out(shown: Excerpt, max_bytes: int) -> Sequence[str]:
    """The most telling names that occur only in the gap; none of a gap that imitates a notice."""
    max_bytes -= NAMES_WORDS_BYTES
    if max_bytes <= 0 or imitates(shown.gap):
        return ()
    known = {*names_in(shown.head), *names_in(shown.tail), *(name for line in shown.rescued for name in names_in(line))}
    return most_telling(dict.fromkeys(names_in(shown.gap), 1), known, (), max_bytes)


def _surely_admitted(raw: bytes, limits: ExcerptLimits) -> bool:
    """Whether the bytes of a message alone prove that its text is within the limits: JSON is never shorter than its
    text, and an escaped line feed takes two or six bytes."""
    smallest = min(limits.max_bytes, limits.max_chars if limits.max_chars is not None else limits.max_bytes)
    if len(raw) > smallest:
        return False
    most = limits.max_lines
    return (
        len(raw) < 2 * most  # as are nearly all, or they have few backslashes, which are found fastest
        or raw.count(b"\\") < most
        or raw.count(b"\\n") + raw.count(b"\\u000") < most
    )
