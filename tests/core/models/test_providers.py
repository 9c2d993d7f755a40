from __future__ import annotations

import pytest

from proxy.core.models.providers import is_own_server, named_in, served_at, vendor_of

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
def test_an_address_tells_whose_it_is(base_url: str, providers: tuple[str, ...]) -> None:
    assert served_at(base_url, ADDRESSES) == providers


def test_private_addresses_are_servers_of_ones_own() -> None:
    own = ("127.0.0.1", "[::1]", "192.168.0.9", "172.16.1.1", "169.254.1.1", "localhost", "vllm", "gpu.local")
    assert all(is_own_server(f"http://{host}:8000/v1") for host in own)
    assert not any(is_own_server(f"https://{host}/v1") for host in ("api.openai.com", "8.8.8.8", "[2606:4700::1]"))


def test_a_name_may_name_its_provider() -> None:
    providers = dict.fromkeys(("azure", "google", "groq"), "")
    assert named_in("azure/gpt-5", "gpt-5", providers) == (("azure",), "gpt-5")
    assert named_in("gemini/gemini-2.5-pro", "gemini-2.5-pro", providers) == (("google",), "gemini-2.5-pro")
    assert named_in("openai/gpt-oss-20b:groq", "gpt-oss-20b:groq", providers) == (("groq",), "gpt-oss-20b")
    assert named_in("llama3.1:8b", "llama3.1:8b", providers) == ((), "llama3.1:8b")


def test_a_vendor_is_told_by_the_name() -> None:
    assert vendor_of("claude-sonnet-4") == "anthropic"
    assert vendor_of("gpt-oss-20b") == vendor_of("phi-4") == ""
