"""What is told of requests: log lines, metrics, traces, records."""

from proxy.shell.telemetry.history import FILE_NAME, RETRY_SECONDS, History
from proxy.shell.telemetry.record import (
    Block,
    RequestOutcome,
    RequestRecord,
    client_name,
    described_blocks,
    session_name,
    storable,
)
from proxy.shell.telemetry.recorder import Recorder
from proxy.shell.telemetry.table import (
    FAILED,
    GUESSED,
    MAX_DECISIONS,
    MAX_TURNS,
    REFUSED,
    UNNAMED,
    Conversation,
    Filters,
    Sums,
    Table,
)

__all__ = [
    "FAILED",
    "FILE_NAME",
    "GUESSED",
    "MAX_DECISIONS",
    "MAX_TURNS",
    "REFUSED",
    "RETRY_SECONDS",
    "UNNAMED",
    "Block",
    "Conversation",
    "Filters",
    "History",
    "Recorder",
    "RequestOutcome",
    "RequestRecord",
    "Sums",
    "Table",
    "client_name",
    "described_blocks",
    "session_name",
    "storable",
]
