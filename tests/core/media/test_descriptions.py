"""The words in the place of a content: what it was, why it is not shown, and the way to it."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.media_samples import PNG, image_part
from support.strategies import content_after, notices, spelled

from proxy.core.content_types import known
from proxy.core.conversation import FetchError, Unfetched
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.core.notices import TYPES
from proxy.wire.chat_completions import ChatMessage

TEXT = frozenset({Modality.TEXT})
URL = "https://example.org/a.png?signature=5eed"


def described(part=None, words=None, reads=TEXT, target=ToolImages.KEEP, role="user", found=None, **routes):
    """The text in the place of an image, or of another part."""
    message = ChatMessage.read(spelled({"role": role, "tool_call_id": "c", "content": [part or image_part()]}))
    (edit,) = RouteMedia(Routes(reads, **routes), target, found or {})(0, message, "shot", words or notices())
    (text,) = content_after(message, edit)
    return text["text"]


def linked(url=URL):
    return {"type": "image_url", "image_url": {"url": url}}


def not_fetched(found, language="en", url=URL, *, kept=True):
    return described(linked(url), notices(language, kept=kept), None, found={url: found})


def test_every_name_is_of_a_known_type():
    assert [mime for mime in TYPES if known(mime) is None] == []


@pytest.mark.parametrize(("count", "text"), [(10, "10 bytes"), (50, "50 bytes"), (1, "1 byte")])
def test_a_size_is_what_people_read(count, text):
    assert f"over the limit of {text}." in described(max_bytes=count)
    assert f"\nType: PNG image, {len(PNG)} bytes, 3 x 2 pixels\n" in described(max_bytes=count)
    assert "image, 1.2 MB" in described(image_part(PNG + bytes(1_200_000)), max_bytes=count)
    assert "over the limit of 5 pixels." in described(max_image_pixels=5)


def test_a_sub_agent_is_advised_where_one_is_offered_and_might_read_it():
    offered = replace(notices(), subagent=True)
    assert "handing it to a sub-agent" in described(words=offered)
    assert "建议创建具备相应能力的智能体协助处理" in described(words=replace(notices("zh"), subagent=True))
    assert "sub-agent" in described(linked("https://x.org/a.png"), offered)
    file = {"type": "file", "file": {"file_id": "file-1"}}
    for without in (
        described(words=notices()),
        described(words=replace(offered, kept=False)),
        described(file, offered),
        described(image_part(PNG), offered, max_bytes=10),
        described(image_part(b""), offered),
        described(words=offered, role="tool", reads=TEXT | {Modality.VISION}, target=ToolImages.TEXT),
    ):
        assert "sub-agent" not in without


def test_an_address_is_one_line_of_bounded_length():
    text = described(linked("https://x.org/\\n" + "a" * 900))
    assert len(text.splitlines()) == 4
    assert len(text) < 700


@pytest.mark.parametrize("obstacle", list(FetchError))
def test_every_obstacle_has_words_of_its_own_in_both_languages(obstacle):
    english, chinese = (not_fetched(Unfetched(obstacle), language, kept=False) for language in ("en", "zh"))
    assert english.startswith(f"[cannot fetch] {URL}\nStatus: failed\nLikely reason: ")
    assert english.isascii()
    assert re.search(r"可能的原因：[\u4e00-\u9fff]", chinese) or obstacle is FetchError.INSECURE
    assert english not in {not_fetched(Unfetched(other), kept=False) for other in FetchError if other is not obstacle}


def test_the_diagnosis_says_all_that_is_known():
    found = Unfetched(
        FetchError.TOO_LARGE,
        http_code=200,
        final_url="https://cdn.example.org/big",
        content_type="image/tiff",
        limit=20_971_520,
    )
    assert not_fetched(found) == (
        f"[cannot fetch] {URL}\n"
        "Status: failed; HTTP code: 200; final URL: https://cdn.example.org/big; content type: image/tiff\n"
        "Likely reason: the image is too large (over 20,971,520 bytes). "
        "The image would have been kept in /data/tool-output."
    )
    assert not_fetched(found, "zh") == (
        f"[无法获取] {URL}\n"
        "状态：失败；HTTP 状态码：200；最终地址：https://cdn.example.org/big；内容类型：image/tiff\n"
        "可能的原因：图片过大（超过 20,971,520 字节）。 图片原本会保存在 /data/tool-output。"
    )


@pytest.mark.parametrize(
    ("obstacle", "english"),
    [
        (FetchError.TIMEOUT, "the server was too slow (over 2.5 seconds)."),
        (FetchError.TOO_MANY_REDIRECTS, "too many redirects, perhaps in a circle (over 2.5)."),
        (FetchError.NOT_FOUND, "there is nothing at this address (any more)."),
    ],
)
def test_a_limit_is_reported_in_its_unit(obstacle, english):
    assert not_fetched(Unfetched(obstacle, limit=2.5), kept=False).endswith(english)


def test_a_password_in_the_address_is_not_repeated():
    notice = not_fetched(Unfetched(FetchError.BAD_ADDRESS), url="https://me:hidden@example.org/@a?b=@c")
    assert notice.startswith("[cannot fetch] https://example.org/@a?b=@c\n")
