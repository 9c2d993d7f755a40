"""One message on its way: as it came, as it would be sent, and the edits between the two.

Rule: an entry never changes; an edited one is a new one, measured on its rendered bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core.conversation import Message
from proxy.core.edits import Edit, Path, Reason, spliced
from proxy.core.estimate import Counter
from proxy.core.sizes import Size, size_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A message and what has been done to it."""

    index: int
    """In the request as received."""
    original: Message
    message: Message
    """As it would be sent."""
    size: Size
    """Of `message`."""
    original_size: Size
    tool: str = ""
    """The tool whose result it is."""
    edits: tuple[Edit, ...] = ()
    """In order; a later edit of the same place stands for an earlier one."""

    @classmethod
    def of(cls, index: int, message: Message, tool: str, counter: Counter) -> Entry:
        """A message that nothing has been done to."""
        size = size_of(message, counter)
        return cls(index, message, message, size, size, tool)

    def edited(self, edits: Sequence[Edit], counter: Counter) -> Entry:
        """The entry after further edits; itself when they would not make it shorter, though that is what they are for.

        Told by bytes, as these do not depend on who counts.
        """
        together = (*self.edits, *edits)
        changes: dict[Path, bytes | None] = {edit.path: edit.replacement for edit in together}
        message = Message.read(spliced(self.original.raw, changes))
        if len(message.raw) >= len(self.message.raw) and any(edit.reason is not Reason.SANITISE for edit in edits):
            return self
        return replace(self, message=message, size=size_of(message, counter), edits=together)


def content_texts(message: Message) -> Iterator[tuple[Path, str]]:
    """The texts of a message's content, each with its path."""
    content = message.content()
    if isinstance(content, str):
        yield ("content",), content
    elif isinstance(content, list):
        for position, part in enumerate(content):
            if isinstance(part, dict) and isinstance(text := part.get("text"), str):
                yield ("content", position, "text"), text
