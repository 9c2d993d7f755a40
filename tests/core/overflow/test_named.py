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
    "You set image=5 (or defaulted to 5) in `--limit-mm-per-prompt`, but passed 8 image items in the same prompt.": (
        LimitName.IMAGES,
        5,
    ),
    "images count 8 larger than 5": (LimitName.IMAGES, 5),
    "Reduce images to 5 or fewer": (LimitName.IMAGES, 5),
    "画像は最大5枚までです（8枚が指定されました）": (LimitName.IMAGES, 5),
    "too many images and documents: 101 + 0 > 100": (LimitName.MEDIA, 100),
    "Too much media: 0 document pages + 107 images > 100": (LimitName.MEDIA, 100),
    "You set audio=2 (or defaulted to 2) in `--limit-mm-per-prompt`, but passed 3 audio items": (LimitName.AUDIO, 2),
    "PDF exceeds 20 page limit": (LimitName.PAGES, 20),
    "Document page count 30 is over the maximum of 20": (LimitName.PAGES, 20),
    "image width or height exceeds 8000 px": (LimitName.SIDE, 8_000),
    "Image dimension 9000 exceeds maximum of 8000": (LimitName.SIDE, 8_000),
    "图片宽高不能超过8000像素": (LimitName.SIDE, 8_000),
    "image size 9000x20 exceeds the maximum allowed 8000x8000": (LimitName.SIDE, 8_000),
    "InvalidImageSize: longest side 9000 > 8000": (LimitName.SIDE, 8_000),
    "Image exceeds the maximum allowed total pixels. Current dimensions: 9000x9000 = 81000000 pixels. Maximum allowed: "
    "36000000 pixels": (LimitName.SIDE, 6_000),
    "Image too large. Please limit to 36 megapixels.": (LimitName.SIDE, 6_000),
    "the image dimensions exceed max allowed size for many-image requests: 2000 pixels": (
        LimitName.SIDE_OF_MANY,
        2_000,
    ),
    "Image size 300068 bytes exceeds maximum of 209715 bytes": (LimitName.IMAGE_BYTES, 209_715),
    "File size 300045 bytes exceeds the 200000 bytes limit for images": (LimitName.IMAGE_BYTES, 200_000),
    "图片大小超过限制，单张图片不能超过200000字节": (LimitName.IMAGE_BYTES, 200_000),
    "Each image must be smaller than 200000 bytes": (LimitName.IMAGE_BYTES, 200_000),
    "Input image size is too large, please limit to 2M": (LimitName.IMAGE_BYTES, 2_097_152),
    "画像サイズは2MB以下にしてください": (LimitName.IMAGE_BYTES, 2_097_152),
    "图片总大小超过100000字节": (LimitName.MEDIA_BYTES, 100_000),
    "Too much image data: 240000 bytes in total, limit 100000 bytes": (LimitName.MEDIA_BYTES, 100_000),
    "messages array too long: maximum 30, got 31": (LimitName.MESSAGES, 30),
    "消息条数超过限制，最多30条": (LimitName.MESSAGES, 30),
    "messages 数组长度不能超过 30": (LimitName.MESSAGES, 30),
    "Message history too long: 41 messages, limit is 30 messages.": (LimitName.MESSAGES, 30),
    "Value at 'messages' failed to satisfy constraint: Member must have length less than or equal to 30": (
        LimitName.MESSAGES,
        30,
    ),
    "body/messages must NOT have more than 30 items": (LimitName.MESSAGES, 30),
    "Слишком много сообщений: 41 (максимум 30)": (LimitName.MESSAGES, 30),
    "body/messages/3/tool_calls must NOT have more than 16 items": (LimitName.CALLS, 16),
    "Maximum number of function calls per turn is 16; got 20.": (LimitName.CALLS, 16),
    "tool_calls 数量超过限制，最多16个": (LimitName.CALLS, 16),
    "body/messages/3/content must NOT have more than 16 items": (LimitName.PARTS, 16),
    "The maximum number of content blocks per message is 16": (LimitName.PARTS, 16),
    "messages.0.content: too many content blocks (20), maximum 16": (LimitName.PARTS, 16),
    "body/tools must NOT have more than 128 items": (LimitName.TOOLS, 128),
    "Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length less than or equal to 128": (
        LimitName.TOOLS,
        128,
    ),
    "messages: Array must contain at most 30 element(s)": (LimitName.MESSAGES, 30),
    "messages.2.content: List should have at most 16 items after validation, not 40": (LimitName.PARTS, 16),
    "Too many content parts: 40. Maximum is 16": (LimitName.PARTS, 16),
    "String length exceeds maximum of 6000": (LimitName.STRING, 6_000),
    "Content length 30000 exceeds the maximum of 6000 characters per message": (LimitName.STRING, 6_000),
    '"messages[4].content" length must be less than or equal to 6000 characters long': (LimitName.STRING, 6_000),
    "ensure this value has at most 6000 characters": (LimitName.STRING, 6_000),
    "Single message exceeds 6000 characters": (LimitName.STRING, 6_000),
    "content length exceeds 6000 characters": (LimitName.STRING, 6_000),
    "单条消息内容超长，最大6000字符，当前30400字符": (LimitName.STRING, 6_000),
    "value too long for field content: 30400 > 6000": (LimitName.STRING, 6_000),
    "tool_calls[0].function.arguments is too long: 30400 > 6000 characters": (LimitName.STRING, 6_000),
    "messages[3] only one image is allowed per request": (LimitName.IMAGES, 1),
    "vision model only supports a single image per message": (LimitName.IMAGES, 1),
    "The number of image in the request (5) exceeds limit-mm-data-per-request (4)": (LimitName.IMAGES, 4),
    "Exceeded limit on max bytes per data-uri item : 200000": (LimitName.IMAGE_BYTES, 150_000),
    "Invalid 'input[3].output[1].image_url': string too long. Expected a string with maximum length 200000, but got a "
    "string with length 400090 instead.": (LimitName.IMAGE_BYTES, 150_000),
    "This model only supports single tool-calls at once! This model only supports single tool-calls at once!": (
        LimitName.CALLS,
        1,
    ),
    "Value at 'messages.3.member.content' failed to satisfy constraint: Member must have length less than or equal to "
    "16": (LimitName.PARTS, 16),
    "messages may contain at most 40 entries": (LimitName.MESSAGES, 40),
    "messages length must be less than or equal to 40": (LimitName.MESSAGES, 40),
    "messages length must be less than or equal to 256": (LimitName.MESSAGES, 256),
    "messages: Too big: expected array to have <=40 items": (LimitName.MESSAGES, 40),
    "messages: is too long (maximum is 40 items)": (LimitName.MESSAGES, 40),
    "history 最多支持 40 条消息": (LimitName.MESSAGES, 40),
    "size must be between 0 and 6000": (LimitName.STRING, 6_000),
    "messages.3.content must be shorter than or equal to 6000 characters": (LimitName.STRING, 6_000),
    "1つのメッセージは6000文字以内にしてください": (LimitName.STRING, 6_000),
    "메시지 하나의 길이는 최대 6000자입니다 (현재 30400자)": (LimitName.STRING, 6_000),
    "Request payload size exceeds the limit: 200000 bytes. Please use the file API": (LimitName.BODY, 200_000),
    "Invalid request: total message size 562917 exceeds limit 500000": (LimitName.BODY, 500_000),
    "grpc: received message larger than max (4718592 vs. 4194304)": (LimitName.BODY, 4_194_304),
    "The field Content must be a string or array type with a maximum length of '6000'.": (LimitName.STRING, 6_000),
    "ensure this value has at most 6000 characters (type=value_error.any_str.max_length)": (LimitName.STRING, 6_000),
}
UNNAMED = (
    "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
    "Input is too long: 30000 characters, maximum is 27000 characters",
    "text length is 45011, which is outside the range (0, 27000]",
    "prompt is too long: 215000 tokens > 200000 maximum",
    "image aspect ratio must be less than 200",
    "Video must be at most 60 seconds long",
    "Unsupported image format. Supported: png, jpeg, gif, webp (max 4 frames)",
    "The image length and width do not meet the model restrictions. [height:5 or width:5 must be larger than 10]",
    "body/stop must NOT have more than 4 items",
    "tools.0.function.description: String should have at most 1024 characters",
    "max_tokens must be greater than 6000 tokens",
    "messages length must be less than or equal to 30000",
    "Only one choice is supported: n must be 1 for a single image",
    "This model only supports a single system message",
    "Tool bash failed: size must be between 1 and 12",
)
REPLIES = (
    "max_tokens must be at least 1 and at most 8192, got 32000",
    "max_tokens 的取值范围是 [1, 8192]",
    "max_tokens参数非法。取值范围为[1,8192]",
    "max_tokens: Input should be less than or equal to 8192",
    "maximum output length exceeded: 32000 > 8192",
    "Expected max_tokens to be in the range 1..8192, got 32000",
    "it has a maxOutputTokens value of 32000 but the supported range is from 1 (inclusive) to 8193 (exclusive)",
    "This model can generate at most 8192 tokens, but 32000 were requested",
    "Requested 32000 tokens for the completion, but the model supports only 8192",
    "max tokens must be less than or equal to 8192, the maximum output for this model - received 32000.",
    "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens, but can only afford "
    "8192",
)


SENT = Sent(9_000, 30_000, window_is_certain=False, reply_tokens=32_000, longest_message=30_000, messages=300)


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
