"""Whether an upstream has cut a prompt without a word, told by what it says it counted.

Rule: a count that a tokenizer may be the reason for proves nothing. What proves it: a count far under the estimate
whose sum with the reply is a window to the token; or, of a server of one's own, one that nothing else explains.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SMALLEST_WINDOW_TOKENS: Final = 4_096
"""That a server gives out when nobody sets anything (Ollama, Docker Model Runner, LM Studio): where a count is no
window itself, no smaller one is concluded from it."""
_WINDOW_STEP: Final = 1_024
"""Windows that are allocated are multiples of it, from two on; one count in a thousand lands on one by chance."""
_LANDED_SHARE: Final = 0.9
"""Of what the model's own counter expects: a count under it that lands on a window was cut."""
_LANDED_SHARE_OF_RATIO: Final = 0.75
"""Of what an estimate expects by the highest ratio that was seen: conversations in plainer words have 0.85 of it, turn
after turn, and one turn in a thousand lands on a window by chance."""
_LANDED_SHARE_OF_ESTIMATE: Final = 0.6
"""Of an estimate that nothing has been held against: English prose has 0.68 of it."""
_FAR_SHARE: Final = 0.5
"""Of what a known counter expects: a count under it was cut wherever it lands. Ollama leaves out whole messages."""
_FAR_SHARE_OF_ESTIMATE: Final = 0.25
"""The same of an estimate; tokenizers differ by half at the most."""


class Counted(NamedTuple):
    """What an upstream counted of one answer."""

    prompt: int
    reply: int = 0
    cached: int = 0
    """Of the prompt; some upstreams count these apart."""


def window_of_a_cut(
    estimate_tokens: int, counted: Counted, ratio: float | None, *, is_exact: bool, may_be_far: bool
) -> int | None:
    """The window to which a prompt was cut; None when nothing proves that it was.

    `ratio`: the upstream's tokens for one of ours, None when that is not known and our counter not the model's own.
    `is_exact`: whether it is. `may_be_far`: whether a count that is no window can be a proof, too.

    >>> window_of_a_cut(20_000, Counted(4_076, 20), None, is_exact=False, may_be_far=False)
    4096
    >>> window_of_a_cut(20_000, Counted(13_600, 20), None, is_exact=False, may_be_far=True)
    >>> window_of_a_cut(20_000, Counted(3_210, 99), 1.0, is_exact=True, may_be_far=True)
    4096
    """
    prompt, total = counted.prompt, counted.prompt + counted.reply
    expected = estimate_tokens * (ratio or 1.0)
    landed = _LANDED_SHARE if is_exact else _LANDED_SHARE_OF_RATIO if ratio else _LANDED_SHARE_OF_ESTIMATE
    if prompt <= 0 or prompt + counted.cached >= expected * landed:
        return None
    for landing in (total, prompt):
        if landing >= 2 * _WINDOW_STEP and landing % _WINDOW_STEP == 0 and landing < expected:
            return landing
    if not may_be_far or prompt + counted.cached >= expected * (_FAR_SHARE if ratio else _FAR_SHARE_OF_ESTIMATE):
        return None
    window = SMALLEST_WINDOW_TOKENS
    while window < total:
        window *= 2
    return window if window < expected else None
