"""The media of a batch of tool results, in messages of their own behind its last result.

Rule: a function of the batch alone, but for one thing: when a user message follows, words of the assistant may be put
behind them. That only adds, so what was sent before stays the head of what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proxy.core.conversation.edit import Moved
from proxy.core.conversation.message import Message
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import Counter


def with_media(last: TrackedMessage, moved: Sequence[Moved], counter: Counter) -> TrackedMessage:
    """The last result of a batch, and behind it what was moved out of all of them."""
    return last.followed_by(_messages_of(last.message, moved), counter)


def before_a_user(last: TrackedMessage, counter: Counter) -> TrackedMessage:
    """The same when a user message follows. Where the media stand behind words of the assistant, as the template takes
    no user message behind results, it takes no two user messages either: the words stand behind them, too."""
    words_first = last.following and last.following[0].role == "assistant"
    return last.followed_by((*last.following, last.following[0]), counter) if words_first else last


def done_again(entries: Iterable[TrackedMessage], counter: Counter) -> Iterator[TrackedMessage]:
    """The messages of a unit of which some were prepared anew: what follows its batches is made of them."""
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
