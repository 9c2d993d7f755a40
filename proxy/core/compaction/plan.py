"""The plan of what to send, made by running the steps over a conversation.

Rule: the watermark replay. The conversation is walked from its first message as it grew; whenever the kept messages
exceed the high mark, something is given up until they are down to the low mark. The result is a function of the
messages alone: the same on every replica, with and without memory, and the prefix that was sent stays the same until
the next cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Budget, Mark
from proxy.core.compaction.caps import Cap, add_to_caps, is_over_a_cap, keep_to_caps
from proxy.core.compaction.note import MAX_NOTE_TOKENS, NOTE_SHARE, NoteRoom
from proxy.core.compaction.steps import CompactionStep, sparing
from proxy.core.compaction.window import ContextWindow
from proxy.core.conversation import (
    NOTHING,
    SYSTEM_ROLES,
    Change,
    Conversation,
    Edit,
    LocalStep,
    Message,
    MessageReport,
    Reason,
    Route,
    Size,
    TrackedMessage,
    are_interchangeable,
    beginning,
    prepared,
    tool_of,
)
from proxy.core.notices import CALL, MARK, Notices, is_ours
from proxy.core.text import Discreet
from proxy.core.tokens import Counter

_WORTH_ANOTHER_CUT: Final = 0.1
"""Share of that room that a note must leave unused before the cut is repeated with less for the note and more for the
conversation: there was little to quote, mostly prose in long lines."""
_NOTE_ATTEMPTS: Final = (1.0, 0.6)
"""Shares of the note's room, tried in turn: what the note costs inside its message is known only after it is there."""
INSTRUCTION_SHARE: Final = 0.25
"""Share of the room for later instructions: Codex puts 22 to 28 KB of permissions, skills and modes there, about 5 % of
a window of 128 000."""
_WORTH_HALVING: Final = 0.2
"""Share of a refused prompt: with half of less, the next one would hardly be smaller."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one kind of send."""

    local: tuple[LocalStep, ...]
    compaction_steps: tuple[CompactionStep, ...]
    """Tried in order until the low mark is reached."""
    last_resorts: tuple[CompactionStep, ...]
    """Tried in order if the high mark is still exceeded."""
    notices: Notices
    counter: Counter
    budget: Budget
    caps: tuple[Cap, ...] = ()
    """Other limits than the budget."""
    is_replayed: bool = True
    """Whether cuts are made wherever the conversation exceeded its room as it grew, so that later turns begin with the
    same bytes; otherwise one cut is made at the end, which keeps as much as fits."""
    has_tools: bool = False
    """Whether the request offers tools of the client: then later system messages are instructions."""
    tool_size: Size | None = None
    """Size of the proxy's own tool, which goes with a request from the first cut on; None: this one is not offered
    it."""
    always: LocalStep | None = None
    """Repeated on what a compaction step puts in, because that is made from the message as it arrived."""

    def without_steps(self) -> Pipeline:
        """The pipeline for a request that is sent as it came, whatever its size."""
        budget = self.budget.unbounded()
        return dataclasses.replace(
            self, local=(), compaction_steps=(), last_resorts=(), budget=budget, caps=(), always=None
        )

    def up_to(self, end: int) -> Pipeline:
        """The pipeline whose local steps leave the messages from index `end` on as they came."""

        def spared(step: LocalStep) -> LocalStep:
            return lambda index, *given: step(index, *given) if index < end else iter(())

        return dataclasses.replace(self, local=tuple(map(spared, self.local)))


_STEPS_BACK: Final = 2
"""Points before the end from which a plan may continue: clients rewrite their last message in the next turn, and move
cache marks on the last two user messages (Cline, Aider, OpenCode)."""


