"""The pool of lines that left the prompt, of which the omission note quotes the most informative. They are grouped by
the file or command that results read and tool calls wrote or replaced.

Rule: the path, the text written and the text replaced are recognised by the argument names that agents' tools share. A
call without any of them is filed under its first argument, mostly a command. A secret is never quoted.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct, field, structs

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.conversation import MESSAGE_TOKENS, TOOL_ROLES, Message, Size, TrackedMessage, is_quotable
from proxy.core.notices import imitates
from proxy.core.text import jsontext, names_in, names_of_lines
from proxy.core.tokens import Counter

_PATHS: Final = (
    "file_path",
    "path",
    "filename",
    "file",
    "filepath",
    "notebook_path",
    "target_file",
    "absolute_path",
)
_REPLACED: Final = frozenset({"old_string", "old_str", "oldText", "old_text", "old", "search"})
"""Arguments of the edit tools of Claude Code, OpenHands, SWE-agent, Kimi and Aider that hold the old text."""
_WRITTEN: Final = frozenset({"new_string", "new_str", "newText", "new_text", "new", "replace"})
"""Arguments of the same tools that hold the new text."""
_WHOLE: Final = frozenset({"content", "file_text", "contents"})
"""Beside a path: the whole new content of the file."""
_PATTERNS: Final = frozenset({"pattern", "query", "regex", "glob", "glob_pattern", "search_term", "keyword"})
"""Arguments of search tools that tell one search of a folder from the next."""
ABOUT: Final = _PATTERNS | frozenset((*_PATHS, "command", "cmd"))
"""Arguments that say what a call is about, even if the last one had the same."""
_SHELL: Final = re.compile(r"(?:\S*/)?(?:ba|z|da)?sh -l?c")
_SHELL_WORDS: Final = 3
"""`["bash", "-lc", COMMAND]`, as Codex calls its shell."""
_PATCHED: Final = re.compile(r"^(?:\*\*\* (?:Add|Update) File: |\+\+\+ (?:b/)?)(\S.*)$")
"""The envelope of Codex's apply_patch, and the header of a unified diff."""
_PATCH_FRAME: Final = ("*** ", "--- ", "@@", "diff ")
_MAX_SOURCE_CHARACTERS: Final = 110
"""Limit for a command."""
_MAX_PATH_CHARACTERS: Final = 400
"""The end of a path names the file, and in a work tree it begins after a hundred characters."""
_MAX_PLAN_CHARACTERS: Final = 2_000
"""A dozen steps."""
_MIN_WRITTEN_CHARACTERS: Final = 40
"""A shorter argument of one line is a switch, a pattern or a path."""


class Trace(NamedTuple):
    """Effect of one call on one file."""

    call_id: str
    source: str
    """The path, or the beginning of the command; empty for a plan."""
    written: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    is_whole: bool = False
    """Whether the text written is the whole content of the file."""
    plan: str = ""
    """The steps of a plan, or questions: what the objects in lists among the arguments say."""
    arguments: Mapping[str, str] = {}
    """What tells the call from others, by the names of its arguments: patterns before paths, and no text written."""


def traces_of(message: Message) -> Iterator[Trace]:
    """One trace for each call, or one for each file of a patch."""
    for _, call_id, text in message.arguments():
        arguments = jsontext.opened(text.encode("utf-8", "surrogatepass"))
        named = arguments if isinstance(arguments, dict) else {"": text}
        found = list(_strings("", named))
        patched = [trace for _, value in found for trace in _of_patch(call_id, value)]
        if patched:
            yield from patched
            continue
        paths = (named.get(name) for name in _PATHS)
        known_path = next((value for value in paths if isinstance(value, str) and value), None)
        plan = "" if known_path else _plan_in(named)
        telling = _telling(named)
        source = _heading(
            known_path or next(iter(telling.values()), ""),
            _MAX_PATH_CHARACTERS if known_path else _MAX_SOURCE_CHARACTERS,
        )
        yield Trace(
            call_id,
            "" if plan else source,
            tuple(value for name, value in found if not plan and value != source and _is_written(name, value)),
            tuple(value for name, value in found if name in _REPLACED),
            known_path is not None and any(isinstance(named.get(name), str) for name in _WHOLE),
            plan,
            telling,
        )


