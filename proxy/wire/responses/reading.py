"""Items → messages: which items belong together.

Rule: the model's words and actions in one go are one message, because the API refuses its reasoning and its calls
without each other; a call and its outputs are one tool exchange, wherever the outputs are. Reading can resume after
every message whose `goes_on` is false: nothing is unfinished there.

The pairs, and the errors for broken ones: github.com/openai/openai-agents-python/pull/3207 (reasoning belongs to the
next item that is not reasoning), vercel/ai#7099, continuedev/continue#12620, openai/codex#620.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.core.conversation.message import SYSTEM_ROLES, Message
from proxy.core.text.jsontext import Raw
from proxy.wire.responses.items import LOCAL_SHELL, Head, Kind, head_of
from proxy.wire.responses.message import ResponsesMessage

Read = list[tuple[Message, int]]
_NOWHERE: Final = 10**12


class Batch(NamedTuple):
    """From a call to its last output, together with all calls and outputs that overlap; indexes of items."""

    first: int
    last: int
    is_mixed: bool
    """Whether it contains other items, such as a user's words, which may not be left out with it."""


def read_items(items: Sequence[Raw]) -> Read:
    """The messages of a list of items, each with the number of items read up to its end."""
    heads = _by_call([head_of(raw) for raw in items])
    batches, unanswered = _batches(heads)
    coming = iter([*batches, Batch(_NOWHERE, _NOWHERE, False)])
    batch = next(coming)
    found: Read = []
    start = 0
    while start < len(heads):
        is_own = heads[start].is_own
        stop = _end_of_own(heads, start) if is_own else start + 1
        while batch.last < start:
            batch = next(coming)
        message = ResponsesMessage.of(
            items[start:stop],
            heads[start:stop],
            is_companion=is_own and batch.first < start,
            must_stay=batch.is_mixed and batch.first < stop,
            goes_on=is_own or unanswered < stop,
        )
        found.append((message, stop))
        start = stop
    return found


def read_held(items: Sequence[Raw]) -> Read:
    """The messages if the upstream holds the earlier ones. These may contain the calls that new outputs answer, so
    nothing may be left out: the new messages are one exchange."""
    read = read_items(items)
    messages = as_one_exchange([message for message, _ in read])
    return [(message, stop) for message, (_, stop) in zip(messages, read, strict=True)]


def as_one_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, of which none may be left out alone."""
    found: list[Message] = []
    is_begun = False
    for message in messages:
        assert isinstance(message, ResponsesMessage)
        is_same = message.is_companion == is_begun and not message.must_stay
        found.append(message if is_same else replace(message, is_companion=is_begun, must_stay=False))
        is_begun = is_begun or message.role not in SYSTEM_ROLES
    return found


def _by_call(heads: list[Head]) -> list[Head]:
    """The same heads, but with the call id in each output that names a local shell call by its item's id."""
    named = {head.item_id: head.id for head in heads if head.type == LOCAL_SHELL and head.item_id}
    if not named:
        return heads
    return [replace(head, id=named.get(head.id, head.id)) if head.kind is Kind.OUTPUT else head for head in heads]


def _batches(heads: Sequence[Head]) -> tuple[list[Batch], int]:
    """The batches, in order, and the index of the first call that no output answers."""
    spans: list[list[int]] = []
    newest: dict[str, list[int]] = {}
    for index, head in enumerate(heads):
        if head.kind is Kind.CALL and head.id:
            newest[head.id] = [index, _NOWHERE]  # some servers use the same id for calls in several turns
            spans.append(newest[head.id])
        elif head.kind is Kind.OUTPUT and head.id in newest:
            newest[head.id][1] = index
    unanswered = next((first for first, last in spans if last == _NOWHERE), _NOWHERE)
    ranges: list[tuple[int, int]] = []
    for first, last in spans:
        if last == _NOWHERE:
            continue
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    others = [index for index, head in enumerate(heads) if _is_anothers(head)] if ranges else []
    mixed = [bisect_left(others, first) < bisect_left(others, last) for first, last in ranges]
    return [Batch(*where, is_mixed) for where, is_mixed in zip(ranges, mixed, strict=True)], unanswered


def _is_anothers(head: Head) -> bool:
    """Whether an item in a batch is of a known kind, but neither the model's nor an output."""
    return not head.is_own and head.kind not in (Kind.OUTPUT, Kind.OTHER)


def _end_of_own(heads: Sequence[Head], start: int) -> int:
    """The index after the last item of the model's message that begins at `start`."""
    has_call, has_thought = False, False
    for stop in range(start + 1, len(heads)):
        head, following = heads[stop - 1], heads[stop]
        has_call = has_call or (head.kind is Kind.CALL and bool(head.id))
        has_thought = has_thought or head.kind is Kind.REASONING
        if not following.is_own:
            # The reasoning may belong to this item of an unknown kind.
            if head.kind is Kind.REASONING and following.kind is Kind.OTHER and following.type:
                continue
            return stop
        if has_call:
            continue
        is_next_thought = following.kind is Kind.REASONING and head.kind is not Kind.REASONING
        stands_alone = not has_thought and (Kind.DONE in (head.kind, following.kind) or head.kind is following.kind)
        if is_next_thought or stands_alone:
            return stop
    return len(heads)
