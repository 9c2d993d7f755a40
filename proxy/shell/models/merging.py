"""What several learned about the same models, put together: a merge of two versions that began as the same one.

Rule: what only one side has changed is adopted as it is. What both have changed is decided for values that belong
together, all at once: limits by the newest lesson, the ratio by the own side; sets and tables keep the entries of both.
Nothing is forgotten because the own side does not have it: forgetting is said apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import asdict, replace

from proxy.shell.models.knowledge import MAX_IMAGES, MAX_KEYS, Knowledge, Refusals
from proxy.shell.resources.bounded import with_newest

MAX_MODELS: Final = 512
"""Remembered; the oldest go first. A model's name is foreign input."""

Known = Mapping[str, Knowledge]
"""What is known about the models at one upstream."""
_Value = TypeVar("_Value")

_CALIBRATION: Final = ("ratio", "calibrated", "counted_by")
_TABLES: Final = {"of_keys": MAX_KEYS, "image_tokens": MAX_IMAGES}
_MARKS: Final = ("refused", "results_hold_text", "refuses_our_tool")
"""What was refused: more becomes known, until all of it is too old."""
_LIMITS: Final = tuple(name for name in Knowledge.__struct_fields__ if name not in (*_CALIBRATION, *_TABLES, *_MARKS))
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
    is_newer = own.taught >= other.taught
    groups = ((_CALIBRATION, True), (_LIMITS, is_newer), (_MARKS, is_newer))
    of = {"before": asdict(before), "own": asdict(own), "other": asdict(other)}
    values: dict[str, Any] = {}
    for names, prefers_own in groups:
        old, mine, theirs = ({name: version[name] for name in names} for version in of.values())
        values |= mine if theirs == old or (mine != old and prefers_own) else theirs
    for name, most in _TABLES.items():
        values[name] = _merged_table(getattr(before, name), getattr(own, name), getattr(other, name), most)
    if other.taught and own.taught:  # neither side has just let go of what was too old
        values["refused"] = tuple(sorted({*own.refused, *other.refused}))
        values["results_hold_text"] = own.results_hold_text or other.results_hold_text
        values["refuses_our_tool"] = own.refuses_our_tool or other.refuses_our_tool
    return replace(own, **values)


def _merged_table(
    before: Mapping[str, _Value], own: Mapping[str, _Value], other: Mapping[str, _Value], most: int
) -> dict[str, _Value]:
    """Of two tables: the changes of both; of an entry that both have changed, the newer lesson, or the own side's."""
    gone = {key for key in before if key not in own or key not in other}
    changed = {
        key: value
        for key, value in own.items()
        if (key not in before or before[key] != value)
        and (key not in other or other[key] == before.get(key) or _taught(value) >= _taught(other[key]))
    }
    kept = {key: value for key, value in other.items() if key not in gone or key in changed or before.get(key) != value}
    return with_newest(kept, changed, most)


def _taught(value: object) -> int:
    return value.taught if isinstance(value, Refusals) else 0
