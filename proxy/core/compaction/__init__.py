"""Compaction of conversations that exceed their room."""

from proxy.core.compaction.budget import (
    LOW_MARK,
    MAX_RESERVED_REPLY_TOKENS,
    REPLY_SHARE,
    Budget,
    BudgetRules,
    budget_for,
    clamped_reply,
    in_model_tokens,
    note_tokens,
)
from proxy.core.compaction.caps import Cap
from proxy.core.compaction.plan import Compressed, Pipeline, Plan, Progress, Reading, compressed, plan
from proxy.core.compaction.steps import compaction_steps, last_resorts

__all__ = [
    "LOW_MARK",
    "MAX_RESERVED_REPLY_TOKENS",
    "REPLY_SHARE",
    "Budget",
    "BudgetRules",
    "Cap",
    "Compressed",
    "Pipeline",
    "Plan",
    "Progress",
    "Reading",
    "budget_for",
    "clamped_reply",
    "compaction_steps",
    "compressed",
    "in_model_tokens",
    "last_resorts",
    "note_tokens",
    "plan",
]
