"""Finished requests in one table of SQLite, which lists, searches, sums them.

Rule: it holds what the log holds, never a key and never content; its size is bounded in rows and in bytes. One thread
uses one table; other processes may write to the same file. Everything here may raise sqlite3.Error.

A row is a key, a time and the record as JSON; what is filtered and summed up is a generated column. Keys follow the
order in which rows are written, so no clock that leaps can change it.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

from proxy.core.text import jsontext
from proxy.shell.telemetry.record import Block, RequestRecord, storable

MAX_BYTES: Final = 64 * 1024 * 1024
"""Approximate limit of the file; the oldest rows are deleted first."""
MAX_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Limit without a file."""
MAX_DECISIONS: Final = 500
"""Rows without a file, and of one response."""
BUSY_SECONDS: Final = 1.0
"""Longest wait for another process; a write takes milliseconds."""
MAX_TURNS: Final = 1_000
"""The latest turns of one conversation in a response."""
_LEFT_SHARE: Final = 0.75
"""Share of the limit that is left to rows when the file is too large, so that the next clean-up is not due soon."""
_AHEAD_SECONDS: Final = 300.0
"""A row that is dated further ahead was written while a clock was wrong: no sum of the last hours has it."""
_STALE_SECONDS: Final = 15.0
"""A worker that has written nothing for so long is gone."""
_BLAMELESS: Final = ("answered", "refused", "context_length_exceeded", "client_left")
"""Outcomes that are neither the upstream's nor the proxy's fault."""
UNNAMED: Final = "-"
"""Stands in a filter for no model, and for the upstream of what was sent nowhere."""
REFUSED: Final = "outcome = 'refused'"
GUESSED: Final = "window_is_guessed AND 2 * tokens_before > window_tokens"
"""Requests for which it matters that their window is a guess; as `RequestRecord.hangs_on_a_guess`."""
FAILED: Final = f"outcome NOT IN {_BLAMELESS}"
_SUMMED: Final = (
    *("model", "upstream", "client", "status", "outcome", "edits", "too_long", "fitted", "tokens_saved"),
    *("tokens_before", "tokens_sent", "prompt_tokens", "cached_tokens", "reply_tokens", "prefix_kept"),
    *("first_byte_ms", "own_ms", "window_tokens", "window_is_guessed", "attempts", "warning", "conversation"),
)
"""Fields of records that an index holds beside the time, so that sums read no record: 30 ms at 5,000 rows, not 400."""
_WORDS: Final = (
    *("request_id", "model", "outcome", "problem", "conversation", "upstream", "route"),
    *("status", "api", "client", "key", "edits"),
)
"""Fields of records that a search looks at."""


def _json(name: str) -> str:
    return f"json_extract(record, '$.{name}')"


_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS requests (
  id INTEGER PRIMARY KEY, ended REAL NOT NULL, record TEXT NOT NULL, blocks BLOB,
  {", ".join(f"{name} AS ({_json(name)})" for name in ("request_id", *_SUMMED))},
  words AS (lower({" || char(10) || ".join(f"coalesce({_json(name)}, '')" for name in _WORDS)})),
  changed AS (coalesce(edits, '{{}}') <> '{{}}'));
