"""The note that stands in the place of messages that are left out: how many, where they are kept, what they were about.

Rule: one note for all that is left out, before the first text that is kept behind it. It grows from cut to cut, is the
same between two cuts, and everything in it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from proxy.core.artifact import ARTIFACT_NAME, Artifact
from proxy.core.compaction.line_pool import LinePool
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import TOOL_ROLES, Address, Content, Message
from proxy.core.conversation.size import NOTHING, Size, size_of
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.writing import Notices
from proxy.core.text import jsontext
from proxy.core.text.identifiers import names_in
from proxy.core.tokens.counters import Counter
from proxy.core.truncation.tool_response import tool_response, with_note

_CARRIERS: Final = (TOOL_ROLES, frozenset({"user"}), frozenset({"assistant"}))
"""Who carries the note: best a tool's result, where a model expects words about results; its own words least."""
_NAMES: Final[WeakKeyDictionary[Message, str]] = WeakKeyDictionary()
"""Remembered as long as the message is; in one text, as each name by itself would take five times as much memory."""
_MAX_ASKED: Final = 8
_ASKED_CHARACTERS: Final = 200
_ARTIFACT: Final = re.compile(f"{ARTIFACT_NAME}|tool_[A-Za-z0-9_-]*$")
"""Whole, or cut off at the end of a quotation."""


@dataclass(frozen=True, slots=True)
class OmissionNote:
    """What is left out of a conversation so far, and the note about it."""

    artifacts: tuple[Artifact, ...] = ()
    """One for each cut; each names the one before, so the last leads to all."""
    messages: int = 0
    chars: int = 0
    pool: LinePool = field(default_factory=LinePool)
    """Lines of what is left out, of which the note tells the most telling ones."""
    asked: tuple[str, ...] = ()
    """How the user's messages that are left out began."""
    note: str = ""
    behind: bool = False
    """Whether the note stands behind the text of the message that carries it, not before it."""
    edit: Edit | None = None
    """Puts the note on that message."""
    size: Size = NOTHING
    """What the note adds to that message."""

    def extended(self, gone: Sequence[TrackedMessage], asked: Sequence[str]) -> OmissionNote:
        """The note after one more cut. `asked` is what people said in what is gone."""
        earlier = self.artifacts[-1].id if self.artifacts else None
        # One message a line: what searches a file by lines finds a message, and not all of them.
        messages = b"[\n" + b",\n".join(jsontext.embedded(entry.original.unmarked()) for entry in gone) + b"\n]"
        content = jsontext.join_object({"earlier": jsontext.dump(earlier), "messages": messages})
        return OmissionNote(
            artifacts=(*self.artifacts, Artifact(content, suffix="json")),
            messages=self.messages + len(gone),
            chars=self.chars + sum(entry.whole_size.chars for entry in gone),
            pool=self.pool.extended(gone),
            asked=(*self.asked, *map(_quoted, asked))[-_MAX_ASKED:],
        )

    def placed(
        self,
        kept: Sequence[TrackedMessage | None],
        notices: Notices,
        counter: Counter,
        room_tokens: int,
        newest_index: int,
        *,
        brief: bool = False,
    ) -> OmissionNote:
        """The note on the message that carries it, of about `room_tokens`. `brief`: with neither lines
        nor quotations.

        It stands before the text of that message; behind it in the newest exchange (from `newest_index` on), where the
        model looks for the answer to its call first.
        """
        carrier = _carrier(kept)
        if carrier is None or not self.artifacts:
            return self.untold()
        artifact, asked = self.artifacts[-1], () if brief else self.asked
        note = notices.omission_note(artifact, self.messages, self.chars, (), asked)
        left = room_tokens - counter.count(note)
        if left > 0 and not brief:
            standing = [entry for entry in kept if entry is not None]
            known = {name for entry in standing for name in _names_of(entry.message)}
            told = self.pool.told(standing, known, left, counter)
            note = notices.omission_note(artifact, self.messages, self.chars, told, asked)
        return replace(self, note=note, behind=carrier.index >= newest_index).carried_by(carrier, counter)

    def carried_by(self, carrier: TrackedMessage, counter: Counter) -> OmissionNote:
        """The note on a message, as that would be sent now."""
        at, before, after = self._onto_content(carrier.message)
        after_chars = len(after) if isinstance(after, str) else len(self.note)
        edit = Edit(
            carrier.index,
            at,
            after,
            Reason.OMISSION_NOTE,
            self.artifacts[-1],
            carrier.tool,
            len(before),
            after_chars,
        )
        noted = replace(self, edit=edit)
        return replace(noted, size=size_of(noted.onto(carrier.message), counter) - carrier.size)

    def _onto_content(self, message: Message) -> tuple[Address, str, Content]:
        """Where in a message the note goes, the text that stands there, and that text with the note; or all parts,
        where there is no text and the note has a part of its own."""
        found = next(message.texts(), None)
        if found is None:
            at, content = message.with_note(self.note, after=self.behind)
            return at, "", content
        at, text = found
        response = tool_response(text)
        if response is not None:
            return at, text, with_note(response, self.note)
        return at, text, f"{text}\n{self.note}" if self.behind and text else self.note + text

    def untold(self) -> OmissionNote:
        """What is left out, without a word about it."""
        return replace(self, note="", edit=None, size=NOTHING)

    def onto(self, message: Message) -> Message:
        """The carrying message with the note."""
        assert self.edit is not None, "a note that was placed"
        return message.changed({self.edit.at: self.edit.becomes})


def _quoted(text: str) -> str:
    """How a text began, in one line. It names no artifact: one that only a message names that is left out is kept with
    that message."""
    return _ARTIFACT.sub("…", " ".join(text.split())[:_ASKED_CHARACTERS]).rstrip()


def _carrier(kept: Sequence[TrackedMessage | None]) -> TrackedMessage | None:
    """The first message after what is left out that can carry a note: best one that has a text."""
    first_gap = next((index for index, entry in enumerate(kept) if entry is None), len(kept))
    after = [entry for entry in kept[first_gap:] if entry is not None]
    before = [entry for entry in reversed(kept[:first_gap]) if entry is not None]
    for can_carry in (_has_text, _can_carry):
        for roles in _CARRIERS:
            for entry in (*after, *before):
                if entry.message.role in roles and can_carry(entry.message):
                    return entry
    return None


def _has_text(message: Message) -> bool:
    return any(text for _, text in message.texts())


def _can_carry(message: Message) -> bool:
    return message.can_carry_a_note


def _names_of(message: Message) -> tuple[str, ...]:
    """A cut asks for the names of all that is kept; most of it was there at the last cut, too."""
    names = _NAMES.get(message)
    if names is None:
        names = _NAMES[message] = " ".join(names_in(message.text()))
    return tuple(names.split())
