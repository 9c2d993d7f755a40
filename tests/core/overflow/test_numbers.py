"""`numbers`: what is a number, and which."""

import pytest

from proxy.core.overflow import Exactness, Scope, Unit
from proxy.core.overflow.numbers import read, skeleton
from proxy.core.overflow.sentences import normalised


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        *(
            (at_most, 72417)
            for at_most in ("72417", "72,417", "72.417", "72'417", "72 417", "72_417", "72\xa0417", "72417.0")
        ),
        ("1,048,576", 1048576),
        ("256k", 256000),
        ("1.5m", 1500000),
        ("1.048m", 1048000),
        ("20万", 200000),
        ("4096tokens", 4096),
    ],
)
def test_a_number_is_read_however_it_is_grouped(printed: str, value: int):
    assert [number.value for number in skeleton(f"at most {printed} tokens")[1]] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "request id: 20250314120000123",
        "claude-sonnet-4-20250514",
        "on 2024-08-01t10:00:00z",
        "retry in 86400 seconds",
        "请在 60 秒后重试",
        "messages.84.content",
        "[2048]",
        "error code: 2013",
        "status 400",
        "(1261)",
        "llama-3.3-70b",
        "5242880 bytes",
        "2000 pixels",
        "max 32mb",
        "(parameter=input_tokens, value=40861)",
        "qwen2.5",
        "<400> bad",
        "6m0s",
        "14233 characters of tokens",
    ],
)
def test_what_counts_no_tokens_is_no_number(text: str):
    assert skeleton(text)[1] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prompt is too long: 208732 tokens > 200000 maximum", (200000, 208732, None, Scope.WINDOW)),
        ("Range of input length should be [1, 204800]", (204800, None, None, Scope.INPUT)),
        ("Range of input length should be [1,512]", (512, None, None, Scope.INPUT)),
        ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens",
         (272000, 289650, None, Scope.INPUT)),
        ("8192 > 32768 - 28000", (32768, 28000, 8192, Scope.WINDOW)),
        ("context length 5000 exceeds 4096", (4096, None, None, Scope.WINDOW)),
        ("6683 in the messages, 730 in the functions, and 800 in the completion, you requested 8213 tokens",
         (None, 7413, 800, Scope.UNKNOWN)),
        ("输入 36000 tokens 超过最大上下文长度 32768", (32768, 36000, None, Scope.WINDOW)),
        ("the prompt has 4000 tokens, with max_tokens this exceeds the limit of 4096",
         (4096, 4000, None, Scope.UNKNOWN)),
        ("the limit is 9000 tokens, you requested 4000 tokens", (None, None, None, Scope.UNKNOWN)),  # nothing breaks it
        ("the maximum is 9000 tokens, the limit is 4000 tokens", (None, None, None, Scope.UNKNOWN)),
        ("input tokens (500, 4096)", (None, 500, None, Scope.UNKNOWN)),  # no range of sizes begins there
    ],
)  # fmt: skip
def test_numbers_take_their_roles(text: str, expected):
    figures = read(normalised(text))
    assert (figures.limit, figures.prompt, figures.reply, figures.limit_scope) == expected


def test_an_excess_is_neither_limit_nor_size():
    figures = read("prompt too long; exceeded max context length by 100918 tokens")
    assert (figures.excess, figures.limit, figures.largest_size) == (100918, None, None)


def test_hedges_are_kept():
    assert read("your prompt contains at least 40861 input tokens").exactness is Exactness.AT_LEAST
    assert read("your messages resulted in over 2511 tokens").exactness is Exactness.AT_LEAST
    assert read("you requested about 140000 tokens").exactness is Exactness.ABOUT
    assert read("exceeds the 256k limit of input tokens").limit_exactness is Exactness.ABOUT


def test_characters_are_a_unit_where_there_are_no_tokens():
    assert read("input exceeds the maximum length of 1048576 characters").unit is Unit.CHARS
    assert read("input exceeds the maximum length of 1048576 tokens").unit is Unit.TOKENS
    assert read("input exceeds the maximum length").unit is None


def test_unknown_names_and_small_numbers_take_no_role():
    assert read("input too long (n_slots=9001)").largest_size is None
    assert read("gpt 4 has a limit, the prompt of tokens").largest_size is None
    assert read("at most 16 tokens").limit is None