CREATE INDEX IF NOT EXISTS summed ON requests (ended, {", ".join(_SUMMED)});
CREATE TABLE IF NOT EXISTS workers (name TEXT PRIMARY KEY, seen REAL NOT NULL, running TEXT NOT NULL) WITHOUT ROWID;
"""
Filters: TypeAlias = Mapping[str, Any]
"""Which rows are wanted: values by the names of `_FILTERS`, of which an empty one means all; `limit`: how many."""
_FILTERS: Final = {
    "before": "id < :before",  # ids
    "after": "id > :after",
    "since": "ended >= :since",  # Unix time
    "changed": "changed",
    "troubled": "outcome <> 'answered'",
    "cured": "outcome = 'answered' AND attempts > 1",
    "warned": "warning IS NOT NULL",
    "guessed": GUESSED,
    "conversation": "conversation = :conversation",
    "model": f"coalesce(nullif(model, ''), '{UNNAMED}') = :model",
    "client": "client = :client",
    "upstream": f"coalesce(nullif(upstream, ''), '{UNNAMED}') = :upstream",
    # `401`, a class: `4xx`, an outcome or `failed`
    "status": f"CASE :status WHEN 'failed' THEN {FAILED} ELSE"
    " outcome = :status OR CAST(status AS TEXT) LIKE replace(:status, 'x', '_') END",
    # the case of ASCII does not matter
    "words": "NOT EXISTS (SELECT 1 FROM json_each(:words) WHERE NOT instr(requests.words, value))",
}


@dataclass
class Sums:
    """Sums over requests; each beside the SQL that adds it up."""

    requests: Annotated[int, "1"]
    unanswered: Annotated[int, "outcome <> 'answered'"]
    """Those with any outcome but `answered`."""
    cured: Annotated[int, "outcome = 'answered' AND attempts > 1"]
    """Those that were answered after an upstream had refused their first send."""
    edited: Annotated[int, "coalesce(edits, '{}') <> '{}'"]
    fitted: Annotated[int, "fitted"]
    """Made to fit: answered requests that the upstream would have refused or cut silently for their length."""
    tokens_saved: Annotated[int, "tokens_saved"]
    """Estimate for answered requests: tokens that were not sent, as far as they would have fitted into the window."""
    tokens_over: Annotated[
        int, "max(0, tokens_before - tokens_sent - coalesce(tokens_saved, 0)) * (outcome = 'answered')"
    ]
    """Estimate for answered requests: the other tokens that were not sent, which the window had no room for."""
    tokens_before: Annotated[int, "CASE WHEN tokens_sent IS NOT NULL THEN tokens_before END"]
    """Estimated size before edits of the requests sent."""
    tokens_sent: Annotated[int, "tokens_sent"]
    prompt_tokens: Annotated[int, "prompt_tokens"]
    """Counted by the upstreams, where they report usage; so are the next three."""
    cacheable_tokens: Annotated[int, "CASE WHEN cached_tokens IS NOT NULL THEN prompt_tokens END"]
    """Of these, those of upstreams that report what their prompt cache had."""
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


@dataclass
class Conversation:
    """The requests that begin with the same task."""

    conversation: str
    began: float
    """Unix time."""
    ended: float
    sums: Sums
    turns: list[RequestRecord] = field(default_factory=list)
    """The latest, the oldest of them first; of each its names, its sizes, and how it ended."""


_CONVERSATIONS: Final = f"""
SELECT conversation, min(ended), max(ended), {_SUMS} FROM requests
WHERE conversation <> '' AND :name IN ('', conversation) GROUP BY conversation ORDER BY max(id) DESC LIMIT :limit"""  # noqa: S608 - no value is in it
_TURN: Final = (
    *("request_id", "outcome", "attempts", "edits", "model", "client", "session", "tool"),
    *("tokens_before", "tokens_after", "room_tokens", "window_tokens"),
)
"""Fields of the record of a turn."""
_TURNS: Final = f"""
SELECT conversation, json_extract(record, {", ".join(f"'$.{name}'" for name in _TURN)}) FROM requests
WHERE conversation IN (SELECT value FROM json_each(:names)) ORDER BY id"""  # noqa: S608 - as above


_NOTE_WORKER: Final = "INSERT OR REPLACE INTO workers VALUES (:name, :now, :running)"
_SIZE: Final = """
SELECT (page_count - freelist_count) * page_size, (SELECT max(id) FROM requests) - (SELECT min(id) FROM requests)
FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""
"""Bytes, and rows: keys are without gaps, as only the oldest rows ever go."""
_DELETE_OLD: Final = "DELETE FROM requests WHERE id <= (SELECT max(id) FROM requests) - ?"


