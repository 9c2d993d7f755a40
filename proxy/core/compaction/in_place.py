"""Messages that the caller sends itself: each is shortened on its own, and none is added, removed or moved.

Rule: only the local steps, so that a message becomes the same text in every later turn, whatever follows.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Budget
from proxy.core.compaction.plan import Pipeline
from proxy.core.conversation.message import Conversation, Message, beginning, tool_of
from proxy.core.conversation.tracked_message import TrackedMessage, prepared
from proxy.core.text.discreet import Discreet


class Compressed(Discreet, frozen=True):
    """As many messages as came, in the same order."""

    entries: tuple[TrackedMessage, ...]
    budget: Budget

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that go back to the caller."""
        return tuple([entry.message for entry in self.entries])

    @property
    def tokens_before(self) -> int:
        """Size of the messages as they came, in the model's tokens."""
        return self.budget.model_tokens(sum(entry.original_size.tokens for entry in self.entries))

    @property
    def tokens_after(self) -> int:
        """Size of the messages that go back, in the model's tokens."""
        return self.budget.model_tokens(sum(entry.size.tokens for entry in self.entries))

    @property
    def reasons(self) -> dict[str, int]:
        """How many edits there are for each reason."""
        counts = Counts(edit.reason.value for entry in self.entries for edit in entry.edits)
        return {reason: counts[reason] for reason in sorted(counts)}

    def taken_out(self) -> Iterator[tuple[TrackedMessage, Artifact]]:
        """The artifacts that were taken out, each once, with the first message it came from."""
        seen: set[str] = set()
        for entry in self.entries:
            for edit in entry.edits:
                if edit.artifact is not None and edit.artifact.id not in seen:
                    seen.add(edit.artifact.id)
                    yield entry, edit.artifact

    def without(self, lost: Collection[str]) -> Compressed:
        """The same, but messages from which one of these artifacts was taken go back as they came: it could not be
        kept."""
        return replace(self, entries=tuple([_restored(entry, lost) for entry in self.entries])) if lost else self


def compressed(conversation: Conversation, pipeline: Pipeline, protected: int = 0) -> Compressed:
    """What becomes of the messages; the last `protected` ones stay as they are."""
    tools: dict[str, str] = {}
    entries: list[TrackedMessage] = []
    messages = conversation.messages
    begins = beginning(messages)
    for index, message in enumerate(messages):
        tools.update((call.id, call.name) for call in message.calls)
        tool = tool_of(message, tools, has_begun=index >= begins)
        steps = pipeline.local if index < len(messages) - protected else ()
        entries.append(prepared(index, message, tool, steps, pipeline.notices, pipeline.counter))
    return Compressed(tuple(entries), pipeline.budget)


def _restored(entry: TrackedMessage, lost: Collection[str]) -> TrackedMessage:
    is_lost = any(edit.artifact is not None and edit.artifact.id in lost for edit in entry.edits)
    if not is_lost:
        return entry
    original, size = entry.original, entry.original_size
    return TrackedMessage(entry.index, original, original, size, size, original, size, entry.tool)
