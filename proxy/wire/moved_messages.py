"""Finds the messages of a known request in a body that begins otherwise: agents write a clock into the system text or a
new `metadata` before the messages, and everything after that moves by a few bytes.

Rule: what is found equals what reading the body gives; bytes are compared, not hashed, and in doubt nothing is found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.core.conversation.message import Conversation
from proxy.errors import MalformedRequest
from proxy.wire.protocol import Wire
from proxy.wire.request import Request

MAX_EXCHANGED: Final = 2
"""Messages before the newest that an agent may write anew in each turn: the system text and the first user message."""
_MAX_MOVED_BYTES: Final = 64 * 1024
"""How far from its old place a message is looked for."""
_LEAST_MOVED: Final = 5
"""Messages; fewer are read in less time."""


def beginning_like(wire: Wire, body: bytes, known: Request, last: int) -> Request | None:
    """The request that is the beginning of a body, up to the end of its last message that `known` has, too; None if the
    message `last` of `known`, an index, is not there, or if too few before it are.

    From the first message on that is the same, the messages are those of `known` and are not read again.
    """
    ends, messages, goes_on = known.ends, known.conversation.messages, known.shape.goes_on
    if not 0 < last < len(ends) or known.added_bytes or known.put_in or known.healed:
        return None
    before, end = ends[last - 1], ends[last]
    at = body.find(known.body[before:end], max(0, before - _MAX_MOVED_BYTES), end + _MAX_MOVED_BYTES)
    if at < 0:
        return None
    old, moved = memoryview(known.body), at - before

    def is_there(start: int, end: int) -> bool:
        return body.startswith(old[start:end], start + moved)

    first = next((place for place in range(1, MAX_EXCHANGED + 1) if is_there(ends[place - 1], before)), last)
    count = last + 1
    while count < len(ends) and is_there(ends[count - 1], ends[count]):
        count += 1
    while count > first and goes_on(messages[count - 1]):
        count -= 1
    start, stop = ends[first - 1] + moved, ends[count - 1] + moved
    if count - first < _LEAST_MOVED or goes_on(messages[first - 1]) or known.shape.reads_anew(body[start:stop]):
        return None
    try:
        head = wire.parse(body[:start] + b"]}")
    except MalformedRequest:  # these bytes are in another list, or in a text
        return None
    if not head.ends or head.shape != known.shape or goes_on(head.conversation.messages[-1]):
        return None
    return replace(
        head,
        body=body,
        conversation=Conversation((*head.conversation.messages, *messages[first:count])),
        ends=(*head.ends, *[end + moved for end in ends[first:count]]),
        has_images=known.shape.may_hold_images(body[:stop]),
        has_files=known.shape.may_hold_files(body[:stop]),
    )
