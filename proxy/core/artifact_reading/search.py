"""Search in an artifact: by a pattern of lines, or by a JSON pointer (RFC 6901). Matches have their line numbers and
context.

Rule: the time is linear in the size of the text, whatever the pattern (RE2, https://github.com/google/re2). A text is
read piece by piece and never held as a whole; a match is within one line; no more bytes and matches are shown than
requested, and whatever ends a search early, the page says from which line and byte to continue. A part of JSON keeps
its bytes; a pointer also leads into a string that is JSON itself, as the arguments of tool calls are.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct

from proxy.core.text import PAGE_BYTES, BytesOf, Discreet, LineIndex, LineRange, begin_of, jsontext, whole_characters
from proxy.errors import BadArtifactQuery, RangeOutside

MAX_PATTERN_CHARACTERS: Final = 500
MAX_CONTEXT: Final = 50
"""Lines on each side of a match."""
MAX_HITS: Final = 1_000
CONTEXT: Final = 2
HITS: Final = 50
"""The default."""
_MEMORY_BYTES: Final = 1 << 20
"""Memory for the automaton of a pattern; RE2's own default is 8 MB. A pattern that needs more is refused."""


_BEYOND_ASCII: Final = re.compile(r"\[(?:[^\]\\]|\\.)+\]|[^\x00-\x7f\ud800-\udfff]")
"""Letters, and classes of them, which stay as they are."""


def _or_escaped(letter: re.Match[str]) -> str:
    if letter[0].startswith("["):
        return letter[0]
    escaped = re.sub("....", r"\\\\u\g<0>", letter[0].encode("utf-16-be").hex())
    return f"(?:{letter[0]}|(?i:{escaped}))"


class Search(Struct, frozen=True):
    """Parameters of a search."""

    pattern: str
    context: int = CONTEXT
    """Lines before and after each match."""
    max_hits: int = HITS
    in_json: bool = False
    """Whether letters beyond ASCII may be escaped in the text."""

    def __post_init__(self) -> None:
        """Raises BadArtifactQuery."""
        for param, is_right, allowed in (
            (
                "grep",
                1 <= len(self.pattern) <= MAX_PATTERN_CHARACTERS,
                f"have 1 to {MAX_PATTERN_CHARACTERS} characters",
            ),
            ("context", 0 <= self.context <= MAX_CONTEXT, f"be 0 to {MAX_CONTEXT} lines"),
            ("max", 1 <= self.max_hits <= MAX_HITS, f"be 1 to {MAX_HITS} matches"),
        ):
            if not is_right:
                raise BadArtifactQuery(f"`{param}` must {allowed}", param=param)
        self.compiled()

    def compiled(self) -> Any:
        """The pattern for RE2, line by line. Raises BadArtifactQuery."""
        import re2  # noqa: PLC0415 - 1.6 MB, which only a search needs

        options = re2.Options()
        options.log_errors = False
        options.never_nl = True
        options.max_mem = _MEMORY_BYTES
        pattern = _BEYOND_ASCII.sub(_or_escaped, self.pattern) if self.in_json else self.pattern
        try:
            return re2.compile(b"(?m:%b)" % pattern.encode(), options)
        except (re2.error, UnicodeEncodeError) as error:
            message = error.args[0].decode("utf-8", "replace") if isinstance(error, re2.error) else str(error)
            raise BadArtifactQuery(
                f"`grep` must be a regular expression as RE2 reads it, without lookaround and backreferences: "
                f"{message.replace(f'(?m:{self.pattern})', self.pattern)[:200]}",
                param="grep",
            ) from None


SHOWN_BYTES: Final = 400
"""Limit of a shown line. In a longer one, the text around the match is shown, and the search continues after it in the
same line: JSON is often one line."""


class _Row(NamedTuple):
    line: int
    shown: bytes
    begin: int = 0
    """Where the line is searched again if there is no room for this."""
    matches: int = 0


