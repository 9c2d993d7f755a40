"""Report → verdict, by codes before sentences before the status. Plausibility comes last.

Rule: the status makes a verdict more or less likely but never decides it; a response that says nothing is `unknown`.
Whatever a code or a sentence says, a reply that alone fills the window is `reply_only`, and a prompt that fits without
its reply is `prompt_plus_reply`. A number that cannot be true is dropped.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict, replace

from proxy.core.models import LimitName
from proxy.core.overflow import words
from proxy.core.overflow.named import named_limit, reply_limit
from proxy.core.overflow.numbers import merged, read, read_rate, skeleton
from proxy.core.overflow.patterns import ALLOWED_AND_REQUESTED, WINDOW_AS_REPLY_BOUND
from proxy.core.overflow.proofs import may_be_echoed
from proxy.core.overflow.report import (
    FAULTS,
    MIN_USEFUL_REPLY_TOKENS,
    NEAR_FULL,
    TOO_LARGE,
    ErrorReport,
    ErrorText,
    Exactness,
    Figures,
    Holds,
    Place,
    Scope,
    Sent,
    Unit,
    Verdict,
    VerdictKind,
    means_cut,
)
from proxy.core.overflow.sentences import (
    Evidence,
    Strength,
    TextEvidence,
    is_about_the_model,
    is_unread,
    normalised,
    refused_media,
    says_nothing,
    weigh,
)

_MAX_MESSAGE_CHARS: Final = 2_000
_MAX_BARE_TEXT_BYTES: Final = 4_096
"""A longer success in plain text is no error message."""
_REFUSED_WITHOUT_WORDS: Final = frozenset({400, 413})
"""Cerebras and Mistral refuse a prompt that is too long with a 400 or 413 that says nothing, and gateways refuse
anything that way: github.com/can1357/oh-my-pi/issues/1251, github.com/earendil-works/pi/issues/9482"""
_IN_BYTES: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
"""The smaller meaning of each."""
_LEAST_BYTES: Final = 1_024
"""A smaller number of bytes limits no body."""
_REFUSING_A_COUNT: Final = frozenset({200, 400, 413, 422})
_REFUSED_BY_STATUS: Final = frozenset({402, 403, 429})
_MONEY_TIME_OR_RIGHTS: Final = frozenset({VerdictKind.RATE, VerdictKind.QUOTA, VerdictKind.AUTH, VerdictKind.POLICY})
_CODES_AGAINST: Final = frozenset(
    {VerdictKind.RATE, VerdictKind.QUOTA, VerdictKind.POLICY, VerdictKind.COUNT, VerdictKind.FIELD}
)
_PRIORITY: Final = (
    VerdictKind.RATE,
    VerdictKind.QUOTA,
    *sorted(FAULTS),
    VerdictKind.PAIRING,
    VerdictKind.SEAL,
    VerdictKind.POLICY,
    VerdictKind.MEDIA,
    VerdictKind.COUNT,
    VerdictKind.BYTES,
    VerdictKind.NOT_FOUND,
    VerdictKind.FIELD,
    VerdictKind.REPLY_ONLY,
    VerdictKind.AUTH,
    VerdictKind.TRANSIENT,
)
_BY_STATUS: Final = {
    401: VerdictKind.AUTH,
    402: VerdictKind.QUOTA,
    403: VerdictKind.AUTH,
    404: VerdictKind.NOT_FOUND,
    408: VerdictKind.TRANSIENT,
    413: VerdictKind.BYTES,
    425: VerdictKind.TRANSIENT,
    429: VerdictKind.RATE,
}


def judge(report: ErrorReport, sent: Sent | None = None, request: Holds | None = None) -> Verdict:
    """The meaning of an upstream's response, by what it says about itself.

    A claim that cannot be true, by our own knowledge of what was `sent`, is dropped. Numbers that the `request` holds,
    too, are believed for one more send, and teach nothing.
    """
    verdict = _of_report(report, sent or Sent())
    if request is None or not (verdict.is_overflow or verdict.limit is not None):
        return verdict
    return replace(verdict, may_be_echo=may_be_echoed(verdict, request))


def _of_report(report: ErrorReport, sent: Sent) -> Verdict:
    if report.is_success:
        if (ended := _of_ending(report, sent)) is not None:
            return ended
        if report.is_silent:  # llama-cpp-python and LM Studio refuse this way
            return Verdict(VerdictKind.EMPTY, confidence=1.0, is_suspect=sent.is_near_window)
        if not (report.texts or report.codes) or (report.is_bare_text and report.body_bytes > _MAX_BARE_TEXT_BYTES):
            return Verdict(VerdictKind.ACCEPTED, confidence=1.0)
    # A success in plain text is trusted only as much as a server error.
    evidence = weigh(replace(report, status=500) if report.is_bare_text else report)
    verdict = plausible(_with_named_limit(_by_evidence(evidence, sent), evidence, sent), sent)
    is_reply = report.is_bare_text and not verdict.is_overflow
    return Verdict(VerdictKind.ACCEPTED, confidence=0.5) if is_reply else verdict


def _of_ending(report: ErrorReport, sent: Sent) -> Verdict | None:
    """The verdict for a finish reason that means a full window; None for others."""
    counted, window = report.counted, sent.window_tokens
    prompt, reply = (None, None) if counted is None else (counted.prompt, counted.reply)
    fills_window = bool(prompt and window and prompt >= NEAR_FULL * window)
    for ending in report.endings:
        is_cut_at_once = means_cut(ending.text) and reply == 0
        if (is_cut_at_once and fills_window) or words.means_full(ending.text):
            unit = None if prompt is None else Unit.TOKENS
            return Verdict(
                VerdictKind.PROMPT, prompt=prompt, reply=reply, unit=unit, confidence=0.98, evidence=ending.path
            )
        may_be_short = sent.reply_tokens is not None and sent.reply_tokens < MIN_USEFUL_REPLY_TOKENS
        if is_cut_at_once and not report.has_output and not may_be_short:
            return Verdict(VerdictKind.EMPTY, confidence=0.9, is_suspect=sent.is_long, evidence=ending.path)
    return None


_MAY_NAME_A_LIMIT: Final = frozenset(
    {VerdictKind.COUNT, VerdictKind.FIELD, VerdictKind.BYTES, VerdictKind.MEDIA, VerdictKind.UNKNOWN}
)
_TIER_TOKENS: Final = 200_000
"""Anthropic's models with a million tokens take as many without the extra usage or the beta that long context needs.
https://platform.claude.com/docs/en/build-with-claude/context-windows"""


