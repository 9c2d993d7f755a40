"""Evidence → verdict: finish reasons and codes first, then sentences, then the status, and last what cannot be true.

Rule: the status makes a verdict likelier or less likely, it never makes one; an answer that says nothing is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from proxy.core.overflow import codes, words
from proxy.core.overflow.echo import may_be_echoed, own_words, says_something
from proxy.core.overflow.error_fields import ErrorField, ErrorFields
from proxy.core.overflow.evidence import Evidence, TextEvidence, weigh
from proxy.core.overflow.grammar import Strength, normalised
from proxy.core.overflow.media import is_about_results, is_about_the_model, refused_media
from proxy.core.overflow.numbers import read, read_rate
from proxy.core.overflow.proven_kind import merged, with_figures
from proxy.core.overflow.unwrap import unwrap
from proxy.core.overflow.verdict import Exactness, Scope, Unit, Verdict, VerdictKind

_MAX_MESSAGE_CHARS: Final = 2_000
_MAX_BARE_TEXT_BYTES: Final = 4_096
"""A success in plain text that is longer is no error message."""
_NEAR_FULL: Final = 0.9
"""Of the window: our estimate may be a tenth off."""
_IMPLAUSIBLE_RATIO: Final = 3
"""A number that differs more than this from our own estimate is about something else."""
_PLAIN: Final = 0.95
"""Confidence from which a claim without numbers is believed whatever our own estimate is: a code, a finish reason, or
words that leave no doubt. Such words are all that some upstreams send: `the input length exceeds the context length`
(Ollama, github.com/nano-step/nano-brain/issues/208), `Prompt is too long` (Vertex AI,
github.com/anthropics/claude-code/issues/2569), `Prompt exceeds max length` (z.ai,
github.com/zeroclaw-labs/zeroclaw/issues/4124)."""
_SMALLEST_WINDOW_TOKENS: Final = 2_048
"""What a model surely takes of which nobody knows the window: the least that a server in use allocates by default,
`n_ctx` of llama-cpp-python (github.com/abetlen/llama-cpp-python, `llama_cpp/server/settings.py`)."""
_FAR_UNDER: Final = 0.5
"""Of what a model surely takes: a request under it is hardly too long."""
_TOKENS_PER_CHARACTER: Final = 0.5
"""At the most, of a request whose limit may be one of characters. Texts with more tokens are mostly Chinese, and there
the estimate cannot tell a limit of tokens from one of characters."""

_FULL_FINISH: Final = re.compile(r"context_(?:\w{1,10}_)?(?:exceed|reach|full|overflow)")
_CUT_FINISHES: Final = ("length", "max_tokens")
_CONTENT_PARAM: Final = re.compile(
    r"(?:messages|input|prompt|contents?)(?:\W{0,2}\d{1,6}\W?|\.content|\.text|\.parts){0,6}"
)
"""OpenAI's `param` of a string that is too long: `messages[3].content` is prompt, `messages[3].name` is not."""
_WINDOW_AS_REPLY_BOUND: Final = re.compile(r"(?:cannot|must not|can not) (?:be greater than|exceed) max_model_len")
"""vLLM, `max_tokens=200000 cannot be greater than max_model_len=131072`: it refuses the reply and names the window."""

_REFUSED_WITHOUT_WORDS: Final = frozenset({400, 413})
"""Cerebras and Mistral refuse a prompt that is too long with a 400 or 413 and no body, and gateways refuse anything so:
github.com/can1357/oh-my-pi/issues/1251, github.com/earendil-works/pi/issues/9482"""
_REFUSED_BY_STATUS: Final = frozenset({402, 403, 429})
_MONEY_TIME_OR_RIGHTS: Final = frozenset({VerdictKind.RATE, VerdictKind.QUOTA, VerdictKind.AUTH, VerdictKind.POLICY})
_CODES_AGAINST: Final = frozenset(
    {VerdictKind.RATE, VerdictKind.QUOTA, VerdictKind.POLICY, VerdictKind.COUNT, VerdictKind.FIELD}
)
_PRIORITY: Final = (
    VerdictKind.RATE,
    VerdictKind.QUOTA,
    VerdictKind.PAIRING,
    VerdictKind.POLICY,
    VerdictKind.MEDIA,
    VerdictKind.COUNT,
    VerdictKind.BYTES,
    VerdictKind.FIELD,
    VerdictKind.REPLY_ONLY,
    VerdictKind.AUTH,
    VerdictKind.TRANSIENT,
)
_BY_STATUS: Final = {
    401: VerdictKind.AUTH,
    402: VerdictKind.QUOTA,
    403: VerdictKind.AUTH,
    408: VerdictKind.TRANSIENT,
    413: VerdictKind.BYTES,
    425: VerdictKind.TRANSIENT,
    429: VerdictKind.RATE,
}


