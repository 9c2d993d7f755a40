"""Log lines, metrics, traces, and the latest decisions."""

from proxy.shell.telemetry.entries import (
    Block,
    Conversation,
    Detail,
    Entry,
    Finished,
    Running,
    Summary,
    described_blocks,
    outcome_of,
)
from proxy.shell.telemetry.history import FILE_NAME, RETRY_SECONDS, History
from proxy.shell.telemetry.ledger import FAILED, MAX_DECISIONS, REFUSED, SLOT_SECONDS, Ledger, Wanted
from proxy.shell.telemetry.record import Line, RequestOutcome, RequestRecord, client_name
from proxy.shell.telemetry.recorder import Recorder, described_changes, edit_lines

__all__ = [
    "FAILED",
    "FILE_NAME",
    "MAX_DECISIONS",
    "REFUSED",
    "RETRY_SECONDS",
    "SLOT_SECONDS",
    "Block",
    "Conversation",
    "Detail",
    "Entry",
    "Finished",
    "History",
    "Ledger",
    "Line",
    "Recorder",
    "RequestOutcome",
    "RequestRecord",
    "Running",
    "Summary",
    "Wanted",
    "client_name",
    "described_blocks",
    "described_changes",
    "edit_lines",
    "outcome_of",
]
