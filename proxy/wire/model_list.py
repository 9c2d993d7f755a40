"""Reads what an upstream's `GET /v1/models` says of each model: windows, limits, modalities.

Rule: the smallest of several numbers counts, an impossible number is ignored, and nothing in an entry raises. OpenAI's
own list has only names; every field below is an addition of the server named beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from proxy.core.models import Certainty, Modality
from proxy.core.text import jsontext

MAX_NAME_CHARS: Final = 256
"""Longer than any model's name; the path of a file on a server's disk fits."""

MAX_MODELS: Final = 10_000
"""Twenty times the longest list seen; the rest is ignored."""

SMALLEST_WINDOW_TOKENS: Final = 512
"""A smaller window is an embedding model's or a mistake; the settings do not allow smaller ones either."""

LARGEST_TOKENS: Final = 100_000_000
"""Ten times the largest window on offer. vLLM and others write 2**31 or 10**30 for `no limit`."""

_WINDOWS: Final = (
    "max_model_len",  # vLLM, SGLang: ModelCard in their OpenAI protocol modules; what the server was started with
    "context_length",  # OpenRouter openrouter.ai/docs/models, Together, Moonshot, xAI, SambaNova, Fireworks
    "context_window",  # Groq console.groq.com/docs/api-reference#models, Vercel AI Gateway, Requesty
    "max_context_length",  # Mistral docs.mistral.ai/api; LM Studio /api/v0/models: what the model could be loaded with
    "loaded_context_length",  # LM Studio lmstudio.ai/docs/api/rest-api: what it is loaded with
    "context_size",  # Novita novita.ai/docs
    "max_context_window_tokens",  # GitHub Copilot, under capabilities.limits
    "n_ctx",  # llama.cpp, under meta: one slot's window. n_ctx_train beside it is the checkpoint's, never the server's
    "availableContextTokens",  # Venice docs.venice.ai, under model_spec
)

_INPUTS: Final = (
    "max_input_tokens",  # Anthropic (`ModelInfo` in its SDK: "maximum input context window size"), LiteLLM
    "max_prompt_tokens",  # GitHub Copilot, under capabilities.limits
)

_OUTPUTS: Final = (
    "max_completion_tokens",  # Groq, SambaNova; OpenRouter under top_provider
    "max_output_tokens",  # LiteLLM, Novita, Requesty; GitHub Copilot under capabilities.limits
    "maxCompletionTokens",  # Venice, under model_spec
)

_READS: Final[Mapping[str, Modality]] = {
    "vision": Modality.VISION,  # Mistral under capabilities, GitHub Copilot under capabilities.supports
    "supports_vision": Modality.VISION,  # Requesty
    "supports_image_input": Modality.VISION,  # Fireworks
    "supports_image_in": Modality.VISION,  # Moonshot
    "supports_video_in": Modality.VIDEO,  # Moonshot
    "supportsVision": Modality.VISION,  # Venice, under model_spec.capabilities
}

_NAMES_OF_MODALITIES: Final[Mapping[str, Modality]] = {
    "text": Modality.TEXT,
    "image": Modality.VISION,
    "audio": Modality.AUDIO,
    "video": Modality.VIDEO,
    "file": Modality.FILE,  # OpenRouter's word
    "pdf": Modality.FILE,  # models.dev's word
}


