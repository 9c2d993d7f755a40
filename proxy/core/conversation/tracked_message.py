"""A message with its edits, each with the size before it.

Rule: requests change only by edits; whatever no edit names keeps its bytes, and an artifact carries what an edit takes
out, so that it can be kept before anything is sent. A size is a function of the message and the counter alone. An entry
never changes; an edited one is a new one, measured on its rendered bytes. Each edit applies to the message as the
previous ones left it. A report holds sizes, reasons and names, never content; it is made when its message is read or
changed, and is the same object in all later turns, so that the record of a long conversation costs the next request
nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Self, TypeAlias

import msgspec

from proxy.core.artifact import Artifact
from proxy.core.conversation.message import INSTRUCTION, SYSTEM_ROLES, Address, Content, ImageView, Item, Message
from proxy.core.notices import Notices
from proxy.core.text import Discreet, Raw
from proxy.core.tokens import Counter, image_size, tokens_of_image

MESSAGE_TOKENS: Final = 4
"""The frame of a message: role and separators. https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
counts 3 plus those of the role."""
REPLY_PRIMING_TOKENS: Final = 3
"""Every reply is primed with `<|start|>assistant<|message|>`. Same source."""
OTHER_MEDIA_TOKENS: Final = 765
"""Tokens for audio and files, whose cost cannot be known from outside: as much as an image of usual size."""
_IMAGE_HEAD_CHARACTERS: Final = 87_384
"""Base64 of the first 64 KiB: JPEG has its dimensions after the EXIF block, which is at most that long."""


class Size(msgspec.Struct, frozen=True, gc=False):
    """How large something is. A struct, because sizes are added by the thousand."""

    tokens: int = 0
    chars: int = 0
    """Characters of text that the model reads."""
    bytes: int = 0
    """Bytes of JSON."""

    def __add__(self, other: Size) -> Size:
        return Size(self.tokens + other.tokens, self.chars + other.chars, self.bytes + other.bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.tokens - other.tokens, self.chars - other.chars, self.bytes - other.bytes)


NOTHING: Final = Size()


def size_of(message: Message, counter: Counter) -> Size:
    """The size of a message; its texts are counted together, as a model reads them."""
    text = message.text()
    tokens = MESSAGE_TOKENS + counter.count(text)
    for image in message.media():
        tokens += OTHER_MEDIA_TOKENS if image is None else tokens_of_image(counter, *seen(image))
    return Size(tokens, len(text), len(message.raw))


def size_of_tools(tools: Raw | None, counter: Counter) -> Size:
    """The size of `tools`, counted as JSON: slightly more than what servers make of it."""
    if tools is None:
        return Size()
    text = bytes(tools).decode("utf-8", "replace")
    return Size(counter.count(text), len(text), len(text.encode("utf-8", "replace")))


def seen(image: ImageView) -> tuple[tuple[int, int] | None, str | None]:
    """Size of an image in pixels, if known, and its detail."""
    return _pixel_size(image.url), image.detail


def _pixel_size(url: object) -> tuple[int, int] | None:
    """Width and height of an image in a data URL."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    start = url.find(";base64,") + len(";base64,")
    head = url[start : start + _IMAGE_HEAD_CHARACTERS]
    try:
        return image_size(base64.b64decode(head[: len(head) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None


class Reason(StrEnum):
    """Why something was changed. The names appear in logs, headers and metrics, the words on the dashboard."""

    one: str
    """Description of one change."""
    several: str
    """Description of `#` changes."""

    def __new__(cls, name: str, one: str, several: str = "") -> Self:
        made = str.__new__(cls, name)
        made._value_ = name
        made.one, made.several = one, several or one
        return made

    def counted(self, count: int) -> str:
        """Words for so many changes."""
        return self.one if count == 1 else self.several.replace("#", f"{count:,}")

    ROUTE_MEDIA = "route_media", "1 image or file moved or described", "# images or files moved or described"
    """To where the model can read them; what it cannot read is replaced by a description."""
    TRUNCATE_TOOL_OUTPUT = "truncate_tool_output", "1 long tool result cut", "# long tool results cut"
    """They exceeded their limit and were replaced by excerpts."""
    QUOTED_NOTICE = "quoted_notice", "1 quoted notice marked", "# quoted notices marked"
    """Tool output that looked like one of the proxy's own notices."""
    SANITISE = "sanitise", "characters replaced in 1 text", "characters replaced in # texts"
    """Characters that this model's upstream cannot handle."""
    LONG_STRING = "long_string", "1 text fitted to the upstream's limit", "# texts fitted to the upstream's limit"
    """Over the length that its upstream had stated for any text, or joined with others, as it takes fewer parts."""
    OLD_REASONING = "old_reasoning", "reasoning of 1 finished turn left out", "reasoning of # finished turns left out"
    LONG_OLD_TEXT = "long_old_text", "1 very long old text cut in the middle", "# very long old texts cut in the middle"
    """A user's or an assistant's text in a finished turn."""
    OLD_RESULT = "old_result", "1 old tool result cut down", "# old tool results cut down"
    """To the room that was left."""
    OLD_EXCHANGE = "old_exchange", "1 old message left out", "# old messages left out"
    """Calls and results together."""
    OMISSION_NOTE = "omission_note", "a note says what was left out", "# notes say what was left out"
    """Before the message that carries the note."""
    NEWEST_RESULT = "newest_result", "1 of the newest tool results cut", "# of the newest tool results cut"
    """They did not fit and were replaced by excerpts."""
    NEWEST_TEXT = "newest_text", "1 of the newest texts cut in the middle", "# of the newest texts cut in the middle"
    """The newest assistant text or call arguments, or the user's request, did not fit."""
    CLAMP_REPLY = "clamp_reply", "reply limit lowered"
    """So that the prompt fits."""
    UPSTREAM_TRUNCATION = "upstream_truncation", "the upstream was asked to drop old messages"
    """It had refused the conversation that it stores."""
    HISTORY_HEALED = "history_healed", "1 mistake in the history repaired", "# mistakes in the history repaired"
    """An upstream had refused it: a result without a call was left out, a missing result was added, or reasoning that
    it could not verify was left out."""
    RETRIEVAL_TOOL = "retrieval_tool", "the tool read_artifact was offered"


class Moved(Discreet, frozen=True):
    """Parts that a tool result cannot hold: they go into a user message after the whole batch of results."""

    parts: tuple[Item, ...]
    spoken: str | None = None
    """Text of an assistant message that goes before, for upstreams that accept no user message right after a result."""


class RoutedMedia(msgspec.Struct, frozen=True):
    """Where one content went; for the log, so it has neither content nor name."""

    kind: str
    mime: str
    route: str
    """The type of the part that holds it now, `text`, or `description`."""
    byte_count: int | None = None
    """None: its content was not in the request and was not fetched."""
    reason: str = ""
    """Why it was replaced by a description."""


class Edit(Discreet, frozen=True):
    """Replaces the content at an address in a message by `becomes`, or takes it out."""

    message: int | None
    """Index in the request as received; None for a member of the request itself."""
    at: Address
    becomes: Content
    """None takes it out."""
    reason: Reason
    artifact: Artifact | None = None
    """Must be stored before this is sent."""
    tool: str = ""
    before_chars: int = 0
    """Length of the text that is changed."""
    after_chars: int = 0
    moved: Moved | None = None
    """Parts that it takes out but that are still sent, after the batch."""
    media: RoutedMedia | None = None
    """The content for which it was made."""
    limit: str = ""
    """The limit that the text exceeded, and its value: `tool_output.max_lines=2000`; empty: another reason."""


class Spot(Discreet, frozen=True):
    """A text of a message, and where it stands."""

    message: int
    """Index in the request as received."""
    at: Address
    text: str
    tool: str = ""
    """The tool whose result it is."""

    def edited(self, becomes: str, reason: Reason, artifact: Artifact | None = None) -> Edit:
        """The edit that replaces it."""
        return Edit(self.message, self.at, becomes, reason, artifact, self.tool, len(self.text), len(becomes))


LocalStep: TypeAlias = Callable[[int, Message, str, Notices], Iterator[Edit]]
"""(index, message, name of the tool whose result it is, notices) → edits of that message."""

MAX_ROLE_CHARACTERS: Final = 32
MAX_TOOL_CHARACTERS: Final = 128
"""Limits for names in a record: both are foreign input. APIs allow tool names of 64 characters."""
_MAY_LENGTHEN: Final = frozenset({Reason.SANITISE, Reason.ROUTE_MEDIA, Reason.QUOTED_NOTICE})
"""Edits that make a message readable for the model, or safe, not shorter."""


class TrackedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message and its edits. A struct, because entries are made by the thousand."""

    index: int
    """In the request as received."""
    original: Message
    message: Message
    """The message that would be sent."""
    size: Size
    """Size of `message`."""
    original_size: Size
    whole: Message
    """The message as it came, except for media that were routed elsewhere: excerpts are made from it."""
    whole_size: Size
    tool: str = ""
    """The tool whose result it is, as `tool_of` says."""
    edits: tuple[Edit, ...] = ()
    """In order; a later edit of the same place replaces an earlier one."""
    following: tuple[Message, ...] = ()
    """Messages that are sent right after it and go with it: the media of a batch of results."""
    following_size: Size = NOTHING

    @classmethod
    def of(cls, index: int, message: Message, tool: str, counter: Counter) -> TrackedMessage:
        """A message without edits."""
        size = size_of(message, counter)
        return cls(index, message, message, size, size, message, size, tool)

    @property
    def is_system_text(self) -> bool:
        """Whether it is a system message at the beginning, which is never cut."""
        return self.original.role in SYSTEM_ROLES and not self.tool

    @property
    def is_later_system_message(self) -> bool:
        """Whether it is a system message in the middle of the conversation, which belongs to what it follows."""
        return self.original.role in SYSTEM_ROLES and bool(self.tool)

    @property
    def is_instruction(self) -> bool:
        """Whether it is such a message, and no output of a tool."""
        return self.tool == INSTRUCTION and self.original.role in SYSTEM_ROLES

    @property
    def sent_size(self) -> Size:
        """Size of everything that is sent for it."""
        return self.size + self.following_size if self.following else self.size

    @property
    def moved(self) -> tuple[Moved, ...]:
        """Parts moved out by its edits, to be sent after its batch."""
        return tuple(edit.moved for edit in self.edits if edit.moved is not None)

    @property
    def images(self) -> int:
        """How many of its images are sent, in it or after its batch."""
        message = self.message
        return message.images + sum(message.images_among(one.parts) for one in self.moved)

    def edited(self, edits: Sequence[Edit], counter: Counter) -> TrackedMessage:
        """The entry after further edits; unchanged if they are meant to make it shorter but would not.

        Compared in bytes, which do not depend on the tokenizer.
        """
        message = self.message.changed({edit.at: edit.becomes for edit in edits})
        if len(message.raw) >= len(self.message.raw) and any(edit.reason not in _MAY_LENGTHEN for edit in edits):
            return self
        size = size_of(message, counter)
        edited = msgspec.structs.replace(self, message=message, size=size, edits=(*self.edits, *edits))
        if all(edit.reason is Reason.ROUTE_MEDIA for edit in edits):
            return msgspec.structs.replace(edited, whole=message, whole_size=size)
        return edited

    def prepared_again(self, steps: Sequence[LocalStep], notices: Notices, counter: Counter) -> TrackedMessage:
        """The message as it came, after other local steps."""
        return prepared(self.index, self.original, self.tool, steps, notices, counter)

    def followed_by(self, messages: Sequence[Message], counter: Counter) -> TrackedMessage:
        """The entry with messages that are sent right after it."""
        size = sum((size_of(message, counter) for message in messages), NOTHING)
        return msgspec.structs.replace(self, following=tuple(messages), following_size=size)


def prepared(
    index: int,
    message: Message,
    tool: str,
    steps: Sequence[LocalStep],
    notices: Notices,
    counter: Counter,
) -> TrackedMessage:
    """A message after the local steps."""
    entry = TrackedMessage.of(index, message, tool, counter)
    for step in steps:
        if edits := tuple(step(index, entry.message, tool, notices)):
            entry = entry.edited(edits, counter)
    return entry


def with_media(last: TrackedMessage, moved: Sequence[Moved], counter: Counter) -> TrackedMessage:
    """The last result of a batch, followed by the media that were moved out of all its results."""
    return last.followed_by(_messages_of(last.message, moved), counter)


def before_a_user(last: TrackedMessage, counter: Counter) -> TrackedMessage:
    """Adapt to a user message that follows. If the media follow an assistant message, because the chat template accepts
    no user message right after results, it does not accept two user messages in a row either: the assistant message is
    repeated after the media."""
    words_first = last.following and last.following[0].role == "assistant"
    return last.followed_by((*last.following, last.following[0]), counter) if words_first else last


def done_again(entries: Iterable[TrackedMessage], counter: Counter) -> Iterator[TrackedMessage]:
    """The messages of a unit after some were prepared again, with the messages that follow its batches rebuilt."""
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


class MessageReport(msgspec.Struct, frozen=True, gc=False):
    """One message of a request: as it came, and as it is sent."""

    role: str
    tool: str
    """The tool whose result it is."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: tuple[str, ...] = ()
    """Why it was changed; empty: it is sent as it came."""
    artifacts: tuple[str, ...] = ()
    """The artifacts that keep what was taken out."""
    limit: str = ""
    """The limit that it exceeded by itself, and its value."""

    @classmethod
    def of(cls, entry: TrackedMessage) -> MessageReport:
        """The report of a message that is sent."""
        role, tool = entry.original.role[:MAX_ROLE_CHARACTERS], entry.tool[:MAX_TOOL_CHARACTERS]
        if not entry.edits and not entry.following:
            return cls(role, tool, entry.size.tokens, entry.size.tokens)
        reasons = tuple(dict.fromkeys(edit.reason.value for edit in entry.edits))
        artifacts = tuple(dict.fromkeys(edit.artifact.id for edit in entry.edits if edit.artifact is not None))
        limit = next((edit.limit for edit in entry.edits if edit.limit), "")
        return cls(role, tool, entry.original_size.tokens, entry.sent_size.tokens, reasons, artifacts, limit)

    def left_out(self) -> MessageReport:
        """The report after the whole message is left out: earlier cuts of it no longer matter."""
        reasons = (Reason.OLD_EXCHANGE.value,)
        return msgspec.structs.replace(self, tokens_after=0, reasons=reasons, artifacts=(), limit="")

    def kept_in(self, artifact: Artifact) -> MessageReport:
        """The report after it is known which artifact keeps its message."""
        return msgspec.structs.replace(self, artifacts=(*self.artifacts, artifact.id))

    def with_note(self, tokens: int, artifact: Artifact | None) -> MessageReport:
        """The report of the message that carries the omission note, which adds `tokens`."""
        noted = self if artifact is None or artifact.id in self.artifacts else self.kept_in(artifact)
        reasons = (*self.reasons, Reason.OMISSION_NOTE.value)
        return msgspec.structs.replace(noted, tokens_after=self.tokens_after + tokens, reasons=reasons)
