"""Proofs beside the words of a refusal: the client's own words, silent cuts of prompts, images in them.

Rule: words that a client may have written are no evidence of a model's limit: other clients would pay for it. A count
that a different tokenizer may explain proves nothing.
"""

from __future__ import annotations

import re
from collections import Counter as Counts
from collections.abc import Iterable
from typing import Final

from proxy.core.conversation import Message, seen
from proxy.core.overflow.report import Counted, Holds, Verdict

_BESIDE: Final = r"[^\s\d]{1,40}"
"""A word beside a number: by itself, a number such as 4096 occurs in many conversations."""
_QUOTED: Final = re.compile(r"""(?<!\w)(['"`])([^\s'"`]+\s[^'"`]{0,2000}[^\s'"`])\1(?!\w)""")
"""Several words in quotes, as an upstream repeats a value of the request that it does not know."""


def may_be_echoed(verdict: Verdict, is_held: Holds) -> bool:
    """Whether the words of a refusal may be the client's: all its numbers stand in the request, each with the word
    before or after it, or it quotes words of the request.

    A conversation may be about refusals, and hold the very limit of its own model: the count beside it is new each
    time. Who writes both into a conversation prevents that a refusal teaches them, and nothing else.
    """
    message = verdict.upstream_message
    if any(is_held(words) for _, words in _QUOTED.findall(message)):
        return True
    stated = {verdict.limit, verdict.prompt, verdict.requested, verdict.excess} - {None}
    printed = [snippets for number in stated if number is not None and (snippets := _snippets(message, number))]
    return bool(printed) and all(any(map(is_held, snippets)) for snippets in printed)


def _snippets(message: str, number: int) -> list[str]:
    """A number as the message prints it, once with the word before it and once with the word after it."""
    grouped = r"\D?".join(re.findall(r"\d{1,3}(?=(?:\d{3})*$)", str(number)))
    printed = rf"(?<!\d){grouped}(?!\d)"
    before = re.findall(rf"{_BESIDE}\s{{1,3}}{printed}", message)
    return before + re.findall(rf"{printed}\s{{0,3}}{_BESIDE}", message)


SMALLEST_WINDOW_TOKENS: Final = 4_096
"""The smallest window that servers give by default (Ollama, Docker Model Runner, LM Studio): if a count is not itself a
window, no smaller one is concluded from it."""
_WINDOW_STEP: Final = 1_024
"""Allocated windows are multiples of this, from two on; one count in a thousand is one by chance."""
_OVER_HALF: Final = (2, 3)
"""Tokens that Ollama's runner keeps, and reads, of a longer prompt beyond half of the window: 2 050 of 4 096
(github.com/ollama/ollama/issues/17889), 16 387 of 32 768 (github.com/ollama/ollama/issues/3839)."""
_LANDED_SHARE: Final = 0.9
"""Share of the count expected by the model's own counter: a lower count that equals a window was cut."""
_LANDED_SHARE_OF_RATIO: Final = 0.75
"""Share of an estimate with the highest ratio seen: conversations in plainer words have 0.85 of it, turn after turn,
and one turn in a thousand equals a window by chance."""
_LANDED_SHARE_OF_ESTIMATE: Final = 0.6
"""Share of an estimate that was never compared with a count: English prose has 0.68 of it."""
_FAR_SHARE: Final = 0.5
"""Share of the count expected by the model's own counter: any lower count was cut, even if it is no window, as Ollama
drops whole messages."""
_FAR_SHARE_OF_ESTIMATE: Final = 0.25
"""Share of an estimate, whether or not it was compared with counts: where JSON has 0.96 of it, Arabic has 0.41 and
Hindi 0.33."""


def may_be_of_a_cut(estimate_tokens: int, counted: Counted, ratio: float | None, *, is_exact: bool) -> bool:
    """Whether a count is so low that the prompt may have been cut, if the upstream does such things; the arguments are
    those of `window_of_a_cut`."""
    landed = _LANDED_SHARE if is_exact else _LANDED_SHARE_OF_RATIO if ratio else _LANDED_SHARE_OF_ESTIMATE
    return counted.prompt + (counted.cached or 0) < estimate_tokens * (ratio or 1.0) * landed


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
    far_share = _FAR_SHARE if is_exact else _FAR_SHARE_OF_ESTIMATE
    if not may_be_far or prompt + (counted.cached or 0) >= expected * far_share:
        return None
    window = SMALLEST_WINDOW_TOKENS
    while window < total:
        window *= 2
    return window if window < expected else None


def images_in(messages: Iterable[Message]) -> dict[tuple[tuple[int, int] | None, str | None], int]:
    """How many images of each size in pixels and detail the messages contain."""
    found = (image for message in messages if message.images for image in message.media())
    return dict(Counts(seen(image) for image in found if image is not None))
