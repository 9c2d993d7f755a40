"""Messages of the API → messages as the core sees them → messages of the API.

Rule: every API message becomes at least one view, and later messages do not change its views, with two exceptions: an
assistant message continues in the next one, because the API reads both as one, and everything before a compaction is
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from proxy.core.conversation import SYSTEM_ROLES, Message
from proxy.core.text import Raw, jsontext
from proxy.wire.messages.blocks import (
    COMPACTION,
    RESULT,
    THINKING,
    brings_tools,
    holds_compaction,
    kind_of,
    text_in,
)
from proxy.wire.messages.message import IGNORED, REMINDER, ApiMessage, Form, Frame

_RESULT: Final = f'"{RESULT}"'.encode()
_COMPACTION: Final = f'"{COMPACTION}"'.encode()
_REMINDER: Final = ("<system-reminder>", "</system-reminder>")
"""Beginning and end of the texts that Claude Code puts beside tool results. What comes after the end is a person's."""


def read(items: Sequence[Raw]) -> list[tuple[Message, int]]:
    """The messages of a list, each with the number of items read up to its end."""
    found: list[tuple[Message, int]] = []
    kept = list(map(bytes, items))
    begun = _after_compaction(kept)
    if begun:
        found.append((ignored(kept[:begun]), begun))
    follows_assistant = False
    for count, raw in enumerate(kept[begun:], start=begun + 1):
        for view in _views(raw, follows_assistant=follows_assistant):
            found.append((view, count))
            follows_assistant = view.role == "assistant"
    return found


def may_continue(message: Message) -> bool:
    """Whether the next API message may belong to this one: consecutive assistant messages are one turn."""
    return message.role == "assistant"


def changes_what_was_read(raw: bytes) -> bool:
    """Whether new messages may contain a compaction, so that everything before it is ignored."""
    return raw.find(_COMPACTION) >= 0


def loop_start(messages: Sequence[Message]) -> int:
    """The index after the last user message: there the running tool loop begins."""
    questions = (at for at, message in enumerate(messages) if message.role == "user" and not message.is_companion)
    return max(questions, default=-1) + 1


def count_of_items(messages: Sequence[Message]) -> int:
    """How many messages of the API these are."""
    frames = [message.frame if isinstance(message, ApiMessage) else None for message in messages]
    return sum(frame is None or frame is not before for before, frame in zip([None, *frames], frames, strict=False))


def begins_with_thinking(messages: Sequence[Message]) -> bool:
    """Whether the last assistant message, with those that the API merges with it, begins with thinking, or calls
    nothing."""
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    first = last
    while first > 0 and messages[first].is_companion and messages[first - 1].role == "assistant":
        first -= 1
    if not any(message.calls for message in messages[first : last + 1]):
        return True
    blocks = jsontext.listed(jsontext.opened(messages[first].raw).get("content"))
    return bool(blocks) and kind_of(blocks[0]) in THINKING


def ignored(items: Sequence[bytes]) -> ApiMessage:
    """Items that are not parsed, as one message."""
    return ApiMessage(b",".join(items), IGNORED, must_stay=True, form=Form.IGNORED)


def joined(messages: Sequence[Message], original: Sequence[Message]) -> bytes:
    """The JSON list of these messages: the views of one API message are joined again. `original`: the messages as
    received."""
    items: list[tuple[Message, Frame | None, list[tuple[int, bytes]]]] = []
    """The first view of each API message, the frame, and all its views with their places."""
    for message in messages:
        frame, place = (message.frame, message.place) if isinstance(message, ApiMessage) else (None, 0)
        _, before, views = items[-1] if items else (message, None, [])
        # By value: a view that is known of an earlier request may occur beside one that was read anew.
        if frame is None or frame != before or (views and views[-1][0] >= place):
            views = []
            items.append((message, frame, views))
        if message.raw:
            views.append((place, message.raw))
    written = [(message, _framed(frame, views)) for message, frame, views in items]
    return jsontext.join_array([raw for raw in _in_order(written, original) if raw])


def _framed(frame: Frame | None, views: Sequence[tuple[int, bytes]]) -> bytes:
    """An API message from its remaining views; if all remain, with its original white space. Empty if none does."""
    if frame is None or not views:
        return b"".join([raw for _, raw in views])
    around = frame.around
    if [place for place, _ in views] == list(range(len(around) - 1)):
        return b"".join(between + raw for between, (_, raw) in zip(around, views, strict=False)) + around[-1]
    return around[0] + b",".join([raw for _, raw in views]) + around[-1]


