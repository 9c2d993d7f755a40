"""Finished requests in one table of SQLite: lists, searches and sums of them.

Rule: it holds what the log holds, never a key and never content; its size is bounded in rows and in bytes. One thread
uses one table; other processes may write to the same file. Everything here may raise sqlite3.Error.

A row is a key, a time and the record as JSON; what is filtered and summed up is a generated column. Keys follow the
order in which rows are written, so no clock that leaps can change it.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

from msgspec import Struct

from proxy.core.text import jsontext
from proxy.shell.telemetry.record import Block, RequestOutcome, RequestRecord, storable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 64 * 1024 * 1024
"""Approximate limit of the file; the oldest rows are deleted first."""
MAX_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Limit without a file."""
MAX_DECISIONS: Final = 500
"""Rows without a file, and of one response."""
BUSY_SECONDS: Final = 1.0
"""Longest wait for another process; a write takes milliseconds."""
MAX_CLIENTS: Final = 50
"""Named in one answer."""
MAX_TURNS: Final = 120
"""The latest turns of one conversation in an overview."""
_TIDY_ROWS: Final = 200
"""Rows added between two looks at the limits."""
_LEFT_SHARE: Final = 0.75
"""Share of the limit that is left to rows when the file is too large, so that the next clean-up is not due soon."""
_AHEAD_SECONDS: Final = 300.0
"""A row that is dated further ahead was written while a clock was wrong: no sum of the last hours has it."""
_STALE_SECONDS: Final = 15.0
"""A worker that has written nothing for so long is gone."""
REFUSED: Final = "refused"
FAILED: Final = "failed"
_FAILURES: Final = ", ".join(
    f"'{one}'"
    for one in RequestOutcome
    if one
    not in (
        RequestOutcome.ANSWERED,
        RequestOutcome.REFUSED,
        RequestOutcome.CONTEXT_LENGTH_EXCEEDED,
        RequestOutcome.CLIENT_LEFT,
    )
)
"""Outcomes that are the upstream's or the proxy's fault."""
_ENDINGS: Final = {REFUSED: "outcome = 'refused'", FAILED: f"outcome IN ({_FAILURES})"}
_SUMMED: Final = (
    *("model", "upstream", "client", "status", "outcome", "edits", "too_long", "fitted", "tokens_saved"),
    *("tokens_before", "tokens_sent", "prompt_tokens", "cached_tokens", "reply_tokens", "prefix_kept"),
    *("first_byte_ms", "own_ms", "window_tokens", "window_is_guessed"),
)
"""Fields of records that an index holds beside the time, so that sums read no record: 30 ms at 5,000 rows, not 400."""
_FILTERED: Final = ("request_id", "conversation", "warning", "attempts", "tokens_after", "room_tokens", "tool")
_WORDS: Final = (
    *("request_id", "model", "outcome", "problem", "conversation", "upstream", "route"),
    *("status", "api", "client", "key", "edits"),
)
"""Fields of records that a search looks at."""


def _column(name: str) -> str:
    return f"{name} AS (json_extract(record, '$.{name}'))"


_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS requests (
  id INTEGER PRIMARY KEY, ended REAL NOT NULL, record TEXT NOT NULL, blocks BLOB,
  {", ".join(map(_column, (*_SUMMED, *_FILTERED)))},
  words AS (lower({" || char(10) || ".join(f"coalesce(json_extract(record, '$.{name}'), '')" for name in _WORDS)})),
  changed AS (coalesce(edits, '{{}}') <> '{{}}'),
  troubled AS (CASE WHEN outcome <> 'answered' OR warning IS NOT NULL THEN 2 ELSE coalesce(attempts, 1) > 1 END));
