"""Whether a client that received this much of a stream has the whole response.

Rule: decided by what the stream says, not by how its connection ends. The last event contains the whole response, which
may be longer than the tail that is searched; only in this event does `usage` have figures.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.wire.sse import TAIL_BYTES

_ENDED: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}\Z")
_LAST_EVENT: Final = re.compile(
    rb'(?:event: ?|"type"\s*:\s*")(?:response\.(?:completed|incomplete|failed)|error)\b|"usage"\s*:\s*\{'
    rb"|[\r\n]data: ?\[DONE\]"
)


def is_whole(told: bytes) -> bool:
    r"""Whether a stream that ended with `told` is complete.

    >>> is_whole(b'event: response.completed\ndata: {}\n\n'), is_whole(b'event: response.completed\ndata: {')
    (True, False)
    """
    tail = told[-TAIL_BYTES:]
    return _ENDED.search(tail) is not None and _LAST_EVENT.search(tail) is not None
