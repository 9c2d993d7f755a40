"""What an answer means, and what it teaches of the model.

Rule: the core judges; here its verdict is written down and learned from. A defect of the judge costs no answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.core.attempts import Attempt, Outcome, Rung
from proxy.core.budget import BudgetRules, budget_for
from proxy.core.conversation import Message
from proxy.core.cutting import Counted, window_of_a_cut
from proxy.core.edits import Reason
from proxy.core.media_routes import modalities_in
from proxy.core.overflow import Kind, Verdict, judge
from proxy.core.profile import Modality
from proxy.core.providers import is_own_server
from proxy.shell.answering.holding import HeldAnswer
from proxy.shell.models.learning import Learning
from proxy.shell.models.tokenizer import counter_for
from proxy.shell.planning.planned import Planned
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.logs import logger
from proxy.shell.telemetry.recorder import Recorder

ACCEPTED: Final = Verdict(Kind.ACCEPTED)


class Judge:
    """Judges the answers to chat requests."""

    def __init__(self, recorder: Recorder, learning: Learning, upstream_url: str) -> None:
        self._recorder = recorder
        self._learning = learning
        self._is_own_server = is_own_server(upstream_url)
        self._log = logger()

    def outcome(self, answer: HeldAnswer, planned: Planned, decision: Decision) -> Outcome:
        """A defect of the judge must not cost an answer that is there."""
        try:
            return self._judged(answer, planned, decision)
        except Exception:
            self._log.exception("judging_failed", request_id=decision.request_id)
            return Outcome(answer.status, ACCEPTED)

    def _judged(self, answer: HeldAnswer, planned: Planned, decision: Decision) -> Outcome:
        if answer.status < 400 and _is_plainly_an_answer(answer.evidence):
            return Outcome(answer.status, ACCEPTED, fitting_tokens=self._fitting(answer, planned, decision))
        verdict = judge(
            answer.status,
            answer.headers,
            answer.evidence,
            estimate_tokens=planned.plan.after.tokens,
            window_tokens=planned.plan.budget.certain_room_tokens,  # of the window: what a prompt may fill
        )
        if verdict.is_overflow:
            self._recorder.overflowed(decision, verdict)
        if verdict.is_overflow and verdict.limit is None:
            reply = planned.reply_limit or planned.request.reply_limit
            requested = int(planned.plan.after.tokens * planned.basis.budget.ratio) + (reply[1] if reply else 0)
            self._learning.note_unnamed_refusal(planned.request.model, requested)
        elif verdict.kind is not Kind.ACCEPTED:
            self._learning.note_refusal(planned.request.model, verdict, planned.basis.profile.certain_window_tokens)
        media = frozenset[Modality]()
        if verdict.kind is Kind.MEDIA:
            media = media.union(*(modalities_in(Message.read(raw)) for raw in planned.plan.messages))
        fitting = self._fitting(answer, planned, decision) if verdict.kind is Kind.ACCEPTED else None
        return Outcome(answer.status, verdict, media, fitting)

    def _fitting(self, answer: HeldAnswer, planned: Planned, decision: Decision) -> int | None:
        """How much the upstream reads whole, by our estimate, when a whole answer proves that it has cut the prompt."""
        if answer.is_stream or not answer.is_whole or decision.attempts > 1:
            return None
        window = self._cut_to(answer.counted, planned, decision)
        if window is None:
            return None
        profile = replace(planned.basis.profile, window_tokens=window, input_tokens=None, window_is_guessed=False)
        asked = planned.request.reply_limit
        ratio, measured = self._learning.ratio(planned.request.model)
        budget = budget_for(profile, asked and asked[1], exact=measured, rules=BudgetRules(), ratio=ratio)
        return budget.room_tokens

    def _cut_to(self, counted: Counted | None, planned: Planned, decision: Decision) -> int | None:
        """The window to which the upstream has cut a prompt, which is learned; None when nothing proves that it has."""
        if counted is None or planned.request.has_images or not planned.plan.fits:
            return None
        model, profile = planned.request.model, planned.basis.profile
        ratio, measured = self._learning.ratio(model)
        is_exact = not planned.basis.is_rough and counter_for(profile.tokenizer, model).exact
        known_ratio = ratio if measured and not planned.basis.is_rough else 1.0 if is_exact else None
        sent = planned.plan.after.tokens
        # Against a window that is certain, in which the prompt fits, a mere estimate is no evidence: some servers leave
        # out of their count what they had in their cache.
        may_be_far = self._is_own_server and (known_ratio is not None or profile.window_is_guessed)
        window = window_of_a_cut(sent, counted, known_ratio, may_be_far=may_be_far)
        if window is not None:
            decision.cut_to_tokens = window
            self._recorder.cut(decision, int(sent * ratio), counted.prompt)
            self._learning.note_cut(model, window, profile.certain_window_tokens)
        return window

    def learn_what_was_refused(self, attempt: Attempt, refusal: Verdict, outcome: Outcome, planned: Planned) -> None:
        """A refusal of media, or of the proxy's own tool, is believed of the model once the same request was taken
        without them."""
        if outcome.status >= 400 or outcome.verdict.kind is not Kind.ACCEPTED:
            return
        if attempt.rung is Rung.ORIGINAL and planned.reasons.keys() == {Reason.RETRIEVAL_TOOL}:
            self._learning.note_tool_refused(planned.request.model)
        if attempt.rung is not Rung.WITHOUT_MEDIA:
            return
        if refusal.refuses_in_results:
            self._learning.note_media_refused_in_results(planned.request.model)
        elif refusal.refuses_model:
            refused = refusal.refused & attempt.refused or attempt.refused
            self._learning.note_refused_media(planned.request.model, refused)

    def learn_from_usage(self, counted: int | None, decision: Decision, all_counted: Counted | None = None) -> None:
        """Hold what the upstream counted of a prompt against the estimate."""
        planned = decision.planned
        if planned is None or decision.attempts > 1 or decision.cut_to_tokens is not None:
            return
        if self._cut_to(all_counted, planned, decision) is not None or planned.basis.is_rough:
            return
        decision.prompt_tokens = counted
        profile = planned.basis.profile
        if counted is not None and profile.window_is_guessed:
            self._learning.note_taken(profile.model, counted, profile.window_tokens)
        if counted is not None and not planned.request.has_images:
            estimate = planned.plan.after.tokens
            self._learning.note_usage(planned.request.model, estimate, counted, decision.request_id)


def _is_plainly_an_answer(evidence: bytes) -> bool:
    """Whether a 200 has the sign of an answer and none of a refusal; the judge is asked about the others."""
    return (
        b'"choices"' in evidence
        and b"error" not in evidence
        and b"context" not in evidence
        and b'"length"' not in evidence
    )
