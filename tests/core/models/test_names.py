from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.models import is_uninformative, last_part, named_in, plainest, served_at, spelling, unpacked, vendor_of


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("gemini-1.5-pro@001", "gemini-1.5-pro"),
        ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        ("mistral-small-latest", "mistral-small"),
        ("deepseek-chat:free", "deepseek-chat"),
        ("gpt-oss:120b-cloud", "gpt-oss:120b"),
        ("qwen2.5:7b-instruct-q4_k_m", "qwen2.5:7b-instruct"),
        ("llama-3.3-70b-instruct-iq4_xs", "llama-3.3-70b-instruct"),
        ("llama-3.3-70b-instruct-q8_0", "llama-3.3-70b-instruct"),
        ("llama-3.3-70b-instruct-unsloth-bnb-4bit", "llama-3.3-70b-instruct"),
        ("qwen3-32b-gptq-int4", "qwen3-32b"),
        ("qwen3-32b-awq", "qwen3-32b"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("ft:gpt-4o-mini-2024-07-18:acme::7p4lurel", "gpt-4o-mini"),
        ("my-gpt-4o-prod", "gpt-4o"),
        ("azure-gpt-4o-mini-2024-07-18-eastus2", "gpt-4o-mini"),
    ],
)
def test_packaging_and_deployment_are_taken_off(name: str, plain: str) -> None:
    assert plainest(name) == plain


UNLIKE = """gpt-4-0613 gpt-4-1106 mistral-large-2402 gpt-4-32k gpt-4o-mini deepseek-r1:7b claude-3-5-sonnet-v2
    deepseek-r1:latest qwen3-235b-a22b-2507 distilled-gpt-4o gpt-4o-realtime step-1-32k"""


@pytest.mark.parametrize("name", UNLIKE.split())
def test_distinguishing_parts_of_a_name_stay(name: str) -> None:
    assert plainest(name) == name


def test_spellings_of_one_name_are_the_same() -> None:
    assert spelling("claude-sonnet-4.5") == spelling("claude-sonnet-4-5") == spelling("claude_sonnet_4_5")
    assert spelling("llama3.1:8b") == spelling("llama-3.1-8b")


def test_spellings_of_other_names_are_not() -> None:
    for one, other in [("gpt-4.1", "gpt-41"), ("phi-3.5", "phi-35"), ("gpt-4o", "gpt-4"), ("qwen3-8b", "qwen3-80b")]:
        assert spelling(one) != spelling(other)


def test_a_name_with_other_signs_has_no_other_spelling() -> None:
    assert spelling("command-r+") == spelling("模型-4o") == spelling("") == ""


def test_a_path_is_its_last_part() -> None:
    assert last_part("C:\\models\\Qwen3-8B-Q4_K_M.gguf") == "qwen3-8b-q4_k_m"
    assert last_part("openrouter/anthropic/claude-sonnet-4/") == "claude-sonnet-4"


def test_a_plain_word_identifies_no_provider() -> None:
    assert is_uninformative("auto")
    assert not is_uninformative("gpt-4")


PIECES = st.sampled_from(
    [
        "gpt-4o",
        "-2024-08-06",
        ":free",
        "-latest",
        "@001",
        "-prod",
        "my-",
        "-q4_k_m",
        "ft:",
        "us.anthropic.",
        "/",
        "-v1:0",
    ]
)


@given(st.text(max_size=300) | st.lists(PIECES, max_size=40).map("".join))
def test_any_name_becomes_plainer_once_and_for_all(name: str) -> None:
    part = last_part(name)
    assert "/" not in part
    assert unpacked(unpacked(part)) == unpacked(part) or part.startswith("ft:") or "." in part
    assert len(plainest(part)) <= len(part)
    assert spelling(part).isascii()


ADDRESSES = {
    "alibaba-cn": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "deepseek": "https://api.deepseek.com",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "strange": "http://[broken",
    "zai": "https://api.z.ai/api/paas/v4",
    "zai-coding-plan": "https://api.z.ai/api/coding/paas/v4",
}


@pytest.mark.parametrize(
    ("base_url", "providers"),
    [
        ("https://api.openai.com/v1", ("openai",)),
        ("https://acme.openai.azure.com/openai/v1", ("azure",)),
        ("https://us-central1-aiplatform.googleapis.com/v1", ("google-vertex",)),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", ("amazon-bedrock",)),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", ("alibaba-cn",)),
        ("https://api.deepseek.com/v1", ("deepseek",)),
        ("https://openrouter.ai/api/v1", ("openrouter",)),
        ("https://api.z.ai/api/paas/v4", ("zai", "zai-coding-plan")),
        ("https://api.z.ai/api/coding/paas/v4", ("zai-coding-plan", "zai")),
        ("https://my-balancer.elb.amazonaws.com/v1", ()),
        ("https://api.openai.com.example.org/v1", ()),
        ("https://evil-api.openai.com/v1", ()),
        ("http://127.0.0.1:1234/v1", ()),
    ],
)
def test_an_address_identifies_its_provider(base_url: str, providers: tuple[str, ...]) -> None:
    assert served_at(base_url, ADDRESSES) == providers


def test_a_name_may_name_its_provider() -> None:
    providers = dict.fromkeys(("azure", "google", "groq"), "")
    assert named_in("azure/gpt-5", "gpt-5", providers) == (("azure",), "gpt-5")
    assert named_in("gemini/gemini-2.5-pro", "gemini-2.5-pro", providers) == (("google",), "gemini-2.5-pro")
    assert named_in("openai/gpt-oss-20b:groq", "gpt-oss-20b:groq", providers) == (("groq",), "gpt-oss-20b")
    assert named_in("llama3.1:8b", "llama3.1:8b", providers) == ((), "llama3.1:8b")


def test_a_vendor_is_recognised_by_the_name() -> None:
    assert vendor_of("claude-sonnet-4") == "anthropic"
    assert vendor_of("gpt-oss-20b") == vendor_of("phi-4") == ""
