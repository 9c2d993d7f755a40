"""What the operator's pages show."""

from proxy.shell.operator.announcement import (
    FOLDER,
    NONCE_HEADER,
    PROOF_HEADER,
    Announcement,
    announced,
    announcements,
    is_proven,
    proof_of,
)
from proxy.shell.operator.explaining import DryRun, Explainer, Explanation, described_profile
from proxy.shell.operator.health import Health
from proxy.shell.operator.overview import (
    MAX_HOURS,
    Decisions,
    Dollars,
    Overview,
    OverviewFigures,
    Page,
    Process,
    Status,
)

__all__ = [
    "FOLDER",
    "MAX_HOURS",
    "NONCE_HEADER",
    "PROOF_HEADER",
    "Announcement",
    "Decisions",
    "Dollars",
    "DryRun",
    "Explainer",
    "Explanation",
    "Health",
    "Overview",
    "OverviewFigures",
    "Page",
    "Process",
    "Status",
    "announced",
    "announcements",
    "described_profile",
    "is_proven",
    "proof_of",
]
