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
    Refusals,
)
from proxy.shell.operator.status import Status, StatusReport

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
    "Refusals",
    "Status",
    "StatusReport",
    "announced",
    "announcements",
    "is_proven",
    "new_token",
    "proof_of",
]
