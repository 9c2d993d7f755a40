"""Leaves → evidence: what each text says and how strongly, which codes prove or refuse, which numbers were structured.

Rule: evidence is weighed here one leaf at a time; only `judging.py` sets one leaf against another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.overflow import codes, words
from proxy.core.overflow.error_fields import ErrorField, ErrorFields
from proxy.core.overflow.grammar import Reading, Strength, normalised, read_sentences
from proxy.core.overflow.numbers import Numbers, read
from proxy.core.overflow.verdict import Scope, Unit, VerdictKind

_MAX_CHARS: Final = 16_384
"""Of all texts together; the longest refusal seen has two thousand."""
_CODE_IN_TEXT: Final = re.compile(r"\b(?:[a-z]{3,20}(?:_[a-z]{1,20}){1,5}|(?:[A-Z][a-z]{2,20}){3,6})\b")
"""`context_length_exceeded`, LiteLLM's `ContextWindowExceededError`."""

_WINDOW_MEMBERS: Final = ("n_ctx", "max_context_length", "context_length", "context_window", "max_model_len")
_INPUT_MEMBERS: Final = ("max_input_tokens", "max_prompt_tokens")
_PROMPT_MEMBERS: Final = ("n_prompt_tokens", "prompt_tokens", "input_tokens", "num_prompt_tokens", "prompt_token_count")
_REQUESTED_MEMBERS: Final = ("requested_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class TextEvidence:
    """One text leaf, read."""

    leaf: ErrorField
    readings: tuple[Reading, ...]
    figures: Numbers

    @property
    def best(self) -> Reading:
        return max(self.readings, key=lambda reading: (reading.strength, reading.names_window))

    @property
    def strength(self) -> Strength:
        """Of the best sentence; a fair one is strong when numbers prove it or a second sentence speaks of length."""
        strength = self.best.strength
        if strength is Strength.FAIR and (self.figures.proves_overflow or self._is_backed):
            return Strength.STRONG
        return strength

    @property
    def _is_backed(self) -> bool:
        return sum(bool(reading.strength or words.CONTEXT.search(reading.text)) for reading in self.readings) > 1

    @property
    def vetoes(self) -> frozenset[VerdictKind]:
        """What its other sentences refuse."""
        return frozenset(reading.kind for reading in self.readings if not reading.strength) - {VerdictKind.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that an answer proves, claims and refuses."""

    texts: tuple[TextEvidence, ...]
    proofs: tuple[ErrorField, ...]
    """Codes that mean "too long", wherever they stand."""
    refusals: frozenset[VerdictKind]
    """What other codes mean."""
    structured: Numbers
    limit_path: str
    """Of the limit in `structured`."""

    @property
    def is_proven(self) -> bool:
        return bool(self.proofs) or self.structured.proves_overflow

    @property
    def best(self) -> TextEvidence | None:
        """The text that says most: strongest first, then with numbers that prove it, then with a limit."""
        return max(
            self.texts,
            key=lambda text: (text.strength, text.figures.proves_overflow, text.figures.limit is not None),
            default=None,
        )

    @property
    def vetoes(self) -> frozenset[VerdictKind]:
        return frozenset[VerdictKind]().union(*(text.vetoes for text in self.texts))


def weigh(leaves: ErrorFields) -> Evidence:
    """The evidence of an answer."""
    has_weak_code = any(leaf.text in codes.NEEDING_TEXT for leaf in leaves.codes)
    told = list(_within_reason(leaves.texts))
    texts = (_read(leaf, has_weak_code=has_weak_code) for leaf in told)
    meanings = [(leaf, codes.meaning(leaf.text)) for leaf in leaves.codes]
    proofs = [leaf for leaf, kind in meanings if kind is VerdictKind.PROMPT]
    proofs += [leaf for leaf in told if _names_proof(leaf.text)]
    return Evidence(
        texts=tuple(text for text in texts if text.readings),
        proofs=tuple(proofs),
        refusals=frozenset(kind for _, kind in meanings) - {VerdictKind.PROMPT, VerdictKind.UNKNOWN},
        structured=_structured(leaves),
        limit_path=leaves.numbers.get(_first(leaves, _WINDOW_MEMBERS + _INPUT_MEMBERS)[1], (0, ""))[1],
    )


def _within_reason(texts: list[ErrorField]) -> Iterator[ErrorField]:
    """The first texts, and none twice: relays repeat a message in every wrapping."""
    room, seen = _MAX_CHARS, set[str]()
    for leaf in texts:
        if leaf.text not in seen and len(leaf.text) <= room:
            room -= len(leaf.text)
            seen.add(leaf.text)
            yield leaf


def _read(leaf: ErrorField, *, has_weak_code: bool) -> TextEvidence:
    """The leaf's sentences and figures; what the sentences leave open, figures may prove, or a code."""
    readings = read_sentences(normalised(leaf.text))
    told = " . ".join(r.text for r in readings if r.strength or r.kind in (VerdictKind.UNKNOWN, VerdictKind.REPLY_ONLY))
    figures = read(told)
    if words.TOKEN.search(told) and max(reading.strength for reading in readings) < Strength.FAIR:
        proves = figures.proves_overflow and words.CONTEXT.search(told) is not None
        if proves or (has_weak_code and words.BOUND.search(told)):
            readings.append(Reading(told, VerdictKind.PROMPT, Strength.FAIR, names_window=proves))
    return TextEvidence(leaf, tuple(readings), figures)


def _names_proof(text: str) -> bool:
    return any(codes.meaning(word) is VerdictKind.PROMPT for word in _CODE_IN_TEXT.findall(text))


def _structured(leaves: ErrorFields) -> Numbers:
    """Figures from members: llama.cpp says `n_ctx` and `n_prompt_tokens`."""
    limit, limit_name = _first(leaves, _WINDOW_MEMBERS + _INPUT_MEMBERS)
    prompt, _ = _first(leaves, _PROMPT_MEMBERS)
    requested, _ = _first(leaves, _REQUESTED_MEMBERS)
    figures = Numbers(limit=limit, prompt=prompt, requested=requested)
    if limit is not None:
        figures.scope = Scope.INPUT if limit_name in _INPUT_MEMBERS else Scope.WINDOW
    if limit is not None or figures.asked is not None:
        figures.unit = Unit.TOKENS
    return figures


def _first(leaves: ErrorFields, names: tuple[str, ...]) -> tuple[int | None, str]:
    """The first of these members that stands there with a size; servers fill what they do not know with 0 or -1."""
    sizes = ((leaves.numbers.get(name, (0, ""))[0], name) for name in names)
    return next(((size, name) for size, name in sizes if size > 0), (None, ""))
