"""What the lessons about a model say of its limits."""

from __future__ import annotations

from typing import Final, TypeAlias

from proxy.core.compaction import MAX_RESERVED_REPLY_TOKENS, REPLY_SHARE
from proxy.core.models import Certainty, Key, Lesson, Lessons, Rows, Search, facts
from proxy.wire import LARGEST_TOKENS, MAX_NAME_CHARS, ModelLimits

Contents: TypeAlias = dict[str, list[tuple[Key, Lesson]]]
"""What workers and replicas share: the rows of each upstream."""
ALL_UPSTREAMS: Final = ""
"""Its rows hold for every upstream."""


def rows_of(everything: Contents | None, upstream: str) -> Rows:
    """The rows that hold for one upstream; none if nothing was written."""
    found = everything or {}
    return facts.joined(dict(found.get(ALL_UPSTREAMS, ())), dict(found.get(upstream, ())))


def key_of(model: str) -> str:
    """A model's name as a key in the file and in the log: bounded in length, and UTF-8, which JSON strings need not be.

    >>> key_of("gpt-\\ud800")
    'gpt-?'
    """
    return model[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()


def limits_of(found: Lessons) -> tuple[ModelLimits, str]:
    """The limits that these lessons state, and their source, for people."""

    def size(name: str) -> int | None:
        lesson = found.get(name)
        return None if lesson is None else int(lesson.size)

    search = search_in(found)
    windows = (size(name) for name in (facts.CUT_TO, facts.LATE, facts.WINDOW, facts.INPUT))
    window = next((tokens for tokens in windows if tokens is not None), None)
    limits = ModelLimits(
        window_tokens=window if search is None else _window_around(search),
        input_tokens=size(facts.INPUT) if search is None else search.guess,
        input_chars=size(facts.CHARS),
        refused=frozenset(name.removeprefix(facts.REFUSES) for name in found if name.startswith(facts.REFUSES)) or None,
        results_hold_text=facts.RESULTS_HOLD_TEXT in found or None,
        refuses_our_tool=facts.REFUSES_OUR_TOOL in found or None,
        refuses_cut_results=facts.CUT_RESULTS_REFUSED in found or None,
        rate_tokens=size(facts.RATE),
        prompt_rate_tokens=size(facts.RATE_OF_PROMPTS),
        cuts_silently=facts.CUT_TO in found or None,
        certainty=Certainty.INFERRED if search else Certainty.STATED if window is None else Certainty.LEARNED,
        at_most={
            name.removeprefix(facts.AT_MOST): int(lesson.size)
            for name, lesson in found.items()
            if name.startswith(facts.AT_MOST)
        }
        or None,
    )
    if limits.cuts_silently:
        return limits, "learned from usage: the upstream cut a prompt without a word"
    return limits, "inferred from refusals that name no limit" if search else "learned from a refusal"


def search_in(found: Lessons) -> Search | None:
    """The search for a limit that no refusal has named, if it is what counts."""
    lesson = found.get(facts.SEARCH)
    return lesson.value if lesson is not None and isinstance(lesson.value, Search) else None


def _window_around(search: Search) -> int:
    """The window in which a prompt of the size that is searched for, and its reply, fit."""
    reserve = min(search.guess // REPLY_SHARE, MAX_RESERVED_REPLY_TOKENS)
    return min(LARGEST_TOKENS, search.guess + max(search.reply, reserve))
