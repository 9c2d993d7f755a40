"""Limits of how many or how much of something one request may hold, besides its size.

Rule: a point of the watermark replay, like any cut: what is over a cap is described or left out, the oldest first,
until half of the cap is left, so that the prefix stays the same until the next cut. In the newest exchange it is no
more than needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.note import NoteRoom
from proxy.core.compaction.window import ContextWindow
from proxy.core.conversation import Change, LocalStep, ToolExchange
from proxy.core.media import Measure
from proxy.core.notices import Notices
from proxy.core.tokens import Counter


class Cap(Struct, frozen=True):
    """One limit."""

    most: int
    """Of all messages together."""
    measure: Measure
    """What one message has of it."""
    local: tuple[LocalStep, ...] | None = None
    """The local steps for a message that may have no more of it; None, or where they change nothing: its exchange is
    left out."""
    beyond_images: int = 0
    """It applies only to a request with more images than this."""


def add_to_caps(window: ContextWindow, caps: Sequence[Cap]) -> None:
    """Count what the newest message adds."""
    entry = window.entries[-1]
    assert entry is not None, "only whole units are left out"
    held = window.held or (0,) * len(caps)
    window.held = tuple([count + cap.measure(entry) for count, cap in zip(held, caps, strict=True)])
    window.images_at_most += entry.images


def is_over_a_cap(window: ContextWindow, caps: Sequence[Cap]) -> bool:
    """Whether the request may be over any cap: counts are of messages as they were added."""
    return any(_may_be_over(window, cap, count) for cap, count in zip(caps, window.held, strict=False))


def _may_be_over(window: ContextWindow, cap: Cap, count: int) -> bool:
    return count > cap.most and (not cap.beyond_images or window.images_at_most > cap.beyond_images)


def keep_to_caps(
    window: ContextWindow, caps: Sequence[Cap], notices: Notices, counter: Counter, budget: Budget
) -> None:
    """One point of the replay."""
    held = list(window.held)
    for index, cap in enumerate(caps if held else ()):
        if _may_be_over(window, cap, held[index]):
            window.images_at_most = sum(entry.images for entry in window.all())
            held[index] = sum(cap.measure(entry) for entry in window.all())
            if _may_be_over(window, cap, held[index]):
                held[index] = _kept_to(window, cap, held[index], notices, counter, budget)
    window.held = tuple(held)


def _kept_to(window: ContextWindow, cap: Cap, total: int, notices: Notices, counter: Counter, budget: Budget) -> int:
    """Come down to half of one cap; returns what is left."""
    newest = window.newest[0].start if window.units else 0
    going = {unit.start: units for units in window.removable() for unit in units}
    gone = list[ToolExchange]()
    for index in range(len(window.entries)):
        entry = window.entries[index]
        if total <= (cap.most // 2 if index < newest else cap.most):
            break
        if entry is None or not (has := cap.measure(entry)):
            continue
        if cap.local is not None:
            again = entry.prepared_again(cap.local, notices, counter)
            if (less := cap.measure(again)) < has:
                window.redo(again)
                total, has = total - has + less, less
        unit = next(unit for unit in window.units if unit.start <= index < unit.stop)
        is_only_way = cap.local is None and not cap.most and unit.role != "user" and not unit.must_stay
        units = going.get(unit.start, (unit,) if is_only_way else ())
        if not has or not units or (cap.local is not None and entry.is_system_text):
            continue
        total -= sum(cap.measure(one) for each in units for one in window.in_unit(each))
        gone += units
        window.apply(Change(units=units))
    if gone:
        window.take_note_off()
        bounded = replace(budget, room_is_guessed=False)  # a guess serves for shares
        room = NoteRoom.beside(window.fixed(budget.task_tokens), window.total, bounded)
        window.note_what_is_gone(notices, room)
    return total
