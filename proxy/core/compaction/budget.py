"""How much a request may hold: the window less what the reply needs and what the estimate may be wrong by.

Rule: all limits that are set must hold at once, in tokens, characters and bytes. A guessed window is no limit: its room
serves for shares, and nothing is over it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.core.conversation.size import Size
from proxy.core.models.profile import ModelProfile, Witness

REPLY_SHARE: Final = 16
"""A sixteenth of the window is kept for a reply of which the request says nothing."""
MAX_RESERVED_REPLY_TOKENS: Final = 4_096
MIN_REPLY_TOKENS: Final = 256
"""A reply limit is not lowered under this where the window has room for it: an answer that breaks off at once is worse
than an error. In a small window it is lowered to what is kept free for a reply there."""
LOW_MARK: Final = 0.59
"""Share of what may be used up beside what cannot be given up, that stays after a cut; measured, see
docs/decisions/0003-what-to-give-up.md."""
EXACT_MARGIN: Final = 0.01
"""For the frames of messages and tools, which every server builds a little differently; and for what a ratio that usage
has taught may be too low before it is raised (`shell/models/calibration.py`)."""
_CHARS_MARGIN: Final = 0.02
"""Of a limit in characters: what its upstream counts besides the texts is not known."""
ESTIMATE_MARGIN: Final = 0.04
"""For an estimate that nothing has been held against yet."""
ARRIVAL_SHARE: Final = 0.3
"""Of the window less what usually stays in it, for one tool result at the most: a larger one is cut once, when it
arrives, and not again and again by the budget. Measured, docs/decisions/0003-what-to-give-up.md."""
_USUALLY_STAYS_TOKENS: Final = 2_000
"""System text, tools and task of an agent: a constant, as those of one request must not move the cuts of another."""
_LEAST_SHARED: Final = 0.125
"""Of a window that is hardly larger than that, for results all the same."""


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """How the operator wants windows to be used."""

    fill: float = 1.0
    """Share of the room that may be used up: the high mark."""
    low_mark: float = LOW_MARK
    """Share of what may be used up beside what cannot be given up, that stays when something is given up."""
    margin_tokens: int | None = None
    """Fixed, in place of a share of the window."""
    clamp_reply: bool = True
    """Whether a request's reply limit may be lowered."""
    max_request_chars: int | None = None
    max_request_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """What a request may take up, in each unit that is limited."""

    tokens: int | None
    """None when the window is a guess."""
    chars: int | None = None
    bytes: int | None = None

    def excess(self, size: Size) -> Size | None:
        """By how much a size is over, in each unit; None when it is not over in any."""
        tokens = size.tokens - self.tokens if self.tokens is not None else 0
        chars = size.chars - self.chars if self.chars is not None else 0
        in_bytes = size.bytes - self.bytes if self.bytes is not None else 0
        if tokens <= 0 and chars <= 0 and in_bytes <= 0:
            return None
        return Size(max(0, tokens), max(0, chars), max(0, in_bytes))

    def share_beside(self, fixed: Size, share: float) -> Mark:
        """The mark at `fixed` and a share of what is left beside it: what cannot be given up leaves that much less to
        share, and must not be paid for by the rest."""
        return Mark(
            _share_beside(self.tokens, fixed.tokens, share),
            _share_beside(self.chars, fixed.chars, share),
            _share_beside(self.bytes, fixed.bytes, share),
        )


