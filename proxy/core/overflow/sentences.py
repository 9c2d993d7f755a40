"""Sentence → the refusal that it states, by the word classes that it combines; report → evidence.

Rule: a veto applies only to its own sentence, and no single word is evidence of anything. Evidence is weighed one text
at a time; only `judging.py` compares one with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from msgspec import Struct

from proxy.core.models import Modality
from proxy.core.overflow import words
from proxy.core.overflow.languages import in_english
from proxy.core.overflow.numbers import read
from proxy.core.overflow.patterns import NOISE
from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText, Figures, VerdictKind


class Strength(IntEnum):
    """How much a sentence proves."""

    NONE = 0
    HINT = 1
    """Only advice, or only a limit: "please reduce the length of the messages", "max size: 8000 tokens"."""
    FAIR = 2
    """An excess without the name of the window, or a rule about length instead of an excess."""
    STRONG = 3
    """The prompt, or the window by its name, and the excess."""


class Reading(Struct, frozen=True):
    """The meaning of one sentence."""

    text: str
    kind: VerdictKind = VerdictKind.UNKNOWN
    strength: Strength = Strength.NONE
    names_window: bool = False


_PLAIN: Final = str.maketrans(
    dict.fromkeys('`"“”「」『』*', " ")
    | {"‘": "'", "’": "'", "：": ":", "，": ", ", "（": "(", "）": ")", "＞": ">", "＝": "="}
    | dict(
        zip(
            "輸過長個為請對話會內數視應訊權詞總計實際縮減圍範額餘費頻併發時間錯誤無資違規審圖檔體節歷壓簡與開達補覆產處稱標題請讓條僅傳據斷",
            "输过长个为请对话会内数视应讯权词总计实际缩减围范额余费频并发时间错误无资违规审图档体节历压简与开达补复产处称标题请让条仅传据断",
            strict=True,
        )
    )
)
"""Traditional characters of the vocabulary are read as simplified ones."""
_SPACES: Final = re.compile(r"\s+")
_SENTENCE_END: Final = re.compile(r"(?<=[a-z0-9)\]'一-鿿][.!?])\s+(?=\D)|[。！？；]|\s\|\s")
_TAIL: Final = re.compile(
    r"received model group=|available model group|enable litellm\.|\(request id:|traceback \(most"
)
"""Text that relays append: LiteLLM's model groups, new-api's request ids."""
_ADDRESS: Final = re.compile(r"https?://[^\s\u3000-\u9fff]*[^\s.,;:)\]'\u3000-\u9fff]")
_MAX_SENTENCES: Final = 64
_WORD: Final = re.compile(r"[^\W_]+")
_WORD_INSIDE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PATH: Final = re.compile(r"(?<!\S)/[\w./-]+")
_LONGEST_WITHOUT_MEANING: Final = 400
"""Characters; a gateway's page has about a hundred without its tags."""
_NUMBER: Final = re.compile(r"\d{3}|\d ?[km]\b|万")


def normalised(text: str) -> str:
    """Lower case, plain quotes and spaces, the words of refusals in English, without addresses and the text that relays
    append."""
    return in_english(_plain(text))


def _plain(text: str) -> str:
    text = _SPACES.sub(" ", _ADDRESS.sub(" ", text.translate(_PLAIN).lower()))
    if tail := _TAIL.search(text, 1):
        text = text[: tail.start()]
    return text.strip()


def read_sentences(text: str) -> list[Reading]:
    """The readings of a normalised text, sentence by sentence."""
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip(" .")]
    readings = [_read_sentence(sentence) for sentence in sentences[:_MAX_SENTENCES]]
    if words.BATCH.search(text):
        return [Reading(reading.text, VerdictKind.FIELD) for reading in readings]
    if words.QUOTES_A_VALUE.match(text):  # its sentences may be the client's
        readings = [Reading(read.text, VerdictKind.FIELD) if read.strength else read for read in readings]
    for index in range(1, len(readings)):
        before = readings[index - 1]
        if before.strength is Strength.NONE and words.POINTS_BACK.search(readings[index].text):
            readings[index] = Reading(readings[index].text, before.kind)
    return readings


