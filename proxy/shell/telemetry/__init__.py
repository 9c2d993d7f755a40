"""Log lines, metrics, traces, and the latest decisions."""

from proxy.shell.telemetry.history import FILE_NAME, RETRY_SECONDS, Ended, History
from proxy.shell.telemetry.record import (
    Block,
    Messages,
    RequestOutcome,
    RequestRecord,
    client_name,
    described_blocks,
    storable,
)
from proxy.shell.telemetry.recorder import Recorder
from proxy.shell.telemetry.table import (
    FAILED,
    MAX_DECISIONS,
    REFUSED,
    Conversation,
    Finished,
    Sums,
    Table,
    Wait,
    Wanted,
)

__all__ = [
    "FAILED",
    "FILE_NAME",
    "MAX_DECISIONS",
    "REFUSED",
    "RETRY_SECONDS",
    "Block",
    "Conversation",
    "Ended",
    "Finished",
    "History",
    "Messages",
    "Recorder",
    "RequestOutcome",
    "RequestRecord",
    "Sums",
    "Table",
    "Wait",
    "Wanted",
    "client_name",
    "described_blocks",
    "storable",
]
