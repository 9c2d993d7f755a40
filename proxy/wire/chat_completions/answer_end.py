"""Whether a client that was told so much of a stream has the whole answer.

Rule: by what the stream says, not by how its connection ends: clients hang up once they have read `[DONE]`
(https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py), and gateways end their body only once they
have written down what it cost.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from proxy.wire.sse import EventSplitter

TAIL_BYTES: Final = 16 * 1024
"""Of what was told, in which its end stands; final chunks hold little, but for signatures of thoughts."""
_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
"""On a line of its own; in what a model writes, line ends are escaped."""
_FINISHED: Final = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')


class Tail:
    """The end of what comes in pieces: at least so many bytes of it, and fewer than twice as many, or so many pieces.

    >>> tail = Tail(4, 3)
    >>> for piece in (b"0123456789", b"ab", b"c"):
    ...     tail.add(piece)
    >>> tail.joined
    b'6789abc'
    """

    def __init__(self, most_bytes: int, most_pieces: int) -> None:
        self._most_bytes = most_bytes
        self._most_pieces = most_pieces
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0

    def add(self, piece: bytes) -> None:
        """What comes next. A large piece is not kept alive by its end."""
        pieces = self._pieces
        pieces.append(piece if len(piece) <= self._most_bytes else piece[-self._most_bytes :])
        self._held_bytes += len(pieces[-1])
        while self._held_bytes - len(pieces[0]) >= self._most_bytes or len(pieces) > self._most_pieces:
            self._held_bytes -= len(pieces.popleft())

    @property
    def joined(self) -> bytes:
        """The end."""
        return b"".join(self._pieces)


def is_whole(told: bytes) -> bool:
    """Whether a stream of which this was told last is complete: `[DONE]`, or a final chunk and usage, for servers that
    send nothing after these.

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
