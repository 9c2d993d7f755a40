"""The note that stands in the place of messages that are left out: how many, where they are kept, what they were about.

Rule: one note for all that is left out, before the first text that is kept behind it. It grows from cut to cut, is the
same between two cuts, and everything in it is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from proxy.core import jsontext
from proxy.core.conversation import TOOL_ROLES, Message
from proxy.core.edits import Artifact, Edit, Reason, spliced
from proxy.core.entry import Entry, content_texts
from proxy.core.estimate import Counter
from proxy.core.names import most_telling, names_in
from proxy.core.notices import Notices
from proxy.core.sizes import NOTHING, Size, size_of
from proxy.core.tool_response import tool_response, with_note

_CARRIERS: Final = (TOOL_ROLES, frozenset({"user"}), frozenset({"assistant"}))
"""Who carries the note: best a tool's result, where a model expects words about results; its own words least."""
_NAMES: Final[WeakKeyDictionary[Message, tuple[str, ...]]] = WeakKeyDictionary()
"""Remembered as long as the message is."""
_MAX_POOL: Final = 4_000
"""Names that are remembered of what is left out: many times what a note has room for."""
_MAX_ASKED: Final = 8
_ASKED_CHARACTERS: Final = 200
_BYTES_PER_TOKEN: Final = 2.5
"""Of lists of names, at the least: they are denser than prose."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What is left out of a conversation so far, and the note about it."""

    artifacts: tuple[Artifact, ...] = ()
    """One for each cut; each names the one before, so the last leads to all."""
    messages: int = 0
    chars: int = 0
    pool: Mapping[str, int] = field(default_factory=dict)
    """Names in what is left out, with the number of messages that hold them; the most telling ones first."""
    asked: tuple[str, ...] = ()
    """How the user's messages that are left out began."""
    note: str = ""
    behind: bool = False
    """Whether the note stands behind the text of the message that carries it, not before it."""
    edit: Edit | None = None
    """Puts the note on that message."""
    size: Size = NOTHING
    """What the note adds to that message."""

    def extended(self, gone: Sequence[Entry], used: Collection[str]) -> Digest:
        """The digest after one more cut. `used` are the names that the assistant has used itself."""
        earlier = self.artifacts[-1].id if self.artifacts else None
        # One message a line: what searches a file by lines finds a message, and not all of them.
        messages = b"[\n" + b",\n".join(entry.original.raw for entry in gone) + b"\n]"
        content = jsontext.join_object({"earlier": jsontext.dump(earlier), "messages": messages})
        pool = dict(self.pool)
        for entry in gone:
            for name in _names_of(entry.whole):
                pool[name] = pool.get(name, 0) + 1
        # Sorting is stable, so this is by use and then by spread; sorting by pairs takes five times as long.
        spread_first = sorted(pool, key=pool.__getitem__, reverse=True)
        ranked = sorted(spread_first, key=lambda name: name not in used)[:_MAX_POOL]
        asked = [
            " ".join(text.split())[:_ASKED_CHARACTERS]
            for entry in gone
            if entry.original.role == "user"
            for _, text in content_texts(entry.whole)
        ]
        return Digest(
            artifacts=(*self.artifacts, Artifact(content, suffix="json")),
            messages=self.messages + len(gone),
            chars=self.chars + sum(entry.whole_size.chars for entry in gone),
            pool={name: pool[name] for name in ranked},
            asked=(*self.asked, *asked)[-_MAX_ASKED:],
        )

    def placed(
        self,
        kept: Sequence[Entry | None],
        used: Collection[str],
        notices: Notices,
        counter: Counter,
        room_tokens: int,
        newest_index: int,
    ) -> Digest:
        """The digest with its note on the message that carries it, using about `room_tokens` for names.

        It stands before the text of that message; behind it in the newest exchange (from `newest_index` on), where the
        model looks for the answer to its call first.
        """
        carrier = _carrier(kept)
        if carrier is None or not self.artifacts:
            return self.untold()
        known = {name for entry in kept if entry is not None for name in _names_of(entry.message)}
        names = most_telling(self.pool, known, used, int(room_tokens * _BYTES_PER_TOKEN))
        note = notices.digest(self.artifacts[-1], self.messages, self.chars, names, self.asked)
        return replace(self, note=note, behind=carrier.index >= newest_index).carried_by(carrier, counter)

    def carried_by(self, carrier: Entry, counter: Counter) -> Digest:
        """The digest with its note on a message, as that would be sent now."""
        path, text = next(content_texts(carrier.message))
        response = tool_response(text)
        if response is not None:
            noted_text = with_note(response, self.note)
        else:
            noted_text = f"{text}\n{self.note}" if self.behind else self.note + text
        edit = Edit(
            carrier.index,
            path,
            jsontext.dump(noted_text),
            Reason.DIGEST,
            self.artifacts[-1],
            carrier.tool,
            len(text),
            len(noted_text),
        )
        noted = replace(self, edit=edit)
        return replace(noted, size=size_of(Message.read(noted.onto(carrier.message)), counter) - carrier.size)

    def untold(self) -> Digest:
        """The digest without its note: nobody can carry it, or it is what does not fit any more."""
        return replace(self, note="", edit=None, size=NOTHING)

    def onto(self, message: Message) -> bytes:
        """The JSON of the carrying message with the note."""
        assert self.edit is not None, "a digest that was placed"
        return spliced(message.raw, {self.edit.path: self.edit.replacement})


def names_used(entries: Iterable[Entry]) -> set[str]:
    """The names in the assistant's own words and calls: what it has needed once it tends to need again."""
    return {name for entry in entries if entry.original.role == "assistant" for name in _names_of(entry.whole)}


def _carrier(kept: Sequence[Entry | None]) -> Entry | None:
    """The first message behind what is left out that can carry a note."""
    first_gap = next((index for index, entry in enumerate(kept) if entry is None), len(kept))
    behind = [entry for entry in kept[first_gap:] if entry is not None]
    before = [entry for entry in reversed(kept[:first_gap]) if entry is not None]
    for roles in _CARRIERS:
        for entry in (*behind, *before):
            if entry.message.role in roles and next(content_texts(entry.message), None) is not None:
                return entry
    return None


def _names_of(message: Message) -> tuple[str, ...]:
    """A cut asks for the names of all that is kept; most of it was there at the last cut, too."""
    names = _NAMES.get(message)
    if names is None:
        names = _NAMES[message] = names_in(message.text())
    return names
