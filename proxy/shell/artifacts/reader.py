"""Reads from the store for the tenant of an artifact, a piece at a time.

Rule: memory and time are bounded whatever the size of an artifact. Reading is a use and so extends the retention. No
response reveals whether another tenant has stored something.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import structs
from typing_extensions import TypedDict

from proxy.core.artifact import beginning_of
from proxy.core.artifact_reading import (
    MAX_HITS,
    Hits,
    LostMessages,
    Match,
    Query,
    Search,
    Searched,
    hits_of,
    matches_in,
    page_of_matches,
    part_at,
    patterns_for,
    read,
)
from proxy.core.notices import Language
from proxy.core.text import BLOCK_BYTES, PAGE_BYTES, BytesOf, LineIndex, LineRange, Span
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactQuery
from proxy.shell.artifacts.folder import (
    META,
    TOUCH_SECONDS,
    TROUBLE,
    ArtifactFolder,
    Metadata,
    NoAnswer,
    artifact_of,
    index_key,
    is_artifact,
    metadata_key,
    reason_of,
)
from proxy.shell.artifacts.store import INDEXED_BYTES
from proxy.shell.resources import NotWanted, Threads, TooSlow, logger

AT_ONCE: Final = 2
"""Readings of one tenant at a time: half of the threads, so that nobody holds all."""
PIECE_BYTES: Final = 1024 * 1024
"""Part of a whole artifact that is read and sent at a time."""
READ_SECONDS: Final = 15.0
"""Longest that the store may take for one response, from when a thread is free to ask it."""
SEARCH_SECONDS: Final = 5.0
"""Longest search; the result then says where to continue. RE2 reads a few hundred MB in this time."""
MAX_SEARCHED_BYTES: Final = 64 * 1024 * 1024
"""Most that one search reads of several artifacts; the result then names the next one."""
MAX_HITS_BYTES: Final = 1024 * 1024
"""Most that is held of the matches of one artifact."""
_WHOLE_SECONDS: Final = READ_SECONDS + SEARCH_SECONDS
MAX_ESCAPED_CHARACTERS: Final = 100
"""Longest pattern that is looked for in JSON's escapes, too: each letter takes twenty times its space."""
JSON_BYTES: Final = 64 * 1024 * 1024
"""Longest artifact that is read as JSON: all of it must be in memory."""
MAX_LISTED: Final = 50_000
"""Objects of a store that are looked at to list what a tenant may read; fifty responses of a bucket."""

MESSAGES: Final = beginning_of("")
"""The beginning of the names of artifacts that hold messages."""
_NO_ANSWER: Final = "the store of the artifacts gives no answer"
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/javascript", "application/x-sh")
_TEXT_SUFFIXES: Final = ("+json", "+xml", "yaml", "toml", "sql", "ndjson")

Result = TypeVar("Result")