def _share_beside(whole: int | None, fixed: int, share: float) -> int | None:
    if whole is None:
        return None
    fixed = min(whole, fixed)
    return fixed + int((whole - fixed) * share)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one request to one model may hold."""

    room_tokens: int
    """For everything that is sent: messages and tools."""
    most_tokens: int | None = field(default=None, kw_only=True)
    """What a second send may hold where what has to stay is more than its room; None: no more."""
    room_is_guessed: bool = field(default=False, kw_only=True)
    """Whether the window is a guess. Then the room bounds nothing, and is no evidence either."""
    window_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether a request over the room in tokens may be taken all the same: nobody who must know states the window, or
    the upstream takes any prompt and cuts it."""
    count_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether it may be taken because tokens are estimated, and nothing has confirmed the estimate."""
    room_chars: int | None = None
    room_bytes: int | None = None
    chars_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether a request over the room in characters may be taken all the same: only a refusal has named it."""
    fill: float = 1.0
    """Share of the room that may be used up: the high mark."""
    low_mark: float = LOW_MARK
    """Share of what may be used up beside what cannot be given up, that stays when something is given up."""
    ratio: float = 1.0
    """The upstream's tokens for one of ours."""
    max_reply_tokens: int | None = None
    """For prompt and reply together, when the reply limit of the request may be lowered to fit."""
    result_tokens: int | None = None
    """For one tool result when it arrives. Of the window and not of the room: the reply that a request asks for must
    not move the cuts of earlier results."""
    reserved_reply_tokens: int = 0
    """Kept free for the reply."""

    def for_one_send(self, room_tokens: int, most_tokens: int | None = None) -> Budget:
        """The budget of a send that no other goes on from: a room all of which is used, and `most_tokens` for what has
        to stay. Larger than the room of all others only where that may be wrong. Results keep the limits at which they
        arrived: what was sent of them first is cut further only where that is needed."""
        is_open = self.room_is_guessed or self.window_may_be_wrong
        room = room_tokens if is_open else min(self.room_tokens, room_tokens)
        most = most_tokens if is_open or most_tokens is None else min(self.room_tokens, most_tokens)
        together = self.max_reply_tokens
        if together is not None and room > self.room_tokens:  # as large as the window has to be for such a prompt
            together += int((room - self.room_tokens) * self.ratio)
        return replace(
            self,
            room_tokens=room,
            most_tokens=most,
            room_is_guessed=False,
            fill=1.0,
            low_mark=1.0,
            max_reply_tokens=together,
        )

    @property
    def ceiling_tokens(self) -> int:
        """What must not be passed, guessed or not."""
        return self.room_tokens if self.most_tokens is None else max(self.room_tokens, self.most_tokens)

    @property
    def certain_room_tokens(self) -> int | None:
        """The room; None when it is only guessed."""
        return None if self.room_is_guessed else self.ceiling_tokens

    @property
    def usable_tokens(self) -> int:
        """What may be used up of the room: for shares, which are taken of a guess, too."""
        return int(self.room_tokens * self.fill)

    @property
    def high_mark(self) -> Mark:
        """What may be used up before something is given up."""
        return self._mark(self.fill)

    @property
    def ceiling(self) -> Mark:
        """What must not be passed."""
        return replace(self._mark(1.0), tokens=self.certain_room_tokens)

    def admits(self, size: Size) -> bool:
        """Whether a request of this size fits."""
        return self.ceiling.excess(size) is None

    def refuses(self, size: Size) -> bool:
        """Whether a request that cannot be made smaller than this is not sent. Where the room may be wrong, the
        upstream is asked."""
        sure = self.ceiling
        if self.window_may_be_wrong or self.count_may_be_wrong:
            sure = replace(sure, tokens=None)
        if self.chars_may_be_wrong:
            sure = replace(sure, chars=None)
        return sure.excess(size) is not None

    def model_tokens(self, tokens: int) -> int:
        """Tokens by our estimate, in the model's own: as people are told sizes and room. What fits stays within what is
        told of the room.

        >>> budget = Budget(room_tokens=18_350, ratio=0.85)
        >>> budget.model_tokens(18_350), budget.model_tokens(10_000)
        (15597, 8500)
        """
        return int(tokens * self.ratio)

    def _mark(self, share: float) -> Mark:
        return Mark(
            None if self.room_is_guessed else int(self.room_tokens * share),
            None if self.room_chars is None else int(self.room_chars * share),
            None if self.room_bytes is None else int(self.room_bytes * share),
        )


def budget_for(
    profile: ModelProfile,
    asked_reply_tokens: int | None,
    *,
    exact: bool,
    rules: BudgetRules,
    ratio: float = 1.0,
    reply_is_apart: bool = False,
) -> Budget:
    """The budget of a request that asks for a reply of so many tokens, or does not say. `ratio`: the upstream's tokens
    for one of ours; the room is in ours, so that no size changes when the ratio does.

    What may be lowered later need not be kept free now: the room does not follow a large wish for a reply.
    `reply_is_apart`: whether the upstream takes a reply limit that goes beyond the window: nothing is kept free then.
    """
    window = profile.window_tokens
    reserve = min(window // REPLY_SHARE, MAX_RESERVED_REPLY_TOKENS, profile.output_tokens or window)
    if asked_reply_tokens is not None:
        reserve = min(reserve, asked_reply_tokens) if rules.clamp_reply else asked_reply_tokens
    reserve = 0 if reply_is_apart else reserve
    margin = rules.margin_tokens
    if margin is None:
        margin = int(window * (EXACT_MARGIN if exact else ESTIMATE_MARGIN))
    room = window - reserve - margin
    widest = min(window, profile.input_tokens or window)
    if profile.input_tokens is not None:
        room = min(room, profile.input_tokens - margin)
    # Where a prompt is cut without a word, even a guess is better than none.
    is_guessed = profile.window_is_guessed and not profile.cuts_silently
    room_chars = _room_chars(profile, rules)
    return Budget(
        max(0, int(room / ratio)),
        room_chars,
        rules.max_request_bytes,
        rules.fill,
        rules.low_mark,
        room_is_guessed=is_guessed,
        window_may_be_wrong=profile.cuts_silently or profile.witness is not Witness.STATED,
        count_may_be_wrong=not exact,
        chars_may_be_wrong=room_chars != rules.max_request_chars,
        max_reply_tokens=window - margin if rules.clamp_reply and not is_guessed and not reply_is_apart else None,
        ratio=ratio,
        result_tokens=int(max(widest - _USUALLY_STAYS_TOKENS, widest * _LEAST_SHARED) * ARRIVAL_SHARE / ratio),
        reserved_reply_tokens=reserve,
    )


def _room_chars(profile: ModelProfile, rules: BudgetRules) -> int | None:
    """Of the operator's limit and the upstream's, less what may be between its frames and ours, the smaller one."""
    limits = [rules.max_request_chars] if rules.max_request_chars is not None else []
    if profile.input_chars is not None:
        limits.append(int(profile.input_chars * (1 - _CHARS_MARGIN)))
    return min(limits, default=None)


def clamped_reply(budget: Budget, asked_reply_tokens: int | None, prompt_tokens: int) -> int | None:
    """The reply limit that fits beside a prompt of this size; None when the asked one does, or may not be lowered."""
    if asked_reply_tokens is None or budget.max_reply_tokens is None:
        return None
    least = min(MIN_REPLY_TOKENS, budget.reserved_reply_tokens)
    fitting = max(least, budget.max_reply_tokens - math.ceil(prompt_tokens * budget.ratio))
    return fitting if fitting < asked_reply_tokens else None