class _Listing:
    """The output, line by line."""

    def __init__(self, search: Search, max_bytes: int) -> None:
        self._pattern = search.compiled()
        self._search = search
        self._left_bytes = max_bytes
        self._last_printed = 0
        self._owed = 0
        """Lines that still have to be printed after the last match."""
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=search.context)
        """The last lines that were not printed, and their numbers."""
        self.text = bytearray()
        self.count = 0
        self.stopped: tuple[int, int] | None = None
        """The line to continue from, and the byte in it."""

    def add(self, piece: bytes, line: int, offset: int, fresh: int, *, is_part: bool) -> int:
        """Search whole lines, or part of one; they begin in `line` at its byte `offset`, and everything before `fresh`
        has been searched. Returns where in the last line the search ended."""
        closed = piece.removesuffix(b"\n")
        lines = [*enumerate(closed.split(b"\n"), line)]
        if not self._owed and self._pattern.search(closed, fresh) is None:
            self._recent.extend(lines[1 if offset or is_part else 0 :])
            return fresh
        searched = 0
        for number, text in lines:
            searched = self._add_line(number, offset, text, fresh, is_part=is_part)
            if self.count == self._search.max_hits and self.stopped is None:
                is_done = searched >= len(text) and not is_part
                self.stopped = (number + 1, 0) if is_done else (number, offset + min(searched, len(text)))
            if self.stopped is not None and not self._owed:
                break
            offset = fresh = 0
        return searched

    def _add_line(self, number: int, offset: int, text: bytes, fresh: int, *, is_part: bool) -> int:
        is_long = offset > 0 or len(text) > SHOWN_BYTES
        rows: list[_Row] = []
        left, at = self._search.max_hits - self.count, fresh
        while len(rows) < left and at <= len(text) and (match := self._pattern.search(text, at)) is not None:
            begin = max(0, match.start() - SHOWN_BYTES // 2) if is_long else 0
            end = min(len(text), begin + SHOWN_BYTES) if is_long else len(text)
            rows.append(_Row(number, _part(number, offset, text, begin, end), begin, 1))
            at = max(end, match.end())
            at += at == len(text)
        if rows:
            rows = [_Row(near, b"%d-%b" % (near, _shortened(line))) for near, line in self._recent] + rows
            self._recent.clear()
            self._owed = self._search.context
        elif self._owed and not offset:
            self._owed -= 1
            rows = [_Row(number, b"%d-%b" % (number, _shortened(text)))]
        elif not (offset or is_part):
            self._recent.append((number, text))
        for row in rows:
            gap = b"--\n" if self._last_printed and row.line > self._last_printed + 1 else b""
            self._left_bytes -= len(gap) + len(row.shown) + 1
            if self._left_bytes < 0:
                self.stopped = self.stopped or (number, offset + row.begin)
                self._owed = 0
                break
            self.text += b"%b%b\n" % (gap, row.shown)
            self._last_printed = row.line
            self.count += row.matches
        return at


def _part(number: int, skipped: int, text: bytes, start: int, end: int) -> bytes:
    """A line with a match, or the text around a match in a long one."""
    if not skipped and end - start == len(text):
        return b"%d:%b" % (number, text)
    while start < end and start and text[start] & 0xC0 == 0x80:
        start += 1
    before, behind = b"\xe2\x80\xa6" * (start > 0), b"\xe2\x80\xa6" * (end < len(text))
    return b"%d:%d:%b%b%b" % (number, skipped + start, before, whole_characters(text[start:end]), behind)


def _shortened(text: bytes) -> bytes:
    return text if len(text) <= SHOWN_BYTES else whole_characters(text[:SHOWN_BYTES]) + b"\xe2\x80\xa6"


_READ_BYTES: Final = 256 * 1024
"""At a time; a search can be stopped between two reads."""
_OVERLAP_BYTES: Final = 4 * 1024
"""Between two pieces of a line longer than one read: a match of up to this length across them is found."""


class Hits(Discreet, frozen=True):
    """The hits of a search."""

    text: bytes
    """A match in the format of `grep -n`; for a line that is too long, `line:byte:…`."""
    count: int
    first: int
    last: int
    """The last line that was searched, perhaps not to its end."""
    following: str | None
    """The `lines` to request next; None if everything requested has been searched."""
    total_lines: int


def hits_of(
    index: LineIndex, wanted: LineRange, search: Search, bytes_of: BytesOf, max_bytes: int = PAGE_BYTES
) -> Hits:
    """The hits in a range of lines of a text whose parts `bytes_of` gives.

    A TimeoutError instead of bytes ends the search there. Raises RangeOutside.
    """
    wanted = wanted.within(index.total_lines)
    first, last = wanted.first, wanted.last or wanted.first
    (start, _), end = begin_of(index, first, bytes_of), index.size
    if last < index.total_lines:
        end, _ = begin_of(index, last + 1, bytes_of)
    line, offset, held = first, wanted.skipped_bytes, b""
    at = start + offset
    if at > end:
        raise RangeOutside(f"line {first:,} has no byte {offset:,}", param="lines")
    fresh = 1 if offset else 0  # the byte before shows that no line begins here
    at, offset = at - fresh, offset - fresh
    listing = _Listing(search, max_bytes)
    while at < end and listing.stopped is None:
        try:
            read = bytes_of((at, min(end, at + _READ_BYTES)))
        except TimeoutError:
            listing.stopped = line, offset + fresh
            break
        at += len(read)
        held += read
        whole = held.rfind(b"\n") + 1 if at < end else len(held)
        piece = held[: whole or len(held)]
        fresh = listing.add(piece, line, offset, fresh, is_part=not whole)
        again = 0 if whole else _OVERLAP_BYTES
        line += piece.count(b"\n")
        offset = 0 if whole else offset + len(piece) - again
        fresh = 0 if whole else max(1, fresh - len(piece) + again)
        held = held[len(piece) - again :]
    stopped = listing.stopped
    if stopped is None or stopped[0] > last:
        return Hits(bytes(listing.text), listing.count, first, last, None, index.total_lines)
    following = f"{stopped[0]}:{stopped[1]}-{last}" if stopped[1] else f"{stopped[0]}-{last}"
    searched = max(first, stopped[0] if stopped[1] else stopped[0] - 1)
    return Hits(bytes(listing.text), listing.count, first, searched, following, index.total_lines)


MAX_POINTER_CHARACTERS: Final = 1_000
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


_TOKEN: Final = re.compile(rb'("(?:[^"\\]|\\.)*+"|[\[\]{},:])[ \t\r\n]*+', re.DOTALL)
_TOKENS_BETWEEN_CHECKS: Final = 4096
_DEEPER: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


def part_at(text: bytes, pointer: str, check: Callable[[], object] = bool) -> bytes:
    r"""The part of a JSON text that a pointer names; each byte before its end is scanned once, however many steps lead
    there. `check` is called again and again meanwhile, and ends the work by raising. Raises BadArtifactQuery.

    >>> part_at(b'{"a/b": [1, {"": 2.50}]}', "/a~1b/1/"), part_at(b'["x\\u000ay"]', "/0")
    (b'2.50', b'x\ny')
    >>> part_at(b'{"arguments": "{\\"content\\": \\"a\\\\nb\\"}"}', "/arguments/content")
    b'a\nb'
    """
    if len(pointer) > MAX_POINTER_CHARACTERS or not _POINTER.fullmatch(pointer):
        raise _refused(
            f"`json` must be a JSON pointer of at most {MAX_POINTER_CHARACTERS:,} characters, such as "
            "/messages/3/content, with ~1 for a slash in a name and ~0 for a tilde"
        )
    steps = pointer.split("/")[1:]
    where, at = "the artifact", 0
    try:
        jsontext.check(text)
        text = text.lstrip()
        for depth, step in enumerate(steps):
            where = "/".join(["", *steps[:depth]]) or "the artifact"
            if text.startswith(b'"', at):
                text, at = _unquoted(_value_at(text, at, check)).lstrip(), 0
                jsontext.check(text)
            at = _entered(text, at, step.replace("~1", "/").replace("~0", "~"), where, check)
        return _unquoted(_value_at(text, at, check))
    except jsontext.NotJson as error:
        raise _refused(f"{where} is not JSON: {error}") from None


def _entered(text: bytes, at: int, name: str, where: str, check: Callable[[], object]) -> int:
    """Where the value of a member or an item begins. Raises BadArtifactQuery if there is none."""
    first = text[at : at + 1]
    if first not in (b"{", b"["):
        raise _refused(f"{where} is neither an object nor an array")
    index = int(name) if _INDEX.fullmatch(name) else -1
    count, before = 0, b""
    for depth, token in _tokens(text, at, check):
        if not depth:
            break
        is_before_value = token[1] == b":" if first == b"{" else token[1] in (b"[", b",")
        if depth == 1 and is_before_value and not text.startswith(b"]", token.end()):
            if (jsontext.value(before) == name) if first == b"{" else count == index:
                return token.end()
            count += 1
        before = token[1]
    if first == b"{":
        raise _refused(f"there is no such member in {where}, an object with {count:,} members")
    raise _refused(f"there is no such item in {where}, an array of {count:,} items that are counted from 0")


def _value_at(text: bytes, at: int, check: Callable[[], object]) -> bytes:
    """The JSON of the value that begins there."""
    ends = (token.start() for depth, token in _tokens(text, at, check) if depth < 0 or (not depth and token[1] == b","))
    return text[at : next(ends, None)].rstrip()


def _tokens(text: bytes, at: int, check: Callable[[], object]) -> Iterator[tuple[int, re.Match[bytes]]]:
    """The strings and marks from there on, with what follows them blank, each with the depth that it leads to."""
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text, at)):
        if count % _TOKENS_BETWEEN_CHECKS == 0:
            check()
        depth += _DEEPER.get(token[1], 0)
        yield depth, token


def _unquoted(value: bytes) -> bytes:
    """The text of a string; another value as it is written."""
    return jsontext.value(value).encode("utf-8", "surrogatepass") if value.startswith(b'"') else value


def _refused(message: str) -> BadArtifactQuery:
    return BadArtifactQuery(message, param="json")
