"""The note in place of messages that are left out. It says how many, where they are kept, what users wrote, what the
model did and said, and quotes their most informative lines.

Rule: one note for all messages that are left out, before the first kept text after them. It is a function of these
messages alone, grows from cut to cut, is the same between two cuts, and everything in it is bounded. What users said
stays whole as long as there is room, the newest first; nothing that looks like a secret is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct, field, structs

from proxy.core.artifact import ARTIFACT_NAME, Artifact
from proxy.core.artifact_reading import LostMessages, place
from proxy.core.compaction.budget import Budget
from proxy.core.compaction.line_pool import ABOUT, LinePool, Trace, is_never_quoted, traces_of
from proxy.core.conversation import (
    NOTHING,
    SYSTEM_ROLES,
    TOOL_ROLES,
    Address,
    Content,
    Edit,
    Message,
    Reason,
    Size,
    TrackedMessage,
    size_of,
)
from proxy.core.notices import Language, Notices, as_text
from proxy.core.text import jsontext, names_in
from proxy.core.tokens import Counter
from proxy.core.truncation import tool_response, with_note

_WHOLE_CHARACTERS: Final = 2_000
"""A user's words up to this length may be quoted whole. Nearly everything longer is pasted."""
_BEGINNING_CHARACTERS: Final = 200
"""Limit of a user's words, if they are longer or do not fit."""
_SAID_CHARACTERS: Final = 300
"""Limit of the model's words: two or three sentences."""
_DEED_ARGUMENTS: Final = 3
_REPEATED_CHARACTERS: Final = 30
"""Of a command that is stated a second time, as the heading of its lines."""
_OTHER_CHARACTERS: Final = 48
"""Of the arguments of a call that do not say what it is about."""
_QUESTION_CHARACTERS: Final = 200
"""Limit of the last line of an answer, mostly a question: without it, the user's "yes" is worth nothing."""
_MAX_CHARACTERS: Final = 100_000
"""Limit of all that is remembered: more than is quoted in a window of 200 000 tokens."""
_MARK_TOKENS: Final = 2
"""The end of the line, and the mark before it."""
_LEAST_ROOM_TOKENS: Final = 4
_ARTIFACT: Final = re.compile(ARTIFACT_NAME)
"""Removed from quotations, because an artifact that only a left-out message names is kept with that message."""


class Kind(StrEnum):
    """Kind of a quotation."""

    ASKED = "asked"
    """A user's words."""
    SAID = "said"
    """The beginning of the model's words."""
    DONE = "done"
    """A tool, and the main argument of its call."""
    PLAN = "plan"
    """A tool, and what its last call lists."""


class Quotation(NamedTuple):
    """A quoted request, answer or call."""

    kind: Kind
    text: str


Thread: TypeAlias = tuple[Quotation, ...]
"""The newest is last; each occurs once, and of the plans of a tool only the last one."""


def extended(thread: Thread, gone: Sequence[TrackedMessage], questions: Iterable[str]) -> Thread:
    """The thread after one more cut. `questions`: users' words in the messages that are gone."""
    found = dict[object, Quotation]()
    for quotation in (*thread, *(Quotation(Kind.ASKED, _user_text(text)) for text in questions), *_steps(gone)):
        key = _planner(quotation) or quotation
        found.pop(key, None)
        found[key] = quotation
    newest = list(found.values())[::-1]
    lengths = accumulate(len(quotation.text) for quotation in newest)
    return tuple(newest[: sum(length <= _MAX_CHARACTERS for length in lengths)])[::-1]


def fitting(thread: Thread, question_tokens: int, step_tokens: int, counter: Counter) -> Thread:
    """The newest quotations that fit, in order. `question_tokens`: for what users said, of which only the beginning is
    quoted if the whole does not fit; `step_tokens`: for what was done, and as many for what the model said and for
    plans."""
    deeds = int(step_tokens * DEEDS_SHARE)
    left = {Kind.ASKED: question_tokens, Kind.SAID: step_tokens, Kind.DONE: deeds, Kind.PLAN: step_tokens}
    found: list[Quotation] = []
    for kind, text in reversed(thread):
        if left[kind] < _LEAST_ROOM_TOKENS:
            continue
        for quoted in (text, _beginning(text)) if kind is Kind.ASKED else (text,):
            tokens = counter.count(quoted) + _MARK_TOKENS
            if tokens <= left[kind]:
                left[kind] -= tokens
                found.append(Quotation(kind, quoted))
                break
    return tuple(found[::-1])


