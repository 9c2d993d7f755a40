"""Whether an upstream has silently cut a prompt, decided by its token counts.

Rule: a count that a different tokenizer may explain proves nothing. A cut is proven by a count far below the estimate
that is a window, alone or with its reply, or what Ollama leaves of one; or, on one's own server, by a count that has no
other explanation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SMALLEST_WINDOW_TOKENS: Final = 4_096
"""The smallest window that servers give by default (Ollama, Docker Model Runner, LM Studio): if a count is not itself a
window, no smaller one is concluded from it."""
_WINDOW_STEP: Final = 1_024
"""Allocated windows are multiples of this, from two on; one count in a thousand is one by chance."""
_OVER_HALF: Final = (2, 3)
"""What Ollama's runner leaves of a prompt beyond half of the window, which is all that it then reads: 2 050 of 4 096
(github.com/ollama/ollama/issues/17889), 16 387 of 32 768 (github.com/ollama/ollama/issues/3839)."""
_LANDED_SHARE: Final = 0.9
"""Of the expectation of the model's own counter: a lower count that equals a window was cut."""
_LANDED_SHARE_OF_RATIO: Final = 0.75
"""Of the expectation of an estimate with the highest ratio seen: conversations in plainer words have 0.85 of it, turn
after turn, and one turn in a thousand equals a window by chance."""
_LANDED_SHARE_OF_ESTIMATE: Final = 0.6
"""Of an estimate that was never compared with anything: English prose has 0.68 of it."""
_FAR_SHARE: Final = 0.5
"""Of the expectation of the model's own counter: any lower count was cut, even if it is no window: Ollama drops whole
messages."""
_FAR_SHARE_OF_ESTIMATE: Final = 0.25
"""The same for an estimate, whether or not it was compared with counts: where JSON has 0.96 of it, Arabic has 0.41 and
Hindi 0.33."""


class Counted(NamedTuple):
    """An upstream's counts for one response."""

    prompt: int
    reply: int = 0
    cached: int = 0
    """Of the prompt; some upstreams count these separately."""


def may_be_of_a_cut(estimate_tokens: int, counted: Counted, ratio: float | None, *, is_exact: bool) -> bool:
    """Whether a count is so low that the prompt may have been cut, if the upstream does such things; the arguments are
    those of `window_of_a_cut`."""
    landed = _LANDED_SHARE if is_exact else _LANDED_SHARE_OF_RATIO if ratio else _LANDED_SHARE_OF_ESTIMATE
    return counted.prompt + counted.cached < estimate_tokens * (ratio or 1.0) * landed


def window_of_a_cut(
    estimate_tokens: int, counted: Counted, ratio: float | None, *, is_exact: bool, may_be_far: bool
) -> int | None:
    """The window to which a prompt was cut; None if nothing proves that it was.

    `ratio`: the upstream's tokens per token of ours, None if it is unknown and our counter is not the model's own.
    `is_exact`: whether it is. `may_be_far`: whether a count that is no window can also be a proof.

    >>> window_of_a_cut(20_000, Counted(4_076, 20), None, is_exact=False, may_be_far=False)
    4096
    >>> window_of_a_cut(20_000, Counted(4_099, 80), None, is_exact=False, may_be_far=False)
    8192
    >>> window_of_a_cut(20_000, Counted(13_600, 20), None, is_exact=False, may_be_far=True)
    >>> window_of_a_cut(20_000, Counted(3_210, 99), 1.0, is_exact=True, may_be_far=True)
    4096
    """
    prompt, total = counted.prompt, counted.prompt + counted.reply
    expected = estimate_tokens * (ratio or 1.0)
    if prompt <= 0 or not may_be_of_a_cut(estimate_tokens, counted, ratio, is_exact=is_exact):
        return None
    for landing in (*(2 * (prompt - over) for over in _OVER_HALF), total, prompt):
        if landing >= 2 * _WINDOW_STEP and landing % _WINDOW_STEP == 0 and landing < expected:
            return landing
    if not may_be_far or prompt + counted.cached >= expected * (_FAR_SHARE if is_exact else _FAR_SHARE_OF_ESTIMATE):
        return None
    window = SMALLEST_WINDOW_TOKENS
    while window < total:
        window *= 2
    return window if window < expected else None