def _with_named_limit(verdict: Verdict, evidence: Evidence, sent: Sent) -> Verdict:
    """The verdict with the limit that it names besides the window and the body, if there is one."""
    texts = [normalised(text.source.text) for text in evidence.texts]
    if verdict.kind is VerdictKind.REPLY_ONLY or any(words.AFFORDED.search(text) for text in texts):
        most = next((most for text in texts if (most := reply_limit(text, sent.reply_tokens)) is not None), None)
        is_of_window = verdict.limit is not None
        named = {"kind": VerdictKind.REPLY_ONLY, "named": LimitName.REPLY, "named_limit": most}
        return verdict if most is None or is_of_window else replace(verdict, **named)
    if (sent.tokens or 0) * 2 > _TIER_TOKENS and any(words.TIER.search(text) for text in texts):
        return replace(verdict, kind=VerdictKind.PROMPT, limit=_TIER_TOKENS, limit_scope=Scope.INPUT, unit=Unit.TOKENS)
    found = next((found for text in texts if (found := named_limit(text)) is not None), None)
    if found is None or not (verdict.is_overflow or verdict.kind in _MAY_NAME_A_LIMIT):
        return verdict
    is_of_messages = found.name is LimitName.MESSAGES and found.most < (sent.messages or 0)
    is_of_one_text = found.name is LimitName.STRING and not evidence.proofs
    if (verdict.is_overflow or evidence.proofs) and not (is_of_messages or is_of_one_text):
        return verdict
    if found.name is LimitName.STRING and sent.longest_message is not None and sent.longest_message <= found.most:
        if sent.chars is not None and sent.chars <= found.most:
            return verdict  # nothing of this request is that long
        known = {"limit": found.most, "limit_scope": Scope.INPUT, "unit": Unit.CHARS, "requested": found.seen}
        return replace(verdict, kind=VerdictKind.PROMPT, **known)  # it can only mean all texts together
    if found.name is LimitName.STRING and _names_another_fault(evidence.report):
        return verdict
    if verdict.is_overflow:  # it is about one text or the count of messages, not about all of them
        message, path = verdict.upstream_message, verdict.evidence
        verdict = Verdict(VerdictKind.FIELD, verdict.confidence, evidence=path, upstream_message=message)
    return replace(verdict, named=found.name, named_limit=found.most, named_seen=found.seen)