class Progress(Struct):
    """How far a conversation has been walked: the plan of its next turn continues from here. Never changed after it is
    returned."""

    window: ContextWindow
    messages: int
    tools_by_call: dict[str, str]
    before: Size
    earlier: tuple[Progress, ...] = ()
    """Points before this one, the newest last, for a next turn whose newest messages differ."""

    def copy(self) -> Progress:
        """An independent copy."""
        return Progress(self.window.copy(), self.messages, dict(self.tools_by_call), self.before, self.earlier)

    def exchanged(self, others: Mapping[int, Message], pipeline: Pipeline) -> Progress | None:
        """The progress with these messages at these indexes; None if that could have led to a different progress."""
        entries = []
        for index, message in others.items():
            own = self.window.entries[index] if index < self.messages else None
            if own is None:
                return None
            other = prepared(index, message, own.tool, pipeline.local, pipeline.notices, pipeline.counter)
            if not are_interchangeable(own, other, pipeline.budget.task_tokens):
                return None
            entries.append((own, other))
        windows = [(point, point.window.exchanged(entries)) for point in (*self.earlier, self)]
        *earlier, last = [
            None if window is None else structs.replace(point, window=window) for point, window in windows
        ]
        return last and structs.replace(last, earlier=tuple([point for point in earlier if point is not None]))

    def within(self, shared: int) -> Progress | None:
        """The last point that the first `shared` messages lead to; None if all points are beyond."""
        points = [*self.earlier, self]
        for index in reversed(range(len(points))):
            if points[index].messages <= shared:
                return structs.replace(points[index], earlier=tuple(points[:index]))
        return None


class Reading(Struct, frozen=True):
    """Reads by the proxy for the model since the client's request: the messages at the end are not the client's."""

    received: int
    """How many messages the client sent."""
    may_cut: bool = False
    """Whether what the model works on may be cut to make room, though not to nothing; for a page, only what is older
    goes."""
    accepted_tokens: int = 0
    """The size of the prompt before the newest page, which the upstream has just accepted."""


class Plan(Discreet, frozen=True):
    """The edited request."""

    edits: tuple[Edit, ...]
    sent: tuple[Message, ...]
    before: Size
    """Size of the request as it came."""
    after: Size
    """Size of what is sent: measured, not computed."""
    budget: Budget
    artifacts: tuple[Artifact, ...]
    """Stored before anything is sent."""
    largest: tuple[TrackedMessage, ...] = ()
    """The largest messages that are sent, if the plan does not fit."""
    base: Size = NOTHING
    """Size of what is not a message: mostly the tool list."""
    blocks: tuple[MessageReport, ...] = ()
    """Reports of the request's messages."""
    accepted_tokens: int = 0
    """See `Reading`."""
    has_tool: bool = False
    """Whether the proxy's own tool goes with the request, and is in its sizes."""

    @property
    def messages(self) -> tuple[bytes, ...]:
        """The bytes of each message that is sent."""
        return tuple([message.raw for message in self.sent])

    @property
    def fixed_tokens(self) -> int:
        """Size of what is cut last: a prompt that was just accepted, or tools, system texts, the first and the last
        user message; of these, as many as leave something worth cutting beside them."""
        user_tokens = [block.tokens_after for block in self.blocks if block.role == "user" and not block.tool]
        system = self.base.tokens + sum(block.tokens_after for block in self.blocks if block.role in SYSTEM_ROLES)
        most = self.after.tokens * (1 - _WORTH_HALVING)
        parts = (self.accepted_tokens, system + sum(user_tokens[:1]) + sum(user_tokens[1:][-1:]), system)
        return next((tokens for tokens in parts if 0 < tokens <= most), 0)

    @property
    def fits(self) -> bool:
        """Whether the plan is within the room."""
        return self.budget.admits(self.after)

    @property
    def may_be_sent(self) -> bool:
        """Whether it fits, or may be sent anyway because the room may be wrong."""
        return not self.budget.refuses(self.after)

    @property
    def changed(self) -> bool:
        """Whether anything differs from the request as it came."""
        return bool(self.edits)


