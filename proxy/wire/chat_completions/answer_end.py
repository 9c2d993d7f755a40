"""Whether a client that received this much of a stream has the whole response.

Rule: decided by what the stream says, not by how its connection ends: clients hang up once they have read `[DONE]`
(https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py), and gateways end their body only after
they have recorded its cost.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.wire.sse import TAIL_BYTES, EventSplitter

_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
"""On a line of its own; line ends in a model's text are escaped."""
_FINISHED: Final = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')


def is_whole(told: bytes) -> bool:
    """Whether a stream that ended with `told` is complete: `[DONE]`, or a final chunk and usage, for servers that send
    nothing after these.

    >>> is_whole(b'data: {"choices":[]}' + b"\\n\\ndata: [DONE]\\n\\n"), is_whole(b'data: {"choices":[]}' + b"\\n\\n")
    (True, False)
    """
    tail = told[-TAIL_BYTES:]
    if _DONE.search(tail):
        return True
    is_finished = False
    for event in EventSplitter().feed(tail):
        is_finished |= _FINISHED.search(event) is not None
        if is_finished and _USAGE.search(event):
            return True
    return False
