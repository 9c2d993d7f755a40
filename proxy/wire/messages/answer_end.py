"""Whether a client that received this much of a stream has the whole response.

Rule: decided by what the stream says, not by how its connection ends.
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import re
from typing import Final

from proxy.wire.sse import TAIL_BYTES

_END: Final = re.compile(rb'[\r\n]data: ?\{[^\r\n]*"type"\s*:\s*"(?:message_stop|error)"')
"""On a line of its own; in the model's own text, quotes are escaped."""


def is_whole(told: bytes) -> bool:
    """Whether a stream that ended with `told` is complete.

    >>> is_whole(b'event: message_stop\\ndata: {"type":"message_stop"}\\n\\n'), is_whole(b'data: {"type":"ping"}\\n\\n')
    (True, False)
    """
    return _END.search(told[-TAIL_BYTES:]) is not None
