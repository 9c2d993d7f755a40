"""Verdict and numbers → the verdict that the numbers allow: those that the response prints, and our own.

Rule: whatever a code or a sentence says, a reply that alone fills the window is `reply_only`, and a prompt that fits
without its reply is `prompt_plus_reply`. A number that cannot be true is dropped.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from proxy.core.overflow import words
from proxy.core.overflow.grammar import normalised
from proxy.core.overflow.numbers import Numbers, skeleton
from proxy.core.overflow.report import Sent
from proxy.core.overflow.verdict import Exactness, Scope, Unit, Verdict, VerdictKind

_IMPLAUSIBLE_RATIO: Final = 3
"""A number that differs from our own estimate by more than this factor is about something else."""
_RATIO_OF_OURS: Final = 1.6
"""A count within this factor of our estimate may be one of this prompt; English prose has 0.68 of the estimate."""
_PLAIN: Final = 0.95
"""Confidence from which a claim without numbers is believed whatever our own estimate is: a code, a finish reason, or
unambiguous words. Some upstreams send nothing but such words: `the input length exceeds the context length` (Ollama,
github.com/nano-step/nano-brain/issues/208), `Prompt is too long` (Vertex AI,
github.com/anthropics/claude-code/issues/2569), `Prompt exceeds max length` (z.ai,
github.com/zeroclaw-labs/zeroclaw/issues/4124)."""
_TOKENS_PER_CHARACTER: Final = 0.5
"""At most, in a request whose limit may be in characters. Texts with more tokens are mostly Chinese, where the estimate
cannot distinguish a limit in tokens from one in characters."""


def with_figures(verdict: Verdict, figures: Numbers) -> Verdict:
    """The verdict with the numbers, completed where two of them give a third."""
    prompt, requested, reply = _completed(figures)
    kind = _proven_kind(verdict.kind, figures.limit, prompt, reply)
    limit = None if kind is VerdictKind.REPLY_ONLY else figures.limit
    scope = figures.scope
    if kind is VerdictKind.PROMPT_PLUS_REPLY and scope is Scope.UNKNOWN:
        scope = Scope.WINDOW  # a limit on both together is the window
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


def counted_beside_a_limit(text: str, sent: Sent) -> tuple[int, int] | None:
    """(prompt, limit) of a text about tokens whose only two numbers are the prompt that we have sent, alone or with its
    reply limit, as far as an estimate can tell, and a smaller one.

    >>> counted_beside_a_limit("入力トークン数 9712 が 8192 を超えています", Sent(tokens=9_500))
    (9712, 8192)
    """
    plain = normalised(text)
    numbers = sorted({number.value for number in skeleton(plain)[1] if not number.is_magnitude})
    if len(numbers) != 2 or not sent.tokens or sent.reply_tokens in numbers or words.TOKEN.search(plain) is None:
        return None
    least, most = sent.tokens / _RATIO_OF_OURS, (sent.tokens + (sent.reply_tokens or 0)) * _RATIO_OF_OURS
    return (numbers[1], numbers[0]) if least <= numbers[1] <= most else None


def plausible(verdict: Verdict, sent: Sent) -> Verdict:
    """The verdict compared with our own knowledge of the prompt."""
    return _with_scope(_compared(verdict, sent), sent) if verdict.is_overflow else verdict


def _with_scope(verdict: Verdict, sent: Sent) -> Verdict:
    """A limit that names neither the window nor the input is one of the input if the prompt reaches it, by the count
    that the refusal states, else by ours; of both together if only prompt and reply reach it. Copilot, Kimi, Cerebras:
    `prompt token count of 93854 exceeds the limit of 90000`."""
    limit, total = verdict.limit, verdict.requested
    if limit is None or verdict.limit_scope is not Scope.UNKNOWN or verdict.unit is not Unit.TOKENS:
        return verdict
    counted = counted_beside_a_limit(verdict.upstream_message, sent)
    prompt: int | None
    if counted is not None and total is None and counted[1] == limit:
        prompt = counted[0]
    elif verdict.exactness is not Exactness.EXACT or total is None:
        is_alone = len(skeleton(normalised(verdict.upstream_message))[1]) == 1  # another number may be the limit
        prompt, total = sent.tokens if is_alone else None, None
    else:
        prompt = verdict.prompt if verdict.prompt is not None else total - (sent.reply_tokens or 0)
    if prompt is not None and prompt >= limit:
        return replace(verdict, limit_scope=Scope.INPUT)
    return replace(verdict, limit_scope=Scope.WINDOW) if total is not None and total >= limit else verdict


def _compared(verdict: Verdict, sent: Sent) -> Verdict:
    if not sent.tokens:
        return verdict
    if verdict.unit is Unit.CHARS or _must_be_of_characters(verdict, sent):
        return replace(verdict, unit=Unit.CHARS)
    is_bare = verdict.limit is None and verdict.requested is None and verdict.excess is None
    if is_bare and verdict.confidence < _PLAIN and sent.is_short:
        return replace(verdict, kind=VerdictKind.UNKNOWN, confidence=0.3)
    tokens = sent.tokens + (verdict.reply or 0)
    if verdict.limit is not None and verdict.limit > _IMPLAUSIBLE_RATIO * tokens:
        verdict = replace(verdict, limit=None, limit_scope=Scope.UNKNOWN)
    asked = verdict.prompt if verdict.prompt is not None else verdict.requested
    if asked is None:
        return verdict
    is_over = asked > _IMPLAUSIBLE_RATIO * tokens
    is_under = asked * _IMPLAUSIBLE_RATIO < sent.tokens and verdict.exactness is not Exactness.AT_LEAST
    return replace(verdict, prompt=None, requested=None) if is_over or is_under else verdict


def _must_be_of_characters(verdict: Verdict, sent: Sent) -> bool:
    """Whether a limit without a unit must be in characters: far above our count of tokens, and below our count of
    characters. DashScope's `Range of input length should be [1, 1000000]` limits the tokens of some models and the
    characters of others: alibabacloud.com/help/en/model-studio/error-code
    """
    if verdict.limit is None or verdict.limit_scope is Scope.WINDOW or not sent.tokens or not sent.chars:
        return False
    if words.TOKEN.search(normalised(verdict.upstream_message)):
        return False
    return sent.tokens < verdict.limit * _TOKENS_PER_CHARACTER and verdict.limit < sent.chars
