"""Finished requests in a SQLite database: rows for the latest, and sums for each five minutes that outlive the rows.

Rule: it holds what the log holds, never a key and never content; its size is bounded in rows and in bytes. One thread
uses one ledger; other processes may write to the same file. Everything here may raise sqlite3.Error.

A row's `id` is the time at which its request ended; `seq` is the order
in which rows came to this file.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sqlite3
import sys
import time
import zlib
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from proxy.core.text import jsontext
from proxy.shell.telemetry.entries import FAILURES, Conversation, Detail, Entry, Running, Summary, Turn, outcome_of

SLOT_SECONDS: Final = 300
"""Sums are kept for each five minutes, model and upstream."""
MAX_SLOTS: Final = 20_000
"""About 2 MB; three models that are always in use fill it in three weeks."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Approximate limit of the file; the oldest rows are deleted first."""
MAX_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Limit without a file."""
MAX_DECISIONS: Final = 500
"""Rows without a file, and of one response."""
_LEFT_SHARE: Final = 0.75
"""Share of the limit left to rows after a clean-up, so that the next one is not due soon."""
BUSY_SECONDS: Final = 1.0
"""Longest wait for another process; a write takes milliseconds."""
MAX_CLIENTS: Final = 50
"""Named in one answer."""
MAX_TURNS: Final = 120
"""The latest turns of one conversation in an overview."""
_TIDY_ROWS: Final = 200
"""Rows added between two looks at the limits."""
_SHORT_BYTES: Final = 1_024
"""Smaller blocks stay uncompressed: compression takes longer than the rest of their row."""
_AHEAD_SECONDS: Final = 300.0
"""A row dated further ahead was written while a clock was wrong: it counts as
the oldest, else it would hide, and evict, everything that ends until its date."""
_STALE_SECONDS: Final = 15.0
"""A worker that has written nothing for so long is gone."""

# No index of texts: with two of them a write of 20 rows took twice the CPU, and a look at all 5,000 rows takes
# milliseconds.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS decisions (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE, ended REAL NOT NULL, request_id TEXT NOT NULL,
  conversation TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL, first_byte_ms REAL,
  changed INTEGER NOT NULL, troubled INTEGER NOT NULL, tokens_before INTEGER, tokens_after INTEGER,
  room_tokens INTEGER, client TEXT NOT NULL, status INTEGER NOT NULL, tool TEXT NOT NULL, own_ms REAL,
  window_tokens INTEGER, window_is_guessed INTEGER NOT NULL, words TEXT NOT NULL,
  summary BLOB NOT NULL, blocks BLOB, held INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS slots (
  slot INTEGER NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL, requests INTEGER NOT NULL,
  failed INTEGER NOT NULL, refused INTEGER NOT NULL, fitted INTEGER NOT NULL, tokens_saved INTEGER NOT NULL,
  edited INTEGER NOT NULL, overflows INTEGER NOT NULL, survived INTEGER NOT NULL,
  tokens_before INTEGER NOT NULL, tokens_sent INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL,
  reply_tokens INTEGER NOT NULL, waited INTEGER NOT NULL, first_byte_ms REAL NOT NULL, followed INTEGER NOT NULL,
  prefix_kept REAL NOT NULL, PRIMARY KEY (slot, model, upstream)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (
  slot INTEGER NOT NULL, status INTEGER NOT NULL, requests INTEGER NOT NULL, PRIMARY KEY (slot, status)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workers (name TEXT PRIMARY KEY, seen REAL NOT NULL, running BLOB NOT NULL) WITHOUT ROWID;
"""
_SUMS: Final = (
    "requests",
    "failed",
    "refused",
    "fitted",
    "tokens_saved",
    "edited",
    "overflows",
    "survived",
    "tokens_before",
    "tokens_sent",
    "prompt_tokens",
    "cached_tokens",
    "reply_tokens",
    "waited",
    "first_byte_ms",
    "followed",
    "prefix_kept",
)


def _ended_in(outcome: str) -> str:
    return f"instr(words, char(10) || '{outcome}' || char(10))"


REFUSED: Final = "refused"
FAILED: Final = "failed"
_ENDINGS: Final = {  # until 0.2.0, `answered` had any status
    REFUSED: f"({_ended_in('refused')} OR status BETWEEN 400 AND 499 AND {_ended_in('answered')})",
    FAILED: f"(status >= 500 OR {' OR '.join(map(_ended_in, sorted(FAILURES)))})",
}
"""Filters for the outcome `refused`, and for those that are failures."""


