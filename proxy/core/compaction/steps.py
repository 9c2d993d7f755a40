"""Compaction steps, in the order in which they give up content.

Rule: what an agent can do without goes first, its task goes last. A step yields changes and makes none. Calls and
results go together; an excerpt is made from the whole message, never from an earlier excerpt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, structs

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Budget, Mark
from proxy.core.compaction.window import ContextWindow
from proxy.core.conversation import (
    TOOL_ROLES,
    Address,
    Change,
    Edit,
    LocalStep,
    Reason,
    Spot,
    ToolExchange,
    TrackedMessage,
)
from proxy.core.notices import Notices, is_ours
from proxy.core.text import ExcerptLimits, utf8_length
from proxy.core.tokens import Counter
from proxy.core.truncation import shortened_arguments, shortened_result

CompactionStep: TypeAlias = Callable[[ContextWindow, Mark], Iterator[Change]]
"""Yields what it would give up next to come down to a mark; the runner makes each change, and stops when that is
enough."""


_MIN_TEXT_BYTES: Final = 120
"""The least that is left of a text, besides its notice."""
RESULT_LIMITS: Final = ExcerptLimits()
TEXT_LIMITS: Final = ExcerptLimits(max_lines=1_000_000, head_share=0.5)
"""Limits for texts of people and models: neither end is worth more."""
_ATTEMPTS: Final = (1.0, 0.93, 0.8, 0.5, 0.2, 0.0)
"""Shares of the room, tried in turn: what an excerpt costs in tokens is known only after it is made."""
_Allowed: TypeAlias = dict[tuple[int, Address], int]
"""The bytes that were last allowed to each text, by its message and its place there."""


class CutToFit(Struct, frozen=True):
    """A last resort before a request is refused: messages that must stay are cut to what fits."""

    notices: Notices
    messages: Callable[[ContextWindow], Sequence[TrackedMessage]]
    reason: Reason
    limits: ExcerptLimits = RESULT_LIMITS
    least_tokens: int = 0
    """Minimum kept by all of them together."""
    times: float = 1.0
    """Factor on the goal in tokens: messages are cut down only to the goal times this."""

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message and attempt."""
        if goal.tokens is not None:
            goal = structs.replace(goal, tokens=int(goal.tokens * self.times))
        last_allowed: _Allowed = {}
        for share in _ATTEMPTS:
            over, entries = window.over(goal), self.messages(window)
            if over is None or not entries:
                return
            held = sum(entry.size.tokens for entry in entries)
            # If only characters or bytes exceed the goal, the same share of the messages must go in each unit.
            excess = max(
                over.tokens,
                held * over.chars // max(1, sum(entry.size.chars for entry in entries)),
                held * over.bytes // max(1, sum(entry.size.bytes for entry in entries)),
            )
            left = max(self.least_tokens, int(max(0, held - excess) * share))
            yield from excerpted(entries, left, self.notices, self.reason, self.limits, last_allowed)