@dataclass(frozen=True, slots=True)
class _Sent:
    """What we know ourselves of the request that was answered; None or nought where nothing."""

    tokens: int | None
    """By our own estimate."""
    chars: int | None
    window_tokens: int | None
    window_is_certain: bool

    @property
    def share(self) -> float | None:
        """Of what the model surely takes; None when that is not known."""
        surely_taken = self.window_tokens if self.window_is_certain else _SMALLEST_WINDOW_TOKENS
        return self.tokens / surely_taken if self.tokens and surely_taken else None

    @property
    def is_long(self) -> bool:
        """Whether its length may be why an answer says nothing."""
        return self.share is not None and self.share >= _NEAR_FULL

    @property
    def is_short(self) -> bool:
        """Whether vague words can hardly be about its length."""
        return self.share is not None and self.share < _FAR_UNDER


def judge(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    estimate_tokens: int | None = None,
    chars: int | None = None,
    window_tokens: int | None = None,
    window_is_certain: bool = True,
    request: bytes = b"",
) -> Verdict:
    """What an upstream answer means. Never raises; linear in the first 64 KiB of the body.

    `body` is the answer or its beginning; of a stream the first event that means something, or all there was without
    one. `estimate_tokens` and `chars` are our own counts of the prompt that was sent, `window_tokens` what the model is
    held to take: with them a claim that cannot be true is dropped. A window that is not certain is no evidence. Nor are
    words of the `request` that the answer repeats, beside others of its own.
    """
    sent = _Sent(estimate_tokens, chars, window_tokens, window_is_certain)
    is_success = 200 <= status < 300
    leaves = unwrap(body, is_success=is_success)
    verdict = _of_leaves(status, headers, leaves, sent, len(body))
    if not verdict.is_overflow or not request:
        return verdict
    own = [own_words(leaf.text, request) for leaf in leaves.texts]
    may_be_echo = may_be_echoed(verdict, request) or own != [leaf.text for leaf in leaves.texts]
    if may_be_echo and any(map(says_something, own)):
        leaves.texts = [
            replace(leaf, text=words if says_something(words) else "")
            for leaf, words in zip(leaves.texts, own, strict=True)
        ]
        verdict = _of_leaves(status, headers, leaves, sent, len(body))
    return replace(verdict, may_be_echo=may_be_echo)


def _of_leaves(
    status: int, headers: Sequence[tuple[bytes, bytes]], leaves: ErrorFields, sent: _Sent, body_bytes: int
) -> Verdict:
    if not 200 <= status < 300:
        return _plausible(_of_error(status, headers, leaves, sent), sent)
    if (finished := _finish(leaves, sent.window_tokens)) is not None:
        return finished
    if leaves.is_silent:  # llama-cpp-python and LM Studio refuse like that
        return Verdict(VerdictKind.EMPTY, confidence=1.0, is_suspect=sent.is_long, evidence="empty")
    if not leaves.has_error or (leaves.is_bare_text and body_bytes > _MAX_BARE_TEXT_BYTES):
        return Verdict(VerdictKind.ACCEPTED, confidence=1.0)
    as_status = 500 if leaves.is_bare_text else status  # plain text is believed only as far as a server error
    verdict = _plausible(_of_error(as_status, headers, leaves, sent), sent)
    if leaves.is_bare_text and not verdict.is_overflow:
        return Verdict(VerdictKind.ACCEPTED, confidence=0.5)
    return verdict