CREATE INDEX IF NOT EXISTS sums ON requests (ended, {", ".join(_SUMMED)});
CREATE TABLE IF NOT EXISTS workers (name TEXT PRIMARY KEY, seen REAL NOT NULL, running TEXT NOT NULL) WITHOUT ROWID;
"""


class Finished(NamedTuple):
    """A row to be written."""

    ended: float
    """Unix time."""
    record: RequestRecord
    blocks: Sequence[Block] | None = None
    """None: they are not kept."""


class Wanted(Struct, frozen=True):
    """Filter for `page` and `count`."""

    limit: int = 50
    before: int | None = None
    """Only rows older than the one of this id."""
    words: str = ""
    """In the id, model, outcome, reasons, conversation or upstream; the case of ASCII does not matter."""
    changed: bool = False
    troubled: bool = False
    conversation: str = ""
    model: str = ""
    client: str = ""
    status: str = ""
    """`401`, a class: `4xx`, `REFUSED` or `FAILED`."""
    since: float = 0.0
    """Unix time."""


@dataclass
class Sums:
    """Sums over requests; each beside the SQL that adds it up."""

    requests: Annotated[int, "1"]
    failed: Annotated[int, _ENDINGS[FAILED]]
    """Those with an outcome that is the upstream's or the proxy's fault."""
    refused: Annotated[int, _ENDINGS[REFUSED]]
    """Those with the outcome `refused`."""
    edited: Annotated[int, "coalesce(edits, '{}') <> '{}'"]
    fitted: Annotated[int, "fitted"]
    """Made to fit: answered requests that the upstream would have refused or cut silently for their length."""
    overflows: Annotated[int, "too_long"]
    """Requests that the upstream refused as too long."""
    survived: Annotated[int, "too_long AND outcome = 'answered'"]
    """Of these, those that were answered after a second send."""
    tokens_saved: Annotated[int, "tokens_saved"]
    """Estimate for answered requests: tokens that were not sent, as far as they would have fitted into the window."""
    tokens_before: Annotated[int, "CASE WHEN tokens_sent IS NOT NULL THEN tokens_before END"]
    """Estimated size before edits of the requests sent."""
    tokens_sent: Annotated[int, "tokens_sent"]
    prompt_tokens: Annotated[int, "prompt_tokens"]
    """Counted by the upstreams, where they report usage; so are the next two."""
    cached_tokens: Annotated[int, "min(cached_tokens, prompt_tokens)"]
    reply_tokens: Annotated[int, "reply_tokens"]
    followed: Annotated[int, "prefix_kept IS NOT NULL"]
    """Requests that continued a known conversation."""
    prefixes_kept: Annotated[float, "prefix_kept"]
    """Of these, the shares of the previous request with which they begin: divided by `followed`, the mean."""

    @classmethod
    def of(cls, several: Iterable[Sums]) -> Sums:
        """Several, added up."""
        nothing = (0,) * len(fields(cls))
        return cls(*map(sum, zip(nothing, *map(astuple, several), strict=True)))


_SUMS: Final = ", ".join(
    f"coalesce(sum({hint.__metadata__[0]}), 0) AS {name}"
    for name, hint in get_type_hints(Sums, include_extras=True).items()
)


class Wait(NamedTuple):
    """The times of one request."""

    ended: float
    upstream: str
    first_byte_ms: float | None
    own_ms: float | None


@dataclass
class Turn:
    """One request of a conversation."""

    request_id: str
    tokens_before: int | None
    """Empty, like the next two, if the request could not be read."""
    tokens_after: int | None
    room_tokens: int | None
    changed: int
    """1: it was edited."""
    troubled: int
    """2: it failed, was refused or came with a warning; 1: a second send has cured it."""


@dataclass
class Conversation:
    """The requests that begin with the same task."""

    conversation: str
    requests: int
    last: int
    """The `id` of its latest request."""
    began: float
    """Unix time."""
    ended: float
    changed: int
    troubled: int
    model: str
    client: str
    tool: str
    """The tool of most results."""
    turns: list[Turn]
    """The latest, the oldest of them first."""


class Table:
    """One database; `path` None: in memory."""

    def __init__(self, path: Path | None, max_rows: int) -> None:
        self.max_rows = max_rows
        self._added = 0
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._path = path
        self.is_file = path is not None
        self._opened = None if path is None else path.stat()
        where = ":memory:" if path is None else str(path)
        self._database = sqlite3.connect(where, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # No fsync: a crash of the machine may cost this file, which is then made anew. No WAL: it needs shared
            # memory, which network file systems lack.
            self._database.execute("PRAGMA journal_mode = TRUNCATE")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(_SCHEMA)
        except BaseException:
            self._database.close()
            raise

    def is_in_place(self) -> bool:
        """True if the path still names this file: SQLite keeps writing to a deleted one."""
        if self._path is None or self._opened is None:
            return True
        try:
            return os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(
        self,
        rows: Iterable[Finished],
        worker: str = "",
        running: Sequence[RequestRecord] | None = None,
        now: float = 0.0,
    ) -> None:
        """Add finished requests, and note what a worker has under way if that is given. All of it, or nothing."""
        packed = [(one.ended, jsontext.dump(one.record).decode(), _packed(one.blocks)) for one in rows]
        with self._changing(now) as database:
            database.executemany("INSERT INTO requests (ended, record, blocks) VALUES (?, ?, ?)", packed)
            self._added += len(packed)
            if running is not None:
                given = (worker, now, jsontext.dump(running).decode())
                database.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", given)

    def page(self, wanted: Wanted) -> list[RequestRecord]:
        """Records, each with its `id`, the newest first."""
        where, given = _where(wanted)
        query = f"SELECT id, record FROM requests{where} ORDER BY id DESC LIMIT ?"  # noqa: S608 - no value is in it
        return self._rows(query, *given, wanted.limit)

    def count(self, wanted: Wanted) -> int:
        """How many rows there are of a kind."""
        where, given = _where(wanted)
        query = f"SELECT count(*) FROM requests{where}"  # noqa: S608 - as above
        found: int = self._database.execute(query, given).fetchone()[0]
        return found

    def newest(self) -> int:
        """The id of the row that was written last; 0 if there is none."""
        found: int = self._database.execute("SELECT coalesce(max(id), 0) FROM requests").fetchone()[0]
        return found

    def news(self, after: int, limit: int) -> list[RequestRecord]:
        """Rows that were written since the one of an id, the newest first."""
        return self._rows("SELECT id, record FROM requests WHERE id > ? ORDER BY id DESC LIMIT ?", after, limit)

    def find(self, request_id: str) -> tuple[RequestRecord, list[Block]] | None:
        """The newest row of a request, and its blocks; none if they were not kept."""
        query = "SELECT id, record, blocks FROM requests WHERE request_id = ? ORDER BY id DESC LIMIT 1"
        found = self._database.execute(query, (request_id,)).fetchone()
        if found is None:
            return None
        number, record, blocks = found
        kept = [] if blocks is None else jsontext.value(zlib.decompress(blocks))
        return _record(number, record), [Block(**one) for one in kept]

    def conversations(self, limit: int) -> list[Conversation]:
        """The latest conversations, each with its latest turns, the oldest turn first."""
        found = self._database.execute(
            "SELECT conversation, count(*), max(id), min(ended), max(ended), sum(changed), sum(troubled > 0)"
            " FROM requests WHERE conversation != '' GROUP BY conversation ORDER BY max(id) DESC LIMIT ?",
            (limit,),
        ).fetchall()
        turns = {row[0]: deque[Turn](maxlen=MAX_TURNS) for row in found}
        latest = dict[str, tuple[str, str, str]]()
        rows = self._database.execute(
            "SELECT conversation, coalesce(model, ''), coalesce(client, ''), coalesce(tool, ''), request_id,"  # noqa: S608 - only question marks
            " tokens_before, tokens_after, room_tokens, changed, troubled FROM requests"
            f" WHERE conversation IN ({', '.join('?' * len(found))}) ORDER BY id",
            tuple(turns),
        )
        for name, model, client, tool, *values in rows:
            latest[name] = (model, client, tool)
            turns[name].append(Turn(*values))
        return [Conversation(*(*row, *latest[row[0]], [*turns[row[0]]])) for row in found]

    def sums(self, since: float, until: float, *by: str, width: int = 1) -> list[tuple[Any, ...]]:
        """The sums of a time, each behind what it is grouped by: some of `model`, `upstream` and `at`, the beginning of
        `width` seconds."""
        columns = {"at": f"CAST(ended / {width} AS INTEGER) * {width}"}
        selected = ", ".join((*(columns.get(name, f"coalesce({name}, '')") for name in by), _SUMS))
        query = f"SELECT {selected} FROM requests WHERE ended BETWEEN ? AND ?"  # noqa: S608 - names of columns
        group = f" GROUP BY {', '.join(map(str, range(1, len(by) + 1)))}" if by else ""
        rows = self._database.execute(query + group, (since, until + _AHEAD_SECONDS))
        return [(*row[: len(by)], Sums(*row[len(by) :])) for row in rows]

    def windows(self, since: float) -> dict[tuple[str, str], tuple[int, bool]]:
        """The window of the latest request for each model at each upstream, and whether it is guessed."""
        found = self._database.execute(
            "SELECT model, upstream, window_tokens, window_is_guessed, max(id) FROM requests"
            " WHERE ended >= ? AND window_tokens IS NOT NULL GROUP BY model, upstream",
            (since,),
        )
        return {(model, upstream): (tokens, bool(is_guess)) for model, upstream, tokens, is_guess, _ in found}

    def refusals(self, since: float) -> list[tuple[int, int]]:
        """The statuses that upstreams refused requests with since a time, and how often, the most frequent first."""
        return self._database.execute(
            f"SELECT status, count(*) FROM requests WHERE ended >= ? AND {_ENDINGS[REFUSED]} GROUP BY status"  # noqa: S608 - a constant
            " ORDER BY 2 DESC",
            (since,),
        ).fetchall()

    def waits(self, since: float) -> list[Wait]:
        """The times of each request since a time, in the order in which they ended."""
        query = "SELECT ended, coalesce(upstream, ''), first_byte_ms, own_ms FROM requests WHERE ended >= ? ORDER BY 1"
        return [Wait(*row) for row in self._database.execute(query, (since,))]

    def clients(self, since: float) -> list[str]:
        """The names of the clients since a time, the most frequent first."""
        found = self._database.execute(
            "SELECT client FROM requests WHERE ended >= ? AND client != '' GROUP BY client"
            " ORDER BY count(*) DESC LIMIT ?",
            (since, MAX_CLIENTS),
        )
        return [name for (name,) in found]

    def begun(self) -> float | None:
        """When the first request that is kept ended; None if there is none."""
        found: float | None = self._database.execute("SELECT min(ended) FROM requests").fetchone()[0]
        return found

    def running(self, but: str, now: float) -> list[RequestRecord]:
        """Running requests of other workers."""
        found = self._database.execute(
            "SELECT running FROM workers WHERE name != ? AND abs(seen - ?) < ?", (but, now, _STALE_SECONDS)
        )
        return [RequestRecord.of(one) for (running,) in found for one in jsontext.value(running.encode())]

    def _rows(self, query: str, *given: object) -> list[RequestRecord]:
        return [_record(number, record) for number, record in self._database.execute(query, given)]

    @contextmanager
    def _changing(self, now: float) -> Iterator[sqlite3.Connection]:
        """A transaction, which tidies up now and then."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            if self._added >= _TIDY_ROWS:
                self._tidy(now)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _used_bytes(self) -> int:
        """Bytes of the file without its free pages: three numbers of its head, so no row is read."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        used: int = (pages - free) * size
        return used

    def _tidy(self, now: float) -> None:
        """Delete the oldest rows beyond the limits. Keys are without gaps, as only the oldest rows ever go."""
        self._added = 0
        kept, used, most = self.max_rows, self._used_bytes(), MAX_BYTES if self.is_file else MAX_MEMORY_BYTES
        if used > most:
            kept = min(kept, int(self.count(Wanted()) * most * _LEFT_SHARE / used))
        self._database.execute("DELETE FROM requests WHERE id <= (SELECT max(id) FROM requests) - ?", (kept,))
        self._database.execute("DELETE FROM workers WHERE abs(seen - ?) > ?", (now, _STALE_SECONDS))


def _packed(blocks: Sequence[Block] | None) -> bytes | None:
    return zlib.compress(jsontext.dump(blocks), 1) if blocks else None


def _record(number: int, record: str) -> RequestRecord:
    return RequestRecord.of({**jsontext.value(record.encode()), "id": number})


def _where(wanted: Wanted) -> tuple[str, list[Any]]:
    terms = [name for name in ("changed", "troubled") if getattr(wanted, name)]
    if wanted.status in _ENDINGS:
        terms.append(_ENDINGS[wanted.status])
    named = (
        ("id < ?", wanted.before),
        ("ended >= ?", wanted.since),
        ("model = ?", wanted.model),
        ("client = ?", wanted.client),
        ("conversation = ?", wanted.conversation),
        ("CAST(status AS TEXT) LIKE ?", "" if wanted.status in _ENDINGS else wanted.status.replace("x", "_")),
        *(("instr(words, ?)", word) for word in wanted.words.lower().split()),
    )
    terms += [term for term, value in named if value]
    given = [storable(value) if isinstance(value, str) else value for _, value in named if value]
    return f" WHERE {' AND '.join(terms)}" if terms else "", given
