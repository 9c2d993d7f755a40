"""How much a request may hold: the context window less what is reserved.

Rule: every limit that is set must hold, in tokens, characters and bytes. A guessed window is no limit: its room is used
only to compute shares, and nothing exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import Struct, structs

from proxy.core.conversation import MessageReport, Size
from proxy.core.models import Certainty, LimitName, ModelProfile

REPLY_SHARE: Final = 16
"""A sixteenth of the window is reserved for the reply if the request sets no reply limit."""
MAX_RESERVED_REPLY_TOKENS: Final = 4_096
MIN_REPLY_TOKENS: Final = 256
"""A reply limit is not lowered below this if the window has room for it: a reply that breaks off at once is worse than
an error. In a small window it is lowered to the reserve for the reply."""
LOW_MARK: Final = 0.57
"""Share of the usable room beside what must stay that is still in use after a cut; measured, see
docs/decisions/0003-what-to-give-up.md."""
EXACT_MARGIN: Final = 0.01
"""Margin for the frames of messages and tools, which every server builds a little differently, and for a ratio learned
from usage, which may be too low until it is raised (`shell/models/calibration.py`)."""
_FRAMES_MARGIN: Final = 0.02
"""Share of a limit in characters or bytes: it is not known what the upstream counts besides the texts."""
_USUAL_BYTES_PER_TOKEN: Final = 4
"""A high estimate for text, so that the shares of a limit in characters or bytes are rather too small."""
ESTIMATE_MARGIN: Final = 0.04
"""Margin for an estimate that has not yet been compared with any count."""
SILENT_MARGIN: Final = 0.06
"""Margin for any estimate where the upstream cuts silently, so that no refusal corrects it. Of 2 341 recorded turns of
agents at 4 096, counted by another vocabulary, 8 were cut with the margin of an exact count, and none with this one."""
ARRIVAL_SHARE: Final = 0.3
"""The largest share of the window, less what usually stays in it, that one tool result may take: a larger one is cut
once, when it arrives, and not again and again by the budget. Measured, docs/decisions/0003-what-to-give-up.md."""
_USUALLY_STAYS_TOKENS: Final = 2_000
"""System text, tools and task of an agent: a constant, because those of one request must not move the cuts of
another."""
_LEAST_SHARED: Final = 0.125
"""Share that tool results get at the least, in a window hardly larger than that."""
TASK_SHARE: Final = 0.1
"""Share of the room that the first user message keeps when it has to be cut: it holds the task, but may also hold a
document of any length."""

DIALOGUE_SHARE: Final = 0.05
"""Share of the room for short requests with their answers, which stay when the rest of their turns is left out."""
DIALOGUE_MARK: Final = 0.9
"""Share of the room above which these go, too: the rest is the least that a note gets beside them."""


class BudgetRules(Struct, frozen=True):
    """How the operator wants windows to be used."""

    fill: float = 1.0
    """Share of the room that may be used: the high mark."""
    low_mark: float = LOW_MARK
    """Share of the usable room beside what must stay that is still in use after a cut."""
    margin_tokens: int | None = None
    """A fixed margin instead of a share of the window."""
    clamp_reply: bool = True
    """Whether a request's reply limit may be lowered."""
    max_request_chars: int | None = None
    max_request_bytes: int | None = None


class Mark(Struct, frozen=True):
    """How large a request may be, in each unit that is limited."""

    tokens: int | None
    """None when the window is a guess."""
    chars: int | None = None
    bytes: int | None = None

    def excess(self, size: Size) -> Size | None:
        """A size's excess over the mark, in each unit; None if it exceeds it in none."""
        if (
            (self.tokens is None or size.tokens <= self.tokens)
            and (self.chars is None or size.chars <= self.chars)
            and (self.bytes is None or size.bytes <= self.bytes)
        ):
            return None
        return Size(
            0 if self.tokens is None else max(0, size.tokens - self.tokens),
            0 if self.chars is None else max(0, size.chars - self.chars),
            0 if self.bytes is None else max(0, size.bytes - self.bytes),
        )

    def share_beside(self, fixed: Size, share: float) -> Mark:
        """The mark at `fixed` plus a share of the remainder. The share is taken only of the remainder, so that the rest
        does not pay for what must stay."""
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


