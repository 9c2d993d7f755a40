"""Tokens of an image by the rule of the model's maker.

Rule: a function of the image's size alone; where a maker's models differ, the larger count.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.models.names import last_part
from proxy.core.models.providers import vendor_of
from proxy.core.tokens.counters import Counter

_LOW_DETAIL_TOKENS: Final = 85
_TILE_TOKENS: Final = 170
_TILE_PIXELS: Final = 512
_LONGEST_SIDE_PIXELS: Final = 2048
_SHORTEST_SIDE_PIXELS: Final = 768
_UNKNOWN_IMAGE_TOKENS: Final = 765
"""An image of 1024 x 1024, the example in OpenAI's guide: 85 and four tiles."""
_ANTHROPIC_PIXELS_PER_TOKEN: Final = 750
_ANTHROPIC_LONGEST_SIDE_PIXELS: Final = 1_568
_ANTHROPIC_MOST_TOKENS: Final = 1_600
"""https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs"""
_GEMINI_TILE_TOKENS: Final = 258
_GEMINI_TILE_PIXELS: Final = 768
"""https://ai.google.dev/gemini-api/docs/tokens"""
_GEMINI_LEAST_TOKENS: Final = 1_100
"""Gemini 3 takes about this many for an image of any size: huggingface.co/datasets/JOHNISKING/image-token-cost"""
_QWEN_PATCH_PIXELS: Final = 28
_QWEN_TOKENS: Final = (4, 16_384)
"""For `min_pixels` 3136 and `max_pixels` 12845056: huggingface.co/Qwen/Qwen2-VL-7B-Instruct/discussions/47 and its
preprocessor_config.json. Qwen3-VL has patches of 32 pixels."""
_QWEN_FRAME_TOKENS: Final = 2
"""`<|vision_start|>` and `<|vision_end|>`."""


class ImageRule(StrEnum):
    """The maker whose rule applies."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    QWEN = "qwen"


_BY_VENDOR: Final = {"anthropic": ImageRule.ANTHROPIC, "google": ImageRule.GEMINI, "alibaba": ImageRule.QWEN}


class ImageCounter(Struct, frozen=True):
    """A text counter that counts images by another rule than OpenAI's, or by costs that the upstream has shown."""

    texts: Counter
    rule: ImageRule
    learned: tuple[tuple[str, int], ...] = ()
    """Tokens of an image, by `image_key`."""

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def exact(self) -> bool:
        return self.texts.exact

    def count(self, text: str) -> int:
        return self.texts.count(text)


def with_images_of(model: str, texts: Counter, learned: tuple[tuple[str, int], ...] = ()) -> Counter:
    """The counter for a model, by its name and by what was learned about its images.

    >>> from proxy.core.tokens.counters import ByteClassCounter
    >>> with_images_of("qwen2.5-vl-7b", ByteClassCounter()).rule.value
    'qwen'
    """
    rule = _BY_VENDOR.get(vendor_of(last_part(model)), ImageRule.OPENAI)
    return texts if rule is ImageRule.OPENAI and not learned else ImageCounter(texts, rule, learned)


def image_key(size: tuple[int, int] | None, detail: str | None) -> str:
    """One key for all images that cost the same.

    >>> image_key((1280, 800), "auto"), image_key(None, "low")
    ('1280x800', '? low')
    """
    pixels = "?" if size is None else f"{size[0]}x{size[1]}"
    return f"{pixels} low" if detail == "low" else pixels


def tokens_of_image(counter: Counter, size: tuple[int, int] | None, detail: str | None) -> int:
    """Tokens of an image of this size in pixels; if the size is unknown, those of a usual image at OpenAI."""
    if not isinstance(counter, ImageCounter):
        return _by_rule(ImageRule.OPENAI, size, detail)
    learned = dict(counter.learned) if counter.learned else {}
    tokens = learned.get(image_key(size, detail))
    return _by_rule(counter.rule, size, detail) if tokens is None else tokens


def _by_rule(rule: ImageRule, size: tuple[int, int] | None, detail: str | None) -> int:
    if size is None:
        return image_tokens(None, None, detail)
    width, height = size
    match rule:
        case ImageRule.OPENAI:
            return image_tokens(width, height, detail)
        case ImageRule.ANTHROPIC:
            scale = min(1.0, _ANTHROPIC_LONGEST_SIDE_PIXELS / max(width, height))
            found = math.ceil(width * scale * height * scale / _ANTHROPIC_PIXELS_PER_TOKEN)
            return min(found, _ANTHROPIC_MOST_TOKENS)
        case ImageRule.GEMINI:
            tiles = math.ceil(width / _GEMINI_TILE_PIXELS) * math.ceil(height / _GEMINI_TILE_PIXELS)
            return max(_GEMINI_LEAST_TOKENS, _GEMINI_TILE_TOKENS * tiles)
    patches = math.ceil(width / _QWEN_PATCH_PIXELS) * math.ceil(height / _QWEN_PATCH_PIXELS)
    return min(max(patches, _QWEN_TOKENS[0]), _QWEN_TOKENS[1]) + _QWEN_FRAME_TOKENS


def image_tokens(width: int | None, height: int | None, detail: str | None) -> int:
    """Tokens of an image, from its size in pixels and the `detail` of its part (`low`, `high`, `auto`, None).

    OpenAI's rule for gpt-4o and gpt-4.1: scaled down into 2048 x 2048, then to 768 on the shortest side; 85 tokens plus
    170 for each tile of 512 x 512; `low` is 85. Other models take less or about as much (except gpt-4o-mini, whose bill
    multiplies both). https://platform.openai.com/docs/guides/images-vision#calculating-costs

    >>> image_tokens(1024, 1024, "high"), image_tokens(2048, 4096, None), image_tokens(4096, 8192, "low")
    (765, 1105, 85)
    """
    if detail == "low":
        return _LOW_DETAIL_TOKENS
    if not width or not height or width < 0 or height < 0:
        return _UNKNOWN_IMAGE_TOKENS
    width, height = _at_most(_LONGEST_SIDE_PIXELS, max(width, height), width, height)
    width, height = _at_most(_SHORTEST_SIDE_PIXELS, min(width, height), width, height)
    return _LOW_DETAIL_TOKENS + _TILE_TOKENS * math.ceil(width / _TILE_PIXELS) * math.ceil(height / _TILE_PIXELS)


def _at_most(limit: int, side: int, width: int, height: int) -> tuple[int, int]:
    """Scaled down so that `side`, one of the two, is `limit`; never scaled up, and never to zero."""
    if side <= limit:
        return width, height
    return max(1, width * limit // side), max(1, height * limit // side)