def _finish(leaves: ErrorFields, window_tokens: int | None) -> Verdict | None:
    """A finish reason that means that the window was full."""
    prompt, reply = leaves.prompt_tokens, leaves.completion_tokens
    fills_window = bool(prompt and window_tokens and prompt >= _NEAR_FULL * window_tokens)
    for leaf in leaves.finish_reasons:
        is_cut_at_once = leaf.text.lower() in _CUT_FINISHES and reply == 0 and fills_window
        if is_cut_at_once or _FULL_FINISH.search(codes.as_words(leaf.text)):
            unit = None if prompt is None else Unit.TOKENS
            return Verdict(
                VerdictKind.PROMPT, prompt=prompt, reply=reply, unit=unit, confidence=0.98, evidence=leaf.path
            )
    return None


def _of_error(status: int, headers: Sequence[tuple[bytes, bytes]], leaves: ErrorFields, sent: _Sent) -> Verdict:
    evidence = weigh(leaves)
    if _is_long_message(leaves):
        return _long_message(evidence)
    is_about_another = any(codes.names_another_fault(leaf.name, leaf.text) for leaf in leaves.codes)
    if is_about_another and not evidence.is_proven:
        evidence = replace(evidence, refusals=evidence.refusals | {VerdictKind.FIELD})
    elif _is_overflow(status, headers, evidence):
        return _overflow(evidence, evidence.best)
    kind = _other_kind(status, headers, leaves, evidence)
    verdict = Verdict(kind, confidence=0.7)
    if evidence.texts:
        first = next((text for text in evidence.texts if kind in text.vetoes), evidence.texts[0]).leaf
        verdict = replace(verdict, evidence=first.path, upstream_message=first.text[:_MAX_MESSAGE_CHARS])
    match kind:
        case VerdictKind.MEDIA:
            return _of_media(verdict, evidence)
        case VerdictKind.REPLY_ONLY:
            return _taught_window(verdict, evidence)
        case VerdictKind.RATE:
            return _of_rate(verdict, evidence)
        case VerdictKind.UNKNOWN if status in _REFUSED_WITHOUT_WORDS and leaves.is_wordless:
            return replace(verdict, is_suspect=sent.is_long and not sent.window_is_certain)
    return verdict


def _is_long_message(leaves: ErrorFields) -> bool:
    params = [leaf for leaf in leaves.codes if leaf.name == "param" and _CONTENT_PARAM.fullmatch(leaf.text)]
    return bool(params) and any(leaf.text == "string_above_max_length" for leaf in leaves.codes)


def _long_message(evidence: Evidence) -> Verdict:
    """OpenAI's `string_above_max_length` of a message: a bound in characters that a shorter request meets."""
    text = evidence.texts[0].leaf if evidence.texts else ErrorField("", "", "")
    message = text.text[:_MAX_MESSAGE_CHARS]
    verdict = Verdict(VerdictKind.PROMPT, confidence=0.8, evidence=text.path, upstream_message=message)
    return with_figures(verdict, replace(read(normalised(message)), unit=Unit.CHARS, scope=Scope.UNKNOWN))


def _is_overflow(status: int, headers: Sequence[tuple[bytes, bytes]], evidence: Evidence) -> bool:
    """Whether the answer says that the request is too long, strongly enough for its status and what else it says."""
    against = evidence.vetoes | evidence.refusals
    if status in _REFUSED_BY_STATUS:
        return evidence.is_proven and not against & _MONEY_TIME_OR_RIGHTS
    if evidence.is_proven:
        return True
    best = evidence.best
    if best is None:
        return False
    if evidence.refusals & _CODES_AGAINST and not (best.best.names_window and best.figures.proves_overflow):
        return False
    if status == 401:
        return best.strength is Strength.STRONG and best.best.names_window
    if status >= 500:
        return best.strength is Strength.STRONG
    match best.strength:
        case Strength.STRONG:
            return True
        case Strength.FAIR:
            return against <= {VerdictKind.TRANSIENT}
        case Strength.HINT:
            return _hint_suffices(status, headers, best, against)
    return False


def _hint_suffices(
    status: int, headers: Sequence[tuple[bytes, bytes]], best: TextEvidence, against: frozenset[VerdictKind]
) -> bool:
    """Advice alone counts where nothing else is said; "body too large" is no veto when its bound is one of tokens."""
    if _retry_after(headers) or not against <= ({VerdictKind.BYTES} if best.figures.limit else set()):
        return False
    if status == 413:  # without a word of tokens these are bytes
        return words.TOKEN.search(best.best.text) is not None
    return status in (200, 400, 422)


