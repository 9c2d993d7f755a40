"""Report → evidence: what each text says and how strongly, which codes prove or contradict, which sizes were stated.

Rule: evidence is weighed here one text at a time; only `judging.py` compares one with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from proxy.core.overflow import codes, words
from proxy.core.overflow.grammar import Reading, Strength, normalised, read_sentences
from proxy.core.overflow.numbers import Numbers, read
from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText, Stated
from proxy.core.overflow.verdict import Unit, VerdictKind

_MAX_CHARS: Final = 16_384
"""Of all texts together; the longest refusal seen has two thousand."""
_CODE_IN_TEXT: Final = re.compile(r"\b(?:[a-z]{3,20}(?:_[a-z]{1,20}){1,5}|(?:[A-Z][a-z]{2,20}){3,6})\b")
"""`context_length_exceeded`, LiteLLM's `ContextWindowExceededError`."""


class TextEvidence(Struct, frozen=True):
    """One text, read."""

    said: ErrorText
    readings: tuple[Reading, ...]
    figures: Numbers

    @property
    def best(self) -> Reading:
        return max(self.readings, key=lambda reading: (reading.strength, reading.names_window))

    @property
    def strength(self) -> Strength:
        """Of the best sentence; a fair one becomes strong if numbers prove it or a second sentence is about length."""
        strength = self.best.strength
        if strength is Strength.FAIR and (self.figures.proves_overflow or self._is_backed):
            return Strength.STRONG
        return strength

    @property
    def _is_backed(self) -> bool:
        return sum(bool(reading.strength or words.CONTEXT.search(reading.text)) for reading in self.readings) > 1

    @property
    def vetoes(self) -> frozenset[VerdictKind]:
        """The kinds that its other sentences state."""
        return frozenset(reading.kind for reading in self.readings if not reading.strength) - {VerdictKind.UNKNOWN}


class Evidence(Struct, frozen=True):
    """Everything that a response proves, claims and contradicts."""

    texts: tuple[TextEvidence, ...]
    proofs: tuple[ErrorCode | ErrorText, ...]
    """Codes that mean "too long", and texts that name one."""
    refusals: frozenset[VerdictKind]
    """The meanings of other codes."""
    stated: Numbers
    limit_path: str
    """The path of the limit in `stated`."""

    @property
    def is_proven(self) -> bool:
        return bool(self.proofs) or self.stated.proves_overflow

    @property
    def best(self) -> TextEvidence | None:
        """The text that says most: the strongest first, then with numbers that prove it, then with a limit."""
        return max(
            self.texts,
            key=lambda text: (text.strength, text.figures.proves_overflow, text.figures.limit is not None),
            default=None,
        )

    @property
    def vetoes(self) -> frozenset[VerdictKind]:
        return frozenset[VerdictKind]().union(*(text.vetoes for text in self.texts))


def weigh(report: ErrorReport) -> Evidence:
    """The evidence of a response."""
    has_weak_code = any(code.text in codes.NEEDING_TEXT for code in report.codes)
    told = list(_within_reason(report.texts))
    texts = (_read(said, has_weak_code=has_weak_code) for said in told)
    meanings = [(code, codes.meaning(code.text)) for code in report.codes]
    proofs = [code for code, kind in meanings if kind is VerdictKind.PROMPT]
    return Evidence(
        texts=tuple(text for text in texts if text.readings),
        proofs=(*proofs, *(said for said in told if _names_proof(said.text))),
        refusals=frozenset(kind for _, kind in meanings) - {VerdictKind.PROMPT, VerdictKind.UNKNOWN},
        stated=_figures(report.stated),
        limit_path=report.stated.limit_path,
    )


def _within_reason(texts: Iterable[ErrorText]) -> Iterator[ErrorText]:
    """The first texts, each once: relays repeat a message in every wrapper."""
    room, seen = _MAX_CHARS, set[str]()
    for said in texts:
        if said.text not in seen and len(said.text) <= room:
            room -= len(said.text)
            seen.add(said.text)
            yield said


def _read(said: ErrorText, *, has_weak_code: bool) -> TextEvidence:
    """The text's sentences and figures; figures or a code may prove what the sentences leave open."""
    readings = read_sentences(normalised(said.text))
    told = " . ".join(r.text for r in readings if r.strength or r.kind in (VerdictKind.UNKNOWN, VerdictKind.REPLY_ONLY))
    figures = read(told)
    if words.TOKEN.search(told) and max(reading.strength for reading in readings) < Strength.FAIR:
        proves = figures.proves_overflow and words.CONTEXT.search(told) is not None
        if proves or (has_weak_code and words.BOUND.search(told)):
            readings.append(Reading(told, VerdictKind.PROMPT, Strength.FAIR, names_window=proves))
    return TextEvidence(said, tuple(readings), figures)


def _names_proof(text: str) -> bool:
    return any(codes.meaning(word) is VerdictKind.PROMPT for word in _CODE_IN_TEXT.findall(text))


def _figures(stated: Stated) -> Numbers:
    figures = Numbers(limit=stated.limit, prompt=stated.prompt, requested=stated.requested, scope=stated.scope)
    if figures.limit is not None or figures.asked is not None:
        figures.unit = Unit.TOKENS
    return figures
