"""One search through everything that a conversation has lost. The first line of an artifact of messages lists all that
left before it and says what each message is.

Rule: the newest matches come first, each with the message that it is from and the lines to read on from there. If a
page cannot hold all, those with the most words of the pattern are on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Final, NamedTuple, Self, TypeAlias

import msgspec

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading.search import Search
from proxy.core.notices import FOUND, Language, headed, say
from proxy.core.text import Discreet, utf8_length

_ROW: Final = re.compile(r"(?P<line>\d+)(?::(?P<byte>\d+)(?=:…))?[:-]")
_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Chinese, Japanese and Korean, of which two characters tell as much as a word."""
_WORD: Final = re.compile(rf"(?=([{_UNSPACED}]{{2}}))[{_UNSPACED}]|((?:(?![{_UNSPACED}])[\w'’-]){{3,}}|\b\d+\b)")
"""A word or a number that tells matches apart; shorter words do not."""
_ENDING: Final = re.compile(r"(?:['’]s|(?<=[^s]{3})s)$")
"""Of a plural, or of what belongs to somebody."""
_MAX_PLACE_CHARACTERS: Final = 128
_ALTERNATIVES: Final = re.compile(r"(?:\(\?i\))?\(?[\w'’,; |-]{1,400}\)?")
_MAX_WORDS: Final = 100
_MAX_ORDERED: Final = 8
_PHRASE: Final = re.compile(r"(?:\(\?i\))?[\w\s'’\"“”«»,;:.?!/()|，。？！、：；（）「」《》-]{1,400}")
"""What a person writes who has no regular expression in mind."""


Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=f"^{ARTIFACT_NAME}\\Z")]
Place: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^\d{1,9} \S.{0,127}\Z")]


class LostMessages(msgspec.Struct, frozen=True):
    """The first line of an artifact of messages; each of the next lines is a message."""

    earlier: tuple[Name, ...] = ()
    """The artifacts of all messages that left before, the newest first."""
    places: tuple[Place, ...] = ()
    """The number of each message in its conversation, counted from 1, and its tool or role."""

    def written(self, messages: Iterable[bytes]) -> bytes:
        """The artifact of these messages."""
        return b'%b,"messages":[\n%b\n]}' % (msgspec.json.encode(self)[:-1], b",\n".join(messages))

    @classmethod
    def read(cls, artifact: bytes) -> Self | None:
        """Read the beginning of an artifact; None if it holds something else, whatever that imitates."""
        first = artifact.partition(b"\n")[0]
        if not (first.startswith(b'{"earlier":') and first.endswith(b"[")):
            return None
        try:
            return msgspec.json.decode(first + b"]}", type=cls)
        except msgspec.DecodeError:
            return None


def place(number: int, of: str) -> str:
    """What `places` says of a message. `of`: its tool or role, which a client may have named anyhow.

    >>> place(3, "web search"), place(4, "\\n"), place(5, "\\ud800")
    ('3 web search', '4 ?', '5 ?')
    """
    written = of.encode("utf-8", "replace").decode()  # half a character has no UTF-8
    return f"{number} {' '.join(written.split())[:_MAX_PLACE_CHARACTERS] or '?'}"


class Match(Discreet, frozen=True):
    """Lines of one artifact with a match."""

    artifact: str
    lines: str
    """What to ask for to read on from it."""
    number: int
    """Its message, counted from 1; 0 if the artifact is a result."""
    of: str
    """The tool or role of its message; the tool of a result."""
    text: str

    def header(self, total: int, language: Language) -> str:
        """The line before it."""
        words = {"name": self.artifact, "lines": self.lines, "of": self.of}
        if not self.number:
            return say(FOUND, "in_result", language, **words)
        return say(FOUND, "in_message", language, number=self.number, total=max(total, self.number), **words)


