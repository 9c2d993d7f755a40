"""The judge of each response.

Rule: the core judges; here its verdict is recorded, and what it says of the model is learned. A defect in judging never
costs a response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from proxy.config import Settings
from proxy.core import overflow as core
from proxy.core.addresses import is_own_server
from proxy.core.artifact import digest_of
from proxy.core.compaction import BudgetRules, budget_for
from proxy.core.conversation import Message, Reason
from proxy.core.media import bytes_of_images, bytes_of_media, modalities_in
from proxy.core.models import Certainty, LimitName, Modality, ModelProfile, Search, facts
from proxy.core.overflow import (
    ESTIMATED_SHARE,
    LEAST_WINDOW_TOKENS,
    Counted,
    Exactness,
    Lesson,
    Outcome,
    Sent,
    Unit,
    Verdict,
    VerdictKind,
    images_in,
    lessons_of,
    may_be_of_a_cut,
    room_in_rate,
    window_of_a_cut,
)
from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.core.tokens import Counter, tokens_of_image, with_images_of
from proxy.shell.models import RATIO_STEP, counter_for
from proxy.shell.planning import Planned, Planner
from proxy.shell.relay.peeking import PeekedResponse
from proxy.shell.resources import logger
from proxy.shell.telemetry import Recorder, RequestRecord

ACCEPTED: Final = Verdict(VerdictKind.ACCEPTED)
_LEFT_BY_AN_EXCESS: Final = 0.1
"""Share of an estimate that is taken for the limit if the stated excess alone is larger: the estimate is too low, and
the excess nearly all of the prompt."""
_ROUND: Final = (64, 100)
"""Reply limits of models are multiples of one of these."""
_MOST_REFUSED: Final = 32
"""Contents that one refusal may be about."""
_OTHERWISE: Final = {
    VerdictKind.TEXT_CONTENT: (VerdictKind.MEDIA,),
    VerdictKind.EMPTY_CONTENT: (VerdictKind.MEDIA,),
    VerdictKind.SAME_IDS: (VerdictKind.PAIRING, VerdictKind.ITEM_IDS),
    VerdictKind.SEAL: (VerdictKind.ITEM_IDS,),
}
"""What words about a fault mean where no message has it: parts that are no texts, an empty image, several results of
one call, reasoning that is not sealed."""
_FEW_IMAGES: Final = 0.05
"""Largest share of images in a prompt whose count says how the upstream counts text: their own cost may be far off."""


class Attempt(core.Attempt, frozen=True, kw_only=True):
    """One send, and the response to it."""

    planned: Planned
    response: PeekedResponse


class Judge:
    """Judges the responses to requests."""

    def __init__(self, settings: Settings, recorder: Recorder, planner: Planner) -> None:
        self._heals = settings.history == "heal"
        self._recorder = recorder
        self._planner, self._learning = planner, planner.models.learning
        self._is_own_server = is_own_server(settings.upstream.base_url)

    def outcome(self, answer: PeekedResponse, planned: Planned, record: RequestRecord, *, is_first: bool) -> Outcome:
        """The outcome of a send; `is_first`: whether nothing was sent before. A defect in judging must not cost a
        response that is there."""
        try:
            return self._judged(answer, planned, record, is_first=is_first)
        except Exception:
            logger().exception("judging_failed", request_id=record.request_id)
            return Outcome(answer.status, ACCEPTED)

    def _judged(self, answer: PeekedResponse, planned: Planned, record: RequestRecord, *, is_first: bool) -> Outcome:
        plan, is_plain = planned.plan, answer.status < 400 and answer.is_plainly_a_reply
        verdict = ACCEPTED if is_plain else self._verdict(answer, planned)
        is_answer = is_first and verdict.kind is VerdictKind.ACCEPTED
        fitting = self._fitting(answer, planned, record) if is_answer else None
        if is_plain:
            return Outcome(answer.status, ACCEPTED, fitting_tokens=fitting)
        if verdict.named is LimitName.IMAGE_BYTES and verdict.named_seen in _encoded_sizes(plan.sent):
            verdict = replace(verdict, named_limit=verdict.named_limit * 3 // 4)
        is_repairable = self._is_repairable(verdict, planned)
        for kind in () if is_repairable else _OTHERWISE.get(verdict.kind, ()):
            meant = replace(verdict, kind=kind, refuses_model=verdict.kind is VerdictKind.TEXT_CONTENT)
            is_repairable = self._is_repairable(meant, planned)
            if is_repairable or (kind is VerdictKind.MEDIA and any(map(modalities_in, plan.sent))):
                verdict = meant
                break
        record.verdict = verdict.kind
        seen = plan.sent if verdict.kind is VerdictKind.MEDIA else ()
        media = frozenset[Modality]().union(*map(modalities_in, seen))
        names_our_tool = planned.offered and RETRIEVAL_TOOL in verdict.upstream_message
        return Outcome(answer.status, verdict, media, is_repairable, fitting, names_our_tool)

    def _is_repairable(self, verdict: Verdict, planned: Planned) -> bool:
        """Whether the history is to be repaired, and holds what was refused."""
        is_of_history = self._heals and verdict.kind in core.REPAIRED
        return is_of_history and self._planner.repaired(planned, verdict) is not planned.request

    def _verdict(self, answer: PeekedResponse, planned: Planned) -> Verdict:
        body, sent = planned.request.body, self._sent(planned)
        verdict = planned.wire.judged(answer.status, answer.headers, answer.judged, sent=sent, request=body)
        if sent is None:
            return verdict
        if answer.ended_quietly and verdict.kind in (VerdictKind.ACCEPTED, VerdictKind.UNKNOWN):
            return Verdict(VerdictKind.EMPTY, is_suspect=sent.is_near_window)
        return ACCEPTED if verdict.kind is VerdictKind.EMPTY and answer.is_undecided else verdict

    def _sent(self, planned: Planned) -> Sent | None:
        """Our own knowledge of a prompt; None if the upstream holds a part of it."""
        profile, budget, size = planned.inputs.profile, planned.plan.budget, planned.plan.after
        if not planned.request.shape.is_whole:
            return None
        return Sent(
            size.tokens,
            size.chars,
            # The part of the window that a prompt may fill; a rate is no window.
            profile.certain_window_tokens if profile.is_rated else budget.certain_room_tokens,
            profile.certain_window_tokens is not None,
            LEAST_WINDOW_TOKENS if self._is_own_server else budget.room_tokens,  # the default is of hosted models
            has_user_text=any(one.role == "user" and one.text().strip() for one in planned.plan.sent),
            reply_tokens=planned.reply_tokens or planned.request.reply_tokens,
            media_bytes=bytes_of_media(planned.plan.sent),
            longest_message=max((len(one.raw) for one in planned.plan.sent), default=0),
            messages=len(planned.plan.sent),
        )

    def _fitting(self, answer: PeekedResponse, planned: Planned, record: RequestRecord) -> int | None:
        """How much the upstream reads uncut, by our estimate, if a whole response proves that it has cut the prompt."""
        is_whole = answer.is_whole and not answer.is_stream
        window = self._cut_to(answer.counted, planned, record) if is_whole else None
        if window is None:
            return None
        known, (_, ratio, measured) = planned.inputs.profile, self._own_count(planned)
        profile = replace(known, window_tokens=window, input_tokens=None, certainty=Certainty.LEARNED)
        reply_tokens = planned.request.reply_tokens
        return budget_for(profile, reply_tokens, exact=measured, rules=BudgetRules(), ratio=ratio).room_tokens

    def _own_count(self, planned: Planned) -> tuple[Counter, float, bool]:
        """The model's own counter, the upstream's tokens for one of it, and whether that was measured."""
        profile = planned.inputs.profile
        own = counter_for(profile.tokenizer, profile.model)
        return own, *self._learning.ratio(planned.request.known_as, own.name, planned.tenant)

    def _cut_to(self, counted: Counted | None, planned: Planned, record: RequestRecord) -> int | None:
        """The window to which the upstream has cut a prompt, which is also learned; None if nothing proves a cut."""
        if counted is None or planned.request.has_images:
            return None
        profile, (own, ratio, measured) = planned.inputs.profile, self._own_count(planned)
        is_exact = not planned.inputs.is_rough and own.exact
        known_ratio = ratio if measured and not planned.inputs.is_rough else 1.0 if is_exact else None
        sent = planned.plan.after.tokens
        # If the window is certain and the prompt fits, a mere estimate proves no cut: some servers do not count tokens
        # that they had in their cache, and a ratio that other content has taught is wrong for blanks and other scripts.
        may_be_far = self._is_own_server and (is_exact or profile.certain_window_tokens is None)
        window = window_of_a_cut(sent, counted, known_ratio, is_exact=is_exact, may_be_far=may_be_far)
        if window is None or not planned.plan.fits or not _is_comparable(planned):
            return None
        record.cut_to_tokens = window
        self._recorder.cut(record, int(sent * ratio), counted.prompt)
        self._learning.note_cut(planned.request.known_as, window, profile.certain_window_tokens, planned.tenant)
        return window

    def _learn_from_count(self, verdict: Verdict, counted: Planned, estimate_tokens: int) -> None:
        """Compare the count in a refusal with the estimate, as is done with usage."""
        is_exact = verdict.is_overflow and verdict.unit is Unit.TOKENS and verdict.exactness is Exactness.EXACT
        if not is_exact or verdict.prompt is None or verdict.may_be_echo or not _is_comparable(counted):
            return
        model, counted_by = counted.request.known_as, counted.inputs.counted_by
        few = self._tokens_of_few_images(counted) or 0  # of many the cost may be what is off
        text, seen = estimate_tokens - few, verdict.prompt - few
        self._learning.note_count(model, counted_by, text, seen, counted.tenant)

    def search_after(self, verdict: Verdict, refused: Planned, *, is_second: bool = False) -> Search | None:
        """The search for a limit after a refusal that names none, in the model's tokens; None if the size of the
        request is unknown. `is_second`: whether it is a second send that was refused. A refusal that states only its
        excess would also refuse the estimate without that."""
        if not refused.request.shape.is_whole:
            return None
        reply = refused.reply_tokens or refused.request.reply_tokens or 0
        size = max(1, refused.tokens_after)
        known = self._learning.search(refused.request.known_as, refused.tenant)
        # Rather both together are too much, unless the reply limit was lowered after a refusal already.
        is_together = not is_second and reply > size and (known is None or reply > known.reply)
        size += reply if is_together else 0
        if verdict.excess is not None and verdict.unit is Unit.TOKENS:
            size = size - verdict.excess if verdict.excess < size else int(size * _LEFT_BY_AN_EXCESS)
        fixed = refused.plan.budget.model_tokens(refused.plan.fixed_tokens)
        beside = None if is_together else reply
        return self._learning.search_after(refused.request.known_as, size, beside, refused.tenant, fixed)

    def learn_search(self, search: Search, verdict: Verdict, refused: Planned) -> None:
        """Keep the search after a refusal that names no limit. One without a word is kept only in mind: it teaches if a
        smaller prompt is accepted. So is one of a prompt that cannot be compared: it bounds second sends."""
        if verdict.is_overflow and not verdict.may_be_echo and _is_comparable(refused, is_refused=True):
            self._learning.note_unnamed_refusal(refused.request.known_as, search, refused.tenant)
        else:
            self._learning.note_suspected(refused.request.known_as, search.refused, refused.tenant)

    def learn(self, history: Sequence[Attempt], record: RequestRecord) -> None:
        """Keep what the latest attempt states, and what it proves of the cures before it. A defect in here must not
        cost the response."""
        outcome = history[-1].outcome
        try:
            if outcome.is_too_long:
                self._recorder.overflowed(record, outcome.verdict)
            if outcome.verdict.kind is not VerdictKind.ACCEPTED:
                self._learn_what_is_stated(outcome.verdict, history[-1].planned)
            for lesson in lessons_of(history):
                self._learn(lesson)
        except Exception:
            logger().exception("judging_failed", request_id=record.request_id)

    def _learn_what_is_stated(self, verdict: Verdict, planned: Planned) -> None:
        """Keep the limit that a refusal states, and compare its count with the estimate."""
        model, certain = planned.request.known_as, planned.inputs.profile.certain_window_tokens
        self._learning.note_refusal(model, verdict, certain, planned.tenant)
        if verdict.named is LimitName.TOOLS:  # which only the client can keep, but for our own
            self._learning.learn(model, {f"{facts.AT_MOST}{verdict.named}": verdict.named_limit}, planned.tenant)
        if verdict.is_over_rate and not verdict.may_be_echo and _is_comparable(planned):
            reply = planned.reply_tokens or planned.request.reply_tokens
            room, holds_reply = room_in_rate(verdict, planned.tokens_after, reply)
            self._learning.learn(model, {facts.RATE if holds_reply else facts.RATE_OF_PROMPTS: room}, planned.tenant)
        if verdict.limit is not None and not planned.inputs.is_rough:
            self._learn_from_count(verdict, planned, planned.plan.after.tokens)

    def _learn(self, lesson: Lesson[Attempt]) -> None:
        refused, sent, refusal = lesson.refused.planned, lesson.sent.planned, lesson.refused.outcome.verdict
        model, tenant, learning = refused.request.known_as, refused.tenant, self._learning
        match lesson.about:
            case core.HISTORY:
                if refused.is_here and sent.is_here:
                    self._planner.note_healed(refused, sent, lesson.sent.cure.reason)
            case core.BYTES:
                most = refusal.named_limit or (refused.plan.after.bytes + sent.plan.after.bytes) // 2
                learning.learn(model, {f"{facts.AT_MOST}{LimitName.BODY}": most}, tenant)
            case core.CONTENT:
                learning.learn(model, {f"{facts.REFUSES}{digest}": 1 for digest in _newest_media(sent)}, tenant)
            case core.SIZE:
                learning.note_passed(model, sent.tokens_after, tenant, is_first=False)
            case facts.SEARCH:
                search = self.search_after(refusal, refused)
                if search is not None and not self._may_be_accident(refusal, refused):
                    learning.note_unnamed_refusal(model, search, tenant)
            case facts.AT_MOST if refusal.named is not None:
                most = refusal.named_limit
                if refusal.named is LimitName.REPLY and _is_left_by_a_window(most, refused):
                    is_unsure = refused.inputs.is_rough or refused.plan.budget.count_may_be_wrong
                    prompt = int(refused.tokens_after * (ESTIMATED_SHARE if is_unsure else 1))
                    learning.learn(model, {facts.WINDOW: most + prompt}, tenant)
                    most = 0  # the window holds instead
                learning.learn(model, {f"{facts.AT_MOST}{refusal.named}": most}, tenant)
            case facts.REFUSES:
                kinds = refusal.refused & lesson.sent.cure.refused or lesson.sent.cure.refused
                # What its sources state is not blamed beside what they do not: the second send went without both.
                unknown = frozenset(kind for kind in kinds if refused.inputs.profile.reads(kind) is None)
                learning.note_refused_media(model, unknown or kinds, tenant, is_conditional=refusal.is_conditional)
            case name:
                learning.learn(model, {name: 1}, tenant)

    def _may_be_accident(self, refusal: Verdict, refused: Planned) -> bool:
        """Whether silence, although met with twice, may be the connection's: far from any window that is known it
        teaches when it comes once more before a prompt of that size is accepted."""
        if not (refusal.is_silent and refused.inputs.profile.window_is_guessed):
            return False
        return self._learning.note_silence(refused.request.known_as, refused.tokens_after, refused.tenant)

    def learn_from_usage(
        self, planned: Planned, counted: Counted | None, record: RequestRecord, *, may_be_cut: bool, went_well: bool
    ) -> None:
        """Compare the upstream's count of a prompt with the estimate. `may_be_cut`: whether nothing has compared them
        yet to see if the prompt was cut."""
        if may_be_cut and self._cut_to(counted, planned, record) is not None:
            return
        learning, tenant, model = self._learning, planned.tenant, planned.request.known_as
        ours, images = planned.tokens_after, self._tokens_of_few_images(planned)
        theirs = None if counted is None else counted.prompt
        if went_well and planned.request.has_images:
            learning.learn(model, {f"{facts.MAY_REFUSE}{Modality.VISION}": 0}, tenant)
        if went_well and planned.request.shape.is_whole:
            # What refusals without a number have refused is known by our estimate, which may be far off for images.
            learning.note_passed(model, ours if theirs is None or images is None else theirs, tenant)
        if not _is_comparable(planned):
            return
        if counted is None:
            if planned.inputs.terms.goal_tokens is not None and went_well:
                learning.note_prompt(model, ours, tenant)
            return
        if images is None or planned.inputs.is_rough or self._may_be_of_a_cut(planned, counted):
            learning.note_prompt(model, counted.prompt, tenant)
            return
        text, seen = planned.plan.after.tokens - images, counted.prompt - images
        counted_by, may_cut = planned.inputs.counted_by, self._may_cut(planned.inputs.profile)
        learning.note_usage(model, counted_by, text, seen, record.request_id, tenant, may_cut=may_cut)

    def learn_from_end(self, planned: Planned, error: bytes, reply_tokens: int, record: RequestRecord) -> None:
        """Keep the window that ran out after content had begun: the one that the error states, or else the one that
        prompt and reply have filled."""
        sent, body = self._sent(planned), planned.request.body
        verdict = planned.wire.judged(200, (), error, sent=sent, request=body)
        if not verdict.is_overflow or verdict.may_be_echo or sent is None:
            return
        self._recorder.overflowed(record, verdict)
        is_stated = verdict.limit_is_learnable and verdict.unit is Unit.TOKENS
        window = verdict.limit if is_stated else planned.tokens_after + reply_tokens
        self._learning.learn(planned.request.known_as, {facts.LATE: window or 0}, planned.tenant)

    def _may_cut(self, profile: ModelProfile) -> bool:
        """Whether the upstream may cut a prompt silently: it is known to, or may have any window."""
        return profile.cuts_silently or (self._is_own_server and profile.certain_window_tokens is None)

    def _may_be_of_a_cut(self, planned: Planned, counted: Counted) -> bool:
        """Whether a count may be one of a part of the prompt: then it says nothing about how the upstream counts."""
        profile, estimate = planned.inputs.profile, planned.plan.after.tokens
        (own, ratio, is_measured), certain = self._own_count(planned), profile.certain_window_tokens
        is_low = may_be_of_a_cut(estimate, counted, ratio if is_measured else None, is_exact=own.exact)
        if is_low and self._is_own_server:
            self._planner.models.discovery.doubt(has_failed=False)  # it may have been loaded with another window since
        return is_low and self._may_cut(profile) and (certain is None or estimate * ratio > certain)

    def _tokens_of_few_images(self, planned: Planned) -> int | None:
        """The estimate of the images in what was sent, if they are few; None if they are many, or its messages are
        elsewhere."""
        if not planned.request.has_images:
            return 0
        if not planned.is_here:
            return None
        profile, may_hold = planned.inputs.profile, planned.wire.may_hold_images
        counter = with_images_of(profile.model, self._own_count(planned)[0], profile.least_image_tokens)
        found = images_in(message for message in planned.plan.sent if may_hold(message.raw))
        tokens = sum(tokens_of_image(counter, *image) * count for image, count in found.items())
        return tokens if tokens <= planned.plan.after.tokens * _FEW_IMAGES else None


def _is_left_by_a_window(reply_tokens: int, refused: Planned) -> bool:
    """Whether a reply limit falls as the prompt grows: then it is what the window leaves beside the prompt. A model's
    own limit is a round number."""
    known = refused.inputs.profile.at_most.get(LimitName.REPLY)
    is_round = any(reply_tokens % step == 0 for step in _ROUND)
    return known is not None and reply_tokens < known and not is_round


def _newest_media(described: Planned) -> set[str]:
    """The digests of media that a plan describes behind the model's last message, or of all: what an upstream cannot
    process came last, or else it would have been refused before."""
    edits = [one for one in described.plan.edits if one.reason is Reason.ROUTE_MEDIA and one.artifact is not None]
    messages = described.request.conversation.messages
    last = max((index for index, one in enumerate(messages) if one.role == "assistant"), default=-1)
    newest = [one for one in edits if one.message is not None and one.message > last] or edits
    return {digest_of(one.artifact.content) for one in newest[:_MOST_REFUSED] if one.artifact is not None}


def _encoded_sizes(messages: Sequence[Message]) -> set[int]:
    """Bytes of each image as base64, which is what Anthropic counts."""
    return {size * 4 // 3 for size in bytes_of_images(messages)}


def _is_comparable(planned: Planned, *, is_refused: bool = False) -> bool:
    """Whether the upstream's count of a prompt is one of the text that we have counted. A stream is refused before the
    upstream's own tools have run."""
    request, by_tools = planned.request, not (is_refused and planned.request.stream)
    if Modality.FILE in planned.inputs.profile.refused:  # they are described
        request = replace(request, has_files=False)
    is_all = sum(planned.inputs.members.values()) <= planned.plan.after.tokens * RATIO_STEP
    return is_all and not planned.wire.adds_to_prompt(request, by_tools=by_tools)
