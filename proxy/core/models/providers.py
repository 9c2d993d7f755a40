"""Who serves and who made a model, by addresses and names; providers have their names from models.dev.

Rule: a host or name in no table belongs to nobody; a look-alike of a host is not that host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from proxy.core.models.names import last_part
from proxy.core.models.profile import ToolImages

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


def is_own_server(base_url: str) -> bool:
    """Whether an address is on this machine or a private network, where a server may give a model any window.

    >>> [is_own_server(f"http://{host}/v1") for host in ("localhost:8000", "10.0.0.7", "vllm", "api.openai.com")]
    [True, True, True, False]
    """
    host = urlsplit(base_url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".localhost", ".home.arpa"))
    return address.is_private or address.is_loopback or address.is_link_local


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
