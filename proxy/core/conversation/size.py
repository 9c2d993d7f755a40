"""How large a message is for a model: tokens, characters and bytes.

Rule: a size is a function of the message and the counter alone; nothing here raises for any message.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from proxy.core.conversation.message import ImageView, Message
from proxy.core.text.jsontext import Raw
from proxy.core.tokens.counters import Counter
from proxy.core.tokens.images import image_size, tokens_of_image

MESSAGE_TOKENS: Final = 4
"""The frame of a message: role and separators. https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
counts 3 plus those of the role."""
REPLY_PRIMING_TOKENS: Final = 3
"""Every reply is primed with `<|start|>assistant<|message|>`. Same source."""
OTHER_MEDIA_TOKENS: Final = 765
"""For audio and files, whose cost cannot be known from outside: as much as an image of usual size."""
_IMAGE_HEAD_CHARACTERS: Final = 87_384
"""Base64 of the first 64 KiB: JPEG has its dimensions after the EXIF block, which is at most that long."""


class Size(msgspec.Struct, frozen=True, gc=False):
    """How large something is. A struct, because sizes are added by the thousand."""

    tokens: int = 0
    chars: int = 0
    """Characters of text that the model reads."""
    bytes: int = 0
    """Bytes of JSON."""

    def __add__(self, other: Size) -> Size:
        return Size(self.tokens + other.tokens, self.chars + other.chars, self.bytes + other.bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.tokens - other.tokens, self.chars - other.chars, self.bytes - other.bytes)


NOTHING: Final = Size()


def size_of(message: Message, counter: Counter) -> Size:
    """The size of a message; its texts are counted together, as a model reads them."""
    text = message.text()
    tokens = MESSAGE_TOKENS + counter.count(text)
    for image in message.media():
        tokens += OTHER_MEDIA_TOKENS if image is None else tokens_of_image(counter, *seen(image))
    return Size(tokens, len(text), len(message.raw))


def size_of_tools(tools: Raw | None, counter: Counter) -> Size:
    """The size of `tools`, counted as JSON: slightly more than what servers make of it."""
    if tools is None:
        return Size()
    text = bytes(tools).decode("utf-8", "replace")
    return Size(counter.count(text), len(text), len(text.encode("utf-8", "replace")))


def seen(image: ImageView) -> tuple[tuple[int, int] | None, str | None]:
    """Size of an image in pixels, if known, and its detail."""
    return _pixel_size(image.url), image.detail


def _pixel_size(url: object) -> tuple[int, int] | None:
    """Width and height of an image in a data URL."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    start = url.find(";base64,") + len(";base64,")
    head = url[start : start + _IMAGE_HEAD_CHARACTERS]
    try:
        return image_size(base64.b64decode(head[: len(head) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None
