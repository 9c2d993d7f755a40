"""Items → messages: which of them belong together.

Rule: what the model said and did in one go is one message, as its reasoning and its calls are refused without each
other; a call and its outputs are one exchange, wherever the outputs stand. Reading can begin anew behind every message
that does not go on: nothing is open there.

The pairs, and what is said of broken ones: github.com/openai/openai-agents-python/pull/3207 (reasoning belongs to the
next item that is none), vercel/ai#7099, continuedev/continue#12620, openai/codex#620.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.core.conversation.message import SYSTEM_ROLES, Message
from proxy.core.text.jsontext import Raw
from proxy.wire.responses.items import LOCAL_SHELL, Head, Kind, head_of
from proxy.wire.responses.message import ResponsesMessage, is_models_own

Read = list[tuple[Message, int]]
_NOWHERE: Final = 10**12


class Batch(NamedTuple):
    """From a call to the last output of all calls that were made before that came; indexes of items."""

    first: int
    last: int
    is_mixed: bool
    """Whether somebody else's words stand in it, which may not go with it."""


def read_items(items: Sequence[Raw]) -> Read:
    """The messages of a list of items, each with the number of items that are read once it ends."""
    heads = _by_call([head_of(raw) for raw in items])
    batches, unanswered = _batches(heads)
    coming = iter([*batches, Batch(_NOWHERE, _NOWHERE, False)])
    batch = next(coming)
    found: Read = []
    start = 0
    while start < len(heads):
        stop = _end_of_message(heads, start)
        is_own = is_models_own(heads[start])
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
    """The messages where the upstream holds what came before: whatever answers whatever there, nothing may be left out,
    so they are one exchange."""
    found: Read = []
    is_begun = False
    for message, stop in read_items(items):
        assert isinstance(message, ResponsesMessage)
        found.append((replace(message, is_companion=is_begun, must_stay=False), stop))
        is_begun = is_begun or message.role not in SYSTEM_ROLES
    return found


def read_untouched(items: Sequence[Raw]) -> Read:
    """All items as one message that nobody touches."""
    if not items:
        return []
    whole = ResponsesMessage.of(items, [head_of(raw) for raw in items])
    return [(replace(whole, role="developer", calls=(), answers="", is_companion=False), len(items))]


def _by_call(heads: list[Head]) -> list[Head]:
    """The same, with outputs that name a call of the local shell by its item told by its call id, as others are."""
    named = {head.item_id: head.id for head in heads if head.type == LOCAL_SHELL and head.item_id}
    if not named:
        return heads
    return [head._replace(id=named.get(head.id, head.id)) if head.kind is Kind.OUTPUT else head for head in heads]


def _batches(heads: Sequence[Head]) -> tuple[list[Batch], int]:
    """The batches, in order, and where the first call stands that no output answers."""
    spans: list[list[int]] = []
    newest: dict[str, list[int]] = {}
    for index, head in enumerate(heads):
        if head.kind is Kind.CALL and head.id:
            newest[head.id] = [index, _NOWHERE]  # some servers give the same id to calls of several turns
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
    return [Batch(first, last, any(_is_anothers(h) for h in heads[first:last])) for first, last in ranges], unanswered


def _is_anothers(head: Head) -> bool:
    """Whether an item in a batch is neither the model's nor an output, and known."""
    return not is_models_own(head) and head.kind not in (Kind.OUTPUT, Kind.OTHER)


def _end_of_message(heads: Sequence[Head], start: int) -> int:
    """Where the message that begins at an item ends."""
    if not is_models_own(heads[start]):
        return start + 1
    has_call, has_thought = False, False
    for stop, (head, following) in enumerate(pairwise(_from(heads, start)), start=start + 1):
        has_call |= head.kind is Kind.CALL and bool(head.id)
        has_thought |= head.kind is Kind.REASONING
        if not is_models_own(following):
            # What nobody knows may be what the reasoning belongs to.
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


def _from(heads: Sequence[Head], start: int) -> Iterator[Head]:
    return (heads[index] for index in range(start, len(heads)))
