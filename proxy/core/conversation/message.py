"""Interface of a message for the core, whatever API it belongs to.

Rule: a message never changes and keeps the bytes it was made from. Only its wire knows the members in them: the core
reads texts, media, calls and results, and refers to a place in a message by an address that is opaque to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

from msgspec import Struct, structs

from proxy.core.content_types import MediaType, decoded, last_of
from proxy.core.text import Discreet


class Shape(StrEnum):
    """How a content is written in a message."""

    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    BLOCK = "block"
    """A block of MCP, Anthropic or Gemini among the parts of a message's content."""
    TEXT = "text"
    """Inside a text: a data URI, a block in JSON, base64 of a known type."""
    FORCED = "forced"
    """A text that is a binary file which the client decoded as text."""


class Attachment(Discreet, frozen=True):
    """A content, or the address of one."""

    shape: Shape
    payload: str = ""
    """Base64."""
    declared: str = ""
    """The declared media type, as written in the message."""
    name: str = ""
    """File name as written in the message."""
    address: str = ""
    """Where the content is, or the upstream's name for it, if it is not in the message."""
    plain: bytes | None = None
    """The content, if it is not base64."""
    is_data_url: bool = False
    is_asked_for: bool = False
    """Whether the tool result itself says that it is to be shown."""
    is_fetched: bool = False
    """Whether its content was fetched from elsewhere, so that the original part of the message cannot be reused."""

    @property
    def is_part(self) -> bool:
        """Whether it came as media, not inside a text."""
        return self.shape not in (Shape.TEXT, Shape.FORCED)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its content is not in the message."""
        return bool(self.address)

    @property
    def byte_count(self) -> int:
        """Size of its content, computed without decoding it; slightly too large if the base64 has line breaks."""
        return len(self.plain) if self.plain is not None else len(self.payload) * 3 // 4

    def fetched(self, content: bytes, declared: str, name: str) -> Attachment:
        """The attachment after its content was fetched; a name that was stated beside the address stays."""
        stated = self.name if self.name != last_of(self.address) else ""
        return structs.replace(self, address="", plain=content, declared=declared, name=stated or name, is_fetched=True)

    def content(self) -> bytes | None:
        """Its bytes; None if its base64 is broken."""
        return self.plain if self.plain is not None else decoded(self.payload)

    def head(self, max_bytes: int) -> bytes:
        """The beginning of its content; empty if it cannot be decoded."""
        if self.plain is not None:
            return self.plain[:max_bytes]
        return decoded(self.payload[: max_bytes // 3 * 4]) or b""


class Route(StrEnum):
    """Where a content goes. The values appear in logs."""

    UNKNOWN = "unknown"
    """It stays: nothing states whether the model reads it."""
    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    TEXT = "text"
    DESCRIPTION = "description"


class Replacement(NamedTuple):
    """The text that replaces a content inside a text."""

    words: str
    is_shown: bool = False
    """Whether the content is still shown, and the words say where."""


Address: TypeAlias = Hashable
"""A place in a message. Only the wire of the message understands it."""

TOOL_ROLES = frozenset({"tool", "function"})
"""Roles of a tool result; OpenAI's API used `function` until 2023, and some servers still do."""
SYSTEM_ROLES = frozenset({"system", "developer"})
_BEGIN: Final = frozenset({"user", "assistant", *TOOL_ROLES})


class ToolCall(Struct, frozen=True, gc=False):
    """A tool call of an assistant message."""

    id: str
    name: str


class Argument(NamedTuple):
    """The arguments that a model wrote for one call."""

    at: Address
    call_id: str
    text: str
    """Usually JSON; free text for a custom tool."""


class Reasoning(NamedTuple):
    """Reasoning of a model that may be left out of later turns."""

    at: Address
    raw: bytes
    """The part's bytes as its wire wrote them."""
    text: str | None
    """None if it is not plain text."""


class ImageView(NamedTuple):
    """The properties of an image that decide its token cost."""

    url: object
    """The URL in the message: a data URL, an address, or anything odd."""
    detail: str | None


class Part(Discreet, frozen=True):
    """One part of a message's content: a text, media, or something that only the upstream understands."""

    raw: bytes
    """The part's bytes as its wire wrote them."""
    text: str | None = None
    attachment: Attachment | None = None
    rest: bytes = b""
    """The other members of media, as its wire writes them."""


class Carried(Discreet, frozen=True):
    """A part that stays as its wire wrote it."""

    raw: bytes


class Words(Discreet, frozen=True):
    """A text part."""

    text: str
    like: bytes | None = None
    """The part that it replaces; the other members of that part stay."""
    instead_of: bytes | None = None
    """The other members, besides the content, of the media that it replaces."""


class Shown(Discreet, frozen=True):
    """A part that holds media."""

    route: Route
    found: MediaType
    content: bytes | None = None
    address: str = ""
    """Where the content is, if it is not here."""
    name: str = ""
    like: bytes | None = None
    """The other members, besides the content, of the part that it replaces; they stay."""
    is_fetched: bool = False
    """Whether the replaced part names an address that no longer applies."""


Item: TypeAlias = Carried | Words | Shown