def plan(
    conversation: Conversation,
    base: Size,
    pipeline: Pipeline,
    earlier: Progress | None = None,
    reading: Reading | None = None,
) -> tuple[Plan, Progress]:
    """A plan for the conversation, and the progress that saves its next turn the work. `base` is the size of everything
    that is not a message. `earlier` comes from a plan whose messages are the first of these, with the same base,
    pipeline and budget."""
    # Earlier progress belongs to another turn and is copied; a new one is ours to change.
    progress = earlier.copy() if earlier else Progress(ContextWindow.of(base, pipeline.counter), 0, {}, base)
    messages = conversation.messages if reading is None else conversation.messages[: reading.received]
    lasting = _lasting(messages)
    for stop in _steps_back(messages, progress.messages, lasting):
        progress = _walked(progress, messages[:stop], pipeline)
        earlier_points = (*progress.earlier, structs.replace(progress.copy(), earlier=()))
        progress = structs.replace(progress, earlier=earlier_points[-_STEPS_BACK:])
    if progress.messages < lasting:
        progress = _walked(progress, messages[:lasting], pipeline)
    last = progress if lasting == len(messages) else _walked(progress.copy(), messages, pipeline)
    if reading is None:
        window = _ended(last.window, pipeline)
    else:
        last = _read_on(last.copy(), conversation.messages, pipeline, reading)
        messages, window = conversation.messages, last.window
    edits = tuple(window.edits())
    fits = pipeline.budget.admits(window.total)
    largest = () if fits else _largest(entry for entry in window.entries if entry is not None)
    artifacts = _artifacts(window, edits)
    sent = messages if window.is_untouched else tuple(window.sent())
    accepted, blocks = reading.accepted_tokens if reading else 0, window.blocks()
    made = Plan(
        edits,
        sent,
        last.before,
        window.total,
        pipeline.budget,
        artifacts,
        largest,
        base,
        blocks,
        accepted,
        window.has_tool,
    )
    return made, progress


def _ended(window: ContextWindow, pipeline: Pipeline) -> ContextWindow:
    """The window of a request that ends here."""
    is_settled = window.complete and pipeline.is_replayed and not window.pacing.rests_at(len(window.entries))
    is_over = window.over(pipeline.budget.high_mark) is not None or is_over_a_cap(window, pipeline.caps)
    if window.batch_is_open or (not is_settled and is_over):
        window = window.copy()
        window.end_batch()
        _keep_to_caps(window, pipeline)
        _settle(window, pipeline)
    return window


_READ_FILL: Final = 0.95
"""Share of what may be used that a request with a page fills at the most: the rest is for the call after it."""


def _read_on(progress: Progress, messages: Sequence[Message], pipeline: Pipeline, reading: Reading) -> Progress:
    """The progress advanced over what was read since the client's request. All since its last assistant message is what
    the model works on, and stays; what is older goes as far as a page and the call after it need, and no further,
    because the client's next turn begins without these pages."""
    if pipeline.is_replayed:
        progress = structs.replace(progress, window=_ended(progress.window, pipeline).copy())
    fill = pipeline.budget.fill * (1.0 if reading.may_cut else _READ_FILL)
    budget = dataclasses.replace(pipeline.budget, low_mark=1.0, fill=fill)
    resorts = sparing(pipeline.last_resorts, budget.task_tokens) if reading.may_cut else ()
    pipeline = dataclasses.replace(pipeline, is_replayed=False, budget=budget, last_resorts=resorts)
    replies = (index for index in range(reading.received - 1, -1, -1) if messages[index].role == "assistant")
    progress = _walked(progress, messages, pipeline)
    progress.window.held_from = next(replies, 0)
    return structs.replace(progress, window=_ended(progress.window, pipeline))


def _lasting(messages: Sequence[Message]) -> int:
    """How many messages the next turn will begin with: not assistant messages at the end, which the complete response
    will replace, nor messages that the client will then write differently."""
    count = len(messages)
    while count and (messages[count - 1].role == "assistant" or messages[count - 1].is_marked):
        count -= 1
    return count