def _overflow(evidence: Evidence, best: TextEvidence | None) -> Verdict:
    """The verdict on a request that is too long, or only asks for too long a reply."""
    proof = next((leaf.path for leaf in evidence.proofs), evidence.limit_path)
    if best is None:
        return with_figures(Verdict(VerdictKind.PROMPT, confidence=0.98, evidence=proof), evidence.structured)
    kinds = {reading.kind for reading in best.readings if reading.strength >= Strength.FAIR}
    kind = VerdictKind.PROMPT_PLUS_REPLY if VerdictKind.PROMPT_PLUS_REPLY in kinds else VerdictKind.PROMPT
    if not best.strength and best.vetoes == {VerdictKind.REPLY_ONLY}:
        kind = VerdictKind.REPLY_ONLY  # the code says "context", every sentence says "max_tokens"
    verdict = Verdict(
        kind,
        confidence=0.99 if evidence.is_proven else {Strength.STRONG: 0.95, Strength.FAIR: 0.8}.get(best.strength, 0.6),
        evidence=best.leaf.path if best.strength else proof,
        upstream_message=best.leaf.text[:_MAX_MESSAGE_CHARS],
    )
    return with_figures(verdict, merged(evidence.structured, best.figures))


def _of_media(verdict: Verdict, evidence: Evidence) -> Verdict:
    """What kinds of input are refused; a sentence beside the one that refuses may say that it is only this content."""
    texts = [text for text in evidence.texts if VerdictKind.MEDIA in text.vetoes]
    refusing = " ".join(one.text for text in texts for one in text.readings if one.kind is VerdictKind.MEDIA)
    whole = " ".join(one.text for text in texts for one in text.readings)
    return replace(
        verdict,
        refused=refused_media(refusing),
        refuses_model=bool(texts) and is_about_the_model(whole),
        refuses_in_results=is_about_results(whole),
    )


def _of_rate(verdict: Verdict, evidence: Evidence) -> Verdict:
    """What the rate allows and what was asked for, where the request alone is over it; else waiting is the cure."""
    for text in evidence.texts:
        for reading in text.readings:
            found = read_rate(reading.text) if reading.kind is VerdictKind.RATE else None
            if found is not None and found[1] > found[0]:
                return replace(verdict, limit=found[0], requested=found[1], unit=Unit.TOKENS)
    return verdict


def _taught_window(verdict: Verdict, evidence: Evidence) -> Verdict:
    for text in evidence.texts:
        for reading in text.readings:
            if _WINDOW_AS_REPLY_BOUND.search(reading.text) and (limit := read(reading.text).limit) is not None:
                return replace(verdict, limit=limit, limit_scope=Scope.WINDOW, unit=Unit.TOKENS)
    return verdict


def _other_kind(
    status: int, headers: Sequence[tuple[bytes, bytes]], leaves: ErrorFields, evidence: Evidence
) -> VerdictKind:
    """What an answer means that is no overflow: by its texts, its codes, its headers, its status."""
    for said in (evidence.vetoes, evidence.refusals):
        if said:
            return min(said, key=_PRIORITY.index)
    if status >= 500:
        return VerdictKind.TRANSIENT
    if _retry_after(headers):
        return VerdictKind.RATE
    if status == 413 and leaves.is_wordless:
        return VerdictKind.UNKNOWN  # Cerebras sends an empty 413 for a prompt that is too long, others for bytes
    return _BY_STATUS.get(status, VerdictKind.UNKNOWN)


def _retry_after(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"retry-after" for name, _ in headers)


def _plausible(verdict: Verdict, sent: _Sent) -> Verdict:
    """The verdict held against what we know ourselves of the prompt."""
    if not verdict.is_overflow or not sent.tokens:
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


def _must_be_of_characters(verdict: Verdict, sent: _Sent) -> bool:
    """Whether a limit that names no unit is one of characters: far over our count of tokens, and under that of
    characters. DashScope, `Range of input length should be [1, 1000000]`, bounds the tokens of some models and the
    characters of others: alibabacloud.com/help/en/model-studio/error-code
    """
    if verdict.limit is None or verdict.limit_scope is Scope.WINDOW or not sent.tokens or not sent.chars:
        return False
    if words.TOKEN.search(normalised(verdict.upstream_message)):
        return False
    return sent.tokens < verdict.limit * _TOKENS_PER_CHARACTER and verdict.limit < sent.chars
