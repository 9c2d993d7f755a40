from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.strategies import notices

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType
from proxy.core.media.descriptions import (
    Described,
    OmissionReason,
    default_name,
    description,
    label,
    named,
    shown,
    spoken,
)

PNG = MediaType("image/png", ContentKind.IMAGE, "png")
ARTIFACT = Artifact(b"x", "shot", "png")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("why", list(OmissionReason))
def test_every_reason_is_told_in_both_languages(language, why):
    text = description(Described(PNG, why, "a.png", 2_000, (3, 2), limit=5_000_000), ARTIFACT, notices(language))
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
    told = description(Described(PNG, why), ARTIFACT, offered)
    assert (advice in told) == (why in (OmissionReason.MODEL, OmissionReason.IN_TEXT, OmissionReason.UNSTATED))
    assert advice not in description(Described(PNG, why), ARTIFACT, notices(language))
    assert advice not in description(Described(PNG, why), ARTIFACT, replace(offered, kept=False)), (
        "nothing to hand over"
    )
    assert advice not in description(Described(PNG, why), None, offered)


def test_what_stands_on_the_web_can_be_handed_to_a_sub_agent():
    offered = replace(notices(), subagent=True)
    assert "sub-agent" in description(
        Described(PNG, OmissionReason.MODEL, address="https://x.org/a.png"), None, offered
    )
    assert "sub-agent" not in description(Described(PNG, OmissionReason.MODEL, address="file-1"), None, offered)


def test_the_limit_that_was_passed_is_told_in_its_unit():
    large = description(Described(PNG, OmissionReason.TOO_LARGE, limit=5_000_000), None, notices())
    wide = description(Described(PNG, OmissionReason.TOO_MANY_PIXELS, limit=5_000_000), None, notices())
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
    assert spoken("en") != spoken("zh")


def test_an_address_is_one_line_of_bounded_length():
    text = description(
        Described(PNG, OmissionReason.MODEL, "a", address="https://x.org/\n" + "a" * 900), None, notices()
    )
    assert len(text.splitlines()) == 4
    assert len(text) < 500
