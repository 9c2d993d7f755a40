"""Our Chinese texts contain no English sentence: never three English words in a row.

Rule: every notice is rendered, with content that is Chinese itself, by every way to an artifact that there is.
"""

from __future__ import annotations

import re
from itertools import product

import pytest
from msgspec.structs import replace
from support.media_samples import DOCX, MP4, PDF, SVG, WAV, ZIP, file_part, image_part
from support.phrases import SECTIONS
from support.reading_texts import answer
from support.strategies import exchange, pipeline, planned, spelled, system, user

from proxy import errors
from proxy.core.artifact import Artifact
from proxy.core.artifact_reading import MAX_PATTERN_CHARACTERS, Query
from proxy.core.compaction import Budget
from proxy.core.conversation import FetchError, Unfetched, Words
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import AgentFileAccess, Modality, ToolImages
from proxy.core.notices import ArtifactAccess, Notices, PageSize, Resume
from proxy.core.overflow import OversizedPlan, refused_twice
from proxy.core.retrieval_tool import failed, notice
from proxy.core.text import Excerpt
from proxy.errors import ProxyError
from proxy.wire.chat_completions import ChatMessage

ENGLISH = re.compile(r"(?:[A-Za-z]+[ ,.;:]+){2}[A-Za-z]+")
"""Three words in a row."""
CUT = Artifact("内容".encode(), "工具")
URL = "http://127.0.0.1:8787/artifacts"
WAYS = [
    ArtifactAccess(),
    ArtifactAccess("/数据"),
    ArtifactAccess(url=URL, key_headers=("Authorization: Bearer $OPENAI_API_KEY",)),
    ArtifactAccess(url=URL, tool=True),
]
NOTICES = [
    Notices("zh", way, reach, kept, subagent)
    for way, reach, kept, subagent in product(WAYS, AgentFileAccess, (True, False), (True, False))
]
SHOWN = Excerpt("开头\n", ("错误",), "结尾\n", "中间\n" * 9, 12, 90, 3, 30)
LONG_LINES = replace(SHOWN, gap="长" * 90_000)
PROBLEMS = [
    {"lines": "often"},
    {"lines": "9-2"},
    {"grep": "("},
    {"grep": "a" * (MAX_PATTERN_CHARACTERS + 1)},
    {"grep": "a", "context": "999"},
    {"grep": "a", "context": "x"},
    {"context": "1"},
]


def about_an_artifact():
    for notices in NOTICES:
        for excerpt in (SHOWN, LONG_LINES, replace(SHOWN, head="", rescued=(), tail="")):
            yield notices.truncated(excerpt, CUT, ["src/甲.py"])
        yield notices.omission_note(CUT, 3, 400, [("src/甲.py", ["定义 = 3"])], ["请看"])
        yield notices.response_text(CUT, Resume.after(SHOWN, PageSize()))
        yield notices.whole(CUT)
        yield notices.replaced(3)


ADDRESS = "https://x.org/图.png"
CONTENTS = [
    [file_part(content, name="图") for content in (DOCX, MP4, PDF, SVG, WAV, ZIP, b"")],
    [
        image_part(),
        image_part(b""),
        image_part(SVG),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}},
    ],
    [{"type": "image_url", "image_url": {"url": ADDRESS}}],
]
ROUTES = [
    *(Routes(frozenset({Modality.TEXT}), **limits) for limits in ({}, {"max_bytes": 9}, {"max_image_pixels": 2})),
    *(
        Routes(frozenset({Modality.TEXT, Modality.VISION}), **limits)
        for limits in ({}, {"max_bytes": 9}, {"max_images": 0})
    ),
    Routes(is_strict=True),
]
OUTCOMES = [Unfetched(obstacle, 404, "https://x.org/b", "text/html", 5.0) for obstacle in FetchError]


def about_media():
    for content, role, routes, target in product(CONTENTS, ("user", "tool"), ROUTES, ToolImages):
        message = ChatMessage.read(spelled({"role": role, "tool_call_id": "c", "content": content}))
        for resolved in ({}, *({ADDRESS: outcome} for outcome in OUTCOMES)) if content is CONTENTS[-1] else ({},):
            step = RouteMedia(routes, target, resolved)
            for edit in step(1, message, "工具", NOTICES[0]):
                yield from (item.text for item in edit.becomes.items if isinstance(item, Words))
                spoken, parts = (edit.moved.spoken, edit.moved.parts) if edit.moved else (None, ())
                yield from filter(None, [spoken, *(part.text for part in parts if isinstance(part, Words))])


def about_reading():
    text = "字 行\n".encode() * 20_000
    for parameters in (
        {"lines": "1-"},
        {"lines": "19990-"},
        {"grep": "字"},
        {"grep": "没有"},
        {"grep": "字", "lines": "5-80"},
    ):
        yield answer("zh", text, **parameters)[0]
    yield notice("unnamed", "zh")
    yield notice("many", "zh", calls=4)
    yield notice("last", "zh", rounds=4)
    for kind in (
        errors.ArtifactNotFound,
        errors.ArtifactStoreUnavailable,
        errors.RangeOutside,
        errors.BadArtifactQuery,
    ):
        yield failed(CUT.id, kind("there is no such thing at all"), "zh")
    for parameters in PROBLEMS:
        with pytest.raises(ProxyError) as caught:
            Query.parse(parameters)
        yield failed(CUT.id, caught.value, "zh")


def about_a_refusal():
    for budget in (Budget(50), Budget(50, 10, 10)):
        plan = planned([system("规则" * 900), user("问题"), *exchange(["结果" * 500])], pipeline(budget))
        # It begins with OpenAI's own words, by which clients tell what it is.
        yield re.sub(
            r"This model's maximum context length[^.]*\.[^.]*\.", "", OversizedPlan(plan, "m", 99).message("zh")
        )
    yield refused_twice(900, "zh")


EVERY = [about_an_artifact, about_media, about_reading, about_a_refusal]


@pytest.mark.parametrize("rendered", EVERY)
def test_no_notice_in_chinese_holds_an_english_sentence(rendered):
    for text in rendered():
        assert ENGLISH.search(text) is None, text
        assert re.search(r"[\u4e00-\u9fff]", text), text


def test_no_phrase_that_notices_are_made_of_holds_one_either():
    for section in SECTIONS.values():
        assert not [chinese for _, chinese in section.values() if ENGLISH.search(chinese)]


def test_an_english_sentence_would_be_seen():
    assert ENGLISH.search("未能读取：there is no such line")
    assert ENGLISH.search(failed(CUT.id, errors.RangeOutside("there is no line 9"), "en"))