def _telling(named: Mapping[str, Any]) -> dict[str, str]:
    """The arguments that say what a call does, each in one line."""
    found: dict[str, str] = {}
    for name, value in named.items():
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            is_shell = len(value) == _SHELL_WORDS and _SHELL.fullmatch(f"{value[0]} {value[1]}")
            value = value[-1] if is_shell else " ".join(value)  # noqa: PLW2901 - an argv is one command
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # noqa: PLW2901
        elif isinstance(value, dict | list):
            value = next((text for _, text in _strings("", value)), "")  # noqa: PLW2901
        if isinstance(value, str) and value and name not in _WRITTEN | _WHOLE:
            found[name] = _heading(value, _MAX_PATH_CHARACTERS if name in _PATHS else _MAX_SOURCE_CHARACTERS)
    return dict(sorted(found.items(), key=lambda one: one[0] not in _PATTERNS))


def _strings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """All strings inside arguments, each with the name of the member that holds it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for inner_name, inner in value.items():
            yield from _strings(inner_name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(name, inner)


def _plan_in(arguments: Mapping[str, Any]) -> str:
    lists = [value for value in arguments.values() if isinstance(value, list)]
    items = (item for items in lists for item in items if isinstance(item, dict))
    steps = (" ".join(text for _, text in _strings("", item)) for item in items)
    plan = " ".join("; ".join(step for step in steps if not is_never_quoted(step)).split())
    return plan if len(plan) <= _MAX_PLAN_CHARACTERS else f"{plan[:_MAX_PLAN_CHARACTERS]} …"


def _is_written(name: str, value: str) -> bool:
    if name in _WRITTEN or name in _WHOLE:
        return True
    return name not in _REPLACED and ("\n" in value or len(value) >= _MIN_WRITTEN_CHARACTERS)


def _heading(text: str, most: int = _MAX_SOURCE_CHARACTERS) -> str:
    return " ".join(text[: 2 * most].split())[:most]


def _of_patch(call_id: str, text: str) -> Iterator[Trace]:
    """One trace for each file that a patch changes."""
    source, written, replaced = None, list[str](), list[str]()
    for line in text.split("\n") if "+++ " in text or "*** " in text else ():
        header = _PATCHED.match(line)
        if header is not None:
            if source is not None:
                yield Trace(call_id, source, ("\n".join(written),), ("\n".join(replaced),), arguments={"path": source})
            source, written, replaced = _heading(header[1], _MAX_PATH_CHARACTERS), [], []
        elif source is not None and not line.startswith(_PATCH_FRAME):
            if line[:1] in ("+", " "):
                written.append(line[1:])
            elif line[:1] == "-":
                replaced.append(line[1:])
    if source is not None:
        yield Trace(call_id, source, ("\n".join(written),), ("\n".join(replaced),), arguments={"path": source})


MAX_LINES: Final = 3_000
"""Lines remembered of what is left out: several times what the note of a window of 32 000 has room for. With a
thousand, lines from forty exchanges ago that the next step needed were forgotten."""
_MAX_CHARACTERS: Final = 400
"""Limit of a line; longer lines are data, or prose that says little for its length."""
_MAX_LINES_OF_A_TEXT: Final = 2_000
"""Lines that are read of one text."""
HALF_LIFE: Final = 15.0
"""Exchanges after which a line is worth half as much; after twice as many, a third: new lines are needed first, but old
ones hardly age any more."""
IN_HAND_AGE: Final = 0.5
"""Share of a line's age that counts in a file that the newest calls are about: a file edited now was often read long
ago."""
IN_HAND: Final = 1.0
"""Extra worth of a line, in new names, if it is from a file in the newest calls."""
NEAR: Final = 3.0
"""Extra worth of a line for each neighbour that is quoted: an edit needs adjacent lines."""
USED: Final = 3.0
"""Extra worth of a name that the agent has used."""
MAX_USED: Final = 2_000
"""Remembered names that the assistant used."""
NEWEST_CALLS: Final = 6
"""Messages with calls that decide which files the agent is working on."""
_LINE_OVERHEAD: Final = 12
"""Characters added to the length of a line: being short must not make a line worth more than a long one."""
_LEAST_ROOM_TOKENS: Final = 6
_MAX_MISFITS: Final = 12
"""Lines too long for the rest of the room after which no further one is tried."""
_GREP: Final = re.compile(r"([\w./@+-]+\.\w+)[:-]\d+[:-]")
_NUMBER: Final = re.compile(r"\s*\d+(?:→|\t|[:-](?!\d))")
"""The number that `grep -n`, `cat -n` and the file readers of agents put before a line: it is wrong after the next
edit."""
_UNTOLD: Final = re.compile(
    r"\b(?:sk|pk|rk|gh[pousr]|github_pat|glpat|xox[abprs]|hf)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{10,}\."
    r"|-----BEGIN |\bBearer\s+[\w.~+/-]{16,}|://[^/\s:@]+:[^/\s@]+@|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{40,}"
    rf"|{ARTIFACT_NAME}"
)
"""Keys by their usual shapes; and artifacts, because nothing keeps those that a notice within a note names."""
_UNTOLD_HOLDS: Final = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "hf-", "hf_", "ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat"),
    *("xox", "akia", "eyj", "-----", "bearer", "://", "tool_"),
)
"""Lower case. A text with neither one of these nor a long word need not be matched against the pattern, which is
slow."""
_LONG_WORD: Final = 40
_ASSIGNED: Final = re.compile(
    r"(?i:(?:api_?key|secret|passw(?:or)?d|passphrase|token|credentials?|private_?key)\w*[\"']?\s*(?:[:=]|=>)\s*"
    r"(?:[\"'][^\"']{6,}[\"']|(?=[^\s\"'(){}]*\d)[^\s\"'(){}]{8,}))"
)
"""Passwords, recognised by the name they are assigned to."""
_ASSIGNED_HOLDS: Final = (
    *("apikey", "api_key", "privatekey", "private_key", "secret", "passw", "passphrase", "token", "credential"),
)


class Sight(NamedTuple):
    """When lines were seen, and how dense in tokens their message is."""

    exchange: int
    tokens_per_character: float

    @classmethod
    def of(cls, entry: TrackedMessage, exchange: int) -> Sight:
        """The sight of a message's lines, from its size as it came; capped, because an image has more tokens than any
        text of its length."""
        size = entry.whole_size
        return cls(exchange, min(1.0, max(0, size.tokens - MESSAGE_TOKENS) / max(1, size.chars)))


class Line(NamedTuple):
    """One line of something that is left out."""

    text: str
    """The line, without the number that a tool put before it."""
    sight: Sight
    """When it was last seen."""

    @property
    def tokens(self) -> int:
        """Including the end of the line: its share of the tokens counted for its message. The line is not counted by
        itself: the finished note is counted as a whole."""
        return 1 + round(len(self.text) * self.sight.tokens_per_character)


_Texts: TypeAlias = dict[str, list[Sequence[Line]]]
"""The lines of each text of a source, in the order in which they were seen."""


class LinePool(Struct, frozen=True):
    """Lines of everything that is left out so far."""

    sources: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    """Lines by the file or command they come from; the one seen last is last."""
    exchanges: int = 0
    used: Mapping[str, None] = field(default_factory=dict)
    """Names in assistant messages that are left out; those used last are last."""
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names in each line, by its text."""
    _extensions: list[tuple[list[tuple[Message, Size]], LinePool]] = field(default_factory=list)
    """Messages removed by the last cut, and the pool after it: if a client rewords its last message in the next turn,
    the same cut is made again."""

    def extended(self, gone: Sequence[TrackedMessage]) -> LinePool:
        """The pool after one more cut."""
        now = [(entry.whole, entry.whole_size) for entry in gone]
        for before, pool in self._extensions:
            if now == before:
                return pool
        pool = self._extended(gone)
        self._extensions[:] = [(now, pool)]
        return pool

    def _extended(self, gone: Sequence[TrackedMessage]) -> LinePool:
        sources: _Texts = {source: [lines] for source, lines in self.sources.items()}
        used, exchange = dict(self.used), self.exchanges
        called: dict[str, str] = {}
        for entry in gone:
            message = entry.whole
            if message.role == "assistant":
                exchange += 1
                for name in names_in(message.text()):
                    used.pop(name, None)
                    used[name] = None
                called.update(dict.fromkeys([call.id for call in message.calls], ""))  # an id may return
                for trace in traces_of(message):
                    called[trace.call_id] = trace.source
                    _replace(sources, trace, Sight.of(entry, exchange))
            elif message.role in TOOL_ROLES or message.role == "user" or entry.is_later_system_message:
                for _, text in message.texts():
                    if message.role != "user" or not is_quotable(text):
                        _add(sources, text, called.get(message.answers, ""), Sight.of(entry, exchange))
        bounded = _bounded(sources)
        return LinePool(bounded, exchange, dict.fromkeys(list(used)[-MAX_USED:]), self._names_in(bounded))

    def _names_in(self, sources: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[str]]:
        """The names in all lines. Called after the pool is bounded, so that only lines that stay are searched."""
        texts = dict.fromkeys(line.text for lines in sources.values() for line in lines)
        new = [text for text in texts if text not in self.names]
        found = dict(zip(new, names_of_lines(new), strict=True))
        return {text: found[text] if text in found else self.names[text] for text in texts}

    def quoted(
        self, kept: Sequence[TrackedMessage], known: Collection[str], room_tokens: int, counter: Counter
    ) -> list[tuple[str, list[str]]]:
        """(file or command, its lines in order, with a mark for gaps), chosen for a room of `room_tokens`. `kept`: the
        messages still in the conversation, `known`: the names in them."""
        if room_tokens < _LEAST_ROOM_TOKENS or not self.sources:
            return []
        sources: _Texts = {source: [lines] for source, lines in self.sources.items()}
        traces = [list(traces_of(entry.message)) for entry in kept if entry.message.calls]
        for trace in chain.from_iterable(traces):
            _forget(sources, trace)
        in_hand = {trace.source for trace in chain.from_iterable(traces[-NEWEST_CALLS:])}
        left = {source: _latest(texts) for source, texts in sources.items()}
        return _Choice(structs.replace(self, sources=left), in_hand, known).made(room_tokens, counter)


