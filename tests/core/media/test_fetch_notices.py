from __future__ import annotations

import re

import pytest

from proxy.core.conversation.references import FetchError, Unfetched
from proxy.core.media.fetch_notices import not_fetched

URL = "https://example.org/a.png?signature=5eed"


@pytest.mark.parametrize("obstacle", list(FetchError))
def test_every_obstacle_has_words_of_its_own_in_both_languages(obstacle):
    english, chinese = (not_fetched(URL, Unfetched(obstacle), language) for language in ("en", "zh"))
    assert english.startswith(f"[cannot fetch] {URL}\nStatus: failed\nLikely reason: ")
    assert english.isascii()
    assert re.search(r"可能的原因：[\u4e00-\u9fff]", chinese) or obstacle is FetchError.INSECURE
    others = {not_fetched(URL, Unfetched(other), "en") for other in FetchError if other is not obstacle}
    assert english not in others


def test_the_diagnosis_says_all_that_is_known():
    found = Unfetched(
        FetchError.TOO_LARGE,
        http_code=200,
        final_url="https://cdn.example.org/big",
        content_type="image/tiff",
        limit=20_971_520,
    )
    assert not_fetched(URL, found, "en", "/data/tool-output/") == (
        f"[cannot fetch] {URL}\n"
        "Status: failed; HTTP code: 200; final URL: https://cdn.example.org/big; content type: image/tiff\n"
        "Likely reason: the image is too large (over 20,971,520 bytes). "
        "The image would have been kept in /data/tool-output/."
    )
    assert not_fetched(URL, found, "zh", "/data/tool-output/") == (
        f"[无法获取] {URL}\n"
        "状态：失败；HTTP 状态码：200；最终地址：https://cdn.example.org/big；内容类型：image/tiff\n"
        "可能的原因：图片过大（超过 20,971,520 字节）。 图片原本会保存在 /data/tool-output/。"
    )


@pytest.mark.parametrize(
    ("obstacle", "english"),
    [
        (FetchError.TIMEOUT, "the server was too slow (over 2.5 seconds)."),
        (FetchError.TOO_MANY_REDIRECTS, "too many redirects, perhaps in a circle (over 2.5)."),
        (FetchError.NOT_FOUND, "there is nothing at this address (any more)."),
    ],
)
def test_a_limit_is_told_in_its_unit(obstacle, english):
    assert not_fetched(URL, Unfetched(obstacle, limit=2.5), "en").endswith(english)


def test_a_password_in_the_address_is_not_repeated():
    said = not_fetched("https://me:hidden@example.org/@a?b=@c", Unfetched(FetchError.BAD_ADDRESS), "en")
    assert said.startswith("[cannot fetch] https://example.org/@a?b=@c\n")