class Table:
    """One database; `path` None: in memory."""

    def __init__(self, path: Path | None, max_rows: int) -> None:
        self._max_rows, self._max_bytes = max_rows, MAX_MEMORY_BYTES if path is None else MAX_BYTES
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        where = ":memory:" if path is None else str(path)
        self._database = sqlite3.connect(where, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # No fsync: a crash of the machine may cost this file, which is then made anew. No WAL: it needs shared
            # memory, which network file systems lack.
            self._database.executescript(f"PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF; {_SCHEMA}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, finished: Iterable[RequestRecord]) -> None:
        """Add finished requests: all of them, or none. The oldest rows beyond the limits go."""
        described = [(one.finished_at, *one.described()) for one in finished]
        packed = [
            (at, jsontext.dump(record).decode(), zlib.compress(jsontext.dump(blocks), 1) if blocks else None)
            for at, record, blocks in described
        ]
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO requests (ended, record, blocks) VALUES (?, ?, ?)", packed)
            ((used, rows),) = self.query(_SIZE)
            left = self._max_rows if used <= self._max_bytes else int(rows * self._max_bytes * _LEFT_SHARE / used)
            database.execute(_DELETE_OLD, (min(left, self._max_rows),))

    def note_running(self, worker: str, running: Sequence[RequestRecord], now: float) -> None:
        """Note what a worker has under way; workers that are gone are forgotten."""
        self.query(_NOTE_WORKER, name=worker, now=now, running=jsontext.dump(running).decode())
        self.query("DELETE FROM workers WHERE abs(seen - :now) > :stale", now=now, stale=_STALE_SECONDS)

    def query(self, sql: str, **given: object) -> list[tuple[Any, ...]]:
        """The rows of a question with named values."""
        return self._database.execute(sql, given).fetchall()

    def page(self, filters: Filters) -> list[RequestRecord]:
        """Records, each with its `id`, the newest first."""
        where, given = _where(filters)
        found = self.query(f"SELECT id, record FROM requests{where} ORDER BY id DESC LIMIT :limit", **given)  # noqa: S608 - no value is in it
        return [_record(*row) for row in found]

    def count(self, filters: Filters) -> int:
        """How many rows there are of a kind."""
        where, given = _where(filters)
        ((found,),) = self.query(f"SELECT count(*) FROM requests{where}", **given)  # noqa: S608 - as above
        return int(found)

    def find(self, request_id: str) -> tuple[RequestRecord, list[Block]] | None:
        """The newest row of a request, and its blocks; none if they were not kept."""
        sql = "SELECT blocks, id, record FROM requests WHERE request_id = :id ORDER BY id DESC LIMIT 1"
        for blocks, *row in self.query(sql, id=request_id):
            kept = [] if blocks is None else jsontext.value(zlib.decompress(blocks))
            return _record(*row), [Block(**one) for one in kept]
        return None

    def conversations(self, limit: int, turns: int = MAX_TURNS, name: str = "") -> list[Conversation]:
        """The latest conversations, or the one of a name, each with its latest turns, the oldest turn first."""
        rows = self.query(_CONVERSATIONS, limit=limit, name=name)
        found = {of: Conversation(of, began, ended, Sums(*sums)) for of, began, ended, *sums in rows}
        for of, turn in self.query(_TURNS, names=jsontext.dump([*found]).decode()):
            fields = zip(_TURN, jsontext.value(turn.encode()), strict=True)
            found[of].turns.append(RequestRecord.of({name: value for name, value in fields if value is not None}))
            del found[of].turns[:-turns]
        return [*found.values()]

    def sums(self, since: float, until: float, *by: str) -> list[tuple[Any, ...]]:
        """The sums of a time, each behind what it is grouped by: some expressions."""
        query = f"SELECT {''.join(f'{one}, ' for one in by)}{_SUMS} FROM requests WHERE ended BETWEEN :since AND :until"  # noqa: S608 - names of columns
        group = f" GROUP BY {', '.join(by)}" if by else ""
        rows = self.query(query + group, since=since, until=until + _AHEAD_SECONDS)
        return [(*row[: len(by)], Sums(*row[len(by) :])) for row in rows]

    def running(self, but: str, now: float) -> list[RequestRecord]:
        """Running requests of other workers."""
        sql = "SELECT running FROM workers WHERE name <> :but AND abs(seen - :now) < :stale"
        found = self.query(sql, but=but, now=now, stale=_STALE_SECONDS)
        return [RequestRecord.of(one) for (running,) in found for one in jsontext.value(running.encode())]


def _record(number: int, record: str) -> RequestRecord:
    return RequestRecord.of({**jsontext.value(record.encode()), "id": number})


def _where(filters: Filters) -> tuple[str, dict[str, Any]]:
    terms = [term for name, term in _FILTERS.items() if filters.get(name)]
    given = {name: storable(value) if isinstance(value, str) else value for name, value in filters.items()}
    given["words"] = jsontext.dump(given.get("words", "").lower().split()).decode()
    return f" WHERE {' AND '.join(terms)}" if terms else "", {"limit": 50, **given}
