"""Messages are cut down to the rest of the room: results on the edge of a cut, and, as a last resort, messages that
must stay.

Rule: compaction steps. An excerpt is always made from the whole message, not from an earlier excerpt, and small
messages are spared as long as large ones can be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.compaction.budget import Mark
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.compaction.steps.shorten_arguments import shortened_arguments
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.exchange import Change
from proxy.core.conversation.message import Address
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.writing import Notices
from proxy.core.text.excerpt import ExcerptLimits
from proxy.core.text.lines import utf8_length
from proxy.core.truncation.truncate_tool_output import shortened_result

_MIN_TEXT_BYTES: Final = 120
"""The least that is left of a text, besides its notice."""
RESULT_LIMITS: Final = ExcerptLimits()
TEXT_LIMITS: Final = ExcerptLimits(max_lines=1_000_000, head_share=0.5)
"""For texts of people and models: neither end is worth more."""
_ATTEMPTS: Final = (1.0, 0.93, 0.8, 0.5, 0.2, 0.0)
"""Shares of the room, tried in turn: what an excerpt costs in tokens is known only after it is made."""
_Allowed: TypeAlias = dict[tuple[int, Address], int]
"""The bytes that were last allowed to each text, by its message and its place there."""


class CutToFit(Struct, frozen=True):
    """A last resort before a request is refused: messages that must stay are cut to what fits."""

    notices: Notices
    messages: Callable[[ContextWindow], Sequence[TrackedMessage]]
    """Which messages."""
    reason: Reason
    limits: ExcerptLimits = RESULT_LIMITS
    least_tokens: int = 0
    """What all of them together keep."""
    times: float = 1.0
    """Factor on the goal in tokens: messages are cut down only to the goal times this."""

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message and attempt."""
        if goal.tokens is not None:
            goal = replace(goal, tokens=int(goal.tokens * self.times))
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
    """Of which messages."""

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
    notices = notices if entry.read is None else replace(notices, read=entry.read)
    texts = [(path, text, utf8_length(text)) for path, text in entry.whole.texts()]
    whole_bytes = sum(length for _, _, length in texts)
    allowed_bytes = whole_bytes * allowed_tokens // max(1, entry.whole_size.tokens)
    for position, (path, text, length) in enumerate(sorted(texts, key=lambda found: found[2])):
        share = max(_MIN_TEXT_BYTES, allowed_bytes // (len(texts) - position))
        allowed_bytes -= min(share, length)
        if length > share and last_allowed.get((entry.index, path)) != share:
            last_allowed[entry.index, path] = share
            edit = shortened_result(
                entry.index, path, text, entry.tool, replace(limits, max_bytes=share), notices, reason
            )
            if edit is not None:
                yield edit
