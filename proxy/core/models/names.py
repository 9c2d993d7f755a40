"""Decides when two names mean one model: the same weights spelled, packaged or deployed otherwise. Also, who serves and
who made a model, by addresses and names; providers have their names from models.dev.

Rule: a name is only made plainer, never guessed. Anything that may distinguish two models (`-mini`, `-32k`, a size, a
month such as `-2407`) is kept, because a wrong model is worse than none. A host or name in no table has no provider; a
look-alike of a host is not that host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from proxy.core.addresses import is_own_server
from proxy.core.models.profile import LIFTED, ToolImages

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


_LIFTED_TOKENS: Final = 1_000_000
_STATED: Final = re.compile(r"\[window=([1-9]\d{0,8})\]\Z")


class WindowInName(NamedTuple):
    """Suffix of a model's name that states the window of the requests behind its lessons."""

    plain: str
    """The name without it."""
    tokens: int | None = None
    """The window that they ask for."""
    is_stated: bool = False
    """Whether the upstream uses that window for them, whatever it uses for others."""


def window_in_name(name: str) -> WindowInName:
    """The window that the end of a name asks for.

    >>> window_in_name("claude-sonnet-4-5[1m]")
    WindowInName(plain='claude-sonnet-4-5', tokens=1000000, is_stated=False)
    >>> window_in_name(stating("qwen3:8b", 8192)), window_in_name("qwen3:8b").tokens
    (WindowInName(plain='qwen3:8b', tokens=8192, is_stated=True), None)
    """
    if name.endswith(LIFTED):
        return WindowInName(name.removesuffix(LIFTED), _LIFTED_TOKENS)
    if stated := _STATED.search(name):
        return WindowInName(name[: stated.start()], int(stated[1]), is_stated=True)
    return WindowInName(name)


def stating(model: str, window_tokens: int) -> str:
    """The name for lessons about a model where its requests state this window."""
    return f"{model}[window={window_tokens}]"


def last_part(name: str) -> str:
    """The name without its owner, in lower case: after the last slash, without `.gguf`.

    >>> last_part("openrouter/Qwen/Qwen2.5-7B-Instruct"), last_part("/models/Llama-3.3-70B-Q4_K_M-00001-of-00002.gguf")
    ('qwen2.5-7b-instruct', 'llama-3.3-70b-q4_k_m')
    """
    return _GGUF.sub("", name.strip().lower().replace("\\", "/").rstrip("/").rpartition("/")[2])


