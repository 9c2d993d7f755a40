"""Verdict and figures → the kind that the numbers prove.

Rule: whatever a code or a sentence says, a reply that alone fills the window is `reply_only`, and a prompt that fits
without its reply is `prompt_plus_reply`.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.overflow.numbers import Numbers
from proxy.core.overflow.verdict import Scope, Verdict, VerdictKind


def merged(structured: Numbers, printed: Numbers) -> Numbers:
    """The structured figures, and from the printed ones what they lack."""
    if structured.unit is None:
        return printed
    has_limit = structured.limit is not None
    return replace(
        structured if has_limit else printed,
        prompt=printed.prompt if structured.prompt is None else structured.prompt,
        requested=printed.requested if structured.requested is None else structured.requested,
        reply=printed.reply,
        excess=printed.excess,
    )


def with_figures(verdict: Verdict, figures: Numbers) -> Verdict:
    """The verdict with the numbers, completed where two of them give a third."""
    prompt, requested, reply = _completed(figures)
    kind = _proven_kind(verdict.kind, figures.limit, prompt, reply)
    limit = None if kind is VerdictKind.REPLY_ONLY else figures.limit
    scope = figures.scope
    if kind is VerdictKind.PROMPT_PLUS_REPLY and scope is Scope.UNKNOWN:
        scope = Scope.WINDOW  # what bounds both together is the window
    return replace(
        verdict,
        kind=kind,
        limit=limit,
        limit_scope=Scope.UNKNOWN if limit is None else scope,
        limit_exactness=figures.limit_exactness,
        requested=requested,
        prompt=prompt,
        reply=reply,
        excess=figures.excess,
        unit=figures.unit,
        exactness=figures.exactness,
    )


def _completed(figures: Numbers) -> tuple[int | None, int | None, int | None]:
    prompt, requested, reply = figures.prompt, figures.requested, figures.reply
    if prompt is None and requested is not None:
        if reply and requested > reply:
            prompt = requested - reply
        elif reply is None and figures.scope is Scope.INPUT:
            prompt = requested
    if requested is None and prompt is not None:
        requested = prompt + (reply or 0)
    return prompt, requested, reply


def _proven_kind(kind: VerdictKind, limit: int | None, prompt: int | None, reply: int | None) -> VerdictKind:
    if limit is not None and prompt is not None and prompt >= limit:
        return VerdictKind.PROMPT
    if limit is not None and reply is not None and reply >= limit:
        return VerdictKind.REPLY_ONLY
    if reply and limit is not None and prompt is not None:
        return VerdictKind.PROMPT_PLUS_REPLY
    if reply == 0 and kind is VerdictKind.PROMPT_PLUS_REPLY:
        return VerdictKind.PROMPT
    return kind
