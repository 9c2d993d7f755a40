"""Each server's own list, as its documentation or its source shows it, cut to the members that matter here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models import Modality
from proxy.core.text import jsontext
from proxy.wire import ModelLimits, as_tokens, model_list

TEXT, VISION, AUDIO, VIDEO, FILE = Modality.TEXT, Modality.VISION, Modality.AUDIO, Modality.VIDEO, Modality.FILE


def reads(*modalities: Modality) -> frozenset[Modality]:
    return frozenset(modalities)


SHAPES: list[tuple[str, dict[str, Any], ModelLimits]] = [
    ("vLLM and SGLang state what they were started with", {"max_model_len": 40960, "root": "x"}, ModelLimits(40960)),
    ("a LoRA adapter at vLLM has none of its own", {"parent": "Qwen/Qwen3-30B", "max_model_len": None}, ModelLimits()),
    (
        "OpenRouter's first provider may take less than its best",
        {
            "context_length": 128000,
            "architecture": {"modality": "text+image->text", "input_modalities": ["text", "image", "file"]},
            "top_provider": {"context_length": 64000, "max_completion_tokens": 16384, "is_moderated": True},
        },
        ModelLimits(64000, None, 16384, reads(TEXT, VISION, FILE)),
    ),
    (
        "llama.cpp states one slot's window, and the checkpoint's beside it",
        {"owned_by": "llamacpp", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}},
        ModelLimits(8192),
    ),
    ("the checkpoint's window alone is not the server's", {"meta": {"n_ctx_train": 131072}}, ModelLimits()),
    ("Groq", {"context_window": 131072, "max_completion_tokens": 8192}, ModelLimits(131072, None, 8192)),
    (
        "Mistral with eyes",
        {"capabilities": {"completion_chat": True, "vision": True}, "max_context_length": 131072},
        ModelLimits(131072, None, None, reads(TEXT, VISION)),
    ),
    (
        "Mistral without",
        {"capabilities": {"vision": False}, "max_context_length": 256000},
        ModelLimits(256000, None, None, reads(TEXT)),
    ),
    ("Together", {"type": "chat", "context_length": 131072}, ModelLimits(131072)),
    (
        "LM Studio has loaded it with less than it could",
        {"type": "vlm", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096},
        ModelLimits(4096, None, None, reads(TEXT, VISION)),
    ),
    (
        "LM Studio has not loaded it",
        {"type": "llm", "state": "not-loaded", "max_context_length": 32768},
        ModelLimits(32768, None, None, reads(TEXT)),
    ),
    (
        "Fireworks",
        {"supports_image_input": False, "context_length": 163840},
        ModelLimits(163840, None, None, reads(TEXT)),
    ),
    (
        "Moonshot",
        {"context_length": 262144, "supports_image_in": True, "supports_video_in": True},
        ModelLimits(262144, None, None, reads(TEXT, VISION, VIDEO)),
    ),
    ("SambaNova", {"context_length": 8192, "max_completion_tokens": 4096}, ModelLimits(8192, None, 4096)),
    (
        "DeepInfra puts both under metadata",
        {"metadata": {"context_length": 163840, "max_tokens": 16384}},
        ModelLimits(163840, None, 16384),
    ),
    ("Novita", {"context_size": 131072, "max_output_tokens": 32768}, ModelLimits(131072, None, 32768)),
    ("Vercel", {"context_window": 200000, "max_tokens": 64000}, ModelLimits(200000, None, 64000)),
    (
        "Anthropic's prompt limit is used as the window",
        {"type": "model", "max_input_tokens": 200000, "max_tokens": 64000},
        ModelLimits(200000, 200000, 64000),
    ),
    (
        "GitHub Copilot limits the prompt apart from the window",
        {
            "capabilities": {
                "limits": {
                    "max_context_window_tokens": 264000,
                    "max_prompt_tokens": 128000,
                    "max_output_tokens": 64000,
                },
                "supports": {"tool_calls": True, "vision": True},
            },
        },
        ModelLimits(264000, 128000, 64000, reads(TEXT, VISION)),
    ),
    (
        "Hugging Face may pick any provider",
        {
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "providers": [{"provider": "a", "context_length": 131072}, {"provider": "b", "context_length": 65536}],
        },
        ModelLimits(65536, None, None, reads(TEXT)),
    ),
    (
        "Venice",
        {
            "model_spec": {
                "availableContextTokens": 32768,
                "maxCompletionTokens": 8192,
                "capabilities": {"supportsVision": True},
            },
        },
        ModelLimits(32768, None, 8192, reads(TEXT, VISION)),
    ),
    ("OpenAI and Ollama state nothing", {"object": "model", "owned_by": "openai"}, ModelLimits()),
    ("max_tokens alone has meant the window, too", {"max_tokens": 128000}, ModelLimits()),
    ("a number may come as text", {"context_length": "32768"}, ModelLimits(32768)),
    ("no limit is no number", {"max_model_len": 2**31}, ModelLimits()),
    ("an embedding model's window is not a chat model's", {"context_length": 256}, ModelLimits()),
    ("members of other kinds are passed over", {"meta": [], "capabilities": "all", "providers": 7}, ModelLimits()),
]


@pytest.mark.parametrize(("entry", "limits"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
def test_each_server_is_understood(entry: dict[str, Any], limits: ModelLimits) -> None:
    body = json.dumps({"object": "list", "data": [{"id": "m", **entry}]}).encode()
    found = model_list.parse(body).limits("m")
    assert replace(found, unstated=None) == limits
    assert not (found.unstated or frozenset()) & (found.modalities or frozenset())


@pytest.mark.parametrize(
    ("entry", "unstated"),
    [
        ({"capabilities": {"vision": True}}, {Modality.AUDIO, Modality.VIDEO, Modality.FILE}),
        ({"supports_image_in": True, "supports_video_in": False}, {Modality.AUDIO, Modality.FILE}),
        ({"architecture": {"input_modalities": ["text", "image"]}}, {Modality.FILE}),
        ({"architecture": {"input_modalities": ["text", "file"]}}, None),
        ({"type": "llm", "state": "loaded"}, None),
        ({}, None),
    ],
)
def test_a_flag_says_nothing_about_other_kinds_and_a_list_nothing_about_files(entry, unstated) -> None:
    assert model_list.limits_of(entry).unstated == unstated


def test_a_bare_list_is_a_list() -> None:
    assert model_list.parse(b'[{"id": "m", "context_length": 2048}]').limits("m") == ModelLimits(2048)


def test_what_is_no_list_is_refused() -> None:
    for body in (b"", b"<html>", b'{"error": {"message": "no"}}', b'"models"', b'{"data": {}}', b"[" * 100_000):
        with pytest.raises(jsontext.NotJson):
            model_list.parse(body)


def test_a_name_is_found_in_any_case_and_under_its_aliases() -> None:
    listed = model_list.parse(
        b'{"data": [{"id": "Mistral-Small-2506", "max_context_length": 131072, "aliases": ["small", 7]}]}'
    )
    assert listed.limits("mistral-small-2506") == listed.limits("SMALL") == ModelLimits(131072)
    assert listed.limits("mistral-large") == ModelLimits()


def test_llama_cpp_serves_its_model_under_every_name() -> None:
    listed = model_list.parse(b'{"data": [{"id": "a.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}]}')
    assert listed.limits("gpt-4o") == ModelLimits(4096)


def test_another_server_with_one_model_does_not() -> None:
    listed = model_list.parse(b'{"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 4096}]}')
    assert listed.limits("gpt-4o") == ModelLimits()


def test_entries_without_a_usable_name_are_left_out() -> None:
    entries = [{"id": 7}, {"id": ""}, {"id": "x" * 257}, {}, 3, None, {"id": "m", "context_length": 4096}]
    assert list(model_list.parse(json.dumps(entries).encode()).models) == ["m"]


def test_a_list_without_end_is_cut() -> None:
    entries = [{"id": f"m{number}"} for number in range(model_list.MAX_MODELS + 5)]
    assert len(model_list.parse(json.dumps(entries).encode()).models) == model_list.MAX_MODELS


def test_a_list_shows_whether_it_states_windows() -> None:
    assert model_list.parse(b'[{"id": "a"}, {"id": "b", "context_length": 4096}]').states_a_window
    assert not model_list.parse(b'[{"id": "a"}]').states_a_window


WORDS = st.sampled_from(["", "131072", "vlm", "llamacpp", "image", "m"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
FIELDS = st.sampled_from(
    ("id", "context_length", "max_model_len", "max_tokens", "n_ctx", "vision", "input_modalities", "type", "state")
) | st.sampled_from(
    ("meta", "capabilities", "limits", "supports", "providers", "architecture", "aliases", "owned_by", "top_provider")
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=6), max_leaves=10
)


@given(st.dictionaries(FIELDS, JSON, max_size=8))
def test_no_entry_raises_and_every_number_is_plausible(entry: dict[str, Any]) -> None:
    limits = model_list.limits_of(entry)
    for number in (limits.window_tokens, limits.input_tokens, limits.output_tokens):
        assert number is None or 0 < number <= 100_000_000
    listed = model_list.parse(json.dumps([entry]).encode())
    assert set(listed.models.values()) <= {limits}


@given(SCALARS)
def test_a_number_of_tokens_is_a_positive_whole_number_or_none(value: object) -> None:
    tokens = as_tokens(value)
    assert tokens is None or (type(tokens) is int and 0 < tokens <= 100_000_000 and not isinstance(value, bool))