def spelling(part: str) -> str:
    """Normalize a name with dots and dashes; empty for a name that has other signs, too.

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
    """Whether it is an OpenAI model with open weights, which a host may serve in any window.

    >>> has_open_weights("openai/gpt-oss-120b"), has_open_weights("gpt-4o")
    (True, False)
    """
    return plainest(last_part(model)).startswith("gpt-oss")


def is_uninformative(part: str) -> bool:
    """Whether a name is too general to mean the same model everywhere: `auto`, `custom`, `sonar`.

    >>> is_uninformative("auto"), is_uninformative("o1"), is_uninformative("deepseek-chat")
    (True, False, False)
    """
    return part.isalpha()


_HOSTS: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "google",
    "*aiplatform.googleapis.com": "google-vertex",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.x.ai": "xai",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.cerebras.ai": "cerebras",
    "api.together.xyz": "togetherai",
    "api.together.ai": "togetherai",
    "api.deepinfra.com": "deepinfra",
    "api.perplexity.ai": "perplexity",
    "ai-gateway.vercel.sh": "vercel",
    "api.venice.ai": "venice",
    "models.inference.ai.azure.com": "github-models",
    "*.openai.azure.com": "azure",
    "*.services.ai.azure.com": "azure",
    "*.cognitiveservices.azure.com": "azure",
    "bedrock*.amazonaws.com": "amazon-bedrock",
}
"""Hosts, as globs, of the providers for which the catalogue has no address."""

_PREFIXES: Final[Mapping[str, str]] = {
    "gemini": "google",
    "vertex_ai": "google-vertex",
    "bedrock": "amazon-bedrock",
    "together_ai": "togetherai",
    "fireworks_ai": "fireworks-ai",
    "azure_ai": "azure",
    "nvidia_nim": "nvidia",
    "moonshot": "moonshotai",
}
"""LiteLLM's names for providers (docs.litellm.ai/docs/providers) where they differ from the catalogue's."""

_VENDORS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("gpt-oss",), ""),  # open weights that OpenAI does not serve itself
    (("gpt-", "chatgpt-", "o1", "o3", "o4"), "openai"),
    (("claude-",), "anthropic"),
    (("gemini-",), "google"),
    (("deepseek-",), "deepseek"),
    (("qwen", "qwq", "qvq"), "alibaba"),
    (("mistral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-", "open-mi"), "mistral"),
    (("grok-",), "xai"),
    (("kimi-",), "moonshotai"),
    (("glm-",), "zai"),
    (("command-",), "cohere"),
    (("sonar",), "perplexity"),
    (("minimax-",), "minimax"),
    (("llama",), "llama"),
    (("step-",), "stepfun"),
    (("mimo-",), "xiaomi"),
)
"""The makers of models, by the beginning of the name."""


def served_at(base_url: str, addresses: Mapping[str, str]) -> tuple[str, ...]:
    """The providers whose API this is; if several share a host, those that share more of the path come first."""
    url = urlsplit(base_url)
    host = url.hostname or ""
    known = [provider for glob, provider in _HOSTS.items() if fnmatchcase(host, glob)]
    shared: list[tuple[int, int, str]] = []
    for provider, address in addresses.items():
        try:
            there = urlsplit(address)
        except ValueError:
            continue
        if host and there.hostname == host and not is_own_server(address):
            shared.append((-_common(url.path, there.path), len(provider), provider))
    return tuple(dict.fromkeys((*known, *(provider for *_, provider in sorted(shared)))))


def vendor_of(part: str) -> str:
    """Who made the model with this `last_part`; empty if unknown, or if the maker does not serve it.

    >>> vendor_of("gpt-4o"), vendor_of("gpt-oss-120b"), vendor_of("phi-4")
    ('openai', '', '')
    """
    return next((vendor for starts, vendor in _VENDORS if part.startswith(starts)), "")


def usual_tool_images(model: str, base_url: str) -> ToolImages:
    """Where the media of a tool result go if no setting says so.

    Mistral refuses a user message directly after a tool's, and so do the chat templates of its models:
    "Unexpected role 'user' after role 'tool'". https://github.com/LibreChat-AI/agents/issues/344

    >>> usual_tool_images("mistral-small", "http://vllm/v1").value, usual_tool_images("gpt-5", "http://x/v1").value
    ('user_after_assistant', 'user_after_batch')
    """
    is_mistral = "mistral" in (*served_at(base_url, {}), vendor_of(last_part(model)))
    return ToolImages.USER_AFTER_ASSISTANT if is_mistral else ToolImages.USER_AFTER_BATCH


_VERSION: Final = re.compile(r"claude-(?:opus|sonnet|haiku)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_NEWEST: Final = re.compile(r"claude-(?:fable|mythos)")


def reply_is_apart(model: str, base_url: str) -> bool:
    """Whether a request is accepted although its prompt and reply limit together exceed the window, and its reply ends
    with the window: at Anthropic, since Claude 4.5.
    https://platform.claude.com/docs/en/build-with-claude/context-windows

    >>> [reply_is_apart(name, "https://api.anthropic.com") for name in ("claude-sonnet-4-5-20250929", "claude-opus-5")]
    [True, True]
    >>> reply_is_apart("claude-opus-4-20250514", "https://api.anthropic.com"), reply_is_apart("claude-opus-5", "http://x")
    (False, False)
    """
    if "anthropic" not in served_at(base_url, {}):
        return False
    name = last_part(model)
    found = _VERSION.match(name)
    is_new = found is not None and (int(found[1]), int(found[2] or 0)) >= (4, 5)
    return is_new or _NEWEST.match(name) is not None


def named_in(model: str, part: str, providers: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Providers that the name itself contains (`azure/gpt-5`, Hugging Face's `gpt-oss-120b:groq`), and `part` without.

    `part` is the `last_part` of the name, `providers` those that the catalogue knows.

    >>> named_in("azure/gpt-5", "gpt-5", {"azure": ""}), named_in("gpt-oss-20b:groq", "gpt-oss-20b:groq", {"groq": ""})
    ((('azure',), 'gpt-5'), (('groq',), 'gpt-oss-20b'))
    """
    first, slash, _ = model.strip().lower().partition("/")
    named = _PREFIXES.get(first, first)
    hinted = (named,) if slash and named in providers else ()
    before, colon, last = part.rpartition(":")
    return ((last, *hinted), before) if colon and last in providers else (hinted, part)


def _common(one: str, other: str) -> int:
    """How many leading path segments are the same."""
    pairs = zip(one.strip("/").split("/"), other.strip("/").split("/"), strict=False)
    return next((count for count, (here, there) in enumerate(pairs) if here != there), len(one))
