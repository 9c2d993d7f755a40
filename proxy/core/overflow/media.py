"""Which kind of input a refusal of media is about, and whether it is about the model or about this one content.

Rule: read from the sentence that refuses; what it lists as allowed is not refused. When it names no kind, any that was
sent may be meant.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.models.profile import Modality

_ALLOWED: Final = re.compile(
    r"(?:expected|supported (?:values|types|formats|content types)|allowed (?:values|types)|must be|only (?:supports?|"
    r"accepts?)|仅支持|只支持).*",
    re.DOTALL,
)
"""`unknown variant image_url, expected text` (DeepSeek); `Invalid value: 'file'. Supported values are: 'text', …`."""
_NAMED: Final = {
    Modality.VISION: re.compile(r"image|vision|visual|图片|图像|视觉"),
    Modality.AUDIO: re.compile(r"audio|音频"),
    Modality.VIDEO: re.compile(r"video|视频"),
    Modality.FILE: re.compile(r"\bfiles?\b|\bpdfs?\b|\bdocuments?\b|attachment|\bfile_data\b|文件|文档"),
}
_ABOUT_ONE: Final = re.compile(
    r"\bformats?\b|\bmime\b|media type|\bvalid\b|identify|decod|download|corrupt|"
    r"pars(?:e|ing)\b|base64|fetch|\bpixels?\b|\bresolution\b|格式|下载|解码"
)
"""Pillow's `cannot identify image file`, OpenAI's `one of the following formats: ['png', 'jpeg', 'gif', 'webp']`."""
_IN_RESULTS: Final = re.compile(r"role:? ?'?tool|tool ?messages?|toolmessage|tool results?")
_ABOUT_PLACE: Final = re.compile(r"role|tool ?messages?|toolmessage|system ?messages?|assistant ?messages?")
"""`Image URLs are only allowed for messages with role 'user', but this message with role 'tool' contains an image`."""


def refused_media(text: str) -> frozenset[Modality]:
    """The kinds of input that a normalised refusal names; none when it speaks of media in general.

    >>> [kind.value for kind in refused_media("unknown variant audio, expected one of text, image_url")]
    ['audio']
    """
    refused = _ALLOWED.sub("", text, count=1)
    said = refused if any(named.search(refused) for named in _NAMED.values()) else text
    return frozenset(modality for modality, named in _NAMED.items() if named.search(said))


def is_about_results(text: str) -> bool:
    """Whether a normalised refusal is about media in the results of tools.

    >>> is_about_results("image urls are only allowed for messages with role user, but this one has role tool")
    True
    """
    return _IN_RESULTS.search(text) is not None


def is_about_the_model(text: str) -> bool:
    """Whether a normalised refusal would come for any content of that kind, and not for this one or in this place.

    >>> is_about_the_model("image input is not supported"), is_about_the_model("unsupported image format")
    (True, False)
    """
    return _ABOUT_ONE.search(text) is None and _ABOUT_PLACE.search(text) is None
