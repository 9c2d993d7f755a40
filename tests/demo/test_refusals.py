from __future__ import annotations

import pytest
from support.demo_server import WINDOW

from proxy.demo.refusals import FLAVOURS, Load

LOAD = Load(message_tokens=36_000, tool_tokens=182, reply_tokens=None, window_tokens=32_768)
REAL_WORDS = {
    "openai": (
        "This model's maximum context length is 32768 tokens. However, your messages resulted in 36182 tokens (36000 "
        "in the messages, 182 in the functions). Please reduce the length of the messages or functions."
    ),
    "vllm": (
        "This model's maximum context length is 32768 tokens. However, your request has 36182 input tokens. Please "
        "reduce the length of the input messages."
    ),
    "llama.cpp": "request (36182 tokens) exceeds the available context size (32768 tokens), try increasing it",
    "dashscope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 32767]",
}


@pytest.mark.parametrize("name", FLAVOURS)
def test_each_flavour_refuses_in_its_own_words(name: str) -> None:
    assert FLAVOURS[name].refusal(LOAD)["error"]["message"] == REAL_WORDS[name]


def test_llama_cpp_ends_a_long_reply_instead_of_refusing_it() -> None:
    load = Load(message_tokens=150, tool_tokens=0, reply_tokens=100, window_tokens=WINDOW)
    assert FLAVOURS["llama.cpp"].accepts(load)
    assert not FLAVOURS["vllm"].accepts(load)
