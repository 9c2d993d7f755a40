"""The cost of one model's images, derived from the upstream's counts of whole prompts.

Rule: one cost is kept per size in pixels and changes only if it is clearly wrong, because every change moves the cuts
of running conversations; a number that cannot be an image's cost is ignored.
"""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Final

from proxy.core.conversation.message import Message
from proxy.core.conversation.size import seen
from proxy.core.tokens.counters import Counter
from proxy.core.tokens.images import ImageCounter, image_key, tokens_of_image

LARGEST_IMAGE_TOKENS: Final = 32_768
"""Twice the largest cost that any rule gives for one image (`max_pixels` of Qwen2-VL: 16 384)."""
_STEP_TOKENS: Final = 16
"""A cost is rounded up to a multiple of this: frames and a slightly low count of the text are no news."""
_TOO_LOW: Final = 1.02
_TOO_HIGH: Final = 0.85
"""Times the known cost: a cost that is too low ends in refusals, one that is too high only wastes context."""
_TEXT_MAY_BE_OFF: Final = 0.3
"""Of an estimate of text that nothing has confirmed."""
_OF_IMAGES: Final = 0.15
"""Of the images' assumed cost: the most that an error in the text's count may account for."""


def images_in(messages: Iterable[Message]) -> dict[tuple[tuple[int, int] | None, str | None], int]:
    """How many images of each size in pixels and detail the messages contain."""
    found = (image for message in messages if message.images for image in message.media())
    return dict(Counts(seen(image) for image in found if image is not None))


def costs_seen(
    images: Mapping[tuple[tuple[int, int] | None, str | None], int],
    counter: Counter,
    estimate_tokens: int,
    prompt_tokens: int,
    ratio: float | None,
) -> dict[str, int]:
    """The cost of images, by `image_key`, where it differs from the counter's; empty if it does not, or if nothing can
    be concluded.

    `estimate_tokens`: of the whole prompt by this counter; `prompt_tokens`: as the upstream counted it; `ratio`: its
    tokens of text per token of ours, None if nothing has confirmed it.
    """
    costs = {image: tokens_of_image(counter, *image) for image in images}
    held = sum(costs[image] * count for image, count in images.items())
    text = (estimate_tokens - held) * (1.0 if ratio is None else ratio)
    known = dict(counter.learned) if isinstance(counter, ImageCounter) else {}
    new = {image for image in images if image_key(*image) not in known} or set(images)
    surely = sum(costs[image] * count for image, count in images.items() if image not in new)
    held, seen = held - surely, prompt_tokens - text - surely
    if not held or seen <= 0 or (ratio is None and text * _TEXT_MAY_BE_OFF > seen * _OF_IMAGES):
        return {}
    if held * _TOO_HIGH <= seen <= held * _TOO_LOW:
        return {}
    # One sum cannot tell several new sizes apart, so all of them are scaled alike.
    found = {image_key(*image): _rounded_up(costs[image] * seen / held) for image in new}
    return found if all(cost <= LARGEST_IMAGE_TOKENS for cost in found.values()) else {}


def _rounded_up(tokens: float) -> int:
    return math.ceil(round(tokens / _STEP_TOKENS, 6)) * _STEP_TOKENS
