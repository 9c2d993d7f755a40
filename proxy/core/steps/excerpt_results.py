"""Tool results are cut down to what is left of the room: old ones on the edge of a cut, and at last the newest.

Rule: a relief. The excerpt is made anew from the whole result, not from an excerpt of it, and small results are spared
as long as large ones can give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from proxy.core.budget import Budget
from proxy.core.edits import Edit, Reason
from proxy.core.entry import Entry, content_texts
from proxy.core.excerpt import Limits
from proxy.core.kept import Kept
from proxy.core.measures import utf8_length
from proxy.core.notices import Notices
from proxy.core.steps.truncate_tool_output import shortened_result
from proxy.core.units import Change

_MIN_TEXT_BYTES: Final = 120
"""What is left of a result at the least, besides its notice."""
_LIMITS: Final = Limits()
_ATTEMPTS: Final = (1.0, 0.93, 0.8, 0.5, 0.2, 0.0)
"""Shares of the room that are tried one after the other: what an excerpt costs in tokens is known once it is made."""


@dataclass(frozen=True, slots=True)
class ExcerptNewestResults:
    """The last resort before a request is refused: the newest results themselves, to what fits."""

    notices: Notices
    budget: Budget

    def __call__(self, kept: Kept) -> Iterator[Change]:
        """One change for each result and attempt."""
        if not kept.units:
            return
        unit = kept.units[-1]
        for share in _ATTEMPTS:
            over = kept.over(self.budget, self.budget.fill)
            results = kept.results(unit)
            if over is None or not results:
                return
            held = sum(entry.size.tokens for entry in results)
            # Over in characters or bytes alone: the share of the results that has to go is the same in each unit.
            excess = max(
                over.tokens,
                held * over.chars // max(1, sum(entry.size.chars for entry in results)),
                held * over.bytes // max(1, sum(entry.size.bytes for entry in results)),
            )
            goal = int(max(0, held - excess) * share)
            yield from excerpted(results, goal, self.notices, Reason.NEWEST_RESULT)


def excerpted(
    entries: Sequence[Entry], goal_tokens: int, notices: Notices, reason: Reason, limits: Limits = _LIMITS
) -> Iterator[Change]:
    """Changes that bring messages down to about `goal_tokens` together, the largest giving most; `limits` besides."""
    left = goal_tokens
    for position, entry in enumerate(sorted(entries, key=lambda entry: entry.size.tokens)):
        allowed = left // (len(entries) - position)
        if entry.size.tokens > allowed:
            edits = tuple(_excerpted(entry, allowed, notices, reason, limits))
            if edits:
                yield Change(edits)
            left -= min(allowed, entry.size.tokens)
        else:
            left -= entry.size.tokens


def _excerpted(entry: Entry, allowed_tokens: int, notices: Notices, reason: Reason, limits: Limits) -> Iterator[Edit]:
    """Excerpts of a message's texts, so that all of it takes about so many tokens."""
    texts = [(path, text, utf8_length(text)) for path, text in content_texts(entry.whole)]
    whole_bytes = sum(length for _, _, length in texts)
    allowed_bytes = whole_bytes * allowed_tokens // max(1, entry.whole_size.tokens)
    for position, (path, text, length) in enumerate(sorted(texts, key=lambda found: found[2])):
        share = max(_MIN_TEXT_BYTES, allowed_bytes // (len(texts) - position))
        allowed_bytes -= min(share, length)
        if length > share:
            edit = shortened_result(
                entry.index, path, text, entry.tool, replace(limits, max_bytes=share), notices, reason
            )
            if edit is not None:
                yield edit
