"""Windows allocated by self-hosted servers, read from each server's own format.

Rule: the allocated window, never the checkpoint's maximum; a model that is not loaded has no window yet. A response of
another shape states nothing, and none raises. docs/own-servers.md lists the servers and their endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from proxy.core.models import Certainty, Modality
from proxy.core.text import jsontext
from proxy.wire.model_list import (
    MAX_MODELS,
    MAX_NAME_CHARS,
    NOTHING,
    SMALLEST_WINDOW_TOKENS,
    ModelLimits,
    ModelList,
    as_tokens,
    limits_of,
)
from proxy.wire.ollama import OLLAMA

OLLAMAS_OWN: Final = OLLAMA.name
"""The wire that is its own API."""
OLLAMA_AT_LEAST: Final = ModelLimits(4_096, certainty=Certainty.GUESSED, cuts_silently=True, least_image_tokens=768)
"""The default that Ollama allocates with less than 24 GiB of VRAM (https://docs.ollama.com/context-length), and what it
counts for any image when it cuts a prompt (https://github.com/ollama/ollama/blob/main/server/prompt.go)."""

_NUM_CTX: Final = re.compile(r"^num_ctx[ \t]+(\d{1,9})[ \t\"]*$", re.MULTILINE)
"""`parameters` of POST /api/show is a text with one line each, name and value in columns."""


def is_ollama(body: bytes) -> bool:
    """GET /api/version: `{"version": "0.15.5"}`. LM Studio answers any path with 200 and an `error`."""
    answer = jsontext.opened_object(body)
    return isinstance(answer.get("version"), str) and "error" not in answer


def ollama_loaded(body: bytes) -> ModelList:
    """GET /api/ps: `models[].context_length`, of the models that are loaded. https://docs.ollama.com/api/ps

    >>> loaded = ollama_loaded(b'{"models": [{"name": "gemma3:latest", "context_length": 4096}]}')
    >>> loaded.limits("gemma3").window_tokens, loaded.limits("gemma3").cuts_silently
    (4096, True)
    """
    models: dict[str, ModelLimits] = {}
    aliases: dict[str, str] = {}
    for entry in _objects(jsontext.opened_object(body).get("models")):
        name = _name(entry, "model") or _name(entry, "name")
        if name:
            window = _tokens(entry.get("context_length"))
            models[name] = replace(OLLAMA_AT_LEAST, window_tokens=window, certainty=Certainty.STATED)
            aliases |= {name.lower(): name, name.lower().removesuffix(":latest"): name}
    return ModelList(models, aliases=aliases)


def ollama_model(body: bytes) -> ModelLimits:
    """POST /api/show: of a model, loaded or not. `model_info.*.context_length` is the checkpoint's: a limit for
    `num_ctx`, and the window of a model that runs at ollama.com, which ignores `num_ctx`.
    https://docs.ollama.com/api-reference/show-model-details

    >>> ollama_model(b'{"parameters": "num_ctx   8192\\\\nstop   \\\\"x\\\\""}').window_tokens
    8192
    """
    answer = jsontext.opened_object(body)
    trained = [
        tokens
        for name, value in jsontext.object_in(answer, "model_info").items()
        if name.endswith(".context_length") and (tokens := _tokens(value))
    ]
    largest = min(trained, default=None)
    facts = ModelLimits(
        modalities=_capabilities(answer.get("capabilities")),
        preamble=_preamble(answer),
        largest_tokens=largest,
    )
    if answer.get("remote_host"):
        return replace(facts, window_tokens=largest, window_is_fixed=True)
    found = _NUM_CTX.search(jsontext.string_in(answer, "parameters"))
    num_ctx = _tokens(found[1]) if found else None
    window = min(num_ctx, largest or num_ctx) if num_ctx else None
    return replace(_cut(facts), window_tokens=window, least_image_tokens=OLLAMA_AT_LEAST.least_image_tokens)


def _capabilities(listed: Any) -> frozenset[Modality] | None:
    if not isinstance(listed, list):
        return None
    return frozenset({Modality.TEXT, Modality.VISION} if "vision" in listed else {Modality.TEXT})


def _preamble(answer: Mapping[str, Any]) -> str | None:
    """The texts of a Modelfile that the server puts before the messages."""
    messages = (answer, *_objects(answer.get("messages")))
    texts = [jsontext.string_in(one, name) for one in messages for name in ("system", "content")]
    return "\n".join(filter(None, texts)) or None


def koboldcpp_window(body: bytes) -> ModelList:
    """GET /api/extra/true_max_context_length: `{"value": 8192}`. https://lite.koboldai.net/koboldcpp_api

    It keeps the end of a longer prompt (gpttype_adapter.cpp: "truncate to front of the prompt if its too long").
    """
    limits = _window(jsontext.opened_object(body).get("value"))
    return ModelList(any_name=NOTHING if limits.window_tokens is None else _cut(limits))


def is_llama_cpp_router(body: bytes) -> bool:
    """GET /props of a server that loads models by name: `{"role": "router", …}`; it has no window itself."""
    return jsontext.opened_object(body).get("role") == "router"


def llama_cpp_window(body: bytes) -> ModelList:
    """GET /props: `default_generation_settings.n_ctx`, one slot's window, whatever a request calls the model.
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md#get-props-get-server-global-properties
    """
    return ModelList(
        any_name=_window(jsontext.object_in(jsontext.opened_object(body), "default_generation_settings").get("n_ctx"))
    )


def lm_studio_v1(body: bytes) -> ModelList:
    """GET /api/v1/models: `models[].loaded_instances[].config.context_length`. A name means the model or one of its
    instances; the smallest of several counts. https://lmstudio.ai/docs/developer/rest/list
    """
    models: dict[str, ModelLimits] = {}
    for entry in _objects(jsontext.opened_object(body).get("models")):
        if "loaded_instances" not in entry:
            continue
        facts, windows = replace(limits_of(entry), unstated=None), []  # it reads nothing but texts and images
        for instance in _objects(entry["loaded_instances"]):
            window = _tokens(jsontext.object_in(instance, "config").get("context_length"))
            models[_name(instance, "id")] = replace(facts, window_tokens=window)
            windows.append(window)
        smallest = min((window for window in windows if window), default=None)
        models.setdefault(_name(entry, "key"), replace(facts, window_tokens=smallest))
    models.pop("", None)
    return _with_lower_names(models)


def lm_studio_v0(body: bytes) -> ModelList:
    """GET /api/v0/models, before LM Studio 0.4: `data[].loaded_context_length`. `max_context_length` is the largest
    window that a model could be loaded with. https://lmstudio.ai/docs/developer/rest/endpoints
    """
    models: dict[str, ModelLimits] = {}
    for entry in _objects(jsontext.opened_object(body).get("data")):
        if (name := _name(entry, "id")) and "state" in entry:
            allocated = _tokens(entry.get("loaded_context_length")) if entry["state"] == "loaded" else None
            models[name] = replace(limits_of(entry), window_tokens=allocated)
    return _with_lower_names(models)


def docker_window(body: bytes) -> ModelList:
    """GET /engines/_configure?model=NAME of Docker Model Runner: `[].Config.context-size`, if one is configured.
    https://github.com/docker/model-runner (ModelConfigEntry)
    """
    entries = _objects(jsontext.opened(body))
    windows = [_window(jsontext.object_in(entry, "Config").get("context-size")) for entry in entries]
    stated = (limits for limits in windows if limits.window_tokens)
    return ModelList(any_name=min(stated, key=lambda limits: limits.window_tokens or 0, default=NOTHING))


def _cut(limits: ModelLimits) -> ModelLimits:
    return replace(limits, cuts_silently=True)


def _window(value: Any) -> ModelLimits:
    return ModelLimits(_tokens(value))


def _tokens(value: Any) -> int | None:
    tokens = as_tokens(value)
    return tokens if tokens is not None and tokens >= SMALLEST_WINDOW_TOKENS else None


def _with_lower_names(models: dict[str, ModelLimits]) -> ModelList:
    return ModelList(models, aliases={name.lower(): name for name in models})


def _name(entry: Mapping[str, Any], member: str) -> str:
    name = jsontext.string_in(entry, member)
    return name if len(name) <= MAX_NAME_CHARS else ""


def _objects(found: Any) -> Iterator[dict[str, Any]]:
    return (entry for entry in jsontext.listed(found)[:MAX_MODELS] if isinstance(entry, dict))