def _by_evidence(evidence: Evidence, sent: Sent) -> Verdict:
    report = evidence.report
    if sent.has_user_text and (lost := _lost_the_user(report)) is not None:
        return Verdict(VerdictKind.PROMPT, confidence=0.95, evidence=lost.path, upstream_message=lost.text)
    if _names_another_fault(report) and not evidence.is_proven:
        evidence = replace(evidence, refusals=evidence.refusals | {VerdictKind.FIELD})
    elif _is_overflow(evidence):
        return _overflow(evidence)
    if report.status in _REFUSED_WITHOUT_WORDS and not report.asks_to_wait and _is_bare(evidence):
        is_suspect = sent.is_long and not sent.window_is_certain
        return Verdict(VerdictKind.UNKNOWN, confidence=0.7, is_suspect=is_suspect)
    kind = _other_kind(evidence)
    verdict = Verdict(kind, confidence=0.7, is_suspect=_states_our_count(evidence, sent))
    if evidence.texts:
        first = next((text for text in evidence.texts if kind in text.vetoes), evidence.texts[0]).source
        verdict = replace(
            verdict,
            evidence=first.path,
            upstream_message=first.text[:_MAX_MESSAGE_CHARS],
            is_conditional=any(words.CONDITION.search(one.text) for one in evidence.readings),
            misses_json=any(words.NO_JSON.search(one.text) for one in evidence.readings),
            refuses_tools=words.NO_TOOLS.search(first.text.lower()) is not None,
        )
    return _DETAILS[kind](verdict, evidence) if kind in _DETAILS else verdict


def _states_our_count(evidence: Evidence, sent: Sent) -> bool:
    """Whether words that say nothing to us, in whatever language, print our own count of the prompt beside one smaller
    number, of tokens: `Die Eingabe hat 9712 Tokens, und mehr als 8192 gehen nicht`."""
    report, is_explained = evidence.report, bool(evidence.vetoes or evidence.refusals)
    if report.status not in _REFUSING_A_COUNT or report.asks_to_wait or is_explained:
        return False
    return any(counted_beside_a_limit(text.source.text, sent) for text in evidence.texts)


def _is_bare(evidence: Evidence) -> bool:
    """Whether it names no cause, whatever it is wrapped in, or one in a language of which no word is known."""
    causes = (code.text for code in evidence.report.codes if code.place is not Place.TEXT)
    known = (text.text for text in evidence.report.texts if evidence.vetoes or not is_unread(text.text))
    return all(map(says_nothing, (*causes, *known)))


def _names_another_fault(report: ErrorReport) -> bool:
    return any(code.place is Place.ELSEWHERE or words.names_another_fault(code) for code in report.codes)


def _lost_the_user(report: ErrorReport) -> ErrorText | None:
    """The text that says that no message is a user's."""
    return next((text for text in report.texts if words.NO_USER_MESSAGE.search(normalised(text.text))), None)