class _Choice:
    """The lines with the highest worth, chosen one by one: each makes its names known and its neighbours worth more."""

    def __init__(self, pool: LinePool, in_hand: Collection[str], known: Iterable[str]) -> None:
        self._lines = [(source, line) for source, lines in pool.sources.items() for line in lines]
        self._in_hand = in_hand
        self._known = set(known)
        self._used = pool.used.keys()
        self._names = pool.names
        self._unknown = [pool.names[line.text] for _, line in self._lines]
        """Names of each line that were unknown when its worth was last computed."""
        self._exchanges = pool.exchanges
        self._freshness = [1 / (1 + age / HALF_LIFE) for age in range(pool.exchanges + 1)]
        self._near = bytearray(len(self._lines))
        """How many neighbours of each line are chosen."""
        self._done = bytearray(len(self._lines))

    def made(self, room_tokens: int, counter: Counter) -> list[tuple[str, list[str]]]:
        """The chosen lines, in the order of the pool."""
        heap = [(-worth, index) for index in self._telling() if (worth := self._worth(index)) > 0]
        heapq.heapify(heap)
        left, chosen, headings = room_tokens, list[int](), set[str]()
        misfits = 0
        while heap and left >= _LEAST_ROOM_TOKENS and misfits < _MAX_MISFITS:
            before, index = heapq.heappop(heap)
            if self._done[index]:
                continue
            worth = self._worth(index)
            if worth < -before:  # others have made its names known
                if worth > 0:
                    heapq.heappush(heap, (-worth, index))
                continue
            self._done[index] = 1
            source, line = self._lines[index]
            text, cost = line.text, line.tokens
            if source not in headings:
                cost += counter.count(source) + 2
            if cost > left:
                misfits += 1
                continue
            if is_never_quoted(text) or (source not in headings and is_never_quoted(source)):
                continue
            left -= cost
            chosen.append(index)
            headings.add(source)
            self._known |= self._unknown[index]
            for neighbour in self._neighbours(index):
                self._near[neighbour] += 1
                heapq.heappush(heap, (-self._worth(neighbour), neighbour))
        return self._grouped(sorted(chosen))

    def _telling(self) -> Iterator[int]:
        """The lines that are worth something by themselves: usually few, and the others need not be considered."""
        return (
            index
            for index, (source, _) in enumerate(self._lines)
            if source in self._in_hand or not self._unknown[index] <= self._known
        )

    def _worth(self, index: int) -> float:
        """Worth of a line per character."""
        source, (text, sight) = self._lines[index]
        age = self._exchanges - sight.exchange
        worth = NEAR * self._near[index]
        if source in self._in_hand:
            age = int(age * IN_HAND_AGE)
            worth += IN_HAND if self._names[text] else 0.0
        unknown = self._unknown[index]
        if unknown:
            self._unknown[index] = unknown = unknown - self._known
            worth += len(unknown) + USED * len(unknown & self._used)
        return worth * self._freshness[age] / (len(text) + _LINE_OVERHEAD)

    def _neighbours(self, index: int) -> Iterable[int]:
        source, lines = self._lines[index][0], self._lines
        beside = (at for at in (index - 1, index + 1) if 0 <= at < len(lines))
        return [at for at in beside if not self._done[at] and lines[at][0] == source]

    def _grouped(self, chosen: Sequence[int]) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = []
        before = -1
        for index in chosen:
            source, (text, _) = self._lines[index]
            if not found or found[-1][0] != source:
                found.append((source, []))
            elif index != before + 1:
                found[-1][1].append("…")
            found[-1][1].append(text)
            before = index
        return found