def _steps_back(messages: Sequence[Message], start: int, stop: int) -> list[int]:
    """Where to keep a point to go back to: after the last assistant messages up to `stop`, as clients rewrite only what
    comes after them. `start`: where the plan begins, which is such a point if the turn before was taken back."""
    found: list[int] = []
    for index in range(stop - 1, max(0, start - 1) - 1, -1):
        if messages[index].role == "assistant":
            found.append(index + 1)
            if len(found) == _STEPS_BACK:
                break
    return found[::-1]


def _walked(progress: Progress, messages: Sequence[Message], pipeline: Pipeline) -> Progress:
    """The progress advanced over these messages; it must be the caller's own, as its window is changed."""
    window, tools, before = progress.window, progress.tools_by_call, progress.before
    high, caps = pipeline.budget.high_mark, pipeline.caps
    tool_size = None if window.has_tool else pipeline.tool_size
    for index, message, tool in _arriving(messages, progress.messages, tools, has_tools=pipeline.has_tools):
        entry = prepared(index, message, tool, pipeline.local, pipeline.notices, pipeline.counter)
        before += entry.original_size
        window.add(entry)
        may_need = tool_size is not None and (entry.edits or entry.message.raw.find(_MARK) >= 0)
        if may_need and _needs_tool(entry, pipeline.notices):
            window.add_tool(tool_size)
            tool_size = None
        if caps:
            add_to_caps(window, caps)
        is_too_much = window.over(high) is not None or (caps and is_over_a_cap(window, caps))
        if is_too_much and pipeline.is_replayed and window.complete:
            _keep_to_caps(window, pipeline)
            if not window.pacing.rests_at(index + 1):
                _settle(window, pipeline)
    return Progress(window, len(messages), tools, before, progress.earlier)


_MARK: Final = MARK.encode()


def _needs_tool(entry: TrackedMessage, notices: Notices) -> bool:
    """Whether a message that arrives brings the proxy's own tool with it: text of it was cut, and the agent's own tools
    do not read what was cut, or it holds a notice of ours. The tool list is changed for nothing less, because the
    prompt cache begins with it."""
    if entry.edits:
        texts = (edit for edit in entry.edits if edit.media is None or edit.media.route == Route.TEXT)
        taken_out = [edit for edit in texts if edit.artifact is not None]
        if taken_out and notices.reaches_files:
            return any(isinstance(edit.becomes, str) and CALL in edit.becomes for edit in taken_out)
        if taken_out:
            return True
    return entry.message.raw.find(_MARK) >= 0 and any(is_ours(text) for _, text in entry.message.texts())


def _arriving(
    messages: Sequence[Message], start: int, tools: dict[str, str], *, has_tools: bool
) -> Iterator[tuple[int, Message, str]]:
    """The messages from an index on, each with the tool whose result it is. `tools`: by call; those of each message are
    added to it."""
    begins = beginning(messages)
    for index in range(start, len(messages)):
        message = messages[index]
        for call in message.calls:
            tools[call.id] = call.name
        yield index, message, tool_of(message, tools, has_begun=index >= begins, has_tools=has_tools)


def _keep_to_caps(window: ContextWindow, pipeline: Pipeline) -> None:
    if is_over_a_cap(window, pipeline.caps):
        window.add_tool(pipeline.tool_size)
    keep_to_caps(window, pipeline.caps, pipeline.notices, pipeline.counter, pipeline.budget)