class ModelLimits(Struct, frozen=True):
    """Limits of one model according to one source; None where it states nothing."""

    window_tokens: int | None = None
    """Prompt and reply together."""
    input_tokens: int | None = None
    """The prompt alone."""
    output_tokens: int | None = None
    """The reply alone."""
    modalities: frozenset[Modality] | None = None
    """The kinds of input that it reads."""
    unstated: frozenset[Modality] | None = None
    """The kinds about which the source says nothing, although it states `modalities`."""
    refused: frozenset[str] | None = None
    """The kinds of input that it was seen to refuse; set only by learning."""
    results_hold_text: bool | None = None
    """Whether media were refused in tool results; set only by learning."""
    refuses_our_tool: bool | None = None
    """Whether the proxy's own tool was refused; set only by learning."""
    refuses_cut_results: bool | None = None
    """Whether results that were cut on arrival were refused; set only by learning."""
    tokenizer: str | None = None
    """tiktoken encoding; so far only the configuration names one."""
    certainty: Certainty = Certainty.STATED
    """Certainty of the window. Guessed: it comes from the same model at another provider."""
    cuts_silently: bool | None = None
    """Whether the server silently cuts a prompt that is too long; known for some own servers, or learned from usage."""
    preamble: str | None = None
    """Put before the messages of every request by the server."""
    largest_tokens: int | None = None
    """The longest window that a request may state."""
    window_is_fixed: bool | None = None
    """Whether a window that a request states is ignored."""
    least_image_tokens: int | None = None
    """Minimum cost of any image, where the server decides what to leave out."""
    rate_tokens: int | None = None
    """Per minute, for prompt and reply limit; set only by learning."""
    prompt_rate_tokens: int | None = None
    """Per minute, for the prompt alone; set only by learning."""
    input_chars: int | None = None
    """The characters of the prompt; set only by learning."""
    at_most: Mapping[str, int] | None = None
    """Every other limit, by its name."""


NOTHING: Final = ModelLimits()


class ModelList(Struct, frozen=True):
    models: Mapping[str, ModelLimits] = field(default_factory=dict)
    """Limits by the name in the upstream's spelling."""
    any_name: ModelLimits = NOTHING
    """Applies to every model name in a request: llama.cpp serves the model that it has loaded under any name."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names, in lower case, to the name in `models`; they include a model's own name in lower case."""

    def limits(self, model: str) -> ModelLimits:
        """Limits that the upstream states for this model."""
        found = self.models.get(model)
        if found is None:
            found = self.models.get(self.aliases.get(model.lower(), ""), self.any_name)
        return found

    @property
    def states_all_windows(self) -> bool:
        """Whether every model has a window."""
        return bool(self.models) and all(limits.window_tokens for limits in self.models.values())

    @property
    def states_a_window(self) -> bool:
        """Whether any model has a window."""
        return any(limits.window_tokens for limits in self.models.values())


def parse(body: bytes) -> ModelList:
    """Parse a response: `{"data": […]}`, or a bare list as Together sends. Raises NotJson for anything else."""
    answer = jsontext.value(body)
    entries = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(entries, list):
        raise jsontext.NotJson("expected a list of models")
    models: dict[str, ModelLimits] = {}
    aliases: dict[str, str] = {}
    for entry, name in _named(entries):
        models.setdefault(name, limits_of(entry))
        for alias in (name, *_aliases(entry)):
            aliases.setdefault(alias.lower(), name)
    is_llama_cpp = len(models) == 1 and jsontext.string_in(entries[0], "owned_by") == "llamacpp"
    return ModelList(models, next(iter(models.values())) if is_llama_cpp else NOTHING, aliases)


def limits_of(entry: Mapping[str, Any]) -> ModelLimits:
    """Limits stated by one item of a list.

    >>> limits_of({"id": "m", "context_length": 131072, "top_provider": {"context_length": "65536"}}).window_tokens
    65536
    """
    places = tuple(_places(entry))
    window = _smallest(places, _WINDOWS, at_least=SMALLEST_WINDOW_TOKENS)
    prompt = _smallest(places, _INPUTS, at_least=SMALLEST_WINDOW_TOKENS)
    reply = _smallest(places, _OUTPUTS)
    # Without a window, the prompt's limit is the best substitute: it is too small, but by no more than a reply.
    window = window or prompt
    if reply is None and window is not None:
        # Beside a window it is the reply's limit (Anthropic, DeepInfra, Vercel); alone it has also meant the window.
        reply = _smallest(places, ("max_tokens",))
    reads, unstated = _modalities(entry, places)
    return ModelLimits(window, prompt, reply, reads, unstated)


