"""What an answer means, and what it teaches of the model.

Rule: the core judges; here its verdict is written down and learned from. A defect of the judge costs no answer.
"""

from __future__ import annotations

from typing import Final

from proxy.core.attempts import Attempt, Outcome, Rung
from proxy.core.conversation import Message
from proxy.core.edits import Reason
from proxy.core.media_routes import modalities_in
from proxy.core.overflow import Kind, Verdict, judge
from proxy.core.profile import Modality
from proxy.shell.answering.holding import HeldAnswer
from proxy.shell.models.learning import Learning
from proxy.shell.planning.planned import Planned
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.logs import logger
from proxy.shell.telemetry.recorder import Recorder

ACCEPTED: Final = Verdict(Kind.ACCEPTED)


class Judge:
    """Judges the answers to chat requests."""

    def __init__(self, recorder: Recorder, learning: Learning) -> None:
        self._recorder = recorder
        self._learning = learning
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
            return Outcome(answer.status, ACCEPTED)
        verdict = judge(
            answer.status,
            answer.headers,
            answer.evidence,
            estimate_tokens=planned.plan.after.tokens,
            window_tokens=planned.plan.budget.room_tokens,  # of the window: what a prompt may fill
        )
        if verdict.is_overflow:
            self._recorder.overflowed(decision, verdict)
        if verdict.is_overflow and verdict.limit is None:
            reply = planned.reply_limit or planned.request.reply_limit
            requested = int(planned.plan.after.tokens * planned.basis.budget.ratio) + (reply[1] if reply else 0)
            self._learning.note_unnamed_refusal(planned.request.model, requested)
        elif verdict.kind is not Kind.ACCEPTED:
            self._learning.note_refusal(planned.request.model, verdict, planned.basis.profile.window_tokens)
        media = frozenset[Modality]()
        if verdict.kind is Kind.MEDIA:
            media = media.union(*(modalities_in(Message.read(raw)) for raw in planned.plan.messages))
        return Outcome(answer.status, verdict, media)

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

    def learn_from_usage(self, counted: int | None, decision: Decision) -> None:
        """Hold what the upstream counted of a prompt against the estimate."""
        planned = decision.planned
        if planned is None or planned.basis.is_rough or decision.attempts > 1:
            return
        decision.prompt_tokens = counted
        if counted is not None and not planned.request.has_images:
            estimate, counted_by = planned.plan.after.tokens, planned.basis.counted_by
            self._learning.note_usage(planned.request.model, counted_by, estimate, counted, decision.request_id)


def _is_plainly_an_answer(evidence: bytes) -> bool:
    """Whether a 200 has the sign of an answer and none of a refusal; the judge is asked about the others."""
    return (
        b'"choices"' in evidence
        and b"error" not in evidence
        and b"context" not in evidence
        and b'"length"' not in evidence
    )