def _settle(window: ContextWindow, pipeline: Pipeline) -> None:
    """One point of the replay: give something up if the high mark is exceeded."""
    budget, high = pipeline.budget, pipeline.budget.high_mark
    if window.over(high) is None or window.is_hopeless(budget):
        return
    as_it_was = window.copy()
    window.add_tool(pipeline.tool_size)
    window.take_note_off()
    less_cut = window.copy()
    unused = _cut(window, pipeline)
    if window.has_gaps and unused > _WORTH_ANOTHER_CUT:
        _cut(less_cut, pipeline, unused)
        if less_cut.over(high) is None:
            window.become(less_cut)
    is_desperate = window.over(high) is not None
    if is_desperate:
        window.is_desperate = as_it_was.is_desperate = True
        window.note_what_is_gone(pipeline.notices, NoteRoom())
        with_instructions = window.copy()
        _compact(window, pipeline, pipeline.last_resorts, budget.ceiling)
        if window.over(budget.ceiling) is not None and (instructions := window.surplus_instructions(0)):
            window.become(with_instructions)
            window.apply(Change(units=instructions))
            window.note_what_is_gone(pipeline.notices, NoteRoom())
            _compact(window, pipeline, pipeline.last_resorts, budget.ceiling)
    if window.over(budget.ceiling) is not None and window.total.tokens >= as_it_was.total.tokens:
        window.become(as_it_was)  # a note would be longer than everything it replaces
    window.pacing = window.pacing.after_cut(len(window.entries), is_desperate=is_desperate)


def _cut(window: ContextWindow, pipeline: Pipeline, spared: float = 0.0) -> float:
    """Come down to the low mark, with a note that has at least its share less `spared`. Returns the share left unused
    because the messages left out hold too little worth quoting."""
    budget, high = pipeline.budget, pipeline.budget.high_mark
    window.apply(Change(units=window.surplus_instructions(int(budget.usable_tokens * INSTRUCTION_SHARE))))
    fixed = window.fixed(budget.task_tokens)
    beside = max(1, budget.usable_tokens - fixed.tokens)
    note_share = max(0.0, min(NOTE_SHARE, MAX_NOTE_TOKENS / beside) - spared)
    if not window.has_gaps:
        _compact(window, pipeline, pipeline.compaction_steps, high.share_beside(fixed, budget.low_mark))
    if window.has_gaps:
        _compact(window, pipeline, pipeline.compaction_steps, high.share_beside(fixed, budget.low_mark - note_share))
    room = NoteRoom.beside(fixed, window.total, budget)
    for share in _NOTE_ATTEMPTS:
        window.note_what_is_gone(pipeline.notices, NoteRoom(*(int(tokens * share) for tokens in room)))
        if window.over(high) is None:
            break
    low = high.share_beside(fixed, budget.low_mark).tokens
    return 0.0 if low is None else (low - window.total.tokens) / beside


def _compact(window: ContextWindow, pipeline: Pipeline, compaction_steps: Sequence[CompactionStep], goal: Mark) -> None:
    for step in compaction_steps:
        if window.over(goal) is None:
            return
        for change in step(window, goal):
            window.apply(change)
            if pipeline.always is not None:
                window.apply(Change(_done_again(window, change, pipeline.always, pipeline.notices)))
            if window.over(goal) is None:
                return


def _done_again(window: ContextWindow, change: Change, step: LocalStep, notices: Notices) -> tuple[Edit, ...]:
    """The edits of a local step, repeated on a message that was just changed."""
    index = change.edits[0].message if change.edits else None
    entry = window.entries[index] if index is not None else None
    return () if entry is None else tuple(step(entry.index, entry.message, entry.tool, notices))


def _artifacts(window: ContextWindow, edits: Sequence[Edit]) -> tuple[Artifact, ...]:
    if not edits:
        return ()
    taken_out = [
        edit.artifact for edit in edits if edit.artifact is not None and edit.reason is not Reason.OMISSION_NOTE
    ]
    found = {artifact.id: artifact for artifact in (*window.omission_note.artifacts, *taken_out)}
    return tuple(found.values())


def _largest(entries: Iterator[TrackedMessage]) -> tuple[TrackedMessage, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.size.tokens, reverse=True)[:5])
