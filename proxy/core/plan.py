"""Runs the steps over a conversation: a plan of what to send, and what the next turn's plan can go on from.

Rule: the watermark replay. The conversation is walked from its first message as it grew; whenever what is kept passes
the high mark, something is given up until the low mark. The result is a function of the messages alone: the same on
every replica, with and without memory, and the prefix that was sent stays the same until the next cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from proxy.core.blocks import Block
from proxy.core.budget import Budget
from proxy.core.conversation import Conversation, Message
from proxy.core.edits import Artifact, Edit, Reason
from proxy.core.entry import Entry
from proxy.core.estimate import Counter
from proxy.core.kept import Kept
from proxy.core.notices import Notices
from proxy.core.sizes import Size
from proxy.core.units import Change

LocalStep: TypeAlias = Callable[[int, Message, str, Notices], Iterator[Edit]]
"""(index, message, name of the tool that it answers for, notices) → edits of that message."""
Relief: TypeAlias = Callable[[Kept], Iterator[Change]]
"""Yields what it would give up next; the runner makes each change and stops asking when it is enough."""

DIGEST_SHARE: Final = 0.2
"""Of the room at the most, for the note about what is left out; measured, docs/decisions/0003-what-to-give-up.md."""


@dataclass(frozen=True, slots=True)
class ImageLimit:
    """How many images one request may hold."""

    max_images: int
    local: tuple[LocalStep, ...]
    """The local steps for a message whose images are described."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one kind of send."""

    local: tuple[LocalStep, ...]
    reliefs: tuple[Relief, ...]
    """Tried in order until the low mark is reached."""
    last_resorts: tuple[Relief, ...]
    """Tried in order when the high mark is still passed."""
    notices: Notices
    counter: Counter
    budget: Budget
    images: ImageLimit | None = None
    always: LocalStep | None = None
    """Done again to what a relief puts in, which is made of a message as it came."""


@dataclass(slots=True)
class Progress:
    """How far a conversation has been walked: what the plan of its next turn goes on from. Nobody changes it."""

    kept: Kept
    messages: int
    tools_by_call: dict[str, str]
    before: Size

    def copy(self) -> Progress:
        """A second one that goes on by itself."""
        return Progress(self.kept.copy(), self.messages, dict(self.tools_by_call), self.before)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send in the place of a request."""

    edits: tuple[Edit, ...]
    messages: tuple[bytes, ...] = field(repr=False)
    """The JSON of each message that is sent."""
    before: Size
    """Of the request as it came."""
    after: Size
    """Of what is sent: measured on it, not computed."""
    budget: Budget
    artifacts: tuple[Artifact, ...]
    """To be kept before anything is sent."""
    largest: tuple[Entry, ...] = ()
    """Of what is sent, when it does not fit."""
    blocks: tuple[Block, ...] = field(default=(), repr=False)
    """What became of each message of the request."""

    @property
    def fits(self) -> bool:
        """Whether this may be sent."""
        return self.budget.admits(self.after)

    @property
    def changed(self) -> bool:
        """Whether anything is different from what came."""
        return bool(self.edits)


def plan(
    conversation: Conversation, base: Size, pipeline: Pipeline, earlier: Progress | None = None
) -> tuple[Plan, Progress]:
    """A plan for the conversation, and the progress that spares its next turn the work. `base` is the size of all that
    is not messages. `earlier` comes from a plan whose messages are the first of these, with the same base, pipeline and
    budget."""
    # The earlier one is another turn's; a new one is our own to change.
    progress = earlier.copy() if earlier else Progress(Kept(base, pipeline.counter), 0, {}, base)
    messages, lasting = conversation.messages, _lasting(conversation.messages)
    if progress.messages < lasting:
        progress = _walked(progress, messages[:lasting], pipeline)
    last = progress if lasting == len(messages) else _walked(progress.copy(), messages, pipeline)
    kept = last.kept
    if kept.batch_is_open or (not kept.complete and kept.over(pipeline.budget, pipeline.budget.fill)):
        kept = kept.copy()
        kept.end_batch()
        _limit_images(kept, pipeline)
        _settle(kept, pipeline)
    edits = tuple(kept.edits())
    fits = pipeline.budget.admits(kept.total)
    largest = () if fits else _largest(entry for entry in kept.entries if entry is not None)
    artifacts = _artifacts(kept, edits)
    sent = tuple(kept.rendered())
    made = Plan(edits, sent, last.before, kept.total, pipeline.budget, artifacts, largest, kept.blocks())
    return made, progress


def _lasting(messages: Sequence[Message]) -> int:
    """How many messages the next turn will begin with: not the words of the assistant at the end, which its answer
    will stand for."""
    count = len(messages)
    while count and messages[count - 1].role == "assistant":
        count -= 1
    return count


def _walked(progress: Progress, messages: Sequence[Message], pipeline: Pipeline) -> Progress:
    """The progress once it has been brought up to these messages; it is the caller's own."""
    kept, tools, before = progress.kept, progress.tools_by_call, progress.before
    for index in range(progress.messages, len(messages)):
        message = messages[index]
        for call in message.calls:
            tools[call.id] = call.name
        tool = message.name or tools.get(message.tool_call_id, "")
        entry = _prepared(index, message, tool, pipeline, pipeline.local)
        before += entry.original_size
        kept.add(entry)
        if kept.complete:
            _limit_images(kept, pipeline)
            _settle(kept, pipeline)
    return Progress(kept, len(messages), tools, before)