def as_tokens(value: Any) -> int | None:
    """A number of tokens, or None for anything that cannot be one.

    >>> [as_tokens(value) for value in (8192, "32768", 4096.0, 0, -1, True, "many", None, 10**30)]
    [8192, 32768, 4096, None, None, None, None, None, None]
    """
    if isinstance(value, str):
        plain = value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_TOKENS))
        value = int(value) if plain else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= LARGEST_TOKENS else None


def modalities_from(words: Any) -> frozenset[Modality] | None:
    """Modalities from a list such as `["text", "image"]`; unknown words are skipped.

    >>> sorted(modalities_from(["text", "image", "smell"]))
    [<Modality.TEXT: 'text'>, <Modality.VISION: 'vision'>]
    """
    if not isinstance(words, list):
        return None
    known = (_NAMES_OF_MODALITIES.get(word.lower()) for word in words if isinstance(word, str))
    return frozenset(modality for modality in known if modality) or None


def _named(entries: list[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for entry in entries[:MAX_MODELS]:
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS:
            yield entry, name


def _aliases(entry: Mapping[str, Any]) -> Iterator[str]:
    """Mistral and llama.cpp list other names."""
    found = entry.get("aliases")
    for alias in found[:100] if isinstance(found, list) else ():
        if isinstance(alias, str) and len(alias) <= MAX_NAME_CHARS:
            yield alias


def _places(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The entry and the objects in it where servers put such fields."""
    yield entry
    # OpenRouter; llama.cpp; DeepInfra; Mistral; Venice
    for name in ("top_provider", "meta", "metadata", "capabilities", "model_spec"):
        inner = entry.get(name)
        if isinstance(inner, dict):
            yield inner
            # GitHub Copilot has capabilities.limits and .supports, Venice model_spec.capabilities.
            yield from (
                inner[deep] for deep in ("limits", "supports", "capabilities") if isinstance(inner.get(deep), dict)
            )
    # Hugging Face's router lists the model's providers (huggingface.co/docs/inference-providers); it may pick any.
    providers = entry.get("providers")
    yield from (one for one in (providers[:100] if isinstance(providers, list) else ()) if isinstance(one, dict))


def _smallest(places: tuple[Mapping[str, Any], ...], names: tuple[str, ...], at_least: int = 1) -> int | None:
    numbers = (as_tokens(place.get(name)) for place in places for name in names)
    return min((number for number in numbers if number is not None and number >= at_least), default=None)


def _modalities(
    entry: Mapping[str, Any], places: tuple[Mapping[str, Any], ...]
) -> tuple[frozenset[Modality] | None, frozenset[Modality] | None]:
    """What a model reads, and about what the entry says nothing: a flag speaks of its own kind only, and a list of no
    files unless it names them: OpenRouter reads PDFs for every model.
    https://openrouter.ai/docs/features/multimodal/pdfs"""
    architecture = entry.get("architecture")  # OpenRouter, Hugging Face
    for holder in (architecture, entry):  # xAI has it at the top
        if isinstance(holder, dict) and (listed := modalities_from(holder.get("input_modalities"))):
            return listed, frozenset({Modality.FILE}) - listed or None
    flags = {name: place[name] for place in places for name in _READS if isinstance(place.get(name), bool)}
    if entry.get("type") in ("llm", "vlm") and "state" in entry:  # LM Studio
        return frozenset({Modality.TEXT, *([Modality.VISION] if entry["type"] == "vlm" else [])}), None
    if not flags:
        return None, None
    unstated = frozenset(Modality) - {Modality.TEXT, *(_READS[name] for name in flags)}
    return frozenset({Modality.TEXT, *(_READS[name] for name, reads in flags.items() if reads)}), unstated
