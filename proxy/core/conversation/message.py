"""What the core reads of a message, whatever API it belongs to.

Rule: a message never changes and keeps the bytes it was made from. Only its wire knows their members: the core reads
texts, media, calls and results, and names a place in a message by an address that means nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import msgspec

from proxy.core.content_types import MediaType
from proxy.core.conversation.attachment import Attachment, Replacement, Route

Address: TypeAlias = Hashable
"""Where something stands in a message. Only the wire of the message understands it."""

TOOL_ROLES = frozenset({"tool", "function"})
"""Roles of a tool's answer; `function` is what OpenAI's API called it until 2023, and some servers still do."""
SYSTEM_ROLES = frozenset({"system", "developer"})


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """What an assistant asks for."""

    id: str
    name: str


class Argument(NamedTuple):
    """What a model wrote for one call."""

    at: Address
    call_id: str
    text: str
    """JSON, mostly; free text for a custom tool."""


class Reasoning(NamedTuple):
    """What a model thought, where it may be left out of later turns."""

    at: Address
    raw: bytes
    """As its wire wrote it."""
    text: str | None
    """None where it is no plain text."""


class ImageView(NamedTuple):
    """What an image costs depends on this."""

    url: object
    """As it stands there: a data URL, an address, or anything odd."""
    detail: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what a message says: a text, media, or what only the upstream understands."""

    raw: bytes = field(repr=False)
    """As its wire wrote it."""
    text: str | None = field(repr=False, default=None)
    attachment: Attachment | None = None
    rest: bytes = field(repr=False, default=b"")
    """Of media: what it says besides its content, as its wire writes it."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A part that stays as its wire wrote it."""

    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Words:
    """A text part."""

    text: str = field(repr=False)
    like: bytes | None = field(repr=False, default=None)
    """The part in whose place it stands; what else that says stays."""
    instead_of: bytes | None = field(repr=False, default=None)
    """What the media in whose place it stands said besides their content."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A part that holds media."""

    route: Route
    found: MediaType
    content: bytes | None = field(repr=False, default=None)
    address: str = field(repr=False, default="")
    """Where it is, when its content is not here."""
    name: str = field(repr=False, default="")
    like: bytes | None = field(repr=False, default=None)
    """What the part in whose place it stands says besides its content, and what stays."""
    is_fetched: bool = False
    """Whether that part names an address that no longer holds."""


Item: TypeAlias = Carried | Words | Shown


@dataclass(frozen=True, slots=True)
class Parts:
    """What a message says from now on, part by part."""

    items: tuple[Item, ...]
    as_text: bool = False
    """Whether parts that are all plain text become one text: whoever refuses media often takes no list of parts."""


Content: TypeAlias = str | Parts | None
"""What stands at an address from now on; None takes it out."""


class Message(Protocol):
    """One message. Whatever is missing or of an odd type reads as empty: the upstream may know better."""

    @property
    def raw(self) -> bytes:
        """Its bytes, as received."""

    @property
    def role(self) -> str:
        """`system`, `developer`, `user`, `assistant`, `tool`, `function`, or what the client wrote instead."""

    @property
    def name(self) -> str:
        """Of the tool or person that speaks, where the message says it."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What it asks of tools."""

    @property
    def answers(self) -> str:
        """The id of the call whose result it is; empty for others."""

    @property
    def is_companion(self) -> bool:
        """Whether it stays and goes with the message before it, whatever its role: a reminder beside results, a system
        text inside a run."""

    @property
    def must_stay(self) -> bool:
        """Whether later messages rest on it, so that its exchange can neither go nor be cut: one that brings tools."""

    @property
    def is_marked(self) -> bool:
        """Whether its client will write it in another way in its next turn: a mark for a cache stands there, and
        moves on."""

    @property
    def reasoning_bytes(self) -> int:
        """Of the reasoning that may be left out of later turns, as its wire wrote it."""

    @property
    def images(self) -> int:
        """How many images stand in it as media."""

    @property
    def may_hold_media(self) -> bool:
        """Whether it is worth opening for media; false only where there are none, in parts or inside a text."""

    @property
    def can_carry_a_note(self) -> bool:
        """Whether a text may be put into what it says, although it holds none."""

    def text(self) -> str:
        """Everything in it that a model reads as text, together: contents, calls, reasoning."""

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of what it says, without calls and reasoning."""

    def arguments(self) -> Iterator[Argument]:
        """What was written for each call."""

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        """Reasoning that is plain text."""

    def reasoning(self) -> Reasoning | None:
        """Reasoning that may be left out of later turns."""

    def parts(self) -> tuple[Address, Sequence[Part]] | None:
        """What it says, part by part, and where all of that stands; one part for a plain text; None for neither."""

    def media(self) -> Sequence[ImageView | None]:
        """The parts that are no text; None for one that is no image."""

    def addresses(self) -> Iterator[str]:
        """What it names that stands elsewhere: remote images, and artifacts in the results of tools."""

    def with_replaced(self, text: str, replace: Callable[[Attachment], Replacement | None]) -> str:
        """A text of it with words in the place of binary content inside that text."""

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes; all else keeps its bytes."""

    def with_note(self, note: str, *, after: bool) -> tuple[Address, Content]:
        """Where a note goes in a message without a text, and what stands there then."""

    def beside(self, role: str, items: Sequence[Item] | str) -> Self:
        """Another message of its wire."""

    def images_among(self, items: Sequence[Item]) -> int:
        """How many of these parts are images."""

    def unmarked(self) -> bytes:
        """Its bytes without such marks."""

    def conversational(self) -> Any:
        """What a client repeats of it from turn to turn, as a comparable value: the calls, or else the words."""

    def with_calls(self, calls: Mapping[int, bytes]) -> Self:
        """The message with these calls at these positions among its own."""

    def again(self, raw: bytes) -> Self:
        """Another message of its wire, out of its bytes."""


@dataclass(frozen=True, slots=True)
class Conversation(Sequence[Message]):
    """The messages of a request, in order."""

    messages: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)