def cut_goal(budget: Budget) -> float:
    """The share of the room that a cut goes down to, before the note about it: always under what may be used up."""
    return (budget.low_mark - DIGEST_SHARE) * budget.fill


def _prepared(index: int, message: Message, tool: str, pipeline: Pipeline, steps: Sequence[LocalStep]) -> Entry:
    entry = Entry.of(index, message, tool, pipeline.counter)
    for step in steps:
        edits = tuple(step(index, entry.message, tool, pipeline.notices))
        if edits:
            entry = entry.edited(edits, pipeline.counter)
    return entry


def _limit_images(kept: Kept, pipeline: Pipeline) -> None:
    """One point of the replay for the number of images: when there are too many, the oldest are described until half of
    them are left, and of the newest messages no more than needed."""
    limit = pipeline.images
    if limit is None:
        return
    counts = [(entry, entry.images) for entry in kept.all() if entry.images]
    total = sum(count for _, count in counts)
    if total <= limit.max_images:
        return
    newest = kept.units[-1].start
    for entry, count in counts:
        if total <= (limit.max_images // 2 if entry.index < newest else limit.max_images):
            return
        kept.redo(_prepared(entry.index, entry.original, entry.tool, pipeline, limit.local))
        total -= count


def _settle(kept: Kept, pipeline: Pipeline) -> None:
    """One point of the replay: give something up if the high mark is passed."""
    budget = pipeline.budget
    if kept.over(budget, budget.fill) is None or kept.is_hopeless(budget):
        return
    _relieve(kept, pipeline, pipeline.reliefs, cut_goal(budget))
    kept.note_what_is_gone(pipeline.notices, int(budget.room_tokens * budget.fill * DIGEST_SHARE))
    if kept.over(budget, budget.fill) is not None:
        kept.note_what_is_gone(pipeline.notices, 0)
        _relieve(kept, pipeline, pipeline.last_resorts, budget.fill)
    if not budget.admits(kept.total):
        kept.drop_note()


def _relieve(kept: Kept, pipeline: Pipeline, reliefs: Sequence[Relief], goal_share: float) -> None:
    for relief in reliefs:
        for change in relief(kept):
            kept.apply(change)
            if pipeline.always is not None:
                kept.apply(Change(_done_again(kept, change, pipeline.always, pipeline.notices)))
            if kept.over(pipeline.budget, goal_share) is None:
                return


def _done_again(kept: Kept, change: Change, step: LocalStep, notices: Notices) -> tuple[Edit, ...]:
    """The edits of a local step to a message that was just changed."""
    index = change.edits[0].message if change.edits else None
    entry = kept.entries[index] if index is not None else None
    return () if entry is None else tuple(step(entry.index, entry.message, entry.tool, notices))


def _artifacts(kept: Kept, edits: Sequence[Edit]) -> tuple[Artifact, ...]:
    if not edits:
        return ()
    taken_out = [edit.artifact for edit in edits if edit.artifact is not None and edit.reason is not Reason.DIGEST]
    found = {artifact.id: artifact for artifact in (*kept.digest.artifacts, *taken_out)}
    return tuple(found.values())


def _largest(entries: Iterator[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.size.tokens, reverse=True)[:5])
