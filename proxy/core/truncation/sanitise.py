"""Replaces characters that an upstream cannot process, for models whose settings say so.

Rule: a local step. Each replaced character becomes the replacement character, and a note in the content states their
number. The note is not added to an assistant's own words, which the model would imitate, nor to its calls, whose
arguments are JSON, nor to a system text, which is the operator's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import SYSTEM_ROLES, Address, Message
from proxy.core.notices.writing import Notices
from proxy.core.truncation.tool_response import tool_response, with_note

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
            if number == len(cleaned) and message.role not in _UNNOTED_ROLES:
                yield _edit(index, at, text, _noted(clean, notices.replaced(total)), tool)
            else:
                yield _edit(index, at, text, clean, tool)
        for at, text in _other_texts(message):
            clean = refused.sub(REPLACEMENT, text)
            if clean != text:
                yield _edit(index, at, text, clean, tool)

    def clean(self, text: str) -> str:
        """The text without such characters, for words of our own that quote others."""
        return _refused(self.kinds).sub(REPLACEMENT, text) if self.kinds else text


@functools.cache
def _refused(kinds: frozenset[Sanitise]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(_CLASSES[kind] for kind in sorted(kinds))}]")


def _edit(index: int, at: Address, text: str, clean: str, tool: str) -> Edit:
    return Edit(index, at, clean, Reason.SANITISE, None, tool, len(text), len(clean))


def _noted(text: str, note: str) -> str:
    """The text followed by a note on a line of its own; a result of the common shape has the note in its `text`."""
    response = tool_response(text)
    if response is not None:
        return with_note(response, note)
    return text + note if text.endswith("\n") else f"{text}\n{note}"


def _other_texts(message: Message) -> Iterator[tuple[Address, str]]:
    """The texts of an assistant besides its content: reasoning, and the arguments of its calls."""
    if message.role != "assistant":
        return
    yield from message.thoughts()
    for argument in message.arguments():
        yield argument.at, argument.text