def _deed(tool: str, trace: Trace, last: dict[str, Mapping[str, str]]) -> str:
    """A call in one line. `last`: the arguments of each tool's last call: what it repeats of them tells nothing, except
    for what it is about."""
    before, last[tool] = last.get(tool, {}), trace.arguments
    about = [value for name, value in trace.arguments.items() if name in ABOUT][:_DEED_ARGUMENTS]
    others = [value for name, value in trace.arguments.items() if name not in ABOUT and before.get(name) != value]
    if not about:
        about, others = others[:1], others[1:]
    return " ".join([tool, *about, " ".join(others)[:_OTHER_CHARACTERS]]).strip()


def _steps(gone: Sequence[TrackedMessage]) -> Iterator[Quotation]:
    called: dict[str, Mapping[str, str]] = {}
    for message in (entry.whole for entry in gone if entry.whole.role == "assistant"):
        text = "\n".join(text for _, text in message.texts()).rstrip()
        words, last = _beginning(text, _SAID_CHARACTERS), text[text.rfind("\n") + 1 :].strip()
        if not message.calls and words.endswith(" …") and len(last) <= _QUESTION_CHARACTERS:
            words = f"{words} {last}"
        tools = {call.id: call.name for call in message.calls}
        traces = [(tools.get(trace.call_id, ""), trace) for trace in traces_of(message)]
        done = [Quotation(Kind.DONE, _deed(tool, trace, called)) for tool, trace in traces]
        plans = [Quotation(Kind.PLAN, f"{tool}: {trace.plan}") for tool, trace in traces if tool and trace.plan]
        for quotation in (Quotation(Kind.SAID, words), *done, *plans):
            if quotation.text and not is_never_quoted(quotation.text):
                yield quotation


def _planner(quotation: Quotation) -> str:
    """The tool that a plan was given to; empty for another quotation."""
    return quotation.text.partition(": ")[0] if quotation.kind is Kind.PLAN else ""


def _user_text(text: str) -> str:
    """A user's words, without lines that look like a secret."""
    if len(text) > _WHOLE_CHARACTERS:
        text = _beginning(text)
    lines = _ARTIFACT.sub("…", text).strip().split("\n")
    return "\n".join("…" if is_never_quoted(line) else line.rstrip() for line in lines)


def _beginning(text: str, most: int = _BEGINNING_CHARACTERS) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(_cut_off(text, 2 * most).split())
    if len(line) <= most and len(text) <= 2 * most:
        return line
    return f"{_ARTIFACT.sub('…', _cut_off(line, most)).rstrip()} …"


def _cut_off(text: str, end: int) -> str:
    """The first `end` characters of a text, without the artifact's name that would be cut there; any other word stays,
    such as `tool_choice`."""
    begin = text.rfind("tool_", 0, end)
    name = _ARTIFACT.match(text, begin) if begin >= 0 else None
    return text[:end] if name is None or name.end() <= end else text[:begin]


_CARRIERS: Final = (TOOL_ROLES, frozenset({"user"}), frozenset({"assistant"}))
"""Which message carries the note, unless the task does: preferably a tool result, where a model expects text about
results; an assistant message last."""
_NAMES: Final[WeakKeyDictionary[Message, str]] = WeakKeyDictionary()
"""Remembered as long as the message exists; joined into one text, because separate names would take five times as much
memory."""