class Stored(msgspec.Struct, frozen=True):
    """An artifact that this client may read."""

    name: str
    metadata: Metadata
    tenant: str | None = None
    """Who reads it, and has only a share of the threads."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.metadata.size

    @property
    def is_text(self) -> bool:
        """Whether it has lines."""
        kind = self.metadata.media_type
        return kind.startswith(_TEXT_TYPES) or kind.endswith(_TEXT_SUFFIXES)


class ArtifactStat(TypedDict):
    """Description of an artifact."""

    id: str
    bytes: int
    lines: int | None
    """Empty: it is not text."""
    type: str
    """Its media type."""
    tool: str
    """The tool whose result it was taken from."""
    created: str
    """ISO 8601, UTC."""


class ArtifactReader:
    """Reads from a folder or a bucket."""

    def __init__(
        self,
        folder: ArtifactFolder,
        *,
        retention_days: float,
        language: Language = "en",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._retention_seconds = retention_days * 24 * 3600
        self._language = language
        self._clock = clock
        # Its own threads: a long search must not delay what has to be stored before a request is sent.
        self._threads = Threads(2 * AT_ONCE, "artifact-reading")
        self._turns: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()
        """By tenant."""
        self._finders = Threads(folder.at_once, "artifact-finding")
        """A find reads one small object, and a request may need many; reading takes memory."""

    async def find(self, name: str, *tenants: str | None, is_use: bool = True) -> Stored:
        """An artifact by its name, of the first of these tenants that has it; None: of any tenant. `is_use`: whether
        its retention time starts again. Raises ArtifactError.

        Every read begins here: a store that did not respond to it is left alone for a while.
        """
        with self._mapped_errors(is_find=True):
            return await self._finders.run(_WHOLE_SECONDS, partial(self._find, name, tenants, is_use=is_use))

    async def newest(self, tenants: Sequence[str | None], beginning: str = "tool_") -> list[str]:
        """The names of the artifacts that these tenants may read (None: all of any tenant), if their names begin like
        this; the last used first. Raises ArtifactError."""
        return await self._run(tenants[-1], lambda _: self._newest(frozenset(tenants), beginning))

    async def piece(self, stored: Stored, start: int, stop: int) -> bytes:
        """Some of its bytes. Raises ArtifactError."""
        return await self._run(stored.tenant, lambda _: self._bytes(stored, (start, stop)))

    async def pieces(self, stored: Stored, start: int, stop: int) -> AsyncIterator[bytes]:
        """Its bytes from one position to another, a bounded piece at a time. Raises ArtifactError."""
        for at in range(start, stop, PIECE_BYTES):
            yield await self.piece(stored, at, min(stop, at + PIECE_BYTES))

    async def page(self, stored: Stored, query: Query, max_bytes: int = PAGE_BYTES) -> bytes:
        """One page of a query's result, under a header that describes it. Raises BadArtifactQuery, RangeOutside
        and ArtifactError."""
        if query.stat:
            return msgspec.json.encode(await self.stat(stored)) + b"\n"
        if query.pointer is None and not stored.is_text:
            raise BadArtifactQuery(
                f"`lines` and `grep` read text, and this is {stored.metadata.media_type}: ask for the whole, or for "
                "a range of its bytes"
            )
        if query.search is not None and query.pointer is None and stored.name.startswith(MESSAGES):
            most = min(max_bytes, query.max_bytes)
            return "".join(await self.search([stored.name], [stored.tenant], query, most)).encode()
        try:
            return await self._run(stored.tenant, lambda reading: self._page(stored, query, max_bytes, reading))
        except _TookTooLong:
            raise BadArtifactQuery(
                f"the way to this part is longer than {SEARCH_SECONDS:g} seconds, the limit of one reading: `grep` and "
                "`lines` read as much in several requests",
                param="json",
            ) from None

    async def search(
        self, names: Sequence[str], tenants: Sequence[str | None], query: Query, max_bytes: int, total: int = 0
    ) -> tuple[str, str]:
        """The header, and the page, of a search through artifacts of these names, in order, and through all messages
        that left before those of the first one that holds messages. `total`: number of messages in the conversation.
        Raises ArtifactError."""
        search = query.search
        assert search is not None, "only searches come here"

        def found(reading: _Reading) -> tuple[str, str]:
            for pattern in patterns_for(search.pattern):
                by_pattern = structs.replace(search, pattern=pattern)
                searched = self._searched(names, tenants, query, by_pattern, reading)
                if searched.matches or searched.following:
                    break
            searched = searched._replace(total=max(total, searched.total))
            return page_of_matches(searched, search, self._language, max_bytes)

        return await self._run(tenants[-1], found)

    async def stat(self, stored: Stored) -> ArtifactStat:
        """Its description. Raises ArtifactError."""
        known = stored.metadata
        lines = None
        if stored.is_text:
            index, _ = await self._run(stored.tenant, lambda _: self._index(stored))
            lines = index.total_lines
        return {
            "id": stored.name,
            "bytes": known.size,
            "lines": lines,
            "type": known.media_type,
            "tool": known.tool,
            "created": known.created,
        }

    async def _run(self, whose: str | None, work: Callable[[_Reading], Result]) -> Result:
        turns = self._turns.setdefault(whose, asyncio.Semaphore(AT_ONCE))
        with self._mapped_errors():
            try:
                async with asyncio.timeout(_WHOLE_SECONDS):
                    await turns.acquire()
            except TimeoutError:
                logger().warning("artifact_reading_ended", limit=f"{AT_ONCE} readings at a time")
                raise ArtifactStoreUnavailable(
                    f"{AT_ONCE} readings for this API key are under way, the most at a time, and take long: repeat "
                    "this one"
                ) from None
            reading = _Reading()
            try:
                return await self._threads.run(_WHOLE_SECONDS, lambda: work(reading.begun()), turns.release)
            finally:
                reading.is_wanted = False
                if reading.has_ended:
                    logger().warning(
                        "artifact_reading_ended", artifact=reading.artifact, limit=f"{SEARCH_SECONDS:g} seconds"
                    )

    @contextlib.contextmanager
    def _mapped_errors(self, *, is_find: bool = False) -> Iterator[None]:
        """Around every use of the store, which is not asked while it is left alone."""
        if (why := self._folder.cooldown.why) is not None:
            raise ArtifactStoreUnavailable(f"{_NO_ANSWER}: {why}")
        try:
            yield
        except FileNotFoundError:
            raise ArtifactNotFound("artifact not found: it may have expired or belong to another API key") from None
        except TooSlow:
            if is_find:
                self._folder.cooldown.begin()
            raise ArtifactStoreUnavailable(_NO_ANSWER) from None
        except NoAnswer as error:  # the words are those of the calls after this one
            raise ArtifactStoreUnavailable(f"{_NO_ANSWER}: {error}") from None
        except TROUBLE as error:
            raise ArtifactStoreUnavailable(f"the artifact cannot be read: {reason_of(error)}") from None

    def _find(self, name: str, tenants: Sequence[str | None], *, is_use: bool) -> Stored:
        for note, tenant in self._notes_of(name, tenants):
            with contextlib.suppress(FileNotFoundError):
                written, used = self._folder.get(note)
                idle_seconds = self._clock() - used
                if idle_seconds > self._retention_seconds:
                    continue
                if is_use and idle_seconds >= TOUCH_SECONDS:
                    with contextlib.suppress(*TROUBLE):  # a store that is read-only still serves its readers
                        self._folder.put(note, written)
                return Stored(name, msgspec.json.decode(written, type=Metadata), tenant)
        raise FileNotFoundError

    def _notes_of(self, name: str, tenants: Sequence[str | None]) -> Iterator[tuple[str, str | None]]:
        """Keys of its metadata, tenant by tenant; those of any tenant the newest first."""
        for tenant in tenants if is_artifact(name) else ():
            if tenant is not None:
                yield metadata_key(name, tenant), tenant
            elif self._folder.is_used():
                found = sorted(self._folder.listed(f"{META}/{name}."), key=lambda one: -one.used)
                yield from ((one.key, None) for one in found if one.key != index_key(name))

    def _newest(self, tenants: frozenset[str | None], beginning: str) -> list[str]:
        if not self._folder.is_used():
            return []
        oldest = self._clock() - self._retention_seconds
        used: dict[str, float] = {}
        for one in itertools.islice(self._folder.listed(f"{META}/{beginning}"), MAX_LISTED):
            name, _, tenant = artifact_of(one.key)
            if tenant and one.used >= oldest and not tenants.isdisjoint((tenant, None)):
                used[name] = max(one.used, used.get(name, 0.0))
        return sorted(used, key=lambda name: (-used[name], name))

    def _searched(
        self,
        names: Sequence[str],
        tenants: Sequence[str | None],
        query: Query,
        search: Search,
        reading: _Reading,
    ) -> Searched:
        waiting, seen, matches = deque(names), set(names), list[Match]()
        lines, count, read_bytes, total = query.lines, 0, 0, 0
        while waiting:
            name = waiting.popleft()
            try:
                stored = self._find(name, tenants, is_use=False)
            except FileNotFoundError:
                continue
            if not stored.is_text:
                continue
            read_bytes += stored.size
            if count and (read_bytes > MAX_SEARCHED_BYTES or len(matches) >= MAX_HITS or monotonic() >= reading.ends):
                return Searched(matches, names[0] if names else "", count, name, "", total)
            hits, lost = self._hits(stored, search, lines, reading)
            lines, count = None, count + 1
            matches += matches_in(name, hits.text.decode("utf-8", "replace"), stored.metadata.tool, lost)
            if lost is not None:
                total = max([total, *(int(place.partition(" ")[0]) for place in lost.places[-1:])])
                new = [earlier for earlier in lost.earlier if earlier not in seen]
                seen.update(new)
                waiting.extendleft(reversed(new))
            if hits.following is not None:
                return Searched(matches, names[0] if names else "", count, name, hits.following, total)
        return Searched(matches, names[0] if names else "", count, "", "", total)

    def _hits(
        self, stored: Stored, search: Search, lines: LineRange | None, reading: _Reading
    ) -> tuple[Hits, LostMessages | None]:
        """The matches in one artifact, and its first line if it holds messages, in which nothing is searched."""
        index, text = self._index(stored)
        reading.artifact = stored.name
        beginning = text if text is not None else self._bytes(stored, (0, min(stored.size, PIECE_BYTES)))
        lost = LostMessages.read(beginning)
        search = structs.replace(search, max_hits=MAX_HITS)
        if lost is not None:
            lines = lines or LineRange(2)
            search = structs.replace(search, context=0, in_json=len(search.pattern) <= MAX_ESCAPED_CHARACTERS)
        bytes_of = self._bytes_of(stored, text, reading)
        return hits_of(index, lines or LineRange(1), search, bytes_of, MAX_HITS_BYTES), lost

    def _bytes_of(self, stored: Stored, text: bytes | None, reading: _Reading) -> BytesOf:
        """Gives parts of an artifact, or of what is in memory of it; ends a search that takes too long."""

        def part(span: Span) -> bytes:
            found = self._bytes(stored, span) if text is None else text[slice(*span)]
            try:
                reading.check()
            except _TookTooLong:
                raise TimeoutError from None
            return found

        return part

    def _bytes(self, stored: Stored, span: Span) -> bytes:
        start, stop = span
        if start >= stop:
            return b""
        return self._folder.get_range(stored.name, start, stop)

    def _page(self, stored: Stored, query: Query, max_bytes: int, reading: _Reading) -> bytes:
        reading.artifact = stored.name
        if query.pointer is None:
            index, text = self._index(stored)
        else:
            if stored.size > JSON_BYTES:
                raise BadArtifactQuery(
                    f"`json` reads artifacts of up to {JSON_BYTES:,} bytes, this one has {stored.size:,}: use `grep`",
                    param="json",
                )
            text = part_at(self._bytes(stored, (0, stored.size)), query.pointer, reading.check)
            index = LineIndex.of_text(text)
        bytes_of = self._bytes_of(stored, text, reading.begun())
        return read(index, query, bytes_of, stored.name, self._language, max_bytes)

    def _index(self, stored: Stored) -> tuple[LineIndex, bytes | None]:
        """Where the lines of a text are, and the text if it was short enough to be read whole."""
        if stored.size <= INDEXED_BYTES:
            text = self._bytes(stored, (0, stored.size))
            return LineIndex.of_text(text), text
        key = index_key(stored.name)
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            index = msgspec.json.decode(self._folder.get(key).content, type=LineIndex)
            if index.size == stored.size and len(index.feeds) == -(-stored.size // BLOCK_BYTES):
                return index, None
        index = LineIndex.of(self._blocks(stored))
        with contextlib.suppress(*TROUBLE):
            self._folder.put(key, msgspec.json.encode(index))
        return index, None

    def _blocks(self, stored: Stored) -> Iterator[bytes]:
        for start in range(0, stored.size, PIECE_BYTES):
            piece = self._bytes(stored, (start, min(stored.size, start + PIECE_BYTES)))
            for at in range(0, len(piece), BLOCK_BYTES):
                yield piece[at : at + BLOCK_BYTES]


class _TookTooLong(Exception):
    """The reading of a part has taken as long as it may."""


class _Reading:
    """One use of a thread; its work asks whether to go on, because a thread cannot be ended from outside."""

    def __init__(self) -> None:
        self.artifact: str | None = None
        self.is_wanted = True
        self.has_ended = False
        """Whether its time was over before its work was."""
        self.ends = 0.0
        """Time of `time.monotonic`."""

    def begun(self) -> _Reading:
        """Count its time from now on."""
        self.ends = monotonic() + SEARCH_SECONDS
        return self

    def check(self) -> None:
        """Raise NotWanted or _TookTooLong if the work has to end."""
        if not self.is_wanted:
            raise NotWanted
        if monotonic() >= self.ends:
            self.has_ended = True
            raise _TookTooLong