def is_never_quoted(text: str) -> bool:
    """Whether a line looks like a secret or a notice, or names an artifact. Asked of every chosen line, so cheap
    searches for single words come first."""
    if imitates(text):
        return True
    small = text.lower()
    if (":" in text or "=" in text) and _holds(small, _ASSIGNED_HOLDS) and _ASSIGNED.search(text) is not None:
        return True
    is_long = len(text) >= _LONG_WORD and max(map(len, text.split())) >= _LONG_WORD
    return (is_long or _holds(small, _UNTOLD_HOLDS)) and _UNTOLD.search(text) is not None


def _holds(text: str, words: Sequence[str]) -> bool:
    for word in words:  # noqa: SIM110  # `any` takes twice the time
        if word in text:
            return True
    return False


def _lines_in(text: str, source: str, sight: Sight) -> dict[str, list[Line]]:
    """The lines of a text, by the file they come from, which `grep` prints before each."""
    found: dict[str, list[Line]] = {}
    for line in islice(text.split("\n"), _MAX_LINES_OF_A_TEXT):
        if not line or len(line) > 2 * _MAX_CHARACTERS:
            continue
        named = _GREP.match(line) if ":" in line or "-" in line else None
        numbered = named or (_NUMBER.match(line) if line.lstrip()[:1].isdigit() else None)
        shown = (line[numbered.end() :] if numbered else line).rstrip()
        if shown and len(shown) <= _MAX_CHARACTERS:
            of = named[1] if named else source
            found.setdefault(of, []).append(Line(shown, sight))
    return found


