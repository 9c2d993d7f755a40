"""Repairs of a history that its upstream refuses: one row for each fault that a refusal may name, on any API.

Rule: a repair is made only after a refusal that names its fault, and in every later turn; it follows from the messages
alone, so that each turn, each replica and a restarted proxy send the same bytes. What a model loses, a note says.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, cast

from msgspec.structs import replace

from proxy.core.conversation import SYSTEM_ROLES, TOOL_ROLES, Message
from proxy.core.notices import HISTORY, MEDIA, Language, as_text, say
from proxy.core.overflow import ROLES_IN_TURN, VerdictKind
from proxy.core.text import Path, jsontext
from proxy.wire.json_messages import marks_in
from proxy.wire.request import Request


class Mendable(Message, Protocol):
    """A message of any API, with what repairs look at and change; `JsonMessage` describes the members."""

    free_text: ClassVar[str]

    def spliced(self, changes: Mapping[Path, bytes | None]) -> Self: ...
    def ids(self) -> Iterator[tuple[Path, str]]: ...
    def with_ids(self, ids: Sequence[str], most: int = 0) -> Self: ...
    def with_names(self, fitting: Callable[[str], str]) -> Self: ...
    def marks(self) -> Iterator[Path]: ...
    def without_blanks(self) -> Self: ...
    def with_reasoning(self, *, says_something: bool) -> Self: ...
    def with_text(self) -> Self: ...
    def without_names(self) -> Self | None: ...
    def without_other_members(self, member: str) -> Self: ...
    def with_signature(self) -> Self: ...
    def without_lonely_blocks(self) -> Self | None: ...
    def rewritten(self, raw: bytes) -> Self: ...


Mend: TypeAlias = Callable[[int, Mendable], Sequence[Mendable]]
"""A message and its index → what takes its place."""
Repair: TypeAlias = Callable[[Request, int, Language], Request]
"""A request, the value that its refusal states, and the language of notes → the request without the fault."""

_STATED: Final = re.compile(
    r"(?:length|equal to|at most|maximum(?: of)?|longer than|limit(?: of)?|\d ?>)\D{0,12}(\d{1,4})(?!\d| ?>)"
)
"""`maximum length 40` (OpenAI), `less than or equal to 64` (Bedrock), `with a length of 9` (Mistral), `5 > 4`."""
_DEFAULTS: Final = {VerdictKind.CALL_IDS: 40, VerdictKind.CALL_NAMES: 64, VerdictKind.CACHE_MARKS: 4}
"""OpenAI's limits for ids and names of calls, and Anthropic's for marks, where the words state none."""
_EXACT_ID: Final = 9
"""Mistral: `Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.`"""
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_HASHED_ID: Final = 24
_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASHED_NAME: Final = 8
_MEMBER: Final = re.compile(
    r"\b(?:messages|input)[\[.]\d+[\w.\[\]]*\.([A-Za-z]\w{0,63})(?![\w\[]|\.\w)|extraneous key \[(\w{1,64})\]"
)
"""The member that is refused: `input[5].status` (OpenAI), `messages.3.content.0.tool_use.caller` (Anthropic)."""
_NEEDED: Final = frozenset({
    "role", "type", "content", "text", "name", "tool_name", "id", "call_id", "tool_call_id", "tool_use_id",
    "tool_calls", "input", "output", "arguments", "summary", "thinking", "signature", "data", "encrypted_content",
    "source", "image_url", "cache_control",
})  # fmt: skip
"""Members that are never left out: without one, the rest means something else, or nothing."""
_AGAIN: Final = "again"
"""Between the id of a call that repeats an earlier one and its number."""
_SURROGATE: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""Half of a character, written as an escape, in JSON."""
_MARKED: Final = frozenset({"system", "tools"})
"""Members besides the messages that may have cache marks."""


def value_in(kind: VerdictKind, refusal: str) -> int:
    """The value of a repair that a refusal states, or the usual one.

    >>> value_in(VerdictKind.CALL_IDS, "string too long. Expected a string with maximum length 64, but got 72")
    64
    """
    if kind is VerdictKind.ROLE_ORDER:
        return 1 + (ROLES_IN_TURN.search(refusal.lower()) is not None)
    stated = _STATED.search(refusal.lower())
    default = _DEFAULTS.get(kind, 1)
    return int(stated[1]) if stated is not None and default > 1 and int(stated[1]) > 0 else default


