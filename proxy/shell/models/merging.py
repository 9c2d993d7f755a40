"""What several learned about the same models, put together: a merge of two versions that began as the same one.

Rule: facts are joined, whatever the order. Of limits, what only one side has changed is adopted as it is; of what both
have changed, the newest lesson counts. Absence on our side never deletes; deletion is explicit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from proxy.core.models.facts import joined
from proxy.shell.models.knowledge import MAX_KEYS, Knowledge, Refusals
from proxy.shell.resources.bounded import with_newest

MAX_MODELS: Final = 512
"""Remembered; the oldest go first. A model's name is foreign input."""

Known = Mapping[str, Knowledge]
"""What is known about the models at one upstream."""
_APART: Final = ("of_keys", "facts")
_LIMITS: Final = tuple(name for name in Knowledge.__struct_fields__ if name not in _APART)
_NOTHING: Final = Knowledge()


def merged(base: Known, mine: Known, theirs: Known) -> dict[str, Knowledge]:
    """What is known after both have changed `base`."""
    found: dict[str, Knowledge] = {}
    for model, other in theirs.items():
        before, own = base.get(model, _NOTHING), mine.get(model)
        found[model] = other if own is None else _merged_model(before, own, other)
    new = {model: own for model, own in mine.items() if model not in theirs and own != base.get(model)}
    return with_newest(found, new, MAX_MODELS)


def _merged_model(before: Knowledge, own: Knowledge, other: Knowledge) -> Knowledge:
    if own in (before, other):
        return other
    if other == before:
        return own
    old, mine, theirs = ([getattr(version, name) for name in _LIMITS] for version in (before, own, other))
    limits = own if theirs == old or (mine != old and own.taught >= other.taught) else other
    return replace(
        limits,
        of_keys=_merged_table(before.of_keys, own.of_keys, other.of_keys, MAX_KEYS),
        facts=joined(own.facts, other.facts),
    )


def _merged_table(
    before: Mapping[str, Refusals], own: Mapping[str, Refusals], other: Mapping[str, Refusals], most: int
) -> dict[str, Refusals]:
    """Of two tables: the changes of both; of an entry that both have changed, the newer lesson, or the own side's."""
    gone = {key for key in before if key not in own or key not in other}
    changed = {
        key: value
        for key, value in own.items()
        if (key not in before or before[key] != value)
        and (key not in other or other[key] == before.get(key) or value.taught >= other[key].taught)
    }
    kept = {key: value for key, value in other.items() if key not in gone or key in changed or before.get(key) != value}
    return with_newest(kept, changed, most)