_NOTE_PARTS: Final = 64
"""Characters of one text for a token of a part of the note: a whole note has about a quarter of the text."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one request to one model."""

    room_tokens: int
    """Room for everything that is sent: messages and tools."""
    most_tokens: int | None = field(default=None, kw_only=True)
    """Limit of a second send if required content exceeds the room; None: the room."""
    room_is_guessed: bool = field(default=False, kw_only=True)
    """Whether the window is a guess. Then the room bounds nothing, and is no evidence either."""
    window_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether the upstream may accept a request over the room in tokens: no authority states the window, or the
    upstream takes any prompt and cuts it."""
    count_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether it may accept one because tokens are estimated and nothing has confirmed the estimate."""
    room_chars: int | None = None
    room_bytes: int | None = None
    bytes_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether it may accept one over the room in bytes: only refusals have shown that limit."""
    chars_may_be_wrong: bool = field(default=False, kw_only=True)
    """Whether the upstream may accept a request over the room in characters: only a refusal has stated that limit."""
    fill: float = 1.0
    """Share of the room that may be used: the high mark."""
    low_mark: float = LOW_MARK
    """Share of the usable room beside what must stay that is still in use after a cut."""
    ratio: float = 1.0
    """The upstream's tokens for one of ours."""
    note_tokens: int | None = None
    """Limit of each part of an omission note, where the upstream limits one text, which may have to carry it."""
    max_reply_tokens: int | None = None
    """Limit of prompt and reply together, if the reply limit of the request may be lowered to fit."""
    result_tokens: int | None = None
    """Limit of one tool result when it arrives. A share of the window, not of the room: the reply limit of a request
    must not move the cuts of earlier results."""
    reserved_reply_tokens: int = 0
    """Kept free for the reply."""
    usable_tokens: int = field(init=False, repr=False, compare=False)
    """How much of the room may be used: for shares, which are computed from a guess, too. Limits in characters and
    bytes bound it by what they hold of usual text."""
    high_mark: Mark = field(init=False, repr=False, compare=False)
    """How much may be used before something is given up."""
    ceiling: Mark = field(init=False, repr=False, compare=False)
    """Hard limit."""
    _refused_above: Mark = field(init=False, repr=False, compare=False)
    """Anything above is certain to be refused."""

    def __post_init__(self) -> None:
        """The marks are made once: many requests have the same budget, and each compares its size several times."""
        ceiling = structs.replace(self._mark(1.0), tokens=self.certain_room_tokens)
        may_be_more = self.window_may_be_wrong or self.count_may_be_wrong
        refused_above = Mark(
            None if may_be_more else ceiling.tokens,
            None if self.chars_may_be_wrong else ceiling.chars,
            None if self.bytes_may_be_wrong else ceiling.bytes,
        )
        limits = (self.room_chars, self.room_bytes)
        in_tokens = [limit // _USUAL_BYTES_PER_TOKEN for limit in limits if limit is not None]
        object.__setattr__(self, "usable_tokens", int(min([self.room_tokens, *in_tokens]) * self.fill))
        object.__setattr__(self, "high_mark", self._mark(self.fill))
        object.__setattr__(self, "ceiling", ceiling)
        object.__setattr__(self, "_refused_above", refused_above)

    def for_one_send(self, room_tokens: int, most_tokens: int | None = None) -> Budget:
        """The budget of a send that no later plan continues: its whole room is used, and `most_tokens` is for what must
        stay. It exceeds the usual room only if that may be wrong. Tool results keep the limits of their arrival:
        excerpts that were sent before are cut further only if needed."""
        is_open = self.room_is_guessed or self.window_may_be_wrong
        room = room_tokens if is_open else min(self.room_tokens, room_tokens)
        most = most_tokens if is_open or most_tokens is None else min(self.room_tokens, most_tokens)
        together = self.max_reply_tokens
        if together is not None and room > self.room_tokens:  # as large as the window must be for such a prompt
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

    def unbounded(self) -> Budget:
        """A copy for a request that is sent whatever its size."""
        return replace(
            self,
            room_is_guessed=True,
            window_may_be_wrong=True,
            room_chars=None,
            room_bytes=None,
            max_reply_tokens=None,
        )

    def for_bytes(self, room_bytes: int) -> Budget:
        """The budget of a send after a refusal for bytes, or of one that tries more: one cut, down to this room."""
        room = room_bytes if self.room_bytes is None or self.bytes_may_be_wrong else min(self.room_bytes, room_bytes)
        return replace(self, room_bytes=room, bytes_may_be_wrong=True, fill=1.0, low_mark=1.0)

    @property
    def ceiling_tokens(self) -> int:
        """Hard limit in tokens, guessed or not."""
        return self.room_tokens if self.most_tokens is None else max(self.room_tokens, self.most_tokens)

    @property
    def certain_room_tokens(self) -> int | None:
        """The room; None if it is only guessed."""
        return None if self.room_is_guessed else self.ceiling_tokens

    @property
    def task_tokens(self) -> int:
        """Maximum kept of the first user message when it has to be cut."""
        return int(self.usable_tokens * TASK_SHARE)

    @property
    def dialogue_tokens(self) -> int:
        """Room for short requests with their answers when the rest of their turns is left out."""
        return int(self.usable_tokens * DIALOGUE_SHARE)

    @property
    def dialogue_mark(self) -> Mark:
        """How much may be used before these go, too."""
        return self._mark(self.fill * DIALOGUE_MARK)

    def admits(self, size: Size) -> bool:
        """Whether a request of this size fits."""
        return self.ceiling.excess(size) is None

    def refuses(self, size: Size) -> bool:
        """Whether a request that cannot be made smaller than this is refused. If the room may be wrong, the request is
        sent and the upstream decides."""
        return self._refused_above.excess(size) is not None

    def model_tokens(self, tokens: int) -> int:
        """Tokens by our estimate, converted into the model's own: sizes and room are reported to people in these. A
        size that fits is never reported as larger than the room.

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
    reply_tokens: int | None,
    *,
    exact: bool,
    rules: BudgetRules,
    ratio: float = 1.0,
    reply_is_apart: bool = False,
) -> Budget:
    """The budget of a request whose reply limit is `reply_tokens`, or None if it sets none. `ratio`: the
    upstream's tokens for one of ours; the room is in ours, so that no size changes when the ratio does.

    A reply limit that may be lowered later need not be kept free now: a large one does not shrink the room. One that
    may not be lowered takes no more than 4 096 tokens or half of the window: nothing is cut for it alone, and the
    upstream judges the sum; but one that alone fills what a refusal has shown is lowered all the same. A rate that one
    request can exceed is like a window, or like an input limit where replies do not count, but nothing is refused for
    it.
    `reply_is_apart`: whether the upstream accepts a reply limit that goes beyond the window; then nothing is reserved.
    """
    window, is_guessed = profile.window_tokens, profile.window_is_guessed
    rate, of_prompts = profile.rate_tokens, profile.prompt_rate_tokens
    is_rated = rate is not None and (is_guessed or rate < window)
    if rate is not None and is_rated:
        window, is_guessed = rate, False
    is_shown = is_rated or profile.certainty is Certainty.LEARNED
    may_lower = rules.clamp_reply or (is_shown and reply_tokens is not None and reply_tokens >= window)
    reserve = min(window // REPLY_SHARE, MAX_RESERVED_REPLY_TOKENS, profile.output_tokens or window)
    if reply_tokens is not None:
        most = reserve if may_lower else min(MAX_RESERVED_REPLY_TOKENS, window // 2)
        reserve = min(most, reply_tokens)
    reserve = 0 if reply_is_apart else reserve
    share = EXACT_MARGIN if exact else SILENT_MARGIN if profile.cuts_silently else ESTIMATE_MARGIN
    widest = min(window, profile.input_tokens or window)
    is_prompt_rated = of_prompts is not None and (is_guessed or of_prompts < widest)
    if of_prompts is not None and is_prompt_rated:
        widest = of_prompts
    margin, of_input = int(window * share), int(widest * share)
    if rules.margin_tokens is not None:
        margin = of_input = rules.margin_tokens
    is_bounded = not (is_guessed and is_prompt_rated)  # a guess bounds nothing beside a rate
    room = min(window - reserve - margin, widest - of_input) if is_bounded else widest - of_input
    # If the upstream cuts prompts silently, even a guess is better than no limit.
    is_guessed = is_guessed and not profile.cuts_silently
    room_chars = _room_for(profile.input_chars, rules.max_request_chars)
    room_bytes = _room_for(profile.at_most.get(LimitName.BODY), rules.max_request_bytes)
    return Budget(
        max(0, int(room / ratio)),
        room_chars,
        room_bytes,
        rules.fill,
        rules.low_mark,
        room_is_guessed=is_guessed and is_bounded,
        window_may_be_wrong=is_rated
        or is_prompt_rated
        or profile.cuts_silently
        or profile.certainty is not Certainty.STATED,
        count_may_be_wrong=not exact and not profile.cuts_silently,  # a cut is no answer to whether it fits
        bytes_may_be_wrong=room_bytes != rules.max_request_bytes,
        chars_may_be_wrong=room_chars != rules.max_request_chars,
        max_reply_tokens=window - margin if may_lower and not is_guessed and not reply_is_apart else None,
        ratio=ratio,
        note_tokens=note_tokens(profile),
        result_tokens=int(max(widest - _USUALLY_STAYS_TOKENS, widest * _LEAST_SHARED) * ARRIVAL_SHARE / ratio),
        reserved_reply_tokens=reserve,
    )


def note_tokens(profile: ModelProfile) -> int | None:
    """`Budget.note_tokens` for a model."""
    longest = profile.at_most.get(LimitName.STRING)
    return None if longest is None else longest // _NOTE_PARTS


def _room_for(of_the_upstream: int | None, of_the_operator: int | None) -> int | None:
    """The smaller of two limits in characters or bytes, the upstream's less a margin for its frames."""
    limits = [] if of_the_operator is None else [of_the_operator]
    if of_the_upstream is not None:
        limits.append(int(of_the_upstream * (1 - _FRAMES_MARGIN)))
    return min(limits, default=None)


def clamped_reply(budget: Budget, reply_tokens: int | None, prompt_tokens: int) -> int | None:
    """The reply limit that fits beside a prompt of this size; None if the requested one fits or may not be lowered."""
    if reply_tokens is None or budget.max_reply_tokens is None:
        return None
    least = min(MIN_REPLY_TOKENS, budget.reserved_reply_tokens)
    fitting = max(least, budget.max_reply_tokens - math.ceil(prompt_tokens * budget.ratio))
    return fitting if fitting < reply_tokens else None


def in_model_tokens(blocks: Iterable[MessageReport], budget: Budget) -> tuple[MessageReport, ...]:
    """The reports with sizes in the model's tokens, for people."""
    model_tokens = budget.model_tokens
    return tuple(
        structs.replace(
            block, tokens_before=model_tokens(block.tokens_before), tokens_after=model_tokens(block.tokens_after)
        )
        for block in blocks
    )
