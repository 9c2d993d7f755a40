"""Working view of the compaction steps: the part of a conversation that is kept at one point in it.

Rule: messages that belong together stay together (an assistant's calls, their results, and the media of these); the
system text, the first and the last user message and the newest exchange are always kept; every size is measured on the
bytes that would be sent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, structs

from proxy.core.compaction.budget import Budget, Mark
from proxy.core.compaction.note import NoteRoom, OmissionNote
from proxy.core.conversation import (
    SYSTEM_ROLES,
    TOOL_ROLES,
    Change,
    Edit,
    Message,
    MessageReport,
    Moved,
    Reason,
    Size,
    ToolExchange,
    TrackedMessage,
    before_a_user,
    dialogue,
    done_again,
    first_request,
    is_quotable,
    last_request,
    newest_units,
    opening,
    opens_as_output,
    removable,
    separator,
    with_media,
)
from proxy.core.notices import Notices
from proxy.core.retrieval_tool import is_page
from proxy.core.text import utf8_length
from proxy.core.tokens import Counter
from proxy.core.truncation import LEAST_SYSTEM_BYTES

_DIALOGUE_TURNS: Final = 5
"""A turn takes no more than a fifth of the room for dialogue."""
_PATIENCE: Final = 16
"""Desperate cuts in a row before the next one waits for a sixteenth more messages; after twice as many, for two
sixteenths. Without it, 300 results of 400 bytes without a call took 40 s in a window of 8 000."""


class CutPacing(Struct, frozen=True):
    """When a growing conversation may be cut again.

    A cut of messages that must stay reads all of them and frees no room, so that it would be made again with each
    message: after some in a row, the next waits for more and more of them.
    """

    desperate_cuts: int = 0
    """How many of the last cuts, one after the other, were of messages that must stay."""
    resting: range = range(0)
    """The numbers of messages at which nothing is cut."""

    def after_cut(self, messages: int, *, is_desperate: bool) -> CutPacing:
        """A cut was made at this number of messages."""
        in_a_row = self.desperate_cuts + 1 if is_desperate else 0
        wait = messages * (in_a_row // _PATIENCE) // _PATIENCE
        return CutPacing(in_a_row, range(messages + 1, messages + wait))

    def rests_at(self, messages: int) -> bool:
        """Whether nothing is cut at this number of messages.

        >>> pacing = CutPacing(desperate_cuts=15).after_cut(100, is_desperate=True)
        >>> [pacing.rests_at(messages) for messages in (100, 101, 105, 106)]
        [False, True, True, False]
        """
        return messages in self.resting


MAX_SYSTEM_RUN: Final = 8
"""System messages in a row that belong to the exchange before them; more of them are units of their own, which may go
before the newest: an agent that writes one after each step would otherwise make an exchange that no window holds. Eight
of nearly 1 KB take 2,400 tokens."""


def _is_output(entry: TrackedMessage) -> bool:
    """Whether a message of an exchange is cut like a result although it is none: a user message that begins like one,
    or a system message that is long enough."""
    if entry.message.role == "user":
        return opens_as_output(_first_text(entry))
    if not entry.is_later_system_message or entry.is_instruction:
        return False
    return sum(utf8_length(text) for _, text in entry.whole.texts()) >= LEAST_SYSTEM_BYTES


def _first_text(entry: TrackedMessage) -> str:
    return next((text for _, text in entry.original.texts()), "")


class ContextWindow(Struct, eq=False):
    """The messages so far. Grows message by message; steps replace entries and leave units out."""

    _total: Size
    """Size of everything that is not a message, and of the kept messages."""
    _fixed: Size
    """Size of what can never be given up: system texts, and everything that is not a message."""
    _counter: Counter
    entries: list[TrackedMessage | None] = []
    """None: left out."""
    _units: list[ToolExchange] = []
    _grouped: int = 0
    """How many of the messages are in units, or were."""
    omission_note: OmissionNote = OmissionNote()
    _blocks: list[MessageReport] = []
    """Reports of the messages, without the omission note."""
    _open_calls: set[str] = set()
    _moved: tuple[Moved, ...] = ()
    """Media moved out of the results of a batch that is not complete yet."""
    _left_out: list[Edit] = []
    _gone: list[TrackedMessage] = []
    """Messages left out since the note was written."""
    _gone_units: set[int] = set()
    """The indexes at which their units began."""
    _has_calls: bool = False
    """Whether any message has a call or a result: then tools do not answer in user messages."""
    _openings: set[str] = set()
    """How user messages have begun so far, while there were no calls."""
    _edited: bool = False
    """Whether any kept message has been edited."""
    is_desperate: bool = False
    """Whether even messages that must stay were to be cut, now or earlier."""
    images_at_most: int = 0
    """How many images are kept, or more: counted as messages are added, and again whenever a cap is applied."""
    held: tuple[int, ...] = ()
    """The same for each cap: what is kept of it, or more."""
    pacing: CutPacing = CutPacing()
    has_tool: bool = False
    """Whether the proxy's own tool goes with the request: something is left out, or a notice of ours is among the
    messages."""
    held_from: int | None = None
    """Index of the message from which on all count as newest; None: only the newest unit does."""

    @classmethod
    def of(cls, base: Size, counter: Counter) -> ContextWindow:
        """An empty one; `base`: the size of everything that is not a message."""
        return cls(base, base, counter)

    def exchanged(self, others: Sequence[tuple[TrackedMessage, TrackedMessage]]) -> ContextWindow | None:
        """The window with some of its messages replaced by others, (own, other); None if that could have led to a
        different window, although these are interchangeable."""
        twin = self.copy()
        for own, other in others:
            if own.index < len(self.entries):
                if self.entries[own.index] is not own or self.is_desperate:
                    return None
                twin._put(other)
        return twin if twin.omission_note.size == self.omission_note.size else None

    def copy(self) -> ContextWindow:
        """An independent copy."""
        twin = copy.copy(self)
        twin.entries, twin._units, twin._blocks = self.entries.copy(), self._units.copy(), self._blocks.copy()
        twin._left_out, twin._gone, twin._gone_units = self._left_out.copy(), self._gone.copy(), self._gone_units.copy()
        twin._open_calls, twin._openings = self._open_calls.copy(), self._openings.copy()
        return twin

    @property
    def units(self) -> list[ToolExchange]:
        """In order, without those that are left out. Grouped on demand: not at all while every message
        fits."""
        new = self.entries[self._grouped :]
        self._grouped = len(self.entries)
        for entry in new:
            assert entry is not None, "only whole units are left out"
            self._group(entry)
        return self._units

    @property
    def has_gaps(self) -> bool:
        """Whether anything is left out, so that a note is needed."""
        return bool(self._gone) or self.omission_note.messages > 0

    def become(self, other: ContextWindow) -> None:
        """Take over the whole state of another window, which is not used any more."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    @property
    def total(self) -> Size:
        """Size of everything that would be sent, including the omission note."""
        return self._total + self.omission_note.size if self.omission_note.messages else self._total

    @property
    def complete(self) -> bool:
        """Whether a request may end here: all calls are answered, and the last message is not the assistant's."""
        last = self.entries[-1] if self.entries else None
        return last is not None and not self._open_calls and last.message.role != "assistant"

    def add(self, entry: TrackedMessage) -> None:
        """Add the next message."""
        message, size, is_later = entry.message, entry.sent_size, False
        is_result = message.role in TOOL_ROLES
        if entry.original.role in SYSTEM_ROLES:
            is_later = entry.is_later_system_message
            if not is_later:
                self._fixed += size
        if self._moved and not (is_result or is_later):
            self.end_batch()
        if message.role == "user" and self.entries and (last := self.entries[-1]) is not None and last.following:
            self._put(before_a_user(last, self._counter))
        self.entries.append(entry)
        self._blocks.append(MessageReport.of(entry))
        self._total += size
        if entry.edits:
            self._edited = True
            self._moved += entry.moved
        if is_result:
            self._open_calls.discard(message.answers)
        elif not (is_later or message.is_companion):
            self._open_calls.clear()
        if message.calls and not is_result:
            self._open_calls.update([call.id for call in message.calls])
        if self._moved and not self._open_calls:
            self.end_batch()

    def add_tool(self, size: Size | None) -> None:
        """Add the proxy's own tool to the request, once. `size` None: this request is never offered it."""
        if size is not None and not self.has_tool:
            self.has_tool = True
            self._total += size
            self._fixed += size

    def _group(self, entry: TrackedMessage) -> None:
        """Join the next message to the newest unit, or begin a unit with it."""
        message, role = entry.message, entry.message.role
        is_result, is_later = role in TOOL_ROLES, entry.is_later_system_message
        before = self._units[-1] if self._units else None
        is_alone = entry.is_instruction and not message.is_companion
        if is_alone and (before is None or before.stop < entry.index or not self._waits(before)):
            self._units.append(ToolExchange(entry.index, entry.index + 1, role, message.must_stay))
            return
        is_companion = message.is_companion or is_later
        self._has_calls = self._has_calls or is_result or bool(message.calls)
        joins = is_result or is_companion or (role == "user" and not self._has_calls and self._may_be_output(entry))
        may_join = before is not None and before.role not in SYSTEM_ROLES and before.stop == entry.index
        if joins and before is not None and may_join and not (is_later and self._ends_a_run(before)):
            must_stay = before.must_stay or message.must_stay
            last_user = entry.index if role == "user" and not is_companion else before.last_user
            self._units[-1] = structs.replace(before, stop=entry.index + 1, must_stay=must_stay, last_user=last_user)
        else:
            # A companion without a message before it has nothing to go with.
            must_stay = message.must_stay or (message.is_companion and role not in SYSTEM_ROLES)
            role = "tool" if is_later else role
            last_user = entry.index if role == "user" else -1
            calls = bool(message.calls)
            reasons = role == "assistant" and next(iter(message.reasoning()), None) is not None
            unit = ToolExchange(entry.index, entry.index + 1, role, must_stay, last_user, calls, reasons)
            self._units.append(unit)

    def _waits(self, unit: ToolExchange) -> bool:
        """Whether a call of this newest unit has no result yet."""
        messages = [entry.message for entry in self.in_unit(unit)]
        answered = {message.answers for message in messages if message.role in TOOL_ROLES}
        return any(call.id not in answered for message in messages for call in message.calls)

    def _ends_a_run(self, unit: ToolExchange) -> bool:
        """Whether this newest unit ends in as many system messages as may belong to one unit."""
        last = self.entries[max(unit.start, unit.stop - MAX_SYSTEM_RUN) : unit.stop]
        return len(last) == MAX_SYSTEM_RUN and all(entry is None or entry.is_later_system_message for entry in last)

    def _may_be_output(self, entry: TrackedMessage) -> bool:
        """Whether a user message may be the output of a tool, passed to the model by a text protocol: it is left out
        together with the assistant message before it."""
        text = _first_text(entry)
        begun = opening(text)
        was_seen = begun in self._openings
        if begun:
            self._openings.add(begun)
        before = self._units[-1] if self._units else None
        if before is None or before.role != "assistant":
            return False
        # Of user messages in a row, people who ask again repeat an opening; a tool does not.
        return opens_as_output(text) or (was_seen and before.stop == before.start + 1)

    @property
    def batch_is_open(self) -> bool:
        """Whether media moved out of results wait for the last result of their batch."""
        return bool(self._moved)

    def end_batch(self) -> None:
        """No more results of this batch follow: the media moved out of them are sent after the last one."""
        last = self.entries[-1] if self._moved else None
        if last is not None:
            self._put(with_media(last, self._moved, self._counter))
            self._moved = ()

    def _put(self, entry: TrackedMessage) -> None:
        """Replace a kept message by another form of it."""
        old, note = self.entries[entry.index], self.omission_note.edit
        assert old is not None, "only what is kept is changed"
        self._total += entry.sent_size - old.sent_size
        self.entries[entry.index], self._blocks[entry.index] = entry, MessageReport.of(entry)
        if note is not None and note.message == entry.index:
            self.omission_note = self.omission_note.carried_by(entry, self._counter)

    def in_unit(self, unit: ToolExchange) -> Iterator[TrackedMessage]:
        """The kept messages of a unit."""
        return (entry for entry in self.entries[unit.start : unit.stop] if entry is not None)

    def _of(self, units: Iterable[ToolExchange], role: str) -> list[TrackedMessage]:
        """The kept messages of some units that have a role."""
        return [entry for unit in units for entry in self.in_unit(unit) if entry.message.role == role]

    def last_user(self) -> int:
        """Index of the last user message; -1 if there is none."""
        unit = last_request(self.units)
        return -1 if unit is None else unit.last_user

    def all(self) -> Iterator[TrackedMessage]:
        """The kept messages."""
        return self.before(len(self.entries))

    def finished(self) -> Iterator[TrackedMessage]:
        """The kept messages of finished turns: before the last user message and the newest units, the oldest first."""
        return self.before(min([self.last_user(), *(unit.start for unit in self.newest)]))

    def before(self, index: int) -> Iterator[TrackedMessage]:
        """The kept messages before an index, the oldest first."""
        return (entry for entry in self.entries[: max(0, index)] if entry is not None)

    def dialogue(self, room_tokens: int) -> list[tuple[ToolExchange, ...]]:
        """Short requests with their answers: the oldest that fit in `room_tokens`, so that they are the same in every
        cut."""
        found = list[tuple[ToolExchange, ...]]()
        left = room_tokens
        for turn in dialogue(self.units) if self.held_from is None else ():
            tokens = sum(entry.size.tokens for unit in turn for entry in self.in_unit(unit))
            if tokens <= min(left, room_tokens // _DIALOGUE_TURNS):
                found.append(turn)
                left -= tokens
        return found

    def removable(self, spared: Sequence[tuple[ToolExchange, ...]] = ()) -> list[tuple[ToolExchange, ...]]:
        """Removable units, the oldest first. `spared`: turns of `dialogue`, which go last."""
        return removable(self.units, self.held_from, spared)

    def _instructions(self) -> list[tuple[ToolExchange, TrackedMessage]]:
        """The kept instructions in the middle of the conversation that are units of their own."""
        units = [unit for unit in self.units if unit.role in SYSTEM_ROLES and not unit.must_stay]
        found = [(unit, self.entries[unit.start]) for unit in units]
        return [(unit, entry) for unit, entry in found if entry is not None and entry.is_instruction]

    def surplus_instructions(self, room_tokens: int) -> tuple[ToolExchange, ...]:
        """The instructions that do not stay: what fits in `room_tokens` does, first the newest of each opening line, as
        two with the same one are versions of one instruction. The last message always does."""
        last = len(self.entries) - 1 if self.held_from is None else self.held_from
        found = [one for one in reversed(self._instructions()) if one[1].index < last]
        newest_of: dict[str | int, int] = {}
        for _, entry in found:
            newest_of.setdefault(opening(_first_text(entry)) or entry.index, entry.index)
        newest = set(newest_of.values())
        surplus = []
        for unit, entry in sorted(found, key=lambda one: one[1].index not in newest):
            if entry.size.tokens <= room_tokens:
                room_tokens -= entry.size.tokens
            else:
                surplus.append(unit)
        return tuple(surplus)

    @property
    def newest(self) -> Sequence[ToolExchange]:
        """The newest units: what the model works on."""
        return newest_units(self.units, self.held_from)

    def results(self, unit: ToolExchange) -> list[TrackedMessage]:
        """The tool results of a unit that may be cut.

        Pages of the proxy's own tool may be cut if they were put back beside results of the client. By themselves they
        have just been read, and stay or go as a whole: if there is no room, smaller ones are read instead.
        """
        if unit.must_stay:
            return []
        question = unit.start if unit.role == "user" else -1
        found = [
            entry
            for entry in self.in_unit(unit)
            if entry.message.role in TOOL_ROLES or (entry.index != question and _is_output(entry))
        ]
        return found if any(not is_page(entry.message, entry.tool) for entry in found) else []

    def newest_results(self) -> list[TrackedMessage]:
        """The results of the newest units that may be cut, and those beside the last user message."""
        units = {unit.start: unit for unit in (last_request(self.units), *self.newest) if unit is not None}
        return [entry for unit in units.values() for entry in self.results(unit)]

    def newest_words(self) -> list[TrackedMessage]:
        """The assistant messages of the newest units."""
        return self._of(self.newest, "assistant")

    def separating_words(self) -> list[TrackedMessage]:
        """The assistant messages of the unit that separates the first user message from the next one, which are old;
        none if it is among the newest."""
        unit = separator(self.units)
        return [] if unit is None or unit in self.newest else self._of([unit], "assistant")

    def separating_thoughts(self) -> list[TrackedMessage]:
        """Separating messages whose reasoning no running call depends on: the last assistant message must begin with
        it."""
        last = max((entry.index for entry in self.all() if entry.message.role == "assistant"), default=-1)
        return [entry for entry in self.separating_words() if entry.index < last or not entry.message.calls]

    def separating_results(self) -> list[TrackedMessage]:
        """The results beside the first user message, and in the unit that separates it from the next one; none that
        are among the newest."""
        newest = self.newest
        units = (first_request(self.units), separator(self.units))
        return [entry for unit in units if unit is not None and unit not in newest for entry in self.results(unit)]

    def tasks(self) -> list[TrackedMessage]:
        """The user messages before the last one that always stay: the first user message, which holds the task,
        and the last one that is surely no tool output."""
        last = last_request(self.units)
        questions = [unit for unit in self.units if unit.role == "user"]
        units = {unit.start: unit for unit in (*questions[:1], *questions[-1:]) if unit is not last}
        return self._of(units.values(), "user")

    def last_request(self) -> list[TrackedMessage]:
        """The last user message, however it begins."""
        unit = last_request(self.units)
        return [] if unit is None else self._of([structs.replace(unit, start=unit.last_user)], "user")

    def staying(self) -> list[TrackedMessage]:
        """All messages that must stay, except system texts."""
        going = {unit.start for units in self.removable() for unit in units}
        units = (unit for unit in self.units if unit.start not in going and unit.role not in SYSTEM_ROLES)
        return [entry for unit in units for entry in self.in_unit(unit)]

    def fixed(self, task_tokens: int) -> Size:
        """Size of what cannot be given up in any later turn: system texts, tools, and the first and last user message;
        and of the instructions that stay. `task_tokens`: how much each message of `tasks` counts at the most."""
        found = self._fixed + sum((entry.sent_size for entry in self.last_request()), Size())
        found = sum((entry.sent_size for _, entry in self._instructions()), found)
        for entry in self.tasks():
            size, share = entry.size, min(1.0, task_tokens / max(1, entry.size.tokens))
            least = Size(min(task_tokens, size.tokens), int(size.chars * share), int(size.bytes * share))
            found += entry.following_size + (least if share < 1 else size)
        return found

    def apply(self, change: Change) -> None:
        """Make a change; edits that would not make their message smaller are skipped."""
        if change.redone is not None:
            self.redo(change.redone)
        if change.edits:
            index = change.edits[0].message
            entry = self.entries[index] if index is not None else None
            assert entry is not None, "only what is kept is edited"
            edited = entry.edited(change.edits, self._counter)
            if edited.size.tokens > entry.size.tokens and change.edits[0].reason is not Reason.SANITISE:
                return  # names are denser than the blanks or lines of dashes that they would replace
            self._put(edited)
            self._edited = True
        for unit in sorted(change.units, key=lambda unit: unit.start):
            for entry in self.in_unit(unit):
                self._gone.append(entry)
                self._left_out.append(Edit(entry.index, (), None, Reason.OLD_EXCHANGE))
                self._total -= entry.sent_size
                self.entries[entry.index] = None
                self._blocks[entry.index] = self._blocks[entry.index].left_out()
            self.units.remove(unit)
            self._gone_units.add(unit.start)

    def redo(self, entry: TrackedMessage) -> None:
        """Replace a message by another preparation of it; the messages that follow its batch are rebuilt."""
        unit = next(unit for unit in self.units if unit.start <= entry.index < unit.stop)
        old = self.entries[entry.index]
        assert old is not None, "only what is kept is done again"
        self._put(structs.replace(entry, following=old.following, following_size=old.following_size))
        for one in done_again(list(self.in_unit(unit)), self._counter):
            self._put(one)
        self._edited = True

    def note_what_is_gone(self, notices: Notices, room: NoteRoom) -> None:
        """Bring the omission note up to date at the end of a cut."""
        if not self._gone and not self.omission_note.messages:
            return
        if self._gone:
            self.omission_note = self.omission_note.extended(self._gone, self._user_texts())
            for gone in self._gone:
                self._blocks[gone.index] = self._blocks[gone.index].kept_in(self.omission_note.artifacts[-1])
            self._gone, self._gone_units = [], set()
        self.omission_note = self.omission_note.placed(self.entries, notices, self._counter, room, self.newest[0].start)

    def _user_texts(self) -> list[str]:
        """Texts of removed user messages, except those that joined an assistant's unit as output."""
        texts = (
            next((text for _, text in entry.whole.texts()), "")
            for entry in self._gone
            if entry.original.role == "user" and entry.index in self._gone_units
        )
        return [text for text in texts if is_quotable(text)]

    def take_note_off(self) -> None:
        """Take the note off its message while a cut is made: the note has a room of its own."""
        self.omission_note = self.omission_note.without_note()

    def is_hopeless(self, budget: Budget) -> bool:
        """Whether what can never be given up is too large by itself, so that nothing is sent."""
        return budget.refuses(self._fixed)

    def over(self, mark: Mark) -> Size | None:
        """The total's excess over a mark."""
        return mark.excess(self.total)

    def edits(self) -> Iterator[Edit]:
        """All edits: removals first, then those of kept messages in order, with the note last on its message."""
        yield from self._left_out
        note = self.omission_note.edit
        if not self._edited and note is None:
            return  # the usual case, and called in every turn
        for entry in self.entries:
            if entry is not None:
                yield from entry.edits
                if note is not None and note.message == entry.index:
                    yield note

    def blocks(self) -> tuple[MessageReport, ...]:
        note = self.omission_note.edit
        if note is None or note.message is None:
            return tuple(self._blocks)
        found = self._blocks[:]
        found[note.message] = found[note.message].with_note(self.omission_note.size.tokens, note.artifact)
        return tuple(found)

    @property
    def is_untouched(self) -> bool:
        """Whether all messages would be sent as they came. This saves visiting a thousand entries, which
        takes a millisecond after a request of megabytes has gone through the CPU caches."""
        return not (self._edited or self._left_out or self.omission_note.edit is not None)

    def sent(self) -> Iterator[Message]:
        """The messages that would be sent."""
        note = self.omission_note.edit
        carrier = note.message if note is not None else None
        for entry in self.entries:
            if entry is not None:
                yield entry.message if entry.index != carrier else self.omission_note.onto(entry.message)
                yield from entry.following
