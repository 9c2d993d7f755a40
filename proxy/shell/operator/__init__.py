"""The operator's pages, and who may open them."""

from proxy.shell.operator.announcement import (
    FOLDER,
    NONCE_HEADER,
    PROOF_HEADER,
    Announcement,
    announced,
    announcements,
    is_proven,
    new_token,
    proof_of,
)
from proxy.shell.operator.explaining import PROFILE_VALUES, DryRun, Explainer, Explanation
from proxy.shell.operator.overview import (
    MAX_HOURS,
    Decisions,
    Dollars,
    Health,
    Overview,
    OverviewFigures,
    Page,
    Priced,
    Process,
    Refusals,
    Status,
)

__all__ = [
    "FOLDER",
    "MAX_HOURS",
    "NONCE_HEADER",
    "PROFILE_VALUES",
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
    "Priced",
    "Process",
    "Refusals",
    "Status",
    "announced",
    "announcements",
    "is_proven",
    "new_token",
    "proof_of",
]