def fault_in(kind: VerdictKind, refusal: str) -> str:
    """What a refusal is about: the kind of a fault, and the member that it names, if that may be left out.

    >>> fault_in(VerdictKind.OTHER_MEMBERS, "Unknown parameter: 'input[5].status'.")
    'other_members.status'
    >>> fault_in(VerdictKind.OTHER_MEMBERS, "messages.1.content.0.text.cache_control: Extra inputs are not permitted")
    'other_members'
    """
    named = _MEMBER.search(refusal) if kind is VerdictKind.OTHER_MEMBERS else None
    member = (named[1] or named[2]) if named is not None else ""
    return f"{kind}.{member}" if member and member not in _NEEDED else kind.value


def kind_of(fault: str) -> str:
    """The kind of a fault."""
    return fault.partition(".")[0]


def mended(request: Request, repairs: Iterable[tuple[str, int]], language: Language) -> Request:
    """The request without these faults, each with the value that was stated; the same object if it has none."""
    values = dict(repairs)
    for fault in values:
        if kind_of(fault) == VerdictKind.OTHER_MEMBERS:
            request = _without_member(request, fault.partition(".")[2])
    for kind, repair in _REPAIRS.items():
        if kind in values:
            request = repair(request, values[kind], language)
    return request


def _each(mend: Callable[[Mendable], Mendable | None]) -> Repair:
    """A repair that looks at one message at a time; None leaves it out."""

    def found_at(_: int, message: Mendable) -> Sequence[Mendable]:
        found = mend(message)
        return () if found is None else (found,)

    return lambda request, _, __: _in(request, found_at)


def _without_member(request: Request, member: str) -> Request:
    return _in(request, lambda _, message: (message.without_other_members(member),))


def _in(request: Request, mend: Mend) -> Request:
    return request.mended(cast(Callable[[int, Message], Sequence[Message]], mend))


# Ids of calls


def fitting_id(one: str, most: int) -> str:
    """The id, or another that follows from it alone, of at most so many letters and digits.

    >>> fitting_id("call_1", 40), len(fitting_id("call:1", 40)), len(fitting_id("call_1", 9))
    ('call_1', 29, 9)
    """
    fits = one.isalnum() and len(one) == most if most == _EXACT_ID else len(one) <= most
    if not one or (fits and _PLAIN_ID.fullmatch(one)):
        return one
    hashed = _hashed(one)
    return f"call_{hashed[:_HASHED_ID]}" if most >= _HASHED_ID + 5 else hashed[:most]


