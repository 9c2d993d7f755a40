"""The table of cures: what is sent after each refusal of a request.

Rule: each refusal is cured for its reason, and no reason twice: three sends at most. Each is smaller than the one
before, or asks for less. What is sent next, and whose response the client gets, are pure functions of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from proxy.core.models import LimitName, Modality, facts
from proxy.core.overflow.attempts import (
    ABOUT_A_TOOL,
    REFUSING_STATUSES,
    AnyAttempt,
    Attempt,
    AttemptKind,
    Cure,
    Outcome,
    Situation,
)
from proxy.core.overflow.goals import at_the_limit, emergency_goal, emergency_reply, fitting_reply, goal_bytes
from proxy.core.overflow.report import FAULTS, REPAIRED, VerdictKind

MAX_SENDS: Final = 3
"""Limit for one request: a model switched in mid-session may refuse it for two reasons at once, and names one at a
time."""


def next_cures(history: Sequence[Attempt], situation: Situation) -> Sequence[Cure]:
    """Candidates for the next send: the first whose plan keeps to its goal is sent, or else the last one. Empty: the
    client gets the `best` response. `situation`: of what was sent last.

    No reason is cured twice. A refusal of what was cured that names another reason proves the cure, and one more send
    has both.
    """
    last, cures = history[-1], [attempt.cure for attempt in history[1:]]
    if last.outcome.is_final or len(history) >= MAX_SENDS:
        return ()
    kinds = {cure.kind for cure in cures}
    found = _cures_of(last.outcome, situation, kinds)
    if not found or kinds <= {AttemptKind.REPEATED} or found[0].kind is AttemptKind.REPEATED:
        return found
    cure, verdict = found[0], last.outcome.verdict
    if cure.kind is AttemptKind.ORIGINAL and kinds == {AttemptKind.WITHOUT_TOOL}:
        return found  # it was not the tool: another edit may be the cause
    is_of_a_member = cure.kind is AttemptKind.WITHOUT_TOOL and verdict.kind in (VerdictKind.FIELD, VerdictKind.COUNT)
    is_another = last.outcome.proves(cures) or is_of_a_member
    is_one_of_many = cure.refused or cure.keeps_to or cure.reason is VerdictKind.OTHER_MEMBERS
    is_again = cure.reason in [one.reason for one in cures] and not is_one_of_many
    if not is_another or is_again or AttemptKind.ORIGINAL in (cure.kind, cures[-1].kind):
        return ()
    return [_with_least_reply(one, cures) for one in found]


def best(history: Sequence[AnyAttempt]) -> AnyAttempt:
    """The attempt whose response the client gets: the last one, or the one before if that was only tried. Clients know
    the words of the first refusal, and a reply that the upstream has cut is better than none."""
    last = history[-1]
    in_vain = len(history) > 1 and not last.outcome.is_accepted
    return history[-2] if in_vain and still_stands(history[-2], last.cure) else last


def still_stands(refused: Attempt, cure: Cure) -> bool:
    """Whether the client gets the response to this attempt if its cure is in vain."""
    if cure.kind is AttemptKind.FITTED:
        return True
    is_guess = refused.outcome.verdict.is_suspect and cure.kind is AttemptKind.EMERGENCY
    return (
        (is_guess or cure.reason in (VerdictKind.SEAL, *FAULTS)) and refused.outcome.status >= 400 and refused.is_whole
    )


def _with_least_reply(cure: Cure, earlier: Sequence[Cure]) -> Cure:
    """The cure with the least reply limit of all cures of the request."""
    limits = [one.reply_tokens for one in (*earlier, cure) if one.reply_tokens is not None]
    return structs.replace(cure, reply_tokens=min(limits, default=None))


def _cures_of(outcome: Outcome, situation: Situation, used: set[AttemptKind]) -> Sequence[Cure]:
    """Cures that may be accepted after this refusal: those of the first row that has any."""
    for row in CURES:
        if row.kind is AttemptKind.REPEATED and AttemptKind.REPEATED in used:
            continue  # silence that the same bytes have met with twice is no accident of the connection
        cures = row.cures(outcome, situation) if row.is_reason(outcome, situation) else ()
        if found := [structs.replace(cure, cause=row.cause) for cure in cures]:
            return found
    return ()


def _repeated(_: Outcome, __: Situation) -> Iterator[Cure]:
    yield Cure(AttemptKind.REPEATED, reason=VerdictKind.EMPTY)


def _shorter_reply(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    reply = fitting_reply(outcome.verdict, situation)
    if reply is not None and (situation.reply_tokens is None or reply < situation.reply_tokens):
        is_alone = outcome.verdict.kind is VerdictKind.REPLY_ONLY
        reason = VerdictKind.REPLY_ONLY if is_alone else VerdictKind.PROMPT
        yield Cure(AttemptKind.SHORTER_REPLY, reply_tokens=reply, reason=reason)


_CURED_OTHERWISE: Final = frozenset({None, LimitName.REPLY, LimitName.TOOLS, LimitName.BODY})
"""Named limits with a row of their own: a reply limit is lowered, of the tools only our own may go, and a body is
fitted like a prompt."""


def _limited(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    verdict, at_most = outcome.verdict, situation.terms.at_most
    if verdict.named is not None:
        terms = situation.terms._replace(at_most=(*at_most, (verdict.named, verdict.named_limit)))
        yield Cure(AttemptKind.LIMITED, terms, reason=VerdictKind.COUNT, keeps_to=verdict.named)


def _fewer_bytes(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    goal = goal_bytes(outcome.verdict, situation)
    if goal is not None:
        yield Cure(AttemptKind.FEWER_BYTES, situation.terms._replace(goal_bytes=goal), reason=VerdictKind.BYTES)


def _fitted(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    """Settings that state another window take precedence over what was learned."""
    goal, terms = outcome.fitting_tokens, situation.terms
    yield Cure(AttemptKind.FITTED, terms, goal_tokens=goal)
    yield Cure(AttemptKind.FITTED, terms._replace(goal_tokens=goal, most_tokens=None), goal_tokens=goal)


_READ_AS_IMAGES: Final = frozenset({Modality.FILE, Modality.VIDEO})
"""A model that accepts no images hardly accepts pages and videos."""


def _without_media(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    refused = outcome.verdict.refused & outcome.media or outcome.media
    if Modality.VISION in refused:
        refused |= _READ_AS_IMAGES & outcome.media
    terms = situation.terms._replace(without=situation.terms.without | refused)
    yield Cure(AttemptKind.WITHOUT_MEDIA, terms, refused=refused, reason=VerdictKind.MEDIA)


def _repaired(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    terms = situation.terms._replace(repairs=outcome.verdict)
    yield Cure(AttemptKind.REPAIRED, terms, reason=outcome.verdict.kind)


def _may_be_our_tool(outcome: Outcome, situation: Situation) -> bool:
    verdict = outcome.verdict
    may_be = outcome.status in REFUSING_STATUSES and verdict.kind in ABOUT_A_TOOL
    is_of_length = verdict.is_suspect and not situation.original_could_fit
    return situation.has_our_tool and (verdict.refuses_tools or (may_be and not is_of_length))


def _without_tool(_: Outcome, situation: Situation) -> Iterator[Cure]:
    terms = situation.terms._replace(tools=None, access=structs.replace(situation.terms.access, tool=False))
    yield Cure(AttemptKind.WITHOUT_TOOL, terms, reason=VerdictKind.UNKNOWN)


_REFUSED_FOR_CONTENT: Final = frozenset(
    {
        *REPAIRED,
        VerdictKind.FIELD,
        VerdictKind.COUNT,
        VerdictKind.POLICY,
        VerdictKind.MEDIA,
        VerdictKind.UNKNOWN,
    }
)
"""Refusals that an edit of ours may have caused; the others would happen to the original, too."""


def _may_be_an_edit(outcome: Outcome, situation: Situation) -> bool:
    """Whether what an edit of ours has changed may be refused: without words, where the request was refused as such; as
    no JSON, whatever the status, because what was cut may not parse."""
    is_refused = outcome.status in REFUSING_STATUSES and outcome.verdict.kind in _REFUSED_FOR_CONTENT
    return situation.edited and situation.original_could_fit and (is_refused or outcome.verdict.misses_json)


def _unedited(_: Outcome, __: Situation) -> Iterator[Cure]:
    yield Cure(AttemptKind.ORIGINAL, reason=VerdictKind.UNKNOWN)


def _smaller(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    """Shorter prompts. First the one that the next turn will continue from, if that surely fits or is as small as a
    search requires, so that a prompt cache is lost once, not twice; then one cut down to its goal, or as far below the
    true limit as possible, with the shortest useful reply."""
    verdict, terms = outcome.verdict, situation.terms
    goal, reply = emergency_goal(verdict, situation), emergency_reply(verdict, situation)
    most, least_reply, sure = at_the_limit(verdict, situation)
    cure = Cure(AttemptKind.EMERGENCY, terms._replace(goal_tokens=goal, most_tokens=most), reply, goal)
    if sure is not None and not situation.holds_a_page:
        yield structs.replace(cure, terms=terms, goal_tokens=sure, is_sure=True)
    if verdict.names_no_limit and situation.search is not None and not situation.holds_a_page:
        yield structs.replace(cure, terms=terms._replace(supposed=situation.search))
    yield cure
    if most is not None:
        yield structs.replace(cure, goal_tokens=most, reply_tokens=least_reply or reply)


class Row(NamedTuple):
    """One reason for which requests are refused, and its cure."""

    cause: str
    """Its name in the log."""
    words: str
    """What it means, for people."""
    is_reason: Callable[[Outcome, Situation], bool]
    cures: Callable[[Outcome, Situation], Iterator[Cure]]
    """Candidates of its cure; none if the numbers that it needs are not stated."""
    kind: AttemptKind
    """What it sends."""
    learned: tuple[str, ...] = ()
    """What is remembered of the model, at once where a refusal states it, else if the cure is proven: names of facts,
    or their beginnings."""


CURES: Final = (
    Row(
        "silence",
        "no reply came",
        lambda outcome, _: outcome.verdict.is_silent and outcome.verdict.is_suspect,
        _repeated,
        AttemptKind.REPEATED,
    ),
    Row(
        "limit",
        "a limit was named",
        lambda outcome, _: outcome.verdict.named not in _CURED_OTHERWISE,
        _limited,
        AttemptKind.LIMITED,
        (facts.AT_MOST,),
    ),
    Row(
        "reply",
        "the reply limit was too high",
        lambda _, __: True,  # if the numbers say so
        _shorter_reply,
        AttemptKind.SHORTER_REPLY,
        (facts.WINDOW, facts.AT_MOST),
    ),
    Row(
        "prompt",
        "the prompt was too long",
        lambda outcome, _: outcome.is_too_long,
        _smaller,
        AttemptKind.EMERGENCY,
        (facts.WINDOW, facts.LATE, facts.INPUT, facts.CHARS, facts.SEARCH, facts.RATE),
    ),
    Row(
        "bytes",
        "the body had too many bytes",
        lambda outcome, _: outcome.is_over_bytes,
        _fewer_bytes,
        AttemptKind.FEWER_BYTES,
        (facts.AT_MOST,),
    ),
    Row(
        "silent_cut",
        "the prompt was cut by the upstream",
        lambda outcome, _: outcome.fitting_tokens is not None,
        _fitted,
        AttemptKind.FITTED,
        (facts.CUT_TO,),
    ),
    Row(
        "media",
        "media were refused",
        lambda outcome, _: outcome.reason is VerdictKind.MEDIA,
        _without_media,
        AttemptKind.WITHOUT_MEDIA,
        (facts.REFUSES, facts.RESULTS_HOLD_TEXT),
    ),
    Row(
        "history",
        "the history was refused",
        lambda outcome, _: outcome.reason in REPAIRED,
        _repaired,
        AttemptKind.REPAIRED,
        (facts.AT_MOST,),
    ),
    Row(
        "cut_results",
        "a cut result did not parse",
        lambda outcome, situation: outcome.verdict.misses_json and _may_be_an_edit(outcome, situation),
        _unedited,
        AttemptKind.ORIGINAL,
        (facts.CUT_RESULTS_REFUSED,),
    ),
    Row(
        "our_tool",
        "the proxy's own tool was refused",
        _may_be_our_tool,
        _without_tool,
        AttemptKind.WITHOUT_TOOL,
        (facts.REFUSES_OUR_TOOL, facts.AT_MOST),
    ),
    Row("edit", "an edit may have been refused", _may_be_an_edit, _unedited, AttemptKind.ORIGINAL),
    Row(
        "no_words",
        "a long request got no reason",
        lambda outcome, _: outcome.verdict.is_suspect,
        _smaller,
        AttemptKind.EMERGENCY,
        (facts.SEARCH,),
    ),
)
"""The reasons that a refusal can have, in the order in which they are recognised."""
