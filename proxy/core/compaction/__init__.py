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
from proxy.core.compaction.plan import Pipeline, Plan, Progress, Reading, plan
from proxy.core.compaction.steps import compaction_steps, last_resorts

__all__ = [
    "LOW_MARK",
    "MAX_RESERVED_REPLY_TOKENS",
    "REPLY_SHARE",
    "Budget",
    "BudgetRules",
    "Cap",
    "Pipeline",
    "Plan",
    "Progress",
    "Reading",
    "budget_for",
    "clamped_reply",
    "compaction_steps",
    "in_model_tokens",
    "last_resorts",
    "note_tokens",
    "plan",
]