def _read_sentence(text: str) -> Reading:
    sentence = _Sentence(text)
    if (veto := _named_fault(sentence) or _veto(sentence)) is not None:
        return Reading(text, veto)
    strength = _strength(sentence)
    if strength is Strength.NONE:
        return Reading(text, _otherwise(sentence))
    kind = VerdictKind.PROMPT
    if sentence.has(words.REPLY):
        kind = VerdictKind.PROMPT_PLUS_REPLY if _is_joint(sentence) else VerdictKind.REPLY_ONLY
    if kind is VerdictKind.REPLY_ONLY:
        return Reading(text, kind)
    if strength is Strength.HINT:
        kind = VerdictKind.PROMPT  # what to shorten is advice, and says nothing about what was too long
    return Reading(text, kind, strength, sentence.has(words.CONTEXT))


class _Sentence:
    """The word classes in a sentence; each is searched for at most once."""

    __slots__ = ("_found", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._found: dict[re.Pattern[str], bool] = {}

    def has(self, pattern: re.Pattern[str]) -> bool:
        if (found := self._found.get(pattern)) is None:
            found = self._found[pattern] = pattern.search(self.text) is not None
        return found

    @property
    def breaks_the_window(self) -> bool:
        return self.has(words.CONTEXT) and self.has(words.EXCEED)

    @property
    def measures_bytes(self) -> bool:
        return self.has(words.BYTES) or (self.has(words.REQUEST_TOO_LARGE) and not self.has(words.PROMPT))

    @property
    def measures_text(self) -> bool:
        """Tokens, characters or the window, but not bytes, pixels or items."""
        return self.has(words.TOKEN) or self.has(words.CHARACTERS) or self.has(words.CONTEXT)


_VETOES_WHATEVER_ELSE: Final = (
    (words.RATE, VerdictKind.RATE),
    (words.RESOURCE, VerdictKind.TRANSIENT),
    (words.TRUNCATION, VerdictKind.FIELD),
)


def _veto(sentence: _Sentence) -> VerdictKind | None:
    """Another reason that the sentence gives. The window's name outweighs words that often occur beside it."""
    for words_of, kind in _VETOES_WHATEVER_ELSE:
        if sentence.has(words_of):
            return kind
    if sentence.breaks_the_window:
        return None
    if sentence.has(words.COUNT):
        return (
            VerdictKind.MEDIA if sentence.has(words.MEDIA) and sentence.has(words.NONE_ALLOWED) else VerdictKind.COUNT
        )
    if sentence.has(words.FOREIGN_TOKEN) and not sentence.has(words.PROMPT):
        return VerdictKind.AUTH
    if sentence.has(words.QUOTA):
        return VerdictKind.QUOTA
    if (fault := _fault_of_history(sentence)) is not None:
        return fault
    if sentence.has(words.MEDIA) and sentence.has(words.UNSUPPORTED):
        return VerdictKind.MEDIA
    if sentence.has(words.FIELD) or (
        sentence.has(words.FIELD_NOUN)
        and (sentence.has(words.LENGTH) or sentence.has(words.CHARACTERS))
        and not sentence.has(words.TOKEN)
        and not sentence.has(words.TOO_LONG)
    ):
        return VerdictKind.FIELD
    is_about_text = sentence.has(words.PROMPT) or sentence.has(words.REQUEST)
    if (
        sentence.has(words.MEDIA)
        and sentence.has(words.EXCEED)
        and not sentence.has(words.TOO_LONG)
        and not (sentence.measures_text and is_about_text)
    ):
        return VerdictKind.BYTES if sentence.measures_bytes else VerdictKind.FIELD
    if sentence.measures_text:
        return None
    if sentence.measures_bytes:
        return VerdictKind.BYTES
    return VerdictKind.POLICY if sentence.has(words.POLICY) else None


def _named_fault(sentence: _Sentence) -> VerdictKind | None:
    """The fault of a history that a sentence names by all of its words."""
    if sentence.breaks_the_window:
        return None
    return next((kind for kind, all_of in words.FAULTS if all(map(sentence.has, all_of))), None)


def _fault_of_history(sentence: _Sentence) -> VerdictKind | None:
    if sentence.has(words.PAIRING) and sentence.has(words.PAIRED):
        return VerdictKind.PAIRING
    return VerdictKind.SEAL if sentence.has(words.SEALED) and sentence.has(words.BROKEN_SEAL) else None


def _otherwise(sentence: _Sentence) -> VerdictKind:
    """The subject of a sentence that says nothing about length."""
    if sentence.has(words.REPLY_PARAMETER) or (sentence.has(words.REPLY) and sentence.has(words.EXCEED)):
        return VerdictKind.REPLY_ONLY
    if sentence.has(words.POLICY):
        return VerdictKind.POLICY
    if sentence.has(words.AUTH):
        return VerdictKind.AUTH
    return VerdictKind.TRANSIENT if sentence.has(words.TRANSIENT) else VerdictKind.UNKNOWN


def _strength(sentence: _Sentence) -> Strength:
    prompt, request, measure = (
        sentence.has(words.PROMPT),
        sentence.has(words.REQUEST),
        sentence.has(words.TOKEN) or sentence.has(words.CHARACTERS),
    )
    if sentence.breaks_the_window or (prompt and (sentence.has(words.TOO_LONG) or sentence.has(words.TOO_MANY_TOKENS))):
        return Strength.STRONG
    if sentence.has(words.EXCEED):
        if prompt and (measure or sentence.has(words.LENGTH)):
            return Strength.STRONG
        if measure and sentence.has(words.BOUND):
            return Strength.STRONG if request else Strength.FAIR
        is_bounded = sentence.has(words.BOUND) or sentence.has(words.OUT_OF_RANGE)
        if (measure and request) or (prompt and (sentence.has(words.BOUND) or sentence.has(words.TOO_LARGE))):
            return Strength.FAIR
        if request and sentence.has(words.LENGTH) and is_bounded:
            return Strength.FAIR
    if sentence.has(words.TOO_MANY_TOKENS) or (request and sentence.has(words.TOO_LONG)):
        return Strength.FAIR
    if sentence.has(words.EXCEED) and sentence.has(words.LENGTH) and words.BARE_LIMIT.fullmatch(sentence.text):
        return Strength.FAIR
    is_rule = (
        sentence.has(_NUMBER)
        and (sentence.has(words.BOUND) or sentence.has(words.MUST))
        and not sentence.has(words.MINIMUM)
    )
    if is_rule and (sentence.has(words.CONTEXT) or (prompt and (measure or sentence.has(words.LENGTH)))):
        return Strength.FAIR
    if is_rule and (measure or (request and sentence.has(words.LENGTH))):
        return Strength.HINT
    if sentence.has(words.REDUCE) and (prompt or sentence.has(words.CONTEXT) or (measure and request)):
        return Strength.HINT
    return Strength.NONE


def _is_joint(sentence: _Sentence) -> bool:
    """Whether a sentence about the reply is also about the prompt: their sum, both of them, or what is left."""
    if sentence.has(words.LEFT) and sentence.has(words.CONTEXT):
        return True
    return sentence.has(words.PROMPT) and (sentence.has(words.CONTEXT) or sentence.has(words.SUM))


def says_nothing(text: str) -> bool:
    """Whether a text names no cause, as far as its words are known.

    >>> says_nothing("400 Bad Request nginx/1.25.3"), says_nothing("BadRequestError: OpenAIException - ")
    (True, True)
    >>> says_nothing("Bad role")
    False
    """
    if len(text) > _LONGEST_WITHOUT_MEANING:
        return False
    plain = NOISE.sub(" ", normalised(_WORD_INSIDE.sub(" ", text)))
    return all(words.WITHOUT_MEANING.fullmatch(word) for word in _WORD.findall(_PATH.sub(" ", plain)))


def is_unread(text: str) -> bool:
    """Whether a text is in a language of which no word is read here.

    >>> is_unread("ความยาวเกินขีดจำกัด"), is_unread("Café closed by the owner"), is_unread("参数 role 非法")
    (True, False, False)
    """
    foreign = [letter for letter in text if letter.isalpha() and not letter.isascii()]
    plain = _plain(text)
    is_read = in_english(plain) != plain or words.ENGLISH.search(plain) is not None
    return bool(foreign) and not is_read and not any("\u4e00" <= letter <= "\u9fff" for letter in foreign)


def refused_media(text: str) -> frozenset[Modality]:
    """The kinds of input that a normalised refusal names, except those that it lists as allowed; none if it is about
    media in general, when it may mean any that was sent.

    >>> [kind.value for kind in refused_media("unknown variant audio, expected one of text, image_url")]
    ['audio']
    """
    return _media_in(words.ALLOWED_MEDIA.sub("", text, count=1)) or _media_in(text)


def _media_in(text: str) -> frozenset[Modality]:
    return frozenset(modality for modality, named in words.KINDS_OF_MEDIA.items() if named.search(text))


def is_about_the_model(text: str) -> bool:
    """Whether a normalised refusal applies to all content of that kind, not just this one or this place.

    >>> is_about_the_model("image input is not supported"), is_about_the_model("unsupported image format")
    (True, False)
    """
    return words.ONE_CONTENT.search(text) is None and words.MESSAGE_OF_A_ROLE.search(text) is None


_MAX_CHARS: Final = 16_384
"""Limit of all texts together; the longest refusal seen has two thousand."""
_CODE_IN_TEXT: Final = re.compile(r"\b(?:[a-z]{3,20}(?:_[a-z]{1,20}){1,5}|(?:[A-Z][a-z]{2,20}){3,6})\b")
"""`context_length_exceeded`, LiteLLM's `ContextWindowExceededError`."""


class TextEvidence(Struct, frozen=True):
    """One text, read."""

    source: ErrorText
    readings: tuple[Reading, ...]
    figures: Figures

    @property
    def best(self) -> Reading:
        return max(self.readings, key=lambda reading: (reading.strength, reading.names_window))

    @property
    def strength(self) -> Strength:
        """The best sentence's strength; a fair one becomes strong if numbers prove it or a second sentence is about
        length."""
        strength = self.best.strength
        about_length = (reading for reading in self.readings if reading.strength or words.CONTEXT.search(reading.text))
        is_backed = self.figures.proves_overflow or len(list(about_length)) > 1
        return Strength.STRONG if strength is Strength.FAIR and is_backed else strength

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
    stated: Figures
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

    @property
    def readings(self) -> list[Reading]:
        """Readings of all texts."""
        return [reading for text in self.texts for reading in text.readings]


def weigh(report: ErrorReport) -> Evidence:
    """The evidence of a response."""
    has_weak_code = any(code.text in words.NEEDING_TEXT for code in report.codes)
    considered = list(_within_reason(report.texts))
    texts = (_read_text(source, has_weak_code=has_weak_code) for source in considered)
    meanings = [(code, words.meaning(code.text)) for code in report.codes]
    proofs = [code for code, kind in meanings if kind is VerdictKind.PROMPT]
    return Evidence(
        texts=tuple(text for text in texts if text.readings),
        proofs=(*proofs, *(source for source in considered if _names_proof(source.text))),
        refusals=frozenset(kind for _, kind in meanings) - {VerdictKind.PROMPT, VerdictKind.UNKNOWN},
        stated=report.stated,
        limit_path=report.limit_path,
    )


def _within_reason(texts: Iterable[ErrorText]) -> Iterator[ErrorText]:
    """The first texts, each once: relays repeat a message in every wrapper."""
    room, seen = _MAX_CHARS, set[str]()
    for source in texts:
        if source.text not in seen and len(source.text) <= room:
            room -= len(source.text)
            seen.add(source.text)
            yield source


def _read_text(source: ErrorText, *, has_weak_code: bool) -> TextEvidence:
    """The text's sentences and figures; figures or a code may prove what the sentences leave open."""
    readings = read_sentences(normalised(source.text))
    joined = " . ".join(
        r.text for r in readings if r.strength or r.kind in (VerdictKind.UNKNOWN, VerdictKind.REPLY_ONLY)
    )
    figures = read(joined)
    if words.TOKEN.search(joined) and max(reading.strength for reading in readings) < Strength.FAIR:
        proves = figures.proves_overflow and words.CONTEXT.search(joined) is not None
        if proves or (has_weak_code and words.BOUND.search(joined)):
            readings.append(Reading(joined, VerdictKind.PROMPT, Strength.FAIR, names_window=proves))
    return TextEvidence(source, tuple(readings), figures)


def _names_proof(text: str) -> bool:
    return any(words.meaning(word) is VerdictKind.PROMPT for word in _CODE_IN_TEXT.findall(text))
