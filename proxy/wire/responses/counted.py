"""The upstream's counts, read from the end of a response: `usage`, in a body or the last event of a stream.

Rule: the last occurrence counts; the model's words before it are not searched. `input_tokens` counts the whole prompt,
cached or not. https://platform.openai.com/docs/api-reference/responses/object
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.overflow import Counted

_PROMPT: Final = re.compile(rb'"input_tokens"\s*:\s*(\d{1,9})')
_REPLY: Final = re.compile(rb'"output_tokens"\s*:\s*(\d{1,9})')
_CACHED: Final = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,9})')


def counted_in(end: bytes) -> Counted | None:
    """The counts at the end of a response; None if there are none.

    >>> counted_in(b'"usage":{"input_tokens":76,"input_tokens_details":{"cached_tokens":64},"output_tokens":20}}')
    Counted(prompt=76, reply=20, cached=64)
    """
    prompt = _last(_PROMPT, end)
    return None if prompt is None else Counted(prompt, _last(_REPLY, end) or 0, _last(_CACHED, end) or 0)


def _last(pattern: re.Pattern[bytes], end: bytes) -> int | None:
    found = pattern.findall(end)
    return int(found[-1]) if found else None