def matches_in(artifact: str, hits: str, tool: str, lost: LostMessages | None) -> Iterator[Match]:
    """The matches on a page of hits without its header. `tool`: whose result it is; `lost`: None for a result."""
    for block in re.split(r"^--\n", hits, flags=re.MULTILINE) if lost is None else hits.splitlines(keepends=True):
        found = _ROW.match(block)
        if found is None:
            continue
        line, number, of = int(found["line"]), 0, tool
        if lost is not None and 0 <= line - 2 < len(lost.places):
            counted, _, of = lost.places[line - 2].partition(" ")
            number = int(counted)
        begin = f"{line}:{found['byte']}" if found["byte"] else f"{line}"
        yield Match(artifact, f"{begin}-{line}" if lost is not None else f"{begin}-", number, of, block)


def patterns_for(pattern: str) -> tuple[str, ...]:
    """The patterns to try in turn until one matches. After a phrase or a question come its words in their order, then
    any of them, in any case and number; alternatives that are words are sought like that from the first.

    >>> patterns_for("Pier 9's lamp?"), patterns_for("rules|answers"), patterns_for("a+ b"), patterns_for("budget?")
    (("Pier 9's lamp?", '(?i)pier.{0,80}?\\\\b9\\\\b.{0,80}?lamp', '(?i)pier|\\\\b9\\\\b|lamp'), ('(?i)rule|answer',), \
('a+ b',), ('budget?', '(?i)budget'))
    """
    words = _stems_of(pattern)[:_MAX_WORDS] if _PHRASE.fullmatch(pattern) else []
    sought = [rf"\b{word}\b" if word.isdecimal() else re.escape(word) for word in words]
    by_words = f"(?i){'|'.join(sought)}"
    in_order = f"(?i){'.{0,80}?'.join(sought)}" if len(words) <= _MAX_ORDERED else by_words  # else RE2 is slow
    if len(words) > 1 and "|" in pattern and _ALTERNATIVES.fullmatch(pattern):
        return (by_words,)
    return tuple(dict.fromkeys((pattern, in_order, by_words))) if words else (pattern,)


def _stems_of(pattern: str) -> list[str]:
    found = _WORD.finditer(pattern.removeprefix("(?i)").casefold())
    return list(dict.fromkeys(_ENDING.sub("", word[1] or word[2]) for word in found))


class Searched(NamedTuple):
    """What has been searched."""

    matches: Sequence[Match]
    """In order, the newest first."""
    first: str
    """The artifact with which it began."""
    artifacts: int
    following: str = ""
    """The artifact to go on with; empty if all were searched."""
    lines: str = ""
    """Its lines to go on with."""
    total: int = 0
    """Number of messages in the conversation, as far as it is known."""


def page_of_matches(found: Searched, search: Search, language: Language, max_bytes: int) -> tuple[str, str]:
    """The header of a page, and the page."""
    blocks = [f"{match.header(found.total, language)}\n{match.text.rstrip()}\n" for match in found.matches]
    best, text, following, lines = [*range(len(blocks))], "", found.following, found.lines
    if _fitting(blocks, search.max_hits, max_bytes) < len(blocks):
        words = _stems_of(search.pattern)
        best.sort(key=lambda at: -sum(word in found.matches[at].text.casefold() for word in words))
        best = sorted(best[: max(1, _fitting([blocks[at] for at in best], search.max_hits, max_bytes))])
        if best != [*range(len(best))]:
            text = say(FOUND, "best", language)
        elif len(best) < len(blocks):
            left = found.matches[len(best)]
            following, lines = left.artifact, f"{left.lines.partition('-')[0]}-"
    counts = {"shown": len(best), "matching": len(blocks), "searched": found.artifacts}
    header = say(FOUND, "matches", language, name=found.first, **counts) + text
    if following:
        header += say(FOUND, "further", language, name=following)
        header += say(FOUND, "from", language, lines=lines) if lines else ""
    return headed(header, language), "".join(blocks[at] for at in best)


def _fitting(blocks: Sequence[str], most: int, max_bytes: int) -> int:
    return min(most, sum(size <= max_bytes for size in accumulate(map(utf8_length, blocks))))
