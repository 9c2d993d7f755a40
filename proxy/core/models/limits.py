"""Names of the limits that an upstream has besides its window.

Rule: a name is what a lesson is kept under, so it never changes; what it limits stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final


class LimitName(StrEnum):
    """What an upstream limits, other than the prompt and the body."""

    IMAGES = "images"
    """Of one request, as all of the next five."""
    MEDIA = "media"
    """Images and documents together."""
    AUDIO = "audio"
    VIDEOS = "videos"
    FILES = "files"
    MEDIA_BYTES = "media bytes"
    """All media of a request together, decoded."""
    PAGES = "pages"
    """Of all PDF documents of a request."""
    IMAGE_BYTES = "image bytes"
    """Of one image, decoded."""
    SIDE = "pixels of a side"
    SIDE_OF_MANY = "pixels of a side, of many images"
    """The longer side of an image in a request with more than 20."""
    MESSAGES = "messages"
    """Of one request."""
    CALLS = "calls"
    """Of one message."""
    PARTS = "parts"
    """Of one message."""
    TOOLS = "tools"
    """Of one request."""
    STRING = "characters of a string"
    """Of any one text in the request."""
    REPLY = "reply"
    """The reply limit that a request may state, in tokens."""
    BODY = "bytes"
    """Of the whole request."""


MANY_IMAGES: Final = 20
"""More images than this are many. Anthropic: "If you submit more than 20 images in one API request, the dimensions of
each may be no more than 2000x2000 px". https://platform.claude.com/docs/en/build-with-claude/vision"""


def smallest(stated: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """By name, the smallest that any source states."""
    found: dict[str, int] = {}
    for limits in stated:
        found |= {name: min(most, found.get(name, most)) for name, most in limits.items()}
    return found
