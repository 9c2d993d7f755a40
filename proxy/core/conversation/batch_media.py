"""The media of a batch of tool results, in messages of their own after its last result.

Rule: a function of the batch alone, with one exception: if a user message follows, an assistant message may be put
after the media. It is only appended, so the messages sent before remain the prefix of those sent now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proxy.core.conversation.edit import Moved
from proxy.core.conversation.message import Message
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import Counter


def with_media(last: TrackedMessage, moved: Sequence[Moved], counter: Counter) -> TrackedMessage:
    """The last result of a batch, followed by the media that were moved out of all its results."""
    return last.followed_by(_messages_of(last.message, moved), counter)


def before_a_user(last: TrackedMessage, counter: Counter) -> TrackedMessage:
    """The same if a user message follows. If the media follow an assistant message, because the chat template accepts
    no user message right after results, it does not accept two user messages in a row either: the assistant message is
    repeated after the media."""
    words_first = last.following and last.following[0].role == "assistant"
    return last.followed_by((*last.following, last.following[0]), counter) if words_first else last


def done_again(entries: Iterable[TrackedMessage], counter: Counter) -> Iterator[TrackedMessage]:
    """The messages of a unit after some were prepared anew, with the messages that follow its batches made again."""
    moved: tuple[Moved, ...] = ()
    for entry in entries:
        moved += entry.moved
        if not entry.following:
            yield entry
            continue
        again = with_media(entry, moved, counter)
        yield before_a_user(again, counter) if entry.following[-1].role == "assistant" else again
        moved = ()


def _messages_of(last: Message, moved: Sequence[Moved]) -> list[Message]:
    if not moved:
        return []
    spoken = [last.beside("assistant", one.spoken) for one in moved if one.spoken is not None][:1]
    return [*spoken, last.beside("user", [part for one in moved for part in one.parts])]