def _is_overflow(evidence: Evidence) -> bool:
    """Whether the response says that the request is too long, strongly enough for its status and its other claims."""
    against = evidence.vetoes | (evidence.refusals - {VerdictKind.BYTES})  # such a code says no more than a 413
    if evidence.report.status in _REFUSED_BY_STATUS:
        return evidence.is_proven and not against & _MONEY_TIME_OR_RIGHTS
    if evidence.is_proven:
        return True
    best, is_refused_otherwise = evidence.best, bool(evidence.refusals & _CODES_AGAINST)
    if best is None or (is_refused_otherwise and not (best.best.names_window and best.figures.proves_overflow)):
        return False
    is_strong = best.strength is Strength.STRONG
    if evidence.report.status == 401 or evidence.report.status >= 500:
        return is_strong and (best.best.names_window or evidence.report.status >= 500)
    if best.strength >= Strength.FAIR:
        return is_strong or against <= {VerdictKind.TRANSIENT}
    return _hint_suffices(evidence.report, best, against)


def _hint_suffices(report: ErrorReport, best: TextEvidence, against: frozenset[VerdictKind]) -> bool:
    """Advice alone counts if the text says nothing else; "body too large" is no veto if its limit is in tokens. A 413
    that only names the prompt says that it is too large."""
    if report.asks_to_wait or not against <= ({VerdictKind.BYTES} if best.figures.limit else set()):
        return False
    if report.status == TOO_LARGE:
        return _is_about_the_prompt(best)
    return best.strength is Strength.HINT and report.status in (200, 400, 422)


def _is_about_the_prompt(best: TextEvidence) -> bool:
    return words.ABOUT_THE_PROMPT.search(best.best.text) is not None


def _overflow(evidence: Evidence) -> Verdict:
    """The verdict on a request that is too long, or only asks for too long a reply."""
    best = evidence.best
    proof = next((code.path for code in evidence.proofs), "")
    if best is None:
        verdict = Verdict(VerdictKind.PROMPT, confidence=0.98, evidence=proof)
        return with_figures(verdict, merged(evidence.report.stated, Figures()))
    kinds = {reading.kind for reading in best.readings if reading.strength >= Strength.FAIR}
    kind = VerdictKind.PROMPT_PLUS_REPLY if VerdictKind.PROMPT_PLUS_REPLY in kinds else VerdictKind.PROMPT
    if not best.strength and best.vetoes == {VerdictKind.REPLY_ONLY}:
        kind = VerdictKind.REPLY_ONLY  # the code says "context", every sentence says "max_tokens"
    is_strong = evidence.report.status == TOO_LARGE and _is_about_the_prompt(best)
    strength = Strength.STRONG if is_strong else best.strength
    verdict = Verdict(
        kind,
        confidence=0.99 if evidence.is_proven else {Strength.STRONG: 0.95, Strength.FAIR: 0.8}.get(strength, 0.6),
        evidence=best.source.path if best.strength or not proof else proof,
        upstream_message=best.source.text[:_MAX_MESSAGE_CHARS],
    )
    return with_figures(verdict, merged(evidence.report.stated, best.figures))


