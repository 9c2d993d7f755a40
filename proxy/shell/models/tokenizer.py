"""Chooses the counter for a model: tiktoken with the vocabulary installed with the proxy, or the estimate.

Rule: nothing here uses the network, reads or sets the environment, or raises for any text. The same text has the same
count on every machine, so the work is bounded by length, never by a clock (measured: 0.09 s a megabyte of code, 0.6 s
of random capitals without spaces, the worst found; above 32 KB a thread's work, as tiktoken lets other threads run).
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from proxy.core.models import last_part, plainest
from proxy.core.tokens import DEEPSEEK, GLM, KIMI, QWEN, ByteClassCounter, Counter
from proxy.wire import MAX_NAME_CHARS

if TYPE_CHECKING:
    from tiktoken import Encoding

VOCABULARY_FOLDER: Final = Path(__file__).parents[2] / "vocabulary"
"""Filled by tools/build_hooks.py when the package is built or installed."""

SLICE_CHARACTERS: Final = 262_144
"""tiktoken's regex engine gives up on a run of about a million blanks; a quarter of that is well below it."""
MAX_COUNTED_CHARACTERS: Final = 8_388_608
"""Longer texts are over twice the size of any window; no tokenizer is needed to see that they are too long."""

_ESTIMATE: Final = ByteClassCounter()
_loading: Final = threading.Lock()


class _Vocabulary(Struct, frozen=True):
    """The definition of an OpenAI encoding; the figures are those of tiktoken_ext/openai_public.py."""

    file_name: str
    """sha1 of the address that tiktoken downloads it from, so that TIKTOKEN_CACHE_DIR may point to our folder, too."""
    sha256: str
    pattern: str
    """Splits a text into the pieces within which bytes are merged."""


_VOCABULARIES: Final = {
    "o200k_base": _Vocabulary(
        file_name="fb374d419588a4632f3f557e76b4b70aebbca790",
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    "cl100k_base": _Vocabulary(
        file_name="9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
    ),
}

_FAMILIES: Final = (
    ("o200k_base", re.compile(r"(?:chatgpt|gpt-4o|gpt-4\.[15]|gpt-5|gpt-oss|codex-mini|o[134])(?![a-z0-9])")),
    ("cl100k_base", re.compile(r"gpt-(?:4|3\.5|35)(?![a-z0-9.])")),
)
"""OpenAI's chat models by the beginning of their names, as in tiktoken/model.py; gpt-oss has o200k_base's ranks."""

_ESTIMATED_FAMILIES: Final = tuple(
    (ByteClassCounter(weights), re.compile(names))
    for weights, names in (
        # Distilled and fine-tuned models have the vocabulary of their base: huggingface.co/deepseek-ai/DeepSeek-R1
        # ("based on Qwen2.5"), huggingface.co/moonshotai/Kimi-Dev-72B ("base model: Qwen/Qwen2.5-72B").
        (QWEN, r"(?:qwen|qwq|qvq)(?![a-z])|deepseek-r1-.*qwen|kimi-dev(?![a-z])"),
        # V3 and its successors. Earlier models had other vocabularies; Ollama's `deepseek-r1:8b` is a distilled model.
        (
            DEEPSEEK,
            r"deepseek-(?:chat|reasoner|v[3-9]|r[1-9])(?![a-z0-9])(?!.*(?:distill|llama|[-:](?:1\.5|\d\d?)b(?![a-z0-9])))",
        ),
        (GLM, r"glm-?(?:[4-9]|z1)(?![0-9])"),
        (KIMI, r"(?:kimi(?!-audio)|moonlight|moonshot-v1)(?![0-9a-z])"),
    )
)
"""Families whose vocabulary is not installed, but whose token counts are known."""


class TiktokenCounter(Struct, frozen=True):
    """Counts as OpenAI's models do; the vocabulary is loaded at the first count and shared by the whole process."""

    name: str
    exact: bool

    def count(self, text: str) -> int:
        """Tokens. Special tokens such as `<|endoftext|>` count as the plain text that they are in a request."""
        if not text:
            return 0
        if len(text) > MAX_COUNTED_CHARACTERS:
            return _ESTIMATE.count(text)
        count = _count_with(self.name)
        return count(text) if len(text) <= SLICE_CHARACTERS else sum(map(count, _slices(text)))


def counter_for(tokenizer: str | None, model: str) -> Counter:
    """The configured counter (`o200k_base`, `cl100k_base`, `bytes`), or the one that the model's name suggests.

    A configured encoding counts for any model, but is `exact` only for those that OpenAI made with it. Unknown names,
    and encodings whose vocabulary is not installed, get the general estimate.
    """
    return _counter_for(tokenizer, model[:MAX_NAME_CHARS])  # foreign input is remembered in bounded length


@functools.lru_cache(1024)
def _counter_for(tokenizer: str | None, model: str) -> Counter:
    plain = plainest(last_part(model))
    own = next((encoding for encoding, family in _FAMILIES if family.match(plain)), None)
    name = tokenizer if tokenizer is not None else own
    if name is None:
        return next((counter for counter, family in _ESTIMATED_FAMILIES if family.match(plain)), _ESTIMATE)
    return TiktokenCounter(name, exact=name == own) if _is_installed(name) else _ESTIMATE


@functools.cache
def _is_installed(name: str) -> bool:
    return name in _VOCABULARIES and _contents(_VOCABULARIES[name]) is not None


def _contents(vocabulary: _Vocabulary) -> bytes | None:
    try:
        contents = (VOCABULARY_FOLDER / vocabulary.file_name).read_bytes()
    except OSError:
        return None
    return contents if hashlib.sha256(contents).hexdigest() == vocabulary.sha256 else None


def _count_with(name: str) -> Callable[[str], int]:
    with _loading:  # otherwise two threads would both load, at 80 MB each
        return _load(name)


@functools.cache
def _load(name: str) -> Callable[[str], int]:
    """Made from our file: tiktoken.get_encoding would download a file that its cache lacks."""
    from tiktoken import Encoding  # noqa: PLC0415  # 27 ms that a start need not wait for

    vocabulary = _VOCABULARIES[name]
    ranks = _ranks(_contents(vocabulary) or b"")
    encoding = Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)}
    )
    ranks.clear()  # the encoding keeps it for calls never made here, and counts with its own copy: 22 MB
    return partial(_counted, encoding)


def _ranks(contents: bytes) -> dict[bytes, int]:
    """Ranks by token. A function of its own: its words take 30 MB, freed before the encoding takes as much."""
    words = contents.split()  # a line: the token in base64, its rank
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _slices(text: str) -> Iterator[str]:
    """Cut after the last newline of each SLICE_CHARACTERS, else at their end: at most one extra token for each cut."""
    start = 0
    while len(text) - start > SLICE_CHARACTERS:
        end = text.rfind("\n", start, start + SLICE_CHARACTERS) + 1 or start + SLICE_CHARACTERS
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _counted(encoding: Encoding, text: str) -> int:
    try:
        return len(encoding.encode_ordinary(text))
    except ValueError:  # its regex engine gave up
        return _ESTIMATE.count(text)
    except BaseException as panic:  # a panic in Rust arrives as a BaseException of a class that cannot be imported
        if type(panic).__name__ != "PanicException":
            raise
        return _ESTIMATE.count(text)
