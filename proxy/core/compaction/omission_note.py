"""The note in place of messages that are left out: how many, where they are kept, what they were about.

Rule: one note for all messages that are left out, before the first kept text after them. It grows from cut to cut, is
the same between two cuts, and everything in it is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.core.artifact import Artifact
from proxy.core.compaction.line_pool import LinePool
from proxy.core.compaction.thread import Thread, extended, fitting
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
"""Which message carries the note, unless the task does: preferably a tool result, where a model expects text about
results; an assistant message last."""
_NAMES: Final[WeakKeyDictionary[Message, str]] = WeakKeyDictionary()
"""Remembered as long as the message exists; joined into one text, because separate names would take five times as much
memory."""


class NoteRoom(NamedTuple):
    """How many tokens the parts of a note may take."""

    lines: int = 0
    """Lines of what is left out, with the note's own words."""
    asked: int = 0
    """What users said."""
    steps: int = 0
    """What was done, and as much again for what the model said."""


class OmissionNote(Struct, frozen=True):
    """What is left out of a conversation so far, and the note about it."""

    artifacts: tuple[Artifact, ...] = ()
    """One for each cut; each names the previous one, so the last leads to all."""
    messages: int = 0
    chars: int = 0
    pool: LinePool = field(default_factory=LinePool)
    """Lines of what is left out; the note quotes the most informative ones."""
    thread: Thread = ()
    """What was asked, done and said."""
    note: str = ""
    behind: bool = False
    """Whether the note comes after the text of the message that carries it, not before it."""
    edit: Edit | None = None
    """Puts the note on that message."""
    size: Size = NOTHING
    """What the note adds to that message."""

    def extended(self, gone: Sequence[TrackedMessage], asked: Sequence[str]) -> OmissionNote:
        """The note after one more cut. `asked`: what people said in the messages that are gone."""
        earlier = self.artifacts[-1].id if self.artifacts else None
        # One message per line: a search by lines finds one message, not all of them.
        messages = b"[\n" + b",\n".join(jsontext.embedded(entry.original.unmarked()) for entry in gone) + b"\n]"
        content = jsontext.join_object({"earlier": jsontext.dump(earlier), "messages": messages})
        return OmissionNote(
            artifacts=(*self.artifacts, Artifact(content, suffix="json")),
            messages=self.messages + len(gone),
            chars=self.chars + sum(entry.whole_size.chars for entry in gone),
            pool=self.pool.extended(gone),
            thread=extended(self.thread, gone, asked),
        )

    def placed(
        self,
        kept: Sequence[TrackedMessage | None],
        notices: Notices,
        counter: Counter,
        room: NoteRoom,
        newest_index: int,
    ) -> OmissionNote:
        """The note on the message that carries it; without room, only how much is left out and where it is kept.

        It comes before the text of that message, but after it in the newest exchange (from `newest_index` on), where
        the model first looks for the result of its call, and after what a user said, if it is a part of its own.
        """
        carrier = _carrier(kept)
        if carrier is None or not self.artifacts:
            return self.untold()
        artifact, lines = self.artifacts[-1], list[tuple[str, list[str]]]()
        left = room.lines - counter.count(notices.omission_note(artifact, self.messages, self.chars))
        if left > 0:
            standing = [entry for entry in kept if entry is not None]
            known = {name for entry in standing for name in _names_of(entry.message)}
            lines = self.pool.told(standing, known, left, counter)
        thread = fitting(self.thread, room.asked, room.steps, counter)
        note = notices.omission_note(artifact, self.messages, self.chars, thread, lines)
        return replace(self, note=note, behind=carrier.index >= newest_index).carried_by(carrier, counter)

    def carried_by(self, carrier: TrackedMessage, counter: Counter) -> OmissionNote:
        """The note on a message in its current form."""
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
        """Where in a message the note goes, the text there, and that text with the note; or all parts, if there is no
        text and the note has a part of its own."""
        apart = message.takes_notes_apart and message.role != "assistant"
        found = None if apart else next(message.texts(), None)
        if found is None:
            at, content = message.with_note(self.note, after=self.behind or apart)
            return at, "", content
        at, text = found
        response = tool_response(text)
        if response is not None:
            return at, text, with_note(response, self.note)
        return at, text, f"{text}\n{self.note}" if self.behind and text else self.note + text

    def untold(self) -> OmissionNote:
        """What is left out, without the note about it."""
        return replace(self, note="", edit=None, size=NOTHING)

    def onto(self, message: Message) -> Message:
        """The carrying message with the note."""
        assert self.edit is not None, "a note that was placed"
        return message.changed({self.edit.at: self.edit.becomes})


def _carrier(kept: Sequence[TrackedMessage | None]) -> TrackedMessage | None:
    """The last message before the gap, if notes are parts of their own, so that everything before them stays in the
    prompt cache; otherwise the first message after the gap that can carry a note, preferably one that has a text."""
    first_gap = next((index for index, entry in enumerate(kept) if entry is None), len(kept))
    after = [entry for entry in kept[first_gap:] if entry is not None]
    before = [entry for entry in reversed(kept[:first_gap]) if entry is not None]
    for entry in before:
        if entry.message.takes_notes_apart and entry.message.can_carry_a_note:
            return entry
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
    """The names in a message. A cut asks for those of all kept messages; most were already kept at the last cut."""
    names = _NAMES.get(message)
    if names is None:
        names = _NAMES[message] = " ".join(names_in(message.text()))
    return tuple(names.split())
