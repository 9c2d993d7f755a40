"""When two names mean one model: spellings, packaging and deployments of the same weights.

Rule: a name is only made plainer, never guessed. Anything that may distinguish two models (`-mini`, `-32k`, a size, a
month such as `-2407`) is kept, because a wrong model is worse than none.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[a-z0-9 ._:@\-]+")
"""Other characters distinguish models: `command-r+` is not `command-r`."""

_RUNS: Final = re.compile(r"[a-z]+|[0-9]+")

_GGUF: Final = re.compile(r"(?:-\d{5}-of-\d{5})?\.gguf$")

_PACKAGING: Final = re.compile(
    r"""(?:
      [-_.:]i?q\d(?:_[a-z0-9]{1,3}){0,2}                            # llama.cpp: q4_K_M, Q8_0, IQ4_XS
    | [-_.:](?:gguf|ggml|awq|gptq|mlx|exl2|bnb|unsloth|qat|int[48]|fp4|fp8|fp16|bf16|f16|f32|nvfp4|mxfp4)
    | [-_.:](?:w\d{1,2}a\d{1,2}|[2-8]-?bit)
    | :(?:free|nitro|floor|online|exacto|beta|fastest|cheapest)     # OpenRouter, Hugging Face
    | [-:]cloud                                                     # Ollama: gpt-oss:120b-cloud
    | @(?:\d{1,3}|default)                                          # Vertex AI: @001
    | -v\d:\d                                                       # Bedrock: -v1:0
    | [-_@](?:19|20)\d\d(?:-[01]\d-[0-3]\d|[01]\d[0-3]\d)           # a whole date is one snapshot of the model
    | -preview(?:-[01]\d-[0-3]\d)?
    | -latest
    )$""",
    re.VERBOSE,
)

_FINE_TUNED: Final = re.compile(r"^ft:([^:]+):.*$")
"""OpenAI: `ft:gpt-4o-mini-2024-07-18:acme::7p4lURel` has the window of its base model."""

_BEDROCK_VENDOR: Final = re.compile(
    r"^(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?"
    r"(?:anthropic|amazon|meta|mistral|deepseek|openai|qwen|cohere|ai21|google|nvidia|moonshot(?:ai)?|minimax|zai)\.(?=[a-z])"
)

_DEPLOYMENT: Final = (
    r"(?:my|our|the|team|internal|prod|production|live|dev|development|test|testing|stage|staging|uat|qa|demo|sandbox"
    r"|deployment|deploy|deployed|azure|aoai|openai|global|standard|ptu|default|primary|main|backup"
    r"|eu|us|uk|eastus|westus|centralus|northeurope|westeurope|swedencentral|francecentral|uksouth|japaneast)\d?"
)
_DEPLOYED: Final = re.compile(rf"^(?:{_DEPLOYMENT}[-_.])+|(?:[-_.]{_DEPLOYMENT})+$")
"""Words that people add to a model's name for a deployment (Azure, gateways); none of them names a model."""


LIFTED: Final = "[1m]"
"""Claude Code's end of a model's name for the model with a window of a million tokens. It sends the plain name, and
asks for that window in a header. https://code.claude.com/docs/en/model-config#extended-context"""
_LIFTED_TOKENS: Final = 1_000_000


def unlifted(name: str) -> tuple[str, int | None]:
    """The plain name, and the window that this end of it asks for, in tokens.

    >>> unlifted("claude-sonnet-4-5[1m]"), unlifted("claude-sonnet-4-5")
    (('claude-sonnet-4-5', 1000000), ('claude-sonnet-4-5', None))
    """
    plain = name.removesuffix(LIFTED)
    return plain, None if plain == name else _LIFTED_TOKENS


def last_part(name: str) -> str:
    """The name without its owner, in lower case: after the last slash, without `.gguf`.

    >>> last_part("openrouter/Qwen/Qwen2.5-7B-Instruct"), last_part("/models/Llama-3.3-70B-Q4_K_M-00001-of-00002.gguf")
    ('qwen2.5-7b-instruct', 'llama-3.3-70b-q4_k_m')
    """
    return _GGUF.sub("", name.strip().lower().replace("\\", "/").rstrip("/").rpartition("/")[2])


def spelling(part: str) -> str:
    """The same for every way to write a name with dots and dashes; empty for a name that has other signs, too.

    >>> spelling("claude-sonnet-4.5") == spelling("claude-sonnet-4-5"), spelling("llama3.1:8b"), spelling("command-r+")
    (True, 'llama-3-1-8-b', '')
    """
    return "-".join(_RUNS.findall(part)) if _PLAIN.fullmatch(part) else ""


def unpacked(part: str) -> str:
    """Without dates, quantisation and the suffixes that hosts add.

    >>> unpacked("gpt-4o-2024-08-06"), unpacked("qwen2.5:7b-instruct-q4_k_m"), unpacked("gpt-4-0613")
    ('gpt-4o', 'qwen2.5:7b-instruct', 'gpt-4-0613')
    """
    part = _BEDROCK_VENDOR.sub("", _FINE_TUNED.sub(r"\1", part))
    while (shorter := _PACKAGING.sub("", part)) != part:
        part = shorter
    return part


def undeployed(part: str) -> str:
    """Without the words that people add to a model's name for a deployment.

    >>> undeployed("my-gpt-4o-prod"), undeployed("gpt-4o-mini-eastus2"), undeployed("distilled-gpt-4o")
    ('gpt-4o', 'gpt-4o-mini', 'distilled-gpt-4o')
    """
    return _DEPLOYED.sub("", part)


def plainest(part: str) -> str:
    """Without all of that."""
    return unpacked(undeployed(unpacked(part)))


def has_open_weights(model: str) -> bool:
    """Whether it is an OpenAI model that anybody may serve, in any window.

    >>> has_open_weights("openai/gpt-oss-120b"), has_open_weights("gpt-4o")
    (True, False)
    """
    return plainest(last_part(model)).startswith("gpt-oss")


def tells_nothing(part: str) -> bool:
    """Whether a name is too general to mean the same model everywhere: `auto`, `custom`, `sonar`.

    >>> tells_nothing("auto"), tells_nothing("o1"), tells_nothing("deepseek-chat")
    (True, False, False)
    """
    return part.isalpha()
