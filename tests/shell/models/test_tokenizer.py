from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import tiktoken
import tiktoken.registry
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.tokens import ByteClassCounter
from proxy.shell.models import counter_for, tokenizer
from proxy.shell.models.tokenizer import MAX_COUNTED_CHARACTERS, SLICE_CHARACTERS, TiktokenCounter

ENCODINGS = ["o200k_base", "cl100k_base"]
TEXTS = st.text(st.characters(exclude_categories=()), max_size=300) | st.text(
    "abAB01 \n\r\t./}'sé令😀\ud800\u2028\u00a0\u0301", max_size=300
)


LONG = "".join(f"line {number} of a long log, with a little more to say\n" for number in range(12_000))
SPECIAL = "<|endoftext|>"


def texts_to_count() -> list[str]:
    """What a property would try: to count a text with both sides at once would need both vocabularies."""
    found = [Path(tokenizer.__file__).read_text(encoding="utf-8"), SPECIAL, LONG]

    @given(TEXTS)
    def keep(text: str) -> None:
        found.append(text)

    keep()
    return found


@pytest.fixture(scope="module", params=ENCODINGS)
def counts(request):
    """Texts with our counts and those of tiktoken's own encoding, one after the other: each takes 50 MB and more.

    tiktoken finds its vocabulary because our folder is like its cache."""
    texts = texts_to_count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(tokenizer.VOCABULARY_FOLDER))
        patch.setattr(socket, "getaddrinfo", refuse)
        tokenizer._load.cache_clear()
        counter = counter_for(request.param, "gpt-4o")
        ours = [counter.count(text) for text in texts]
        tokenizer._load.cache_clear()
        encoding = tiktoken.get_encoding(request.param)
        tiktoken.registry.ENCODINGS.clear()  # which would keep it
        theirs = [len(encoding.encode(text, disallowed_special=())) for text in texts]
    return dict(zip(texts, zip(ours, theirs, strict=True), strict=True))


refuse = Mock(side_effect=AssertionError("the network was asked"))


def failing(error: BaseException) -> Callable[[str], int]:
    """Counting by an encoding that raises."""
    return partial(tokenizer._counted, Mock(encode_ordinary=Mock(side_effect=error)))


class PanicException(BaseException):
    """An exception with the name that pyo3 gives to a panic in Rust."""


def test_a_text_has_as_many_tokens_as_tiktoken_says(counts):
    assert len(counts) > 80
    assert {text: both for text, both in counts.items() if both[0] != both[1] and text != LONG} == {}


def test_special_tokens_in_a_text_are_text(counts):
    assert counts[SPECIAL][0] > 1


def test_a_long_text_is_cut_behind_newlines_and_loses_at_most_a_token_a_cut(counts):
    assert len(LONG) > 2 * SLICE_CHARACTERS
    ours, theirs = counts[LONG]
    assert abs(ours - theirs) <= len(LONG) // SLICE_CHARACTERS


@pytest.mark.parametrize(
    ("character", "times", "tokens"),
    [
        (" ", 1_000_300, 7_816),
        ("a", 1_000_000, 125_000),
        ("\n", 1_000_000, 62_500),
        ("\ud800", 100_000, 12_500),
        ("令", 300_000, 300_000),
    ],
    ids=["blanks", "letters", "newlines", "surrogates", "han"],
)
def test_long_runs_are_counted_without_a_panic(character, times, tokens):
    counted = counter_for("o200k_base", "gpt-4o").count(character * times)
    assert abs(counted - tokens) <= times // SLICE_CHARACTERS + 1


def test_slices_put_together_are_the_text():
    text = ("x" * 100_000 + "\n") * 5 + "y" * 700_000
    slices = list(tokenizer._slices(text))
    assert "".join(slices) == text
    assert max(map(len, slices)) <= SLICE_CHARACTERS
    assert [piece.endswith("\n") for piece in slices] == [True, True, True, False, False, False]


def test_a_text_past_every_window_is_estimated():
    text = "x" * (MAX_COUNTED_CHARACTERS + 1)
    assert counter_for("o200k_base", "gpt-4o").count(text) == ByteClassCounter().count(text)


@pytest.mark.parametrize("error", [ValueError("gave up"), PanicException("gave up")])
def test_the_estimate_replaces_a_tokenizer_that_fails(monkeypatch, error):
    monkeypatch.setattr("proxy.shell.models.tokenizer._count_with", lambda name: failing(error))
    assert TiktokenCounter("o200k_base", exact=True).count("some text") == ByteClassCounter().count("some text")