class CutArguments(Struct, frozen=True):
    """A last resort: the arguments of calls are cut to what fits."""

    notices: Notices
    messages: Callable[[ContextWindow], Sequence[TrackedMessage]]
    """Selects the messages to shorten."""

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message and attempt."""
        for share in _ATTEMPTS:
            for entry in self.messages(window):
                over = window.over(goal)
                if over is None:
                    return
                arguments = list(entry.original.arguments())
                whole_bytes = sum(utf8_length(one.text) for one in arguments)
                # In a message that is too long because of its arguments, they are nearly all of it.
                bytes_per_token = whole_bytes / max(1, entry.original_size.tokens)
                excess = max(over.tokens * bytes_per_token, over.chars, over.bytes)
                held = sum(utf8_length(one.text) for one in entry.message.arguments())
                left = max(0.0, held - excess) * share / max(1, whole_bytes)
                edits = (
                    shortened_arguments(
                        entry.index, one, int(utf8_length(one.text) * left), self.notices, Reason.NEWEST_TEXT
                    )
                    for one in arguments
                )
                found = tuple(edit for edit in edits if edit is not None)
                if found:
                    yield Change(found)


def excerpted(
    entries: Sequence[TrackedMessage],
    goal_tokens: int,
    notices: Notices,
    reason: Reason,
    limits: ExcerptLimits = RESULT_LIMITS,
    last_allowed: _Allowed | None = None,
) -> Iterator[Change]:
    """Changes that bring messages down to about `goal_tokens` together, the largest giving most; `limits` also
    hold. `last_allowed`: by earlier attempts, whose excerpts are not made again."""
    last_allowed = {} if last_allowed is None else last_allowed
    left = goal_tokens
    for position, entry in enumerate(sorted(entries, key=lambda entry: entry.size.tokens)):
        allowed = left // (len(entries) - position)
        if entry.size.tokens > allowed:
            edits = tuple(_excerpted(entry, allowed, notices, reason, limits, last_allowed))
            if edits:
                yield Change(edits)
            left -= min(allowed, entry.size.tokens)
        else:
            left -= entry.size.tokens


def _excerpted(
    entry: TrackedMessage,
    allowed_tokens: int,
    notices: Notices,
    reason: Reason,
    limits: ExcerptLimits,
    last_allowed: _Allowed,
) -> Iterator[Edit]:
    """Excerpts of a message's texts that bring the whole message to about `allowed_tokens`."""
    texts = [(path, text, utf8_length(text)) for path, text in entry.whole.texts()]
    whole_bytes = sum(length for _, _, length in texts)
    allowed_bytes = whole_bytes * allowed_tokens // max(1, entry.whole_size.tokens)
    for position, (path, text, length) in enumerate(sorted(texts, key=lambda found: found[2])):
        share = max(_MIN_TEXT_BYTES, allowed_bytes // (len(texts) - position))
        allowed_bytes -= min(share, length)
        if length > share and last_allowed.get((entry.index, path)) != share:
            last_allowed[entry.index, path] = share
            spot = Spot(entry.index, path, text, entry.tool)
            edit = shortened_result(spot, structs.replace(limits, max_bytes=share), notices, reason)
            if edit is not None:
                yield edit


Showing: TypeAlias = Callable[[int], Sequence[LocalStep]]
"""The local steps for a message that keeps a given number of images, its last ones; none at all with 0."""


class DescribeOldMedia(Struct, frozen=True):
    """If bytes are short, describes media in tool results, the oldest first, except in the newest exchange."""

    showing: Showing
    notices: Notices
    counter: Counter

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message."""
        for entry in window.before(window.newest[0].start) if window.units else ():
            excess = window.over(goal)
            if excess is None or not excess.bytes:
                return
            # It may have brought media that are sent elsewhere.
            if entry.original.role in TOOL_ROLES and (entry.moved or entry.message.media()):
                steps = self.showing(0)
                yield Change(redone=entry.prepared_again(steps, self.notices, self.counter))


class DescribeImages(Struct, frozen=True):
    """A last resort: images in messages that must stay are described, the oldest first, and no more than needed."""

    showing: Showing
    notices: Notices
    counter: Counter

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message and each number of images that stay: half as many each time; none at once if any
        would be too many, because each try reads all parts of the message."""
        for entry in window.staying():
            shown = entry.images
            if not shown:
                continue
            none = self._prepared(entry, 0)
            over = goal.excess(window.total - entry.sent_size + none.size)
            shown = 0 if over is not None and over.tokens else shown // 2
            while shown:
                yield Change(redone=self._prepared(entry, shown))
                shown //= 2
            yield Change(redone=none)

    def _prepared(self, entry: TrackedMessage, shown: int) -> TrackedMessage:
        return entry.prepared_again(self.showing(shown), self.notices, self.counter)


class DropOldReasoning(Struct, frozen=True):
    """Goes through the turns before the last user message, the oldest first."""

    notices: Notices
    messages: Callable[[ContextWindow], Iterable[TrackedMessage]] = ContextWindow.finished
    keep_chars: int = 2_000
    """Shorter reasoning stays: the saving would not be worth a changed prefix."""

    def __call__(self, window: ContextWindow, _: Mark) -> Iterator[Change]:
        """One change for each message."""
        for entry in self.messages(window):
            if entry.message.reasoning_bytes < self.keep_chars:
                continue  # JSON is never shorter than its text
            edits: list[Edit] = []
            for found in entry.original.reasoning():
                length = len(found.raw if found.text is None else found.text)
                if length > self.keep_chars:
                    whole = Artifact(found.raw, "reasoning", "json")
                    note = self.notices.reasoning(whole, length)
                    if len(note) < length:
                        edit = Edit(entry.index, found.at, note, Reason.OLD_REASONING, whole, "", length, len(note))
                        edits.append(edit)
            if edits:
                yield Change(tuple(edits))


LONG_TEXT_CHARS: Final = 30_000
"""Texts up to this length stay: documents that people paste are meant to be read."""
TEXT_HEAD_SHARE: Final = 0.75
"""Share of the kept text that is its beginning: unlike a program, a document says first what it is about."""


class ShortenOldTexts(Struct, frozen=True):
    """Goes through the turns before the last user message, the oldest first."""

    notices: Notices
    over_chars: int = LONG_TEXT_CHARS
    keep_share: float = 0.8
    """Share of a cut text that is kept: its beginning and its end."""

    def __call__(self, window: ContextWindow, _: Mark) -> Iterator[Change]:
        """One change for each text."""
        for entry in window.finished():
            if entry.message.role not in ("user", "assistant") or len(entry.message.raw) <= self.over_chars:
                continue
            for path, text in entry.message.texts():
                if len(text) > self.over_chars and not is_ours(text):
                    limits = ExcerptLimits(
                        len(text), int(utf8_length(text) * self.keep_share), head_share=TEXT_HEAD_SHARE
                    )
                    spot = Spot(entry.index, path, text)
                    edit = shortened_result(spot, limits, self.notices, Reason.LONG_OLD_TEXT)
                    if edit is not None:
                        yield Change((edit,))


_TEXT_LIMITS: Final = ExcerptLimits(max_lines=1_000_000, head_share=TEXT_HEAD_SHARE)
_WORTH_CUTTING: Final = 1.25
"""Results and very long texts that exceed the remaining excess by this factor are cut, not left out."""


class LeaveOutExchanges(Struct, frozen=True):
    """Gives up whole units until the kept messages are down to the goal."""

    notices: Notices
    task_tokens: int
    """Minimum kept of the first user message."""
    dialogue_tokens: int
    """Tokens for short requests with their answers, which go last."""
    dialogue_mark: Mark
    """Size above which these go, too. Below it they stay, even if that leaves less for the note: they are small, and a
    single large result would otherwise take all of them, for good."""

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each unit."""
        turns = [unit.start for unit in window.units if unit.role == "user"]
        tasks, second_turn = window.tasks(), turns[1] if len(turns) > 1 else len(window.entries)
        dialogue = window.dialogue(self.dialogue_tokens)
        removable = window.removable(dialogue)
        is_worth_a_note = window.has_gaps or self._outweighs_a_note(window, removable)
        for units in removable:
            if tasks and units[0].start >= second_turn:
                yield from self._shorter_first_turn(window, goal, tasks)
                tasks = []
            over = window.over(self.dialogue_mark if units in dialogue else goal)
            if over is None:
                return
            texts = [entry for unit in units for entry in window.in_unit(unit) if _is_long_text(entry)]
            for entries, reason, limits in (
                (window.results(units[0]), Reason.OLD_RESULT, ExcerptLimits()),
                (texts, Reason.LONG_OLD_TEXT, _TEXT_LIMITS),
            ):
                held = sum(entry.size.tokens for entry in entries)
                if held > over.tokens * _WORTH_CUTTING and not over.chars and not over.bytes:
                    yield from excerpted(entries, held - over.tokens, self.notices, reason, limits)
                    if window.over(goal) is None:
                        return
            if is_worth_a_note:
                yield Change(units=units)
        if tasks:
            yield from self._shorter_first_turn(window, goal, tasks)

    def _outweighs_a_note(self, window: ContextWindow, removable: Sequence[Sequence[ToolExchange]]) -> bool:
        """True if these units together are longer than the shortest note about them."""
        held = sum(entry.size.bytes for units in removable for unit in units for entry in window.in_unit(unit))
        note = self.notices.omission_note(Artifact(b"", suffix="json"), len(window.entries), held)
        return held > utf8_length(note)

    def _shorter_first_turn(self, window: ContextWindow, goal: Mark, tasks: list[TrackedMessage]) -> Iterator[Change]:
        """Cuts what stays of the first turn: the results that separate two user messages, and what users wrote before
        their last message, as far as needed, but never below its share."""
        yield from CutToFit(self.notices, ContextWindow.separating_results, Reason.OLD_RESULT)(window, goal)
        for entry in tasks:
            over = window.over(goal)
            if over is None:
                return
            tokens = entry.size.tokens - (over.tokens or entry.size.tokens)
            least = max(self.task_tokens, tokens)
            yield from excerpted([entry], least, self.notices, Reason.LONG_OLD_TEXT, _TEXT_LIMITS)


def _is_long_text(entry: TrackedMessage) -> bool:
    """Whether a message is as long as a file: aider, for example, puts all files of a project into one message."""
    return entry.whole.role in ("user", "assistant") and entry.whole_size.chars > LONG_TEXT_CHARS


MAY_BE_OVER: Final = 1.5
"""Factor by which an estimate may exceed the true count: for English prose, one was 1.47 times the count by a
vocabulary that knows it well. Text that people wrote is not cut because of such an estimate, nor is a tool's newest
result cut to nothing: the request is sent first, and the upstream decides."""


def compaction_steps(
    notices: Notices, budget: Budget, showing: Showing, counter: Counter
) -> tuple[CompactionStep, ...]:
    """Tried in order until the low mark is reached."""
    return (
        DescribeOldMedia(showing, notices, counter),
        DropOldReasoning(notices),
        ShortenOldTexts(notices),
        LeaveOutExchanges(notices, budget.task_tokens, budget.dialogue_tokens, budget.dialogue_mark),
    )


def last_resorts(
    notices: Notices,
    budget: Budget,
    showing: Showing,
    counter: Counter,
    *,
    was_refused: bool = False,
) -> tuple[CompactionStep, ...]:
    """Tried in order before a request is refused: only system texts and tools are never cut. `was_refused`: whether the
    upstream has refused a larger request."""
    times = MAY_BE_OVER if budget.count_may_be_wrong and not was_refused else 1.0

    def texts(of: Callable[[ContextWindow], Sequence[TrackedMessage]], least_tokens: int = 0) -> CutToFit:
        return CutToFit(notices, of, Reason.NEWEST_TEXT, TEXT_LIMITS, least_tokens, times)

    least = budget.task_tokens
    results = CutToFit(notices, ContextWindow.newest_results, Reason.NEWEST_RESULT)
    some_of_them = structs.replace(results, least_tokens=least)
    return (
        CutToFit(notices, ContextWindow.separating_results, Reason.OLD_RESULT),
        DropOldReasoning(notices, ContextWindow.separating_thoughts, keep_chars=0),
        CutToFit(notices, ContextWindow.separating_words, Reason.LONG_OLD_TEXT, TEXT_LIMITS),
        CutArguments(notices, ContextWindow.separating_words),
        some_of_them,
        DescribeImages(showing, notices, counter),
        some_of_them,  # messages just prepared anew are whole again
        texts(ContextWindow.newest_words),
        CutArguments(notices, ContextWindow.newest_words),
        texts(ContextWindow.tasks, least),
        texts(ContextWindow.last_request, budget.usable_tokens // 2),  # or a model reads the newest result in vain
        structs.replace(results, times=times),
        texts(ContextWindow.last_request),
        texts(ContextWindow.tasks),
    )


def sparing(resorts: Iterable[CompactionStep], least_tokens: int) -> tuple[CompactionStep, ...]:
    """The steps with a floor: none cuts below so much of what the model works on."""
    newest = (Reason.NEWEST_RESULT, Reason.NEWEST_TEXT)
    return tuple(
        structs.replace(one, least_tokens=one.least_tokens or least_tokens)
        if isinstance(one, CutToFit) and one.reason in newest
        else one
        for one in resorts
    )