class Wanted(Struct, frozen=True):
    """Filter for `page` and `count`."""

    limit: int = 50
    before: int | None = None
    """Only rows older than the one of this id."""
    words: str = ""
    """In the id, model, outcome, reasons, conversation or upstream; case does not matter."""
    changed: bool = False
    troubled: bool = False
    conversation: str = ""
    model: str = ""
    client: str = ""
    status: str = ""
    """`401`, a class: `4xx`, `REFUSED` or `FAILED`."""
    since: float = 0.0
    """Unix time."""


class Ledger:
    """One database; `path` None: in memory."""

    def __init__(self, path: Path | None, max_rows: int, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix time."""
        self.max_rows = max_rows
        self._clock = clock
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
        """Whether the path still names this file: SQLite keeps writing to a deleted one."""
        if self._path is None or self._opened is None:
            return True
        try:
            return os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, entries: Iterable[Entry], worker: str = "", running: bytes | None = None, now: float = 0.0) -> None:
        """Add finished requests, and note what a worker has under way if that is given: JSON. All of it, or nothing."""
        with self._changing(now):
            self._add(entries)
            if running is not None:
                self._database.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", (worker, now, running))

    def page(self, wanted: Wanted) -> list[Summary]:
        """Summaries of rows, each with its `id`, the newest first."""
        where, given = _where(wanted, self._latest_id)
        found = self._database.execute(
            f"SELECT id, summary FROM decisions{where} ORDER BY id > ?, id DESC LIMIT ?",  # noqa: S608 - no value is in it
            (*given, self._latest_id, wanted.limit),
        )
        return [_summary(number, summary) for number, summary in found]

    def count(self, wanted: Wanted) -> int:
        """How many rows there are of a kind."""
        where, given = _where(wanted, self._latest_id)
        found: int = self._database.execute(f"SELECT count(*) FROM decisions{where}", given).fetchone()[0]  # noqa: S608
        return found

    def newest(self) -> int:
        """The place of the row that came last; 0 if there is none."""
        found: int = self._database.execute("SELECT coalesce(max(seq), 0) FROM decisions").fetchone()[0]
        return found

    def news(self, after: int, limit: int) -> tuple[int, list[Summary]]:
        """Rows that have come since a place, whenever they ended, the newest first; and the place of the last."""
        found = self._database.execute(
            "SELECT seq, id, summary FROM decisions WHERE seq > ? ORDER BY seq DESC LIMIT ?", (after, limit)
        ).fetchall()
        rows = [_summary(number, summary) for _, number, summary in found]
        return (found[0][0] if found else after), sorted(rows, key=lambda one: -one["id"])

    def find(self, request_id: str) -> Detail | None:
        """The newest row of a request, with its blocks."""
        found = self._database.execute(
            "SELECT id, summary, blocks FROM decisions WHERE request_id = ? ORDER BY id DESC LIMIT 1", (request_id,)
        ).fetchone()
        if found is None:
            return None
        number, summary, blocks = found
        if blocks is not None and not blocks.startswith(b"["):
            blocks = zlib.decompress(blocks)
        reports = _read(blocks) if blocks is not None else []
        return {**_summary(number, summary), "blocks": reports}

    def conversations(self, limit: int) -> list[Conversation]:
        """The latest conversations, each with its latest turns, the oldest turn first."""
        found = self._database.execute(
            "SELECT conversation, count(*), max(id), min(ended), max(ended), sum(changed), sum(troubled > 0)"
            " FROM decisions WHERE conversation != '' GROUP BY conversation ORDER BY max(id) > ?, max(id) DESC LIMIT ?",
            (self._latest_id, limit),
        ).fetchall()
        turns = {row[0]: deque[Turn](maxlen=MAX_TURNS) for row in found}
        latest = dict[str, tuple[str, str, str]]()
        rows = self._database.execute(
            "SELECT conversation, model, client, tool,"  # noqa: S608 - its columns
            f" {', '.join(Turn.__annotations__)} FROM decisions"
            f" WHERE conversation IN ({', '.join('?' * len(found))}) ORDER BY id",
            tuple(turns),
        )
        for name, model, client, tool, *values in rows:
            latest[name] = (model, client, tool)
            turns[name].append(cast(Turn, dict(zip(Turn.__annotations__, values, strict=True))))
        return [
            cast(
                Conversation,
                dict(zip(Conversation.__annotations__, (*row, *latest[row[0]], [*turns[row[0]]]), strict=True)),
            )
            for row in found
        ]

    def slots(self, since: float, *by: str) -> list[dict[str, Any]]:
        """The sums since a time, by some of `slot`, `model` and `upstream`."""
        assert set(by) <= {"slot", "model", "upstream"}
        group = f" GROUP BY {', '.join(by)} ORDER BY {', '.join(by)}" if by else ""
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in _SUMS)
        found = self._database.execute(
            f"SELECT {', '.join((*by, sums))} FROM slots WHERE slot BETWEEN ? AND ?{group}",  # noqa: S608 - names of columns
            (int(since // SLOT_SECONDS), int(self._latest_id / 1e6 // SLOT_SECONDS)),
        )
        return [dict(zip((*by, *_SUMS), row, strict=True)) for row in found]

    def first_bytes(self, upstream: str, limit: int) -> list[float]:
        """The latest waits for an upstream's first byte, in milliseconds, ascending."""
        found = self._database.execute(
            "SELECT first_byte_ms FROM decisions WHERE upstream = ? AND first_byte_ms IS NOT NULL"
            " ORDER BY id > ?, id DESC LIMIT ?",
            (upstream, self._latest_id, limit),
        )
        return sorted(waited for (waited,) in found)

    def refusals(self, since: float) -> list[tuple[int, int]]:
        """The statuses that upstreams refused requests with since a time, and how often, the most frequent first."""
        found = self._database.execute(
            "SELECT status, sum(requests) FROM refusals WHERE slot BETWEEN ? AND ? GROUP BY status ORDER BY 2 DESC",
            (int(since // SLOT_SECONDS), int(self._latest_id / 1e6 // SLOT_SECONDS)),
        )
        return found.fetchall()

    def timings(self, since: float) -> list[tuple[float, float | None, float | None]]:
        """When each request since a time ended, its wait for the first byte and the proxy's own time, in
        milliseconds."""
        found = self._database.execute("SELECT ended, first_byte_ms, own_ms FROM decisions WHERE ended >= ?", (since,))
        return found.fetchall()

    def windows(self, since: float) -> list[tuple[str, str, int, int]]:
        """The window of the latest request for each model at each upstream, and whether it is guessed."""
        found = self._database.execute(
            "SELECT model, upstream, window_tokens, window_is_guessed, max(id) FROM decisions"
            " WHERE ended >= ? AND window_tokens IS NOT NULL GROUP BY model, upstream",
            (since,),
        )
        return [row[:4] for row in found]

    def clients(self, since: float) -> list[str]:
        """The names of the clients since a time, the most frequent first."""
        found = self._database.execute(
            "SELECT client FROM decisions WHERE ended >= ? AND client != '' GROUP BY client"
            " ORDER BY count(*) DESC LIMIT ?",
            (since, MAX_CLIENTS),
        )
        return [name for (name,) in found]

    def begun(self) -> float | None:
        """When the first request that is summed up ended, about; None if there is none."""
        found = self._database.execute("SELECT min(slot) FROM slots").fetchone()[0]
        return None if found is None else float(found * SLOT_SECONDS)

    def running(self, but: str, now: float) -> list[Running]:
        """Running requests of other workers."""
        found = self._database.execute(
            "SELECT running FROM workers WHERE name != ? AND abs(seen - ?) < ?", (but, now, _STALE_SECONDS)
        )
        return [one for (running,) in found for one in _read(running)]

    @property
    def _latest_id(self) -> int:
        """The id of a request that ends as late as any whose clock is right."""
        return int((self._clock() + _AHEAD_SECONDS) * 1e6)

    @contextlib.contextmanager
    def _changing(self, now: float) -> Iterator[None]:
        """A transaction, which tidies up now and then."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._added >= _TIDY_ROWS:
                self._tidy(now)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _add(self, entries: Iterable[Entry]) -> None:
        """Add rows and their sums, within a transaction."""
        numbered = [(int(entry.ended * 1e6), entry) for entry in entries]
        oldest = min([number for number, _ in numbered], default=sys.maxsize)
        taken: dict[int, str] = dict(self._database.execute(_SINCE, (oldest,)))
        rows, sums = dict[int, tuple[Any, ...]](), dict[tuple[int, str, str], Sequence[float]]()
        refused = Counts[tuple[int, int]]()
        for wanted, entry in numbered:
            number, line = wanted, entry.summary
            while number in taken:
                number += 1  # another one ended at the same microsecond
            taken[number], rows[number] = line["request_id"], _row_of(entry)
            slot = int(entry.ended // SLOT_SECONDS)
            key = (slot, _storable(str(line.get("model", ""))), _storable(line.get("upstream", "")))
            if entry.sums.get("refused"):
                refused[slot, line.get("status", 0)] += 1
            added = map(entry.sums.get, _SUMS, repeat(0))
            sums[key] = [*map(operator.add, sums.get(key, repeat(0)), added)]
        self._database.executemany(_INSERT, [(number, *row) for number, row in rows.items()])
        self._database.executemany(_ADD_UP, [(*key, *found) for key, found in sums.items()])
        self._database.executemany(_ADD_REFUSALS, [(*key, count) for key, count in refused.items()])
        self._added += len(rows)

    def _used_bytes(self) -> int:
        """Bytes of the file without its free pages: three numbers of its head, so no row is read."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        used: int = (pages - free) * size
        return used

    def _tidy(self, now: float) -> None:
        self._added = 0
        execute = self._database.execute
        execute(
            "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions ORDER BY id > ?, id DESC LIMIT -1 OFFSET ?)",
            (self._latest_id, self.max_rows),
        )
        most = MAX_BYTES if self.is_file else MAX_MEMORY_BYTES
        if self._used_bytes() > most:
            execute(
                "DELETE FROM decisions WHERE id IN (SELECT id FROM (SELECT id, sum(held) OVER"
                " (ORDER BY id > ?, id DESC) AS total FROM decisions) WHERE total > ?)",
                (self._latest_id, int(most * _LEFT_SHARE)),
            )
        execute(
            "DELETE FROM slots WHERE slot <= (SELECT slot FROM slots ORDER BY slot DESC LIMIT 1 OFFSET ?)", (MAX_SLOTS,)
        )
        execute("DELETE FROM refusals WHERE slot < (SELECT min(slot) FROM slots)")
        execute("DELETE FROM workers WHERE abs(seen - ?) > ?", (now, _STALE_SECONDS))


_COLUMNS: Final = (
    "id, ended, request_id, conversation, model, upstream, first_byte_ms, changed, troubled, tokens_before, "
    "tokens_after, room_tokens, client, status, tool, own_ms, window_tokens, window_is_guessed, words, summary, "
    "blocks, held"
)
_INSERT: Final = f"INSERT INTO decisions ({_COLUMNS}) VALUES ({', '.join('?' * 22)})"  # noqa: S608 - names of columns
_ADD_REFUSALS: Final = (
    "INSERT INTO refusals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests"
)
_SINCE: Final = "SELECT id, request_id FROM decisions WHERE id >= ?"
_ADD_UP: Final = (
    f"INSERT INTO slots VALUES ({', '.join('?' * (3 + len(_SUMS)))}) ON CONFLICT DO UPDATE SET "  # noqa: S608 - as above
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMS)
)


def _row_of(entry: Entry) -> tuple[Any, ...]:
    line = entry.summary
    summary = jsontext.dump(line)
    blocks = None if entry.blocks is None else jsontext.dump(entry.blocks)
    if blocks is not None and len(blocks) > _SHORT_BYTES:
        blocks = zlib.compress(blocks, 1)
    edits = line.get("edits") or {}
    names = (
        "request_id",
        "model",
        "outcome",
        "problem",
        "conversation",
        "upstream",
        "route",
        "status",
        "api",
        "client",
        "key",
    )
    words = "\n".join([*[str(line.get(name, "")) for name in names], *edits]).lower()
    return (
        entry.ended,
        _storable(line["request_id"]),
        _storable(line.get("conversation", "")),
        _storable(str(line.get("model", ""))),
        _storable(line.get("upstream", "")),
        line.get("first_byte_ms"),
        bool(edits),
        entry.trouble,
        line.get("tokens_before"),
        line.get("tokens_after"),
        line.get("room_tokens"),
        _storable(line.get("client", "")),
        line.get("status", 0),
        _storable(line.get("tool", "")),
        line.get("own_ms"),
        line.get("window_tokens"),
        bool(line.get("window_is_guessed")),
        _storable(words),
        summary,
        blocks,
        len(summary) + len(blocks or b"") + 300,
    )


def _where(wanted: Wanted, latest_id: int) -> tuple[str, list[Any]]:
    terms, given = list[str](), list[Any]()
    if wanted.before is not None:
        terms.append("(id > ?, -id) > (?, ?)")
        given += latest_id, wanted.before > latest_id, -wanted.before
    if wanted.changed:
        terms.append("changed")
    if wanted.troubled:
        terms.append("troubled")
    if wanted.status in _ENDINGS:
        terms.append(_ENDINGS[wanted.status])
    named = (
        ("ended >= ?", wanted.since),
        ("model = ?", _storable(wanted.model)),
        ("client = ?", _storable(wanted.client)),
        ("conversation = ?", wanted.conversation),
        ("CAST(status AS TEXT) LIKE ?", "" if wanted.status in _ENDINGS else wanted.status.replace("x", "_")),
        *(("instr(words, ?)", _storable(word)) for word in wanted.words.lower().split()),
    )
    terms += [term for term, value in named if value]
    given += [value for _, value in named if value]
    return f" WHERE {' AND '.join(terms)}" if terms else "", given


def _summary(number: int, written: bytes) -> Summary:
    line = _read(written)
    return cast(Summary, {**line, "id": number, "outcome": outcome_of(line)})


def _read(written: bytes) -> Any:
    return jsontext.value(written)


def _storable(text: str) -> str:
    """The text without lone surrogates, which a model's name may hold and UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
