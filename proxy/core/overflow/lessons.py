"""What the sends of a request have proven about its model.

Rule: a refusal that names no limit is taken as true of the model only after the same request without what was refused,
or shorter, was accepted, or refused for another reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple

from proxy.core.models import LimitName, facts
from proxy.core.overflow.attempts import AnyAttempt, Attempt, AttemptKind, Cure
from proxy.core.overflow.report import Verdict, VerdictKind

HISTORY: Final = "history"
"""A lesson about this conversation alone: its history holds what was refused."""
BYTES: Final = "bytes"
"""The size of the body that was refused."""
CONTENT: Final = "content"
"""One content of the request, not media of its kind."""
SIZE: Final = "size"
"""The size of the prompt that was accepted."""


class Lesson(NamedTuple, Generic[AnyAttempt]):
    """One thing that a history has taught."""

    about: str
    """`HISTORY`, `BYTES`, `CONTENT`, `SIZE`, or the name of a fact, or its beginning."""
    refused: AnyAttempt
    sent: AnyAttempt
    """What the upstream has accepted instead, or refused for another reason."""


def lessons_of(history: Sequence[AnyAttempt]) -> Sequence[Lesson[AnyAttempt]]:
    """What the latest attempt proves."""
    last, begin = history[-1], 1
    for index in range(1, len(history) - 1):
        if _proves(history[index], history[begin : index + 1]):
            begin = index + 1
    unproven = range(begin, len(history))
    if not unproven:
        return ()
    if not _proves(last, history[begin:]):
        is_same_seal = last.cure.reason is last.outcome.verdict.kind is VerdictKind.SEAL  # these are others
        return (Lesson(HISTORY, history[-2], last),) if is_same_seal else ()
    undone = last.cure.kind is AttemptKind.ORIGINAL  # so the cures before it prove nothing
    is_accepted = last.outcome.is_accepted
    return [
        Lesson(about, history[index - 1], history[index])
        for index in (unproven[-1:] if undone else unproven)
        for about in _taught(history[index].cure, history[index - 1].outcome.verdict, is_accepted=is_accepted)
    ]


def _proves(attempt: Attempt, cured: Sequence[Attempt]) -> bool:
    return attempt.outcome.is_accepted or attempt.outcome.proves([one.cure for one in cured])


_TAUGHT: Final[Sequence[tuple[AttemptKind, str, Callable[[Verdict, bool], bool]]]] = (
    (AttemptKind.REPAIRED, HISTORY, lambda _, __: True),
    (AttemptKind.LIMITED, facts.AT_MOST, lambda _, __: True),
    (AttemptKind.SHORTER_REPLY, facts.AT_MOST, lambda refusal, _: refusal.named is not None),
    (AttemptKind.FEWER_BYTES, BYTES, lambda refusal, _: not refusal.is_conditional),
    (
        AttemptKind.EMERGENCY,
        facts.SEARCH,
        lambda refusal, is_accepted: is_accepted and refusal.is_suspect and not refusal.is_conditional,
    ),
    (
        AttemptKind.EMERGENCY,
        SIZE,
        lambda refusal, is_accepted: is_accepted and refusal.names_no_limit and not refusal.is_conditional,
    ),
    (
        AttemptKind.WITHOUT_MEDIA,
        facts.RESULTS_HOLD_TEXT,
        lambda refusal, _: refusal.refuses_in_results and not refusal.is_conditional,
    ),
    (
        AttemptKind.WITHOUT_MEDIA,
        facts.REFUSES,  # under a condition, too: it is believed the second time
        lambda refusal, _: refusal.refuses_model and (refusal.is_conditional or not refusal.refuses_in_results),
    ),
    (
        AttemptKind.WITHOUT_MEDIA,
        CONTENT,
        lambda refusal, is_accepted: is_accepted and not (refusal.refuses_model or refusal.refuses_in_results),
    ),
    (
        AttemptKind.WITHOUT_TOOL,
        facts.REFUSES_OUR_TOOL,
        lambda refusal, _: refusal.named is not LimitName.TOOLS and not refusal.is_conditional,
    ),
    (
        AttemptKind.ORIGINAL,
        facts.CUT_RESULTS_REFUSED,
        lambda refusal, is_accepted: is_accepted and refusal.misses_json and not refusal.is_conditional,
    ),
)
"""A cure, what it has taught once it is proven, and of which refusals; `is_accepted`: whether its request was."""


def _taught(cure: Cure, refusal: Verdict, *, is_accepted: bool) -> Sequence[str]:
    """What this cure has taught of this refusal, now that it is proven."""
    return [about for kind, about, holds in _TAUGHT if cure.kind is kind and holds(refusal, is_accepted)]
