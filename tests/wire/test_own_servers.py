"""Answers as the documents of each server have them; docs/own-servers.md names the sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.models import Modality
from proxy.wire import ModelLimits, ModelList, own_servers

OLLAMA_PS = {
    "models": [
        {"name": "gemma3:latest", "model": "gemma3:latest", "size_vram": 5333539264, "context_length": 4096},
        {"name": "qwen3:14b", "model": "qwen3:14b", "size_vram": 0},
    ]
}
OLLAMA_SHOW = {
    "parameters": 'temperature                    0.7\nnum_ctx                        8192\nstop    "num_ctx 5"',
    "model_info": {"general.architecture": "gemma3", "gemma3.context_length": 131072},
    "capabilities": ["completion", "tools"],
}
LM_STUDIO_V1 = {
    "models": [
        {
            "type": "llm",
            "key": "google/gemma-3-12b",
            "loaded_instances": [
                {"id": "google/gemma-3-12b", "config": {"context_length": 8192, "flash_attention": True}},
                {"id": "google/gemma-3-12b:2", "config": {"context_length": 4096}},
            ],
            "max_context_length": 131072,
            "capabilities": {"vision": True, "trained_for_tool_use": True},
        },
        {"type": "llm", "key": "qwen/qwen3-4b-2507", "loaded_instances": [], "max_context_length": 262144},
        {"type": "llm", "key": "of another version", "max_context_length": 4096},
    ]
}
LM_STUDIO_V0 = {
    "data": [
        {"id": "m", "type": "vlm", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096},
        {"id": "n", "type": "llm", "state": "not-loaded", "max_context_length": 131072},
    ]
}
LLAMA_CPP = {
    "default_generation_settings": {"id": 0, "n_ctx": 16384, "params": {"n_predict": -1}},
    "total_slots": 4,
    "model_path": "../models/q.gguf",
    "modalities": {"vision": False},
}
LLAMA_CPP_ROUTER = {"role": "router", "max_instances": 4, "default_generation_settings": {"params": {}, "n_ctx": 0}}
DOCKER = [{"Backend": "llama.cpp", "Model": "ai/qwen2.5", "Mode": "completion", "Config": {"context-size": 8192}}]

CUT = {"cuts_silently": True}


def limits(read: Callable[[bytes], ModelList], answer: Any, model: str) -> ModelLimits:
    return read(json.dumps(answer).encode()).limits(model)


@pytest.mark.parametrize(
    ("read", "answer", "model", "expected"),
    [
        (own_servers.ollama_loaded, OLLAMA_PS, "gemma3:latest", ModelLimits(4096, **CUT)),
        (own_servers.ollama_loaded, OLLAMA_PS, "Gemma3", ModelLimits(4096, **CUT)),
        (own_servers.ollama_loaded, OLLAMA_PS, "qwen3:14b", ModelLimits(**CUT)),
        (own_servers.ollama_loaded, OLLAMA_PS, "llama3.2", ModelLimits()),
        (own_servers.koboldcpp_window, {"value": 8192}, "any", ModelLimits(8192, **CUT)),
        (own_servers.llama_cpp_window, LLAMA_CPP, "any", ModelLimits(16384)),
        (own_servers.llama_cpp_window, LLAMA_CPP_ROUTER, "any", ModelLimits()),
        (own_servers.lm_studio_v1, LM_STUDIO_V1, "google/gemma-3-12b:2", ModelLimits(4096)),
        (own_servers.lm_studio_v1, LM_STUDIO_V1, "qwen/qwen3-4b-2507", ModelLimits()),
        (own_servers.lm_studio_v1, LM_STUDIO_V1, "of another version", ModelLimits()),
        (own_servers.lm_studio_v0, LM_STUDIO_V0, "n", ModelLimits(modalities=frozenset({Modality.TEXT}))),
    ],
)
def test_what_is_allocated_is_read(
    read: Callable[[bytes], ModelList], answer: Any, model: str, expected: ModelLimits
) -> None:
    found = limits(read, answer, model)
    assert (found.window_tokens, found.input_tokens) == (expected.window_tokens, expected.input_tokens)
    assert found.cuts_silently is expected.cuts_silently


def test_an_lm_studio_name_means_its_smallest_instance_and_keeps_the_modalities() -> None:
    assert limits(own_servers.lm_studio_v0, LM_STUDIO_V0, "m").window_tokens == 4096
    instances = LM_STUDIO_V1 | {"models": [{**LM_STUDIO_V1["models"][0], "key": "gemma"}]}
    found = limits(own_servers.lm_studio_v1, instances, "gemma")
    assert found == ModelLimits(4096, modalities=frozenset({Modality.TEXT, Modality.VISION}))


def test_what_a_modelfile_sets_is_read_and_never_more_than_the_checkpoint_takes() -> None:
    def shown(answer: Any) -> tuple[int | None, int | None, bool | None]:
        found = own_servers.ollama_model(json.dumps(answer).encode())
        return found.window_tokens, found.largest_tokens, found.window_is_fixed

    trained = {"model_info": {"m.context_length": 2048}}
    assert shown(OLLAMA_SHOW) == (8192, 131_072, None)
    assert shown(OLLAMA_SHOW | trained) == (2048, 2048, None)
    assert shown(OLLAMA_SHOW | {"parameters": "temperature 1"})[0] is None, "the checkpoint's is no answer"
    assert shown({"remote_host": "https://ollama.com", "remote_model": "gpt-oss:120b"}) == (None, None, True)
    assert shown({"remote_host": "https://ollama.com", **trained}) == (2048, 2048, True)


def test_what_a_modelfile_puts_before_messages_and_what_a_model_reads_is_known() -> None:
    reported = {
        "system": "You are Mario.",
        "messages": [{"role": "user", "content": "Hi."}, 7],
        "capabilities": ["completion", "vision"],
    }
    found = own_servers.ollama_model(json.dumps(reported).encode())
    assert found.preamble == "You are Mario.\nHi."
    assert found.modalities == {Modality.TEXT, Modality.VISION}
    assert found.least_image_tokens == 768
    blind = own_servers.ollama_model(b'{"capabilities": ["completion"], "messages": null}')
    assert (blind.modalities, blind.preamble) == ({Modality.TEXT}, None)
    assert own_servers.ollama_model(b"{}").modalities is None


def test_each_server_is_known_by_its_own_words() -> None:
    assert own_servers.is_ollama(b'{"version": "0.15.5"}')
    assert not own_servers.is_ollama(b'{"error": "Unexpected endpoint or method. (GET /api/version)", "version": "1"}')
    assert own_servers.is_llama_cpp_router(json.dumps(LLAMA_CPP_ROUTER).encode())
    assert not own_servers.is_llama_cpp_router(json.dumps(LLAMA_CPP).encode())


def test_docker_says_what_was_configured_and_nothing_of_the_rest() -> None:
    assert own_servers.docker_window(json.dumps(DOCKER).encode()).any_name == ModelLimits(8192)
    assert own_servers.docker_window(b'[{"Model": "m", "Config": {}}, 7]') == ModelList()


READERS = [
    own_servers.ollama_loaded,
    own_servers.ollama_model,
    own_servers.koboldcpp_window,
    own_servers.llama_cpp_window,
    own_servers.is_llama_cpp_router,
    own_servers.lm_studio_v1,
    own_servers.lm_studio_v0,
    own_servers.docker_window,
    own_servers.is_ollama,
]
ANSWERS = json.dumps([OLLAMA_PS, OLLAMA_SHOW, LM_STUDIO_V1, LM_STUDIO_V0, LLAMA_CPP, DOCKER])
MEMBERS = sorted(set(re.findall(r'"(\w[\w-]*)":', ANSWERS)) | {"version", "result", "value", "role"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5),
)


@given(VALUES)
def test_no_answer_raises(answer: Any) -> None:
    body = json.dumps(answer).encode()
    assert [read(body) is not None and read(body[:-1]) is not None for read in READERS] == [True] * len(READERS)


def test_a_model_without_a_name_or_a_state_is_passed_over() -> None:
    loaded = own_servers.ollama_loaded(b'{"models": [{"context_length": 8192}, {"name": "m", "context_length": 4096}]}')
    assert list(loaded.models) == ["m"]
    listed = own_servers.lm_studio_v0(b'{"data": [{"id": "a"}, {"id": "b", "state": "loaded"}]}')
    assert list(listed.models) == ["b"]
