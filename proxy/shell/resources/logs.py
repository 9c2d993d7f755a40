"""The proxy's log.

Rule: never a key, never the content of a message; a line costs microseconds, as every request writes one.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from contextvars import ContextVar
from functools import partial
from typing import IO, Any, BinaryIO, Final, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from proxy.config import LogSettings
from proxy.core.conversation import Reason

_request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The request that this task serves; empty: none."""
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up structlog for the process, and route the libraries' log through it; to `stream` or standard output."""
    stream = stream or sys.stdout
    console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    shared: list[Any] = [
        _named,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending: list[Any]
    filtering = structlog.make_filtering_bound_logger(_LEVELS[settings.level])
    if console:
        ending = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        structlog.configure(
            processors=[*shared, partial(_request_in_words, _arrow_for(stream)), *ending],
            wrapper_class=filtering,
            logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _MayBeLost(stream))),
            cache_logger_on_first_use=True,
        )
    else:
        structlog.configure(
            processors=[
                *shared,
                structlog.processors.format_exc_info,
                _in_order,
                structlog.processors.JSONRenderer(serializer=_encoded),
            ],
            wrapper_class=filtering,
            logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _MayBeLost(stream.buffer))),
            cache_logger_on_first_use=True,
        )
        ending = [_in_order, structlog.processors.JSONRenderer()]
    _send_library_logs_the_same_way(shared, ending, stream)


class _MayBeLost:
    """A stream that hides its errors: a log without a reader, or on a full disk, must not cost responses."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def write(self, line: str | bytes) -> int:
        """Write a line, or lose it."""
        try:
            return self._stream.write(line)
        except (OSError, ValueError):  # the latter: it is closed, or cannot spell the line
            return 0

    def flush(self) -> None:
        """Flush what was written, or lose it."""
        try:  # noqa: SIM105 - once for each line; suppress() takes longer than the flush
            self._stream.flush()
        except (OSError, ValueError):
            pass


def write_lines_for(request_id: str) -> None:
    """Add this id to every later log line of this task, and of the tasks and threads that it starts; empty: none.
    Called once for each request, so that a line from deep inside names it."""
    _request_id.set(request_id)


def logger() -> FilteringBoundLogger:
    """The project's logger."""
    found: FilteringBoundLogger = structlog.get_logger()
    return found


def _named(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The line with the request's id, if it has none of its own."""
    if "request_id" in event or not (request_id := _request_id.get()):
        return event
    return {"request_id": request_id, **event}


def _in_order(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The line with when, how bad and what before everything else."""
    return {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}


def _request_in_words(arrow: str, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """`request_done` as one sentence, with what an operator has to attend to behind it; JSON has every field."""
    if event["event"] != "request_done":
        return event
    sizes = "{tokens_before:,}" if event.get("tokens_before") else ""
    if event.get("tokens_sent") not in (None, event.get("tokens_before")):
        sizes += arrow + "{tokens_sent:,}"
    if sizes and event.get("room_tokens"):
        sizes += " of {room_tokens:,}"
    counts = event.get("edits") or {}
    edits = [reason.counted(counts[reason]) for reason in Reason if reason in counts]
    words = [
        *(str(event.get(name, "")) for name in ("request_id", "model", "api", "status")),
        sizes.format_map(event),
        f"({', '.join(edits)})" if edits else "",
        f"after {event['attempts']} sends" if event.get("attempts", 1) > 1 else "",
        f"{event.get('total_ms', 0):,.0f} ms",
    ]
    told = ("timestamp", "level", "outcome", "problem", "warning", "advice")
    rest = {name: event[name] for name in told if event.get(name, "answered") != "answered"}
    return {**rest, "event": " ".join(filter(None, words))}


def _arrow_for(stream: TextIO) -> str:
    try:
        "→".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return "->"
    return "→"


def _encoded(line: Any, **_: Any) -> bytes:
    """JSON; the renderer's options are for the standard library's encoder."""
    try:
        return msgspec.json.encode(line, enc_hook=str)
    except UnicodeEncodeError:  # a lone surrogate, say in a model's name, has no UTF-8
        return json.dumps(line, default=str).encode()


def _send_library_logs_the_same_way(shared: list[Any], ending: list[Any], stream: TextIO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_expected_break)


def _expected_break(record: logging.LogRecord) -> bool:
    """A stream whose upstream broke deliberately ends without a last chunk, and has its own log line."""
    return record.getMessage() != "ASGI callable returned without completing response."