def _of_media(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The kinds of input that are refused; another sentence may say that only this content is refused."""
    texts = [text for text in evidence.texts if VerdictKind.MEDIA in text.vetoes]
    refusing = " ".join(one.text for text in texts for one in text.readings if one.kind is VerdictKind.MEDIA)
    whole = " ".join(one.text for text in texts for one in text.readings)
    return replace(
        verdict,
        refused=refused_media(refusing),
        refuses_model=bool(texts) and is_about_the_model(whole),
        refuses_in_results=words.TOOL_MESSAGE.search(whole) is not None,
    )


def _of_rate(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The allowed and the requested tokens if the request alone exceeds the rate; otherwise waiting helps."""
    rates = (read_rate(one.text) for one in evidence.readings if one.kind is VerdictKind.RATE)
    allowed, requested = next(filter(None, rates), (None, None))
    return replace(verdict, limit=allowed, requested=requested, unit=Unit.TOKENS) if allowed else verdict


def _of_bytes(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The least size in bytes that is stated: the limit, if the size of the body stands beside it. Numbers that are
    allowed and requested without a unit are tokens, as Groq prints them: `Limit 16000, Requested 36123`."""
    texts = [one.text for one in evidence.readings]
    counts = (read_rate(text, ALLOWED_AND_REQUESTED) for text in texts if not words.BYTES.search(text))
    allowed, requested = next(filter(None, counts), (None, None))
    if allowed:
        counted = {"limit": allowed, "requested": requested, "unit": Unit.TOKENS}
        return replace(verdict, kind=VerdictKind.PROMPT, confidence=0.8, **counted)
    stated = [found for text in texts for found in words.STATED_BYTES.findall(text)]
    stated = stated or [(found, "") for text in texts for found in words.LARGE_NUMBER.findall(text)]
    sizes = [int(float(number.replace(",", "").replace("_", "")) * _IN_BYTES[unit]) for number, unit in stated]
    limit = min((size for size in sizes if size >= _LEAST_BYTES), default=None)
    if limit is None and evidence.report.status != TOO_LARGE and any(map(words.MEDIA.search, texts)):
        return replace(verdict, kind=VerdictKind.MEDIA)
    if limit is None and (evidence.report.status >= 500 or not any(map(words.BODY_TOO_LARGE.search, texts))):
        return verdict
    return replace(verdict, named=LimitName.BODY, named_limit=limit or 0)


def _bounds_both(figures: Figures) -> bool:
    """Whether a window is stated that the reply limit alone reaches."""
    limit, reply = figures.limit, figures.reply
    return figures.limit_scope is Scope.WINDOW and limit is not None and reply is not None and reply >= limit


def _of_reply(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The window, if it is named as the bound of the reply."""
    read_ones = ((one.text, read(one.text)) for one in evidence.readings)
    bounds = (found.limit for text, found in read_ones if WINDOW_AS_REPLY_BOUND.search(text) or _bounds_both(found))
    limit = next(filter(None, bounds), None)
    return replace(verdict, limit=limit, limit_scope=Scope.WINDOW, unit=Unit.TOKENS) if limit else verdict


_DETAILS: Final = {
    VerdictKind.MEDIA: _of_media,
    VerdictKind.REPLY_ONLY: _of_reply,
    VerdictKind.RATE: _of_rate,
    VerdictKind.BYTES: _of_bytes,
}
"""What a refusal of these kinds says besides."""


def _other_kind(evidence: Evidence) -> VerdictKind:
    """The kind of a response that is no overflow: by its texts, its codes, its headers, its status."""
    for kinds in (evidence.vetoes, evidence.refusals):
        if kinds:
            return min(kinds, key=_PRIORITY.index)
    if evidence.report.status >= 500:
        return VerdictKind.TRANSIENT
    if evidence.report.asks_to_wait:
        return VerdictKind.RATE
    return _BY_STATUS.get(evidence.report.status, VerdictKind.UNKNOWN)


_IMPLAUSIBLE_RATIO: Final = 3
"""A number that differs from our own estimate by more than this factor is about something else."""
_DEAR_RATIO: Final = 2
"""A count of a request with media that exceeds our estimate by this factor is one of dear media."""
_SHARE_WITH_MEDIA: Final = 0.6
"""Share of the limit for text and media, so that there is room for more text in later turns."""
_RATIO_OF_OURS: Final = 1.6
"""A count within this factor of our estimate may be one of this prompt; English prose has 0.68 of the estimate."""
_PLAIN: Final = 0.95
"""Confidence from which a claim without numbers is believed whatever our own estimate is: a code, a finish reason, or
unambiguous words. Some upstreams send nothing but such words: `the input length exceeds the context length` (Ollama,
github.com/nano-step/nano-brain/issues/208), `Prompt is too long` (Vertex AI,
github.com/anthropics/claude-code/issues/2569), `Prompt exceeds max length` (z.ai,
github.com/zeroclaw-labs/zeroclaw/issues/4124)."""
_COUNTED_ALIKE: Final = 0.1
"""Share of our count of characters by which another may differ: what it leaves out, or counts between messages."""
_COUNTED_APART: Final = 256
"""Tokens that an upstream may count between messages, and we do not."""
_TOKENS_PER_CHARACTER: Final = 0.5
"""At most, in a request whose limit may be in characters. Texts with more tokens are mostly Chinese, where the estimate
cannot distinguish a limit in tokens from one in characters."""


def with_figures(verdict: Verdict, figures: Figures) -> Verdict:
    """The verdict with the numbers, completed where two of them give a third."""
    prompt, requested = _completed(figures)
    kind = _proven_kind(verdict.kind, figures.limit, prompt, figures.reply)
    scope = figures.limit_scope
    if kind is VerdictKind.REPLY_ONLY and None not in (figures.prompt, figures.requested) and scope is Scope.UNKNOWN:
        scope = Scope.WINDOW  # it bounds the sum that is stated
    limit = None if kind is VerdictKind.REPLY_ONLY and scope is not Scope.WINDOW else figures.limit
    if kind is VerdictKind.PROMPT_PLUS_REPLY and scope is Scope.UNKNOWN:
        scope = Scope.WINDOW  # a limit on both together is the window
    known = asdict(figures) | {"limit": limit, "requested": requested, "prompt": prompt}
    return replace(verdict, **known | {"kind": kind, "limit_scope": Scope.UNKNOWN if limit is None else scope})


def _completed(figures: Figures) -> tuple[int | None, int | None]:
    """Prompt and requested size, as far as one follows from the other."""
    prompt, requested, reply = figures.prompt, figures.requested, figures.reply
    if prompt is not None:
        return prompt, prompt + (reply or 0) if requested is None else requested
    if requested is not None and reply and requested > reply:
        return requested - reply, requested
    return (requested if reply is None and figures.limit_scope is Scope.INPUT else None), requested


def _proven_kind(kind: VerdictKind, limit: int | None, prompt: int | None, reply: int | None) -> VerdictKind:
    """What is too much by the numbers; `kind` if they do not say."""
    if limit is not None and prompt is not None and prompt >= limit:
        return VerdictKind.PROMPT
    if limit is not None and reply is not None and reply >= limit:
        return VerdictKind.REPLY_ONLY
    if limit is not None and prompt is not None and reply:
        return VerdictKind.PROMPT_PLUS_REPLY
    is_prompt_alone = reply == 0 and kind is VerdictKind.PROMPT_PLUS_REPLY
    return VerdictKind.PROMPT if is_prompt_alone else kind


def counted_beside_a_limit(text: str, sent: Sent) -> tuple[int, int] | None:
    """(prompt, limit) of a text whose only two numbers are the prompt that we have sent, alone or with its reply limit,
    as far as an estimate can tell, and a smaller one, whatever its word for tokens.

    >>> counted_beside_a_limit("入力トークン数 9712 が 8192 を超えています", Sent(tokens=9_500))
    (9712, 8192)
    """
    plain = normalised(text)
    numbers = sorted({number.value for number in skeleton(plain)[1] if number.exactness is Exactness.EXACT})
    if len(numbers) != 2 or not sent.tokens or sent.reply_tokens in numbers or words.CHARACTERS.search(plain):
        return None
    least, most = sent.tokens / _RATIO_OF_OURS, (sent.tokens + (sent.reply_tokens or 0)) * _RATIO_OF_OURS
    return (numbers[1], numbers[0]) if least <= numbers[1] <= most else None


def plausible(verdict: Verdict, sent: Sent) -> Verdict:
    """The verdict compared with our own knowledge of the prompt."""
    if not verdict.is_overflow:
        return verdict
    verdict = _as_a_sum(verdict, sent)
    if (most := _media_that_fit(verdict, sent)) is None:
        return _with_scope(_compared(verdict, sent), sent)
    named = {"kind": VerdictKind.COUNT, "named": LimitName.MEDIA_BYTES, "named_limit": most}
    return replace(_with_scope(verdict, sent), **named)


def _as_a_sum(verdict: Verdict, sent: Sent) -> Verdict:
    """The verdict with a requested size as the one of prompt and reply together, if it is their sum by our count and
    mostly the reply. Kimi: `exceeded model token limit: 24000 (requested: 32023)`."""
    requested, limit, reply = verdict.requested or 0, verdict.limit or 0, sent.reply_tokens or 0
    prompt, tokens = requested - reply, sent.tokens or 0
    is_stated = verdict.prompt is not None or verdict.reply is not None or verdict.limit_scope is Scope.INPUT
    if is_stated or not 0 < 2 * prompt < limit <= requested or abs(prompt - tokens) > max(_COUNTED_APART, tokens // 4):
        return verdict
    kind = _proven_kind(VerdictKind.PROMPT_PLUS_REPLY, limit, prompt, reply)
    return replace(verdict, kind=kind, prompt=prompt, reply=reply, limit_scope=Scope.WINDOW)


def _media_that_fit(verdict: Verdict, sent: Sent) -> int | None:
    """The bytes of media that fit beside the text, if they are what an upstream counts several times as dear as we do:
    some count base64 as text. None if something else is too long."""
    counted = verdict.prompt if verdict.prompt is not None else verdict.requested
    if not (counted and verdict.limit and sent.media_bytes and sent.tokens) or verdict.unit is Unit.CHARS:
        return None
    if counted < _DEAR_RATIO * sent.tokens or counted < verdict.limit:
        return None
    if (excess := counted - sent.tokens) > sent.media_bytes:  # base64 has less than a token a byte: it is the text
        return None
    room = verdict.limit * _SHARE_WITH_MEDIA - sent.tokens
    return max(0, int(sent.media_bytes * room / excess))


def _with_scope(verdict: Verdict, sent: Sent) -> Verdict:
    """A limit that names neither the window nor the input is one of the input if the prompt reaches it, by the count
    that the refusal states, else by ours; of both together if only prompt and reply reach it. Copilot, Kimi, Cerebras:
    `prompt token count of 93854 exceeds the limit of 90000`."""
    limit, total = verdict.limit, verdict.requested
    if verdict.unit is Unit.CHARS and limit is not None and (sent.chars or 0) >= limit:  # no window is counted in them
        return replace(verdict, limit_scope=Scope.INPUT)
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
    may_hold_reply = verdict.reply is None and verdict.kind is VerdictKind.PROMPT_PLUS_REPLY
    tokens = sent.tokens + ((sent.reply_tokens if may_hold_reply else verdict.reply) or 0)
    if verdict.limit is not None and verdict.limit > _IMPLAUSIBLE_RATIO * tokens:
        verdict = replace(verdict, limit=None, limit_scope=Scope.UNKNOWN)
    stated = verdict.prompt if verdict.prompt is not None else verdict.requested
    if stated is None:
        return verdict
    is_over = stated > _IMPLAUSIBLE_RATIO * tokens
    is_under = stated * _IMPLAUSIBLE_RATIO < sent.tokens and verdict.exactness is not Exactness.AT_LEAST
    return replace(verdict, prompt=None, requested=None) if is_over or is_under else verdict


def _must_be_of_characters(verdict: Verdict, sent: Sent) -> bool:
    """Whether a limit without a unit must be in characters: the count beside it is our count of characters, or it is
    far above our count of tokens, and below that of characters. DashScope's `Range of input length should be [1,
    1000000]` limits the tokens of some models and the characters of others:
    alibabacloud.com/help/en/model-studio/error-code
    """
    if verdict.limit is None or verdict.limit_scope is Scope.WINDOW or not sent.tokens or not sent.chars:
        return False
    if words.TOKEN.search(normalised(verdict.upstream_message)):
        return False
    stated = verdict.prompt if verdict.prompt is not None else verdict.requested
    if stated is not None and abs(stated - sent.chars) <= sent.chars * _COUNTED_ALIKE and stated > 2 * sent.tokens:
        return True
    return sent.tokens < verdict.limit * _TOKENS_PER_CHARACTER and verdict.limit < sent.chars
