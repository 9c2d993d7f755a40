"""Sentence → the refusal that it states, by the word classes that it combines.

Rule: a veto applies only to its own sentence, and no single word is evidence of anything. Evidence is weighed one text
at a time; only `judging.py` compares one with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

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


_Cue: TypeAlias = re.Pattern[str] | tuple[re.Pattern[str], ...]
"""A class of words, or several of which one has to occur."""


class _Meaning(NamedTuple):
    """A sentence with these words says that the request was refused for this reason."""

    kind: VerdictKind
    has: tuple[_Cue, ...] = ()
    """All of them occur."""
    lacks: tuple[tuple[_Cue, ...], ...] = ()
    """Of none of these groups do all occur."""
    strength: Strength = Strength.NONE
    """How much it says of a prompt that is too long."""


def _too_long(strength: Strength, *has: _Cue, lacks: tuple[tuple[_Cue, ...], ...] = ()) -> _Meaning:
    return _Meaning(VerdictKind.PROMPT, has, lacks, strength)


_MEASURE: Final = (words.TOKEN, words.CHARACTERS)
_MEASURE_OF_TEXT: Final = (*_MEASURE, words.CONTEXT)
"""Not bytes, pixels or items."""
_BREAKS_THE_WINDOW: Final = (words.CONTEXT, words.EXCEED)
_NOT_OF_TEXT: Final = ((words.TOO_LONG,), (_MEASURE_OF_TEXT, (words.PROMPT, words.REQUEST)))
_RULE: Final = (_NUMBER, (words.BOUND, words.MUST))
_MEANINGS: Final = (
    *(_Meaning(kind, all_of, (_BREAKS_THE_WINDOW,)) for kind, all_of in words.FAULTS),
    _Meaning(VerdictKind.RATE, (words.RATE,)),
    _Meaning(VerdictKind.TRANSIENT, (words.RESOURCE,)),
    _Meaning(VerdictKind.FIELD, (words.TRUNCATION,)),
    _too_long(Strength.STRONG, words.NO_ROOM_LEFT),
    _too_long(Strength.STRONG, *_BREAKS_THE_WINDOW),  # the window's name outweighs words that often occur beside it
    _Meaning(VerdictKind.MEDIA, (words.COUNT, words.MEDIA, words.NONE_ALLOWED)),
    _Meaning(VerdictKind.COUNT, (words.COUNT,)),
    _Meaning(VerdictKind.AUTH, (words.FOREIGN_TOKEN,), ((words.PROMPT,),)),
    _Meaning(VerdictKind.QUOTA, (words.QUOTA,)),
    _Meaning(VerdictKind.PAIRING, (words.PAIRING, words.PAIRED)),
    _Meaning(VerdictKind.SEAL, (words.SEALED, words.BROKEN_SEAL)),
    _Meaning(VerdictKind.MEDIA, ((words.MEDIA, words.TEXT_ONLY), words.UNSUPPORTED)),
    _Meaning(VerdictKind.FIELD, (words.FIELD,)),
    _Meaning(
        VerdictKind.FIELD,
        (words.FIELD_NOUN, (words.LENGTH, words.CHARACTERS)),
        ((words.TOKEN,), (words.TOO_LONG,)),
    ),
    _Meaning(VerdictKind.BYTES, (words.MEDIA, words.EXCEED, words.BYTES), _NOT_OF_TEXT),
    _Meaning(VerdictKind.BYTES, (words.MEDIA, words.EXCEED, words.REQUEST_TOO_LARGE), ((words.PROMPT,), *_NOT_OF_TEXT)),
    _Meaning(VerdictKind.FIELD, (words.MEDIA, words.EXCEED), _NOT_OF_TEXT),
    _Meaning(VerdictKind.BYTES, (words.BYTES,), ((_MEASURE_OF_TEXT,),)),
    _Meaning(VerdictKind.BYTES, (words.REQUEST_TOO_LARGE,), ((words.PROMPT,), (_MEASURE_OF_TEXT,))),
    _Meaning(VerdictKind.POLICY, (words.POLICY,), ((_MEASURE_OF_TEXT,),)),
    _too_long(Strength.STRONG, words.PROMPT, (words.TOO_LONG, words.TOO_MANY_TOKENS)),
    _too_long(Strength.STRONG, words.EXCEED, words.PROMPT, (*_MEASURE, words.LENGTH)),
    _too_long(Strength.STRONG, words.EXCEED, _MEASURE, words.BOUND, words.REQUEST),
    _too_long(Strength.FAIR, words.EXCEED, _MEASURE, (words.BOUND, words.REQUEST)),
    _too_long(Strength.FAIR, words.EXCEED, words.PROMPT, (words.BOUND, words.TOO_LARGE)),
    _too_long(Strength.FAIR, words.EXCEED, words.REQUEST, words.LENGTH, (words.BOUND, words.OUT_OF_RANGE)),
    _too_long(Strength.FAIR, words.TOO_MANY_TOKENS),
    _too_long(Strength.FAIR, words.REQUEST, words.TOO_LONG),
    _too_long(Strength.FAIR, words.EXCEED, words.LENGTH, words.BARE_LIMIT),
    _too_long(Strength.FAIR, *_RULE, words.CONTEXT, lacks=((words.MINIMUM,),)),
    _too_long(Strength.FAIR, *_RULE, words.PROMPT, (*_MEASURE, words.LENGTH), lacks=((words.MINIMUM,),)),
    _too_long(Strength.HINT, *_RULE, _MEASURE, lacks=((words.MINIMUM,),)),
    _too_long(Strength.HINT, *_RULE, words.REQUEST, words.LENGTH, lacks=((words.MINIMUM,),)),
    _too_long(Strength.HINT, words.REDUCE, (words.PROMPT, words.CONTEXT)),
    _too_long(Strength.HINT, words.REDUCE, _MEASURE, words.REQUEST),
    _Meaning(VerdictKind.REPLY_ONLY, (words.REPLY_PARAMETER,)),
    _Meaning(VerdictKind.REPLY_ONLY, (words.REPLY, words.EXCEED)),
    _Meaning(VerdictKind.POLICY, (words.POLICY,)),
    _Meaning(VerdictKind.AUTH, (words.AUTH,)),
    _Meaning(VerdictKind.TRANSIENT, (words.TRANSIENT,)),
    _Meaning(VerdictKind.UNKNOWN),
)
"""The first that holds decides."""
_ALSO_OF_THE_PROMPT: Final[tuple[tuple[_Cue, ...], ...]] = (
    (words.LEFT, words.CONTEXT),
    (words.PROMPT, (words.CONTEXT, words.SUM)),
    (words.NO_ROOM_LEFT,),
)
"""A sentence about the reply with these is about the prompt, too: their sum, both of them, or what is left."""


def _has(text: str, *cues: _Cue) -> bool:
    """Whether a sentence has words of all these classes."""
    return all(any(one.search(text) for one in cue) if isinstance(cue, tuple) else cue.search(text) for cue in cues)


def _read_sentence(text: str) -> Reading:
    rows = (row for row in _MEANINGS if _has(text, *row.has) and not any(_has(text, *cues) for cues in row.lacks))
    meaning = next(rows)
    if not meaning.strength:
        return Reading(text, meaning.kind)
    kind = VerdictKind.PROMPT
    if _has(text, words.REPLY):
        if not any(_has(text, *cues) for cues in _ALSO_OF_THE_PROMPT):
            return Reading(text, VerdictKind.REPLY_ONLY)
        if meaning.strength > Strength.HINT:  # what to shorten is advice, and does not say what was too long
            kind = VerdictKind.PROMPT_PLUS_REPLY
    return Reading(text, kind, meaning.strength, _has(text, words.CONTEXT))


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
    report: ErrorReport
    """What it is of."""

    @property
    def is_proven(self) -> bool:
        return bool(self.proofs) or self.report.stated.proves_overflow

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
        report=report,
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
