"""What an image costs in tokens, by its size in pixels as its first bytes state it.

Rule: nothing here raises and nothing is decoded; a truncated or broken header gives None, and an absurd size is
returned as it is written, because the caller that limits pixels has to see it. The tokens are a function of the size
alone; where a maker's models differ, the larger count.
"""

from __future__ import annotations

import math
import struct
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.models import last_part, vendor_of
from proxy.core.tokens.counters import Counter

_HEIF_BRANDS: Final = frozenset(
    b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")
)
_MOST_EXTENTS: Final = 64

_JPEG_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length: TEM, RST0-7 and SOI. ITU T.81, table B.1."""
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0-15; DHT, JPG and DAC are in the same range. Same table."""
_JPEG_NO_FRAME_FOLLOWS: Final = frozenset({0xD9, 0xDA})
"""EOI and SOS: the frame header comes before the first scan or nowhere."""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, as stored (before any rotation that EXIF asks for), or None.

    64 KiB of a file are enough, except for a JPEG with more metadata than that before its frame header.

    >>> image_size(b"GIF89a\\x40\\x01\\xf0\\x00"), image_size(b"GIF89a"), image_size(b"%PDF-1.7")
    ((320, 240), None, None)
    """
    try:
        size = _read(head)
    except (struct.error, IndexError):  # the header continues after the given bytes
        return None
    return size if size is not None and size[0] > 0 and size[1] > 0 else None


def _read(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return _pair(">II", head, 16)
    if head.startswith(b"\xff\xd8\xff"):
        return _jpeg(head)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    if head.startswith(b"BM"):
        return _bmp(head)
    return _heif(head) if head[4:12] in _HEIF_BRANDS else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Segment by segment to the frame header; each step moves forward, so it cannot loop."""
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # any marker may be preceded by fill bytes
            at += 1
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        elif marker in _JPEG_NO_FRAME_FOLLOWS:
            return None
        else:
            at += 2 + struct.unpack_from(">H", head, at + 2)[0]
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    """https://developers.google.com/speed/webp/docs/riff_container and, for VP8, RFC 6386, section 9.1."""
    chunk = head[12:16]
    if chunk == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF  # the two bits above are a scale for display
    if chunk == b"VP8L" and head[20] == 0x2F:
        bits = struct.unpack_from("<I", head, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _heif(head: bytes) -> tuple[int, int] | None:
    """HEIC and AVIF: the largest `ispe`, because tiles have their own beside the image's. ISO/IEC 23008-12, 6.5.3."""
    at, sizes = head.find(b"ispe"), list[tuple[int, int]]()
    while at >= 0 and len(sizes) < _MOST_EXTENTS:
        sizes.append(_pair(">II", head, at + 8))
        at = head.find(b"ispe", at + 16)
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def _bmp(head: bytes) -> tuple[int, int] | None:
    """A height below zero means rows from the top: BITMAPINFOHEADER in the Windows GDI reference."""
    header_bytes = struct.unpack_from("<I", head, 14)[0]
    if header_bytes == 12:
        return _pair("<HH", head, 18)
    if header_bytes >= 40:
        width, height = _pair("<ii", head, 18)
        return width, abs(height)
    return None


def _pair(layout: str, head: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, head, at)
    return first, second


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
"""Corresponds to `min_pixels` 3136 and `max_pixels` 12845056: huggingface.co/Qwen/Qwen2-VL-7B-Instruct/discussions/47
and its preprocessor_config.json. Qwen3-VL has patches of 32 pixels."""
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
    """A text counter that counts images by another rule than OpenAI's, or at a minimum cost."""

    texts: Counter
    rule: ImageRule
    least: int = 0
    """Tokens of any image."""

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def exact(self) -> bool:
        return self.texts.exact

    def count(self, text: str) -> int:
        return self.texts.count(text)


def with_images_of(model: str, texts: Counter, least: int = 0) -> Counter:
    """The counter for a model, by its name and by what is known about its images.

    >>> from proxy.core.tokens.counters import ByteClassCounter
    >>> with_images_of("qwen2.5-vl-7b", ByteClassCounter()).rule.value
    'qwen'
    """
    rule = _BY_VENDOR.get(vendor_of(last_part(model)), ImageRule.OPENAI)
    if rule is ImageRule.OPENAI and not least:
        return texts
    return ImageCounter(texts, rule, least)


def tokens_of_image(counter: Counter, size: tuple[int, int] | None, detail: str | None) -> int:
    """Tokens of an image of this size in pixels; if the size is unknown, those of a usual image at OpenAI."""
    if not isinstance(counter, ImageCounter):
        return _by_rule(ImageRule.OPENAI, size, detail)
    return max(counter.least, _by_rule(counter.rule, size, detail))


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
