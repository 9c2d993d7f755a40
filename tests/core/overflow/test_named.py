"""Sentences that name a limit besides the window → its name and number."""

from __future__ import annotations

import pytest

from proxy.core.models import LimitName
from proxy.core.overflow import ErrorReport, ErrorText, Sent, Verdict, judge

NAMED = {
    "image count must be <= 5, got 8": (LimitName.IMAGES, 5),
    "maximum image count exceeded: 8/5": (LimitName.IMAGES, 5),
    "Please provide no more than 5 images.": (LimitName.IMAGES, 5),
    "输入图片数量超过上限，最多 5 张": (LimitName.IMAGES, 5),
    "画像の枚数が上限(5)を超えています": (LimitName.IMAGES, 5),
    "too many images and documents: 101 + 0 > 100": (LimitName.MEDIA, 100),
    "image width or height exceeds 8000 px": (LimitName.SIDE, 8_000),
    "Image dimension 9000 exceeds maximum of 8000": (LimitName.SIDE, 8_000),
    "图片宽高不能超过8000像素": (LimitName.SIDE, 8_000),
    "the image dimensions exceed max allowed size for many-image requests: 2000 pixels": (
        LimitName.SIDE_OF_MANY,
        2_000,
    ),
    "Image size 300068 bytes exceeds maximum of 209715 bytes": (LimitName.IMAGE_BYTES, 209_715),
    "messages array too long: maximum 30, got 31": (LimitName.MESSAGES, 30),
    "messages: Array must contain at most 30 element(s)": (LimitName.MESSAGES, 30),
    "messages.2.content: List should have at most 16 items after validation, not 40": (LimitName.PARTS, 16),
    "Too many content parts: 40. Maximum is 16": (LimitName.PARTS, 16),
    "String length exceeds maximum of 6000": (LimitName.STRING, 6_000),
    "Content length 30000 exceeds the maximum of 6000 characters per message": (LimitName.STRING, 6_000),
    '"messages[4].content" length must be less than or equal to 6000 characters long': (LimitName.STRING, 6_000),
    "ensure this value has at most 6000 characters": (LimitName.STRING, 6_000),
    "Single message exceeds 6000 characters": (LimitName.STRING, 6_000),
}
UNNAMED = (
    "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
    "Input is too long: 30000 characters, maximum is 27000 characters",
    "text length is 45011, which is outside the range (0, 27000]",
    "prompt is too long: 215000 tokens > 200000 maximum",
)
REPLIES = (
    "max_tokens must be at least 1 and at most 8192, got 32000",
    "max_tokens 的取值范围是 [1, 8192]",
    "This model can generate at most 8192 tokens, but 32000 were requested",
    "Requested 32000 tokens for the completion, but the model supports only 8192",
)


SENT = Sent(9_000, 30_000, window_is_certain=False, reply_tokens=32_000, longest_message=30_000)


def judged(text: str) -> Verdict:
    return judge(ErrorReport(400, texts=[ErrorText("error.message", text)]), SENT)


@pytest.mark.parametrize(("text", "expected"), NAMED.items())
def test_a_sentence_names_a_limit(text: str, expected: tuple[LimitName, int]) -> None:
    verdict = judged(text)
    assert (verdict.named, verdict.named_limit) == expected


@pytest.mark.parametrize("text", UNNAMED)
def test_a_limit_of_a_small_field_or_of_the_whole_prompt_is_none_of_them(text: str) -> None:
    assert judged(text).named is None


@pytest.mark.parametrize("text", REPLIES)
def test_a_sentence_names_the_largest_reply(text: str) -> None:
    verdict = judged(text)
    assert (verdict.named, verdict.named_limit) == (LimitName.REPLY, 8_192)