def _in_order(items: list[tuple[Message, bytes]], original: Sequence[Message]) -> list[bytes]:
    """The items in an order that the API accepts: a system text must be right after a user message, and right before
    an assistant message or last. If the message before or after it was left out, the system text moves to the end of
    the user messages after it.
    https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
    """
    found: list[bytes] = []
    waiting: list[bytes] = []
    before, around = "", _around(original) if any(message.role in SYSTEM_ROLES for message, _ in items) else {}
    for at, (message, raw) in enumerate(items):
        following = items[at + 1][0].role if at + 1 < len(items) else "assistant"
        is_system = message.role in SYSTEM_ROLES
        if is_system and at and (waiting or following in _USER or before == "assistant"):
            preceding, answer = around.get(id(message), ("", ""))
            if answer == "assistant" and (waiting or following in _USER or preceding in _USER):
                waiting.append(raw)
                continue
        if waiting and message.role not in _USER and before in _USER:
            found += waiting
            waiting = []
        found.append(raw)
        before = before if is_system else message.role
    return found + waiting


def _around(messages: Sequence[Message]) -> Mapping[int, tuple[str, str]]:
    """The roles of the messages before and after each system text that are no system texts, by its identity."""
    found: dict[int, tuple[str, str]] = {}
    begun: list[int] = []
    before = ""
    for message in messages:
        if message.role in SYSTEM_ROLES:
            begun.append(id(message))
            continue
        found |= dict.fromkeys(begun, (before, message.role))
        before, begun = message.role, []
    return found | dict.fromkeys(begun, (before, ""))


_USER: Final = frozenset({"user", "tool", REMINDER})
"""Roles of the views of the API's user messages."""


def _views(kept: bytes, *, follows_assistant: bool) -> Sequence[ApiMessage]:
    """The views of an API message; any JSON value has at least one."""
    whole = ApiMessage.read(kept)
    if whole.role == "user" and _RESULT in kept and (found := _several(whole)):
        return found
    return [replace(whole, is_companion=True) if follows_assistant and whole.role == "assistant" else whole]


def _several(whole: ApiMessage) -> list[ApiMessage]:
    """The views of a user message that answers calls: one for each result, and one for each run of other blocks. Empty
    if no block is a result; a message that is one result is a view already."""
    kept, content = whole.raw, whole.raw_content()
    opened = jsontext.opened(content)
    kinds = [kind_of(block) == RESULT for block in jsontext.listed(opened)]
    if content is None or not any(kinds):
        return []
    content = bytes(content)
    raws = list(map(bytes, jsontext.items(content)))
    last = max(at for at, is_result in enumerate(kinds) if is_result)
    runs: list[tuple[int, int]] = []
    for at, is_result in enumerate(kinds):
        if runs and not is_result and not kinds[at - 1]:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    spans = _spans(kept, content, raws)
    pieces = [(spans[start][0], spans[stop - 1][1]) for start, stop in runs]
    ends = [0, *(end for _, end in pieces)]
    starts = [*(start for start, _ in pieces), len(kept)]
    frame = Frame(tuple([kept[end:start] for end, start in zip(ends, starts, strict=True)]))
    found = []
    for place, ((start, stop), (begin, end)) in enumerate(zip(runs, pieces, strict=True)):
        if kinds[start]:
            block, raw = opened[start], kept[begin:end]
            answers, must_stay = jsontext.string_in(block, "tool_use_id"), brings_tools(raw, block.get("content"))
            part = replace(whole, raw=raw, role="tool", answers=answers, must_stay=must_stay)
            found.append(replace(part, form=Form.RESULT, frame=frame, place=place))
        else:
            found.append(_beside(kept[begin:end], opened[start:stop], whole, frame, place, is_before=start < last))
    return found


def _spans(kept: bytes, content: bytes, raws: Sequence[bytes]) -> list[tuple[int, int]]:
    """The start and end of each block in the bytes of its message."""
    end = kept.index(content)
    spans: list[tuple[int, int]] = []
    for raw in raws:
        # Only a bracket or comma and white space come between, so the first hit is the block itself.
        start = kept.index(raw, end)
        end = start + len(raw)
        spans.append((start, end))
    return spans


def _beside(
    raw: bytes, blocks: list[Any], whole: ApiMessage, frame: Frame, place: int, *, is_before: bool
) -> ApiMessage:
    """Content beside results. A person's words are a message of their own; reminders and media belong to the results,
    and so does any content before a result."""
    texts = [text for block in blocks if (text := text_in(block)) is not None]
    is_reminder = is_before or (bool(texts) and all(map(_is_reminder, texts)))
    role, is_companion = (REMINDER, True) if is_reminder else ("user", not texts)
    must_stay = brings_tools(raw, blocks)
    return replace(
        whole,
        raw=raw,
        role=role,
        is_companion=is_companion,
        must_stay=must_stay,
        form=Form.RUN,
        frame=frame,
        place=place,
    )


def _is_reminder(text: str) -> bool:
    begin, end = _REMINDER
    return text.lstrip().startswith(begin) and text.rstrip().endswith(end)


def _after_compaction(items: Sequence[bytes]) -> int:
    """The number of items before the last one with a compaction."""
    for at in range(len(items) - 1, 0, -1):
        if _COMPACTION in items[at] and holds_compaction(ApiMessage.read(items[at]).content()):
            return at
    return 0
