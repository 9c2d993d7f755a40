from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.strategies import notices

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType, known
from proxy.core.conversation import FetchError, Unfetched
from proxy.core.media.descriptions import (
    OmissionReason,
    default_name,
    description,
    friendly_size,
    friendly_type,
    label,
    named,
    not_fetched,
    shown,
)
from proxy.core.notices import TYPES

OOXML = "application/vnd.openxmlformats-officedocument."


@pytest.mark.parametrize(
    ("mime", "en", "zh"),
    [
        ("application/pdf", "PDF document", "PDF 文档"),
        ("image/png", "PNG image", "PNG 图片"),
        ("audio/mpeg", "MP3 audio", "MP3 音频"),
        ("image/jpeg", "JPEG image", "JPEG 图片"),
        ("audio/wav", "WAV audio", "WAV 音频"),
        ("video/mp4", "MP4 video", "MP4 视频"),
        ("text/csv", "CSV table", "CSV 表格"),
        ("application/msword", "Word document (97-2003)", "Word 文档（97-2003）"),
        ("application/vnd.ms-excel", "Excel spreadsheet (97-2003)", "Excel 表格（97-2003）"),
        ("application/vnd.ms-powerpoint", "PowerPoint presentation (97-2003)", "PowerPoint 演示（97-2003）"),
        (f"{OOXML}wordprocessingml.document", "Word document", "Word 文档"),
        (f"{OOXML}spreadsheetml.sheet", "Excel spreadsheet", "Excel 表格"),
        (f"{OOXML}presentationml.presentation", "PowerPoint presentation", "PowerPoint 演示"),
        ("application/zip", "ZIP archive", "ZIP 压缩包"),
        ("application/octet-stream", "binary file", "二进制文件"),
    ],
)
def test_a_type_is_called_what_people_call_it(mime, en, zh):
    line = known(mime)
    assert friendly_type(line, "en") == en
    assert friendly_type(line, "zh") == zh


@pytest.mark.parametrize("kind", ContentKind)
def test_a_type_without_a_name_is_called_by_its_kind(kind):
    unheard = MediaType("x/y", kind, "bin")
    assert friendly_type(unheard, "en") != friendly_type(unheard, "zh")


def test_every_name_is_of_a_known_type():
    assert [mime for mime in TYPES if known(mime) is None] == []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1 KB"),
        (1_449, "1.4 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1 MB"),
        (2_500_000, "2.5 MB"),
        (50_000_000, "50 MB"),
        (12_345_678_901, "12.3 GB"),
        (5_000_000_000_000, "5,000 GB"),
    ],
)
def test_a_size_is_what_people_read(count, text):
    assert friendly_size(count) == text


@given(st.integers(0, 10**15))
def test_a_size_is_short_and_has_a_unit(count):
    for language in ("en", "zh"):
        assert re.fullmatch(r"[\d,]+(\.\d)? (bytes?|字节|KB|MB|GB)", friendly_size(count, language))


PNG = MediaType("image/png", ContentKind.IMAGE, "png")
ARTIFACT = Artifact(b"x", "shot", "png")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("why", list(OmissionReason))
def test_every_reason_exists_in_both_languages(language, why):
    text = description(
        PNG, why, ARTIFACT, notices(language), name="a.png", byte_count=2_000, pixels=(3, 2), limit=5_000_000
    )
    title, facts, reason = text.splitlines()
    assert title == f"{'[cannot read]' if language == 'en' else '[无法读取]'} a.png (artifact:{ARTIFACT.id})"
    assert "3 x 2" in facts
    assert ARTIFACT.id in reason
    assert "{" not in text
    assert ("。" in reason) == (language == "zh")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("why", list(OmissionReason))
def test_a_sub_agent_is_advised_where_one_is_offered_and_might_read_it(language, why):
    advice = "handing it to a sub-agent" if language == "en" else "建议创建具备相应能力的智能体协助处理"
    offered = replace(notices(language), subagent=True)
    reported = description(PNG, why, ARTIFACT, offered)
    assert (advice in reported) == (why in (OmissionReason.MODEL, OmissionReason.IN_TEXT, OmissionReason.UNSTATED))
    assert advice not in description(PNG, why, ARTIFACT, notices(language))
    assert advice not in description(PNG, why, ARTIFACT, replace(offered, kept=False)), "nothing to hand over"
    assert advice not in description(PNG, why, None, offered)


def test_an_address_on_the_web_can_be_handed_to_a_sub_agent():
    offered = replace(notices(), subagent=True)
    assert "sub-agent" in description(PNG, OmissionReason.MODEL, None, offered, address="https://x.org/a.png")
    assert "sub-agent" not in description(PNG, OmissionReason.MODEL, None, offered, address="file-1")


def test_the_exceeded_limit_is_reported_in_its_unit():
    large = description(PNG, OmissionReason.TOO_LARGE, None, notices(), limit=5_000_000)
    wide = description(PNG, OmissionReason.TOO_MANY_PIXELS, None, notices(), limit=5_000_000)
    assert "over the limit of 5 MB." in large
    assert "over the limit of 5,000,000 pixels." in wide


def test_what_comes_without_a_name_is_called_by_its_kind():
    assert default_name(PNG) == "image.png"
    assert default_name(MediaType("application/zip", ContentKind.OTHER, "zip")) == "file.zip"
    assert default_name(MediaType("", ContentKind.DOCUMENT, "")) == "document"
    assert named("", "text") == "text"
    assert named("a\nb.csv", "text") == "[a b.csv]\ntext"


def test_words_beside_media_name_whose_they_are():
    assert label("shot", "call_1", 2, "", "en") == "[attachment 2 of the result of shot, call call_1]"
    assert label("", "", 1, "：图.png", "zh") == "[工具 结果的第 1 个附件：图.png]"
    assert "user message" in shown(PNG, 1, "", behind=True, language="en")
    assert shown(PNG, 1, "", behind=False, language="zh") == "[本消息的第 1 个附件（图片）显示在此文本之后]"


def test_an_address_is_one_line_of_bounded_length():
    text = description(PNG, OmissionReason.MODEL, None, notices(), name="a", address="https://x.org/\n" + "a" * 900)
    assert len(text.splitlines()) == 4
    assert len(text) < 500


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
def test_a_limit_is_reported_in_its_unit(obstacle, english):
    assert not_fetched(URL, Unfetched(obstacle, limit=2.5), "en").endswith(english)


def test_a_password_in_the_address_is_not_repeated():
    notice = not_fetched("https://me:hidden@example.org/@a?b=@c", Unfetched(FetchError.BAD_ADDRESS), "en")
    assert notice.startswith("[cannot fetch] https://example.org/@a?b=@c\n")