def _add(sources: _Texts, text: str, source: str, sight: Sight) -> None:
    """Lines that were read replace the same lines seen earlier."""
    for of, lines in _lines_in(text, source, sight).items():
        sources[of] = texts = sources.pop(of, [])
        texts.append(lines)


def _latest(texts: Sequence[Sequence[Line]]) -> tuple[Line, ...]:
    """The lines of a source, each where it was seen last; the last MAX_LINES at the most, and a few more."""
    if len(texts) == 1:
        return tuple(texts[0])
    found: list[Sequence[Line]] = []
    seen: set[str] = set()
    left = MAX_LINES
    for lines in reversed(texts):  # thousands, if a client gives all its calls one name
        if left <= 0:
            break
        found.append([line for line in lines if line.text not in seen])
        left -= len(found[-1])
        seen.update([line.text for line in lines])
    return tuple(chain.from_iterable(reversed(found)))


def _replace(sources: _Texts, trace: Trace, sight: Sight) -> None:
    """Text that was written replaces the old text."""
    position = _forget(sources, trace)
    written = "\n".join(trace.written)
    if position is None or trace.is_whole:
        _add(sources, written, trace.source, sight)
        return
    lines = [line for found in _lines_in(written, trace.source, sight).values() for line in found]
    kept = _latest(sources.pop(trace.source, [()]))
    sources[trace.source] = [(*kept[:position], *lines, *kept[position:])]


def _forget(sources: _Texts, trace: Trace) -> int | None:
    """Forget the lines that a call has replaced. Returns where in the source they began; None if none is known."""
    if trace.source not in sources:
        return None
    if trace.is_whole:
        del sources[trace.source]
        return None
    gone = {line.strip() for text in trace.replaced for line in text.split("\n")}
    gone -= {line.strip() for text in trace.written for line in text.split("\n")}
    if not gone:  # as of every call that reads
        return None
    lines = _latest(sources[trace.source])
    first = next((position for position, line in enumerate(lines) if line.text.strip() in gone), None)
    sources[trace.source] = [lines if first is None else [line for line in lines if line.text.strip() not in gone]]
    return first


def _bounded(sources: _Texts) -> dict[str, tuple[Line, ...]]:
    """The sources seen last, with MAX_LINES lines together at the most."""
    left, found = MAX_LINES, dict[str, tuple[Line, ...]]()
    for source in reversed(sources):
        lines = _latest(sources[source])[-left:]
        left -= len(lines)
        found[source] = lines
        if left <= 0:
            break
    return dict(reversed(found.items()))