def test_an_interrupt_is_not_taken_for_a_panic(monkeypatch):
    monkeypatch.setattr("proxy.shell.models.tokenizer._count_with", lambda name: failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        TiktokenCounter("o200k_base", exact=True).count("some text")


COUNTED_BY = {
    "o200k_base": "gpt-4o gpt-4o-mini-2024-07-18 openai/gpt-4.1-nano openrouter/openai/gpt-5.1-codex gpt-5 GPT-4o "
    "chatgpt-4o-latest o1 o3-mini o4-mini ft:gpt-4o:acme::7p4lurel openai/gpt-oss-120b:free gpt-oss:20b",
    "cl100k_base": "gpt-4 gpt-4-turbo gpt-4-0613 gpt-3.5-turbo-16k azure/gpt-35-turbo",
    "bytes:qwen": "qwen3-32b Qwen/Qwen2.5-Coder-32B-Instruct-AWQ qwen-max qwen3-coder:480b-cloud qwq-32b "
    "qwen.qwen3-32b-v1:0 DeepSeek-R1-Distill-Qwen-32B deepseek-r1-0528-qwen3-8b moonshotai/Kimi-Dev-72B",
    "bytes:deepseek": "deepseek-chat deepseek-reasoner deepseek/deepseek-chat-v3.1:free deepseek-r1 deepseek-r1-0528 "
    "deepseek-ai/DeepSeek-V3.2-Exp deepseek-r1:671b deepseek-v4-pro",
    "bytes:glm": "glm-4.5-air z-ai/glm-4.6 glm4:9b GLM-4.5V-FP8 glm-5 THUDM/glm-z1-9b zai.glm-4.7",
    "bytes:kimi": "kimi-k2-0905-preview moonshotai/Kimi-K2-Instruct kimi-k2.5 kimi-latest moonshot-v1-128k "
    "moonshot.kimi-k2-thinking",
    # other vocabularies: older ones, those of distilled models, and names of which nothing is known
    "bytes": "codeqwen1.5-7b qwenster deepseek-coder-6.7b deepseek-v2.5 deepseek-r1:8b deepseek-r1:1.5b "
    "DeepSeek-R1-Distill-Llama-70B chatglm3-6b glm-40 kimi-audio-7b kimis my-model gpt-4all gpt-50 o1labs gpt-j-6b "
    "anthropic/claude-sonnet-4",
}


@pytest.mark.parametrize(("name", "models"), COUNTED_BY.items(), ids=COUNTED_BY)
def test_openai_models_are_counted_exactly_and_others_estimated_each_measured_family_by_its_own(name, models):
    counters = [counter_for(None, model) for model in models.split()]
    assert {(counter.name, counter.exact) for counter in counters} == {(name, not name.startswith("bytes"))}
    assert counter_for(None, "").name == "bytes"


def test_a_name_of_a_megabyte_is_not_remembered():
    name = "gpt-4o" + "-" * 1_000_000
    held = sys.getrefcount(name)
    assert counter_for(None, name).name == counter_for(None, name[:256]).name
    assert sys.getrefcount(name) == held


def test_a_configured_bytes_is_the_general_estimate_for_a_family_too():
    assert counter_for("bytes", "qwen3-32b") == ByteClassCounter()
    assert counter_for(None, "qwen3-32b") != ByteClassCounter()


def test_models_that_tiktoken_knows_have_the_encoding_that_it_says():
    exact = {"o200k_base", "cl100k_base", "o200k_harmony"}
    known = {**tiktoken.model.MODEL_TO_ENCODING, **tiktoken.model.MODEL_PREFIX_TO_ENCODING}
    chat = {
        name: encoding for name, encoding in known.items() if encoding in exact and name.startswith(("gpt", "o", "c"))
    }
    assert len(chat) > 15
    assert {name: counter_for(None, name).name for name in chat} == {
        name: encoding.replace("harmony", "base") for name, encoding in chat.items()
    }


def test_a_configured_encoding_wins_and_is_exact_only_for_its_own_models():
    assert counter_for("o200k_base", "qwen3-32b") == TiktokenCounter("o200k_base", exact=False)
    assert counter_for("o200k_base", "gpt-4o") == TiktokenCounter("o200k_base", exact=True)
    assert counter_for("cl100k_base", "gpt-4o") == TiktokenCounter("cl100k_base", exact=False)


@pytest.mark.parametrize("configured", ["bytes", "p50k_base", "no such encoding"])
def test_a_configured_name_without_a_vocabulary_means_the_estimate(configured):
    assert counter_for(configured, "gpt-4o") == ByteClassCounter()


@pytest.mark.parametrize("contents", [None, b"", b"IQ== 0\n"])
def test_without_its_whole_vocabulary_a_model_is_estimated_and_no_network_used(monkeypatch, tmp_path, contents):
    if contents is not None:
        (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(contents)
    monkeypatch.setattr("proxy.shell.models.tokenizer.VOCABULARY_FOLDER", tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    tokenizer._counter_for.cache_clear()
    tokenizer._is_installed.cache_clear()
    try:
        assert counter_for(None, "gpt-4o") == ByteClassCounter()
    finally:
        tokenizer._counter_for.cache_clear()
        tokenizer._is_installed.cache_clear()


def test_threads_that_come_at_once_load_the_vocabulary_once(monkeypatch):
    tokenizer._load.cache_clear()
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(TiktokenCounter("cl100k_base", exact=True).count("hello world")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2, 2, 2, 2]
    assert tokenizer._load.cache_info().misses == 1


def test_the_environment_stays_as_it_is(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/nowhere")
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    tokenizer._load.cache_clear()
    assert counter_for(None, "gpt-4").count("hello world") == 2
    assert sys.modules["os"].environ["TIKTOKEN_CACHE_DIR"] == "/nowhere"