def _hashed(one: str) -> str:
    return hashlib.blake2b(one.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _with_fitting_ids(request: Request, most: int, _: Language) -> Request:
    def found_at(_: int, message: Mendable) -> Sequence[Mendable]:
        return (message.with_ids([fitting_id(one, most) for _, one in message.ids()], most),)

    return _in(request, found_at)


def fitting_name(one: str, most: int) -> str:
    """The name of a tool, or another that follows from it alone, of at most so many letters, digits and signs.

    >>> fitting_name("bash<|x|>", 64), fitting_name("a" * 70, 20), fitting_name("a" * 70, 5)
    ('bash__x__', 'aaaaaaaaaaa_61d6ddb7', '6ddb7')
    """
    plain = _NOT_OF_NAMES.sub("_", one)
    if len(plain) <= most:
        return plain
    return f"{plain[: max(0, most - _HASHED_NAME - 1)]}_{_hashed(one)[:_HASHED_NAME]}"[-most:]


def _with_fitting_names(request: Request, most: int, _: Language) -> Request:
    """Only in the history: the tools of a request are its client's."""
    return _in(request, lambda _, message: (message.with_names(lambda one: fitting_name(one, most)),))


def _with_unique_ids(request: Request, _: int, __: Language) -> Request:
    """Each further call with an id gets a number behind it; a result belongs to the latest calls before it."""
    used = Counter[str]()
    latest = defaultdict[str, list[str]](list)
    """The ids that the latest message with calls of an id has given them, until a result takes each but the last."""

    def found_at(_: int, message: Mendable) -> Sequence[Mendable]:
        ids = [one for _, one in message.ids()]
        if message.role in TOOL_ROLES:
            waiting = [latest[one] or [one] for one in ids]
            return (message.with_ids([queue.pop(0) if len(queue) > 1 else queue[0] for queue in waiting]),)
        for one in set(ids):
            latest[one] = []
        for one in ids:
            used[one] += 1
            latest[one].append(one if used[one] == 1 or not one else f"{one}_{_AGAIN}{used[one]}")
        queues = {one: list(given) for one, given in latest.items()}
        return (message.with_ids([queues[one].pop(0) for one in ids]),)

    return _in(request, found_at)


# Contents


def _with_json_arguments(request: Request, _: int, language: Language) -> Request:
    """Arguments that are no JSON object become an empty one; the call's result, or a user message, says what they
    were."""
    broken: dict[str, str] = {}

    def found_at(_: int, message: Mendable) -> Sequence[Mendable]:
        if message.calls:
            objects = (one for one in message.arguments() if cast(Path, one.at)[-1:] != (message.free_text,))
            faulty = [one for one in objects if not _is_object(one.text)]
            broken.update({one.call_id: one.text for one in faulty})
            return (message.changed({one.at: "{}" for one in faulty}),) if faulty else (message,)
        written = broken.pop(message.answers, "") if message.role in TOOL_ROLES else ""
        if not written.strip():
            return (message,)
        note = say(HISTORY, "arguments", language, written=written)
        text = next((text for _, text in message.texts()), "")
        return (_with_words(message, f"{as_text(text, language)}\n\n{note}" if text else note),)

    return _in(request, found_at)


def _with_words(message: Mendable, words: str) -> Mendable:
    """The message with these words in place of its first text, or beside whatever else it holds."""
    for at, _ in message.texts():
        return message.changed({at: words})
    return message.changed(dict([message.with_note(words, after=True)])) if message.can_carry_a_note else message


def _is_object(text: str) -> bool:
    return isinstance(jsontext.opened(text.encode("utf-8", "surrogatepass")), dict)


def _with_contents(request: Request, _: int, language: Language) -> Request:
    """A message of the model that says and calls nothing is left out, but for the last; any other gets a word."""
    last = len(request.conversation) - 1
    has_lost_its_first = False
    """Whether the messages that go with one that is left out are next: the first of them stands for itself."""

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        nonlocal has_lost_its_first
        full = message.without_blanks()
        if has_lost_its_first and full.is_companion:
            full = replace(cast(Any, full), is_companion=False)
        has_lost_its_first = False
        if full.calls or full.text().strip() or full.may_hold_media or full.must_stay:
            return (full,)
        if full.role == "assistant":
            has_lost_its_first = index < last and not full.is_companion
            return () if index < last else (full,)
        return (_with_words(full, say(HISTORY, "empty", language)),)

    return _in(request, found_at)


def _with_texts(request: Request, value: int, language: Language) -> Request:
    """A string in place of parts that are texts, and of null."""
    return _in(_with_contents(request, value, language), lambda _, message: (message.with_text(),))


def _without_old_marks(request: Request, most: int, _: Language) -> Request:
    """The newest marks of the messages stay, beside those of system text and tools."""
    messages = cast(Sequence[Mendable], request.conversation.messages)
    found = [(index, at) for index, one in enumerate(messages) for at in one.marks()]
    beside = sum(1 for name, raw in request.members.items() if name in _MARKED for _ in marks_in(jsontext.opened(raw)))
    gone = defaultdict[int, list[Path]](list)
    for index, at in found[: max(0, len(found) + beside - most)]:
        gone[index].append(at)

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        return (message.spliced(dict.fromkeys(gone[index])),) if index in gone else (message,)

    return _in(request, found_at)


def _without_halves(request: Request, _: int, __: Language) -> Request:
    """U+FFFD in place of each half of a character, in messages and all other members."""

    def found_at(_: int, message: Mendable) -> Sequence[Mendable]:
        raw = _whole_characters(message.raw)
        return (message if raw == message.raw else message.rewritten(raw),)

    found = _in(request, found_at)
    members = {name: _whole_characters(bytes(raw)) for name, raw in request.members.items()}
    changed = {name for name, raw in request.members.items() if members[name] != bytes(raw)}
    if not changed:
        return found
    kept = {name: members[name] if name in changed else raw for name, raw in request.members.items()}
    return replace(found, members=kept, healed=found.healed or (0,))


def _whole_characters(raw: bytes) -> bytes:
    r"""JSON without half characters.

    >>> _whole_characters(rb'"\ud83d \ud83d\ude00 \\ud83d"')
    b'"\\ufffd \\ud83d\\ude00 \\\\ud83d"'
    """
    return _SURROGATE.sub(rb"\1\\ufffd", raw) if b"\\u" in raw else raw


# Order


def _with_words_between(request: Request, order: int, language: Language) -> Request:
    """A word of the model between a result and the user, and if roles must alternate, one of the other role between two
    messages of one."""
    messages = request.conversation.messages
    wanted = {(role, "user") for role in TOOL_ROLES}
    wanted |= {("user", "user"), ("assistant", "assistant")} if order > 1 else set()

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        following = messages[index + 1] if index + 1 < len(messages) else message
        if (message.role, following.role) not in wanted or following is message or following.is_companion:
            return (message,)
        if message.role == "assistant":
            return (message,) if message.calls else (message, _go_on(message, language))
        return (message, message.beside("assistant", say(MEDIA, "spoken", language)))

    return _in(request, found_at)


def _go_on(message: Mendable, language: Language) -> Mendable:
    return message.beside("user", say(HISTORY, "go_on", language))


def _with_user_first(request: Request, _: int, language: Language) -> Request:
    first = next((at for at, one in enumerate(request.conversation) if one.role not in SYSTEM_ROLES), 0)

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        return (_go_on(message, language), message) if index == first and message.role == "assistant" else (message,)

    return _in(request, found_at)


def _with_user_last(request: Request, _: int, language: Language) -> Request:
    last = len(request.conversation) - 1

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        is_open = index == last and message.role == "assistant" and not message.calls
        return (message, _go_on(message, language)) if is_open else (message,)

    return _in(request, found_at)


def _with_system_first(request: Request, _: int, __: Language) -> Request:
    """A system message behind others becomes one of the user."""
    first = next((at for at, one in enumerate(request.conversation) if one.role not in SYSTEM_ROLES), 0)

    def found_at(index: int, message: Mendable) -> Sequence[Mendable]:
        if index < first or message.role not in SYSTEM_ROLES:
            return (message,)
        return (replace(cast(Any, message.spliced({("role",): b'"user"'})), role="user"),)

    return _in(request, found_at)


# In this order: what is put in for one may need the next.
_REPAIRS: Final[Mapping[VerdictKind, Repair]] = {
    VerdictKind.ITEM_IDS: _each(lambda message: message.without_names()),
    VerdictKind.CALL_IDS: _with_fitting_ids,
    VerdictKind.CALL_NAMES: _with_fitting_names,
    VerdictKind.SAME_IDS: _with_unique_ids,
    VerdictKind.ARGUMENTS: _with_json_arguments,
    VerdictKind.SYSTEM_PLACE: _with_system_first,
    VerdictKind.EMPTY_CONTENT: _with_contents,
    VerdictKind.TEXT_CONTENT: _with_texts,
    VerdictKind.CACHE_MARKS: _without_old_marks,
    VerdictKind.SURROGATES: _without_halves,
    VerdictKind.FIRST_ROLE: _with_user_first,
    VerdictKind.LAST_ROLE: _with_user_last,
    VerdictKind.ROLE_ORDER: _with_words_between,
    VerdictKind.REASONING: _each(lambda message: message.with_reasoning(says_something=False)),
    VerdictKind.EMPTY_REASONING: _each(lambda message: message.with_reasoning(says_something=True)),
    VerdictKind.SIGNATURE: _each(lambda message: message.with_signature()),
    VerdictKind.SERVER_TOOLS: _each(lambda message: message.without_lonely_blocks()),
}