NOTE_SHARE: Final = 0.23
"""The largest share of the room beside what must stay that the omission note may take; measured,
docs/decisions/0003-what-to-give-up.md."""
MAX_NOTE_TOKENS: Final = 20_000
"""Limit of the note, however large the room: the rest is for the conversation. In a window of 128 000, a note of 30 000
quoted 2 of 1 955 names more, and cuts took twice the time; docs/decisions/0003-what-to-give-up.md."""
ASKED_SHARE: Final = 0.12
"""Share of that room for what users said in messages that are left out, beside the lines. Nearly all of it fits; with
0.05, a window of 8 000 lost 7 of 100 short messages."""
STEPS_SHARE: Final = 0.0435
"""Share of that room above STEPS_FROM_TOKENS for the calls that are left out, and as much for what the model said."""
DEEDS_SHARE: Final = 1.75
"""Times what is said: a call that tells itself apart takes more words than its tool and its path."""
STEPS_FROM_TOKENS: Final = 3_600
"""In a smaller room, lines are worth more: about the room of a window of 5 500."""


class NoteRoom(NamedTuple):
    """How many tokens the parts of a note may take."""

    lines: int = 0
    """Lines of what is left out, with the note's own words."""
    questions: int = 0
    """Tokens for users' words."""
    steps: int = 0
    """Tokens for calls, and as many again for the model's words."""

    @classmethod
    def beside(cls, fixed: Size, total: Size, budget: Budget) -> NoteRoom:
        """The room in the unit that leaves least: the shares of the thread, and for lines their share or whatever more
        a cut of whole exchanges has freed beyond the low mark. At least one unit is limited, as a limit was exceeded.
        `fixed`: the size of what cannot be given up, `total`: that of all that is kept."""
        high = budget.high_mark
        low = high.share_beside(fixed, budget.low_mark)
        units = [
            (limit, goal, max(0, limit - beside), size)
            for limit, goal, beside, size in (
                (high.tokens, low.tokens, fixed.tokens, total.tokens),
                (high.chars, low.chars, fixed.chars, total.chars),
                (high.bytes, low.bytes, fixed.bytes, total.bytes),
            )
            if limit is not None and goal is not None
        ]
        beside = min(room * total.tokens // max(1, size) for _, _, room, size in units)
        most = MAX_NOTE_TOKENS if budget.note_tokens is None else min(MAX_NOTE_TOKENS, budget.note_tokens)
        questions = min(int(beside * ASKED_SHARE), budget.note_tokens or beside)
        steps = min(int(max(0, beside - STEPS_FROM_TOKENS) * STEPS_SHARE), budget.note_tokens or beside)
        lines = min(
            min(max(int(room * NOTE_SHARE), goal - size), limit - size) * total.tokens // max(1, size)
            for limit, goal, room, size in units
        )
        return cls(max(0, min(lines, most)), questions, steps)


class OmissionNote(Struct, frozen=True):
    """The messages omitted so far, and the note about them."""

    artifacts: tuple[Artifact, ...] = ()
    """One for each cut; each lists those before it."""
    messages: int = 0
    chars: int = 0
    pool: LinePool = field(default_factory=LinePool)
    """Lines of what is left out; the note quotes the most informative ones."""
    thread: Thread = ()
    """Requests, actions and statements."""
    note: str = ""
    language: Language = "en"
    behind: bool = False
    """Whether the note comes after the text of the message that carries it, not before it."""
    edit: Edit | None = None
    """Puts the note on that message."""
    size: Size = NOTHING
    """Size that the note adds to that message."""

    def extended(self, gone: Sequence[TrackedMessage], questions: Sequence[str]) -> OmissionNote:
        """The note after one more cut. `questions`: users' words in the messages that are gone."""
        lost = LostMessages(
            tuple([artifact.id for artifact in reversed(self.artifacts)]),
            tuple([place(entry.index + 1, entry.tool or entry.original.role) for entry in gone]),
        )
        content = lost.written(jsontext.embedded(entry.original.unmarked()) for entry in gone)
        return OmissionNote(
            artifacts=(*self.artifacts, Artifact(content, suffix="json")),
            messages=self.messages + len(gone),
            chars=self.chars + sum(entry.whole_size.chars for entry in gone),
            pool=self.pool.extended(gone),
            thread=extended(self.thread, gone, questions),
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
            return self.without_note()
        artifact, lines = self.artifacts[-1], list[tuple[str, list[str]]]()
        standing = [entry for entry in kept if entry is not None]
        frame = notices.omission_note(artifact, self.messages, self.chars, lines=[("", ())])
        left = room.lines - counter.count(frame)
        if left > 0:
            known = {name for entry in standing for name in _names_of(entry.message)}
            lines = self.pool.quoted(standing, known, left, counter)
        newer = {call.name for entry in standing for call in entry.message.calls if call.name}  # a newer plan is there
        thread = tuple(quotation for quotation in self.thread if _planner(quotation) not in newer)
        thread = fitting(thread, room.questions, room.steps, counter)
        deeds = [text for kind, text in thread if kind is Kind.DONE]
        lines = [(_brief(source) if any(source in deed for deed in deeds) else source, told) for source, told in lines]
        behind, role = carrier.index >= newest_index, carrier.message.role
        is_last = behind or (carrier.message.takes_notes_apart and role != "assistant")
        before = "" if is_last else "tool" if role in TOOL_ROLES else "system" if role in SYSTEM_ROLES else role
        note = notices.omission_note(artifact, self.messages, self.chars, thread, lines, before, carrier.tool)
        if len(note) > self.chars:
            note = notices.omission_note(artifact, self.messages, self.chars)
        placed = structs.replace(self, note=note, language=notices.language, behind=behind)
        return placed.carried_by(carrier, counter)

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
        noted = structs.replace(self, edit=edit)
        return structs.replace(noted, size=size_of(noted.onto(carrier.message), counter) - carrier.size)

    def _onto_content(self, message: Message) -> tuple[Address, str, Content]:
        """Where in a message the note goes, the text there, and that text with the note; or all parts, if there is no
        text and the note has a part of its own."""
        apart = message.takes_notes_apart and message.role != "assistant"
        found = None if apart else next(message.texts(), None)
        is_result = message.role in TOOL_ROLES and not apart
        if found is None:
            note = as_text(self.note, self.language) if is_result else self.note
            at, content = message.with_note(note, after=self.behind or apart)
            return at, "", content
        at, text = found
        response = tool_response(text)
        if response is not None:
            return at, text, with_note(response, self.note)
        noted = f"{text}\n{self.note}" if self.behind and text else self.note + text
        return at, text, as_text(noted, self.language) if is_result else noted

    def without_note(self) -> OmissionNote:
        """The same omissions without a note."""
        return structs.replace(self, note="", edit=None, size=NOTHING)

    def onto(self, message: Message) -> Message:
        """The carrying message with the note."""
        assert self.edit is not None, "a note that was placed"
        return message.changed({self.edit.at: self.edit.becomes})


def _brief(source: str) -> str:
    """A command that the note states already among what was done; a path stays, as people look for it."""
    return source if " " not in source or len(source) <= _REPEATED_CHARACTERS else f"{source[:_REPEATED_CHARACTERS]} …"


def _carrier(kept: Sequence[TrackedMessage | None]) -> TrackedMessage | None:
    """The last message before the gap, if notes are parts of their own, so that everything before them stays in the
    prompt cache; otherwise the first message after the gap that can carry a note, preferably one that has a text."""
    first_gap = next((index for index, entry in enumerate(kept) if entry is None), len(kept))
    after = [entry for entry in kept[first_gap:] if entry is not None]
    before = [entry for entry in reversed(kept[:first_gap]) if entry is not None]
    for entry in before:
        if entry.message.takes_notes_apart and entry.message.can_carry_a_note:
            return entry
    for needs_text in (True, False):
        for roles in _CARRIERS:
            for entry in (*after, *before):
                if entry.message.role in roles and _can_carry(entry.message, needs_text=needs_text):
                    return entry
    return None


def _can_carry(message: Message, *, needs_text: bool) -> bool:
    return any(text for _, text in message.texts()) if needs_text else message.can_carry_a_note


def _names_of(message: Message) -> tuple[str, ...]:
    """The names in a message. A cut asks for those of all kept messages; most were already kept at the last cut."""
    names = _NAMES.get(message)
    if names is None:
        names = _NAMES[message] = " ".join(names_in(message.text()))
    return tuple(names.split())