class Parts(Struct, frozen=True):
    """The new content of a message, part by part."""

    items: tuple[Item, ...]
    as_text: bool = False
    """Whether parts that are all plain text become one text: upstreams that refuse media often refuse lists of parts,
    too."""


Content: TypeAlias = str | Parts | None
"""The new content at an address; None takes it out."""


class Message(Protocol):
    """One message. A member that is missing or of an odd type reads as empty: the upstream may understand it."""

    @property
    def raw(self) -> bytes:
        """Its bytes, as received."""

    @property
    def role(self) -> str:
        """`system`, `developer`, `user`, `assistant`, `tool`, `function`, or anything else that the client wrote."""

    @property
    def name(self) -> str:
        """Name of the tool or person that speaks, if the message states it."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls."""

    @property
    def answers(self) -> str:
        """The id of the call whose result it is; empty for other messages."""

    @property
    def is_companion(self) -> bool:
        """Whether it stays or goes with the message before it, whatever its role: a reminder beside results."""

    @property
    def must_stay(self) -> bool:
        """Whether later messages depend on it, so that its exchange can neither go nor be cut: for example, it adds
        tools."""

    @property
    def is_marked(self) -> bool:
        """Whether its client will write it differently in the next turn: it has a cache mark, which moves on."""

    @property
    def reasoning_bytes(self) -> int:
        """Size of the reasoning that any later turn may leave out, as its wire wrote it; 0 if it is sealed and goes
        only where nothing else fits."""

    @property
    def images(self) -> int:
        """How many images it holds as media."""

    @property
    def item_count(self) -> int:
        """How many entries of the request's list it is."""

    @property
    def may_hold_media(self) -> bool:
        """Whether it is worth searching for media; false only if it surely has none, in parts or inside a text."""

    @property
    def can_carry_a_note(self) -> bool:
        """Whether a text may be put into its content, although it has none."""

    @property
    def takes_notes_apart(self) -> bool:
        """Whether the omission note is a part of its own, behind the last message before the gap, rather than text of a
        result."""

    def text(self) -> str:
        """Everything in it that a model reads as text, together: contents, calls, reasoning."""

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of its content, without calls and reasoning."""

    def arguments(self) -> Iterator[Argument]:
        """The arguments of each call."""

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        """Reasoning that is plain text."""

    def reasoning(self) -> Iterator[Reasoning]:
        """Reasoning that may be left out of later turns."""

    def parts(self) -> tuple[Address, Sequence[Part]] | None:
        """The address of its content, and the content part by part; one part for a plain text; None for neither."""

    def media(self) -> Sequence[ImageView | None]:
        """The parts that are not text; None for one that is not an image."""

    def addresses(self) -> Iterator[str]:
        """References in it: remote images, and artifacts in tool results."""

    def with_replaced(self, text: str, replace: Callable[[Attachment], Replacement | None]) -> str:
        """One of its texts, with binary content inside it replaced by words."""

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes; everything else keeps its bytes."""

    def with_note(self, note: str, *, after: bool) -> tuple[Address, Content]:
        """Where a note goes that becomes a part of its own, and the new content there."""

    def beside(self, role: str, items: Sequence[Item] | str) -> Self:
        """A new message of the same wire."""

    def can_hold(self, shown: Shown) -> bool:
        """Whether its API has a part for this content."""

    def images_among(self, items: Sequence[Item]) -> int:
        """How many of these parts are images."""

    def unmarked(self) -> bytes:
        """Its bytes without cache marks."""

    def unsealed(self, language: str = "en") -> Self | None:
        """The message without reasoning that is encrypted or signed, so that only the upstream that wrote it can verify
        it; the message itself if it has none; None if nothing else is in it. `language`: of a note in its place."""

    def again(self, raw: bytes) -> Self:
        """A new message of the same wire, made from its bytes."""


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


def beginning(messages: Sequence[Message]) -> int:
    """The index of the first message of a user, a model or a tool. System messages before it are system text, which is
    never cut; later ones belong to the exchange that they follow, on every wire.

    >>> from types import SimpleNamespace as Said
    >>> beginning([Said(role="system"), Said(role="item"), Said(role="developer"), Said(role="user")])
    3
    """
    for index, message in enumerate(messages):
        if message.role in _BEGIN:
            return index
    return len(messages)


INSTRUCTION: Final = "instruction"
"""Stands for the tool of a later system or developer message that is no output."""


def tool_of(message: Message, tools_by_call: Mapping[str, str], *, has_begun: bool, has_tools: bool = False) -> str:
    """The tool whose result a message is; empty if it is none. In a conversation that `has_begun`, a developer message
    is an instruction: Codex puts permissions, skills and modes there. So is a system message if the request offers
    tools; otherwise it is a result of a tool that is named like its role: gptme sends all tool output in such messages.
    https://github.com/gptme/gptme/blob/master/gptme/tools/base.py"""
    if message.role in SYSTEM_ROLES:
        is_instruction = has_tools or message.role == "developer"
        return "" if not has_begun else INSTRUCTION if is_instruction else message.role
    return message.name or tools_by_call.get(message.answers, "")
