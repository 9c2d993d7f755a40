"""Our Chinese texts contain no English sentence: never three English words in a row.

Rule: every notice is rendered, with content that is Chinese itself, by every way to an artifact that there is.
"""

from __future__ import annotations

import re
from itertools import product

import pytest
from msgspec.structs import replace
from support.phrases import SECTIONS
from support.strategies import exchange, pipeline, planned, system, user

from proxy import errors
from proxy.core.artifact import Artifact
from proxy.core.artifact_reading import MAX_PATTERN_CHARACTERS, Query
from proxy.core.artifact_reading import pages as reading_notices
from proxy.core.artifact_reading.search import Hits
from proxy.core.compaction import Budget
from proxy.core.content_types import ContentKind, MediaType, known
from proxy.core.conversation import FetchError, Unfetched
from proxy.core.media import descriptions as media_descriptions
from proxy.core.media.descriptions import OmissionReason, description
from proxy.core.models import AgentFileAccess
from proxy.core.notices import ArtifactAccess, Notices, PageSize, Resume, catalogue
from proxy.core.overflow import refusal
from proxy.core.retrieval_tool import tool as own_tool
from proxy.core.text import Excerpt, Page
from proxy.errors import ProxyError

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
PNG = MediaType("image/png", ContentKind.IMAGE, "png")
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


def about_media():
    for why, artifact, notices in product(OmissionReason, (CUT, None), NOTICES):
        yield description(PNG, why, artifact, notices, name="图.png", byte_count=2_000, pixels=(3, 2), limit=5_000_000)
        yield description(PNG, why, artifact, notices, name="图.png", address="https://x.org/图.png")
    for mime in catalogue.TYPES:
        yield description(known(mime), OmissionReason.MODEL, CUT, NOTICES[0], name="甲")
    for kind in ContentKind:
        found = MediaType("", kind, "")
        yield media_descriptions.friendly_type(found, "zh")
        yield media_descriptions.shown(found, 1, "：图.png", behind=True, language="zh")
        yield media_descriptions.shown(found, 1, "：图.png", behind=False, language="zh")
    for tool, call in product(("工具", ""), ("call_1", "")):
        yield media_descriptions.label(tool, call, 1, "：图.png", "zh")
    yield catalogue.say(catalogue.MEDIA, "spoken", "zh")


def about_what_was_not_fetched():
    for obstacle in FetchError:
        unfetched = Unfetched(obstacle, 404, "https://x.org/b", "text/html", 5.0)
        yield media_descriptions.not_fetched("https://x.org/a", unfetched, "zh", "/数据")


def about_reading():
    for following, cut in product((None, "81-"), (True, False)):
        page = Page("字".encode(), 1, 80, following, cut, 300, 9_000)
        yield reading_notices.page_header(page, CUT.id, "zh")
    for following in (None, "81-"):
        yield reading_notices.hits_header(Hits("字".encode(), 3, 1, 80, following, 300), CUT.id, "zh")
    yield own_tool.notice("unnamed", "zh")
    yield own_tool.notice("many", "zh", calls=4)
    yield own_tool.notice("last", "zh", rounds=4)
    yield own_tool.stopped(4, "zh")
    yield own_tool.withheld("zh")
    for kind in (
        errors.ArtifactNotFound,
        errors.ArtifactStoreUnavailable,
        errors.RangeOutside,
        errors.BadArtifactQuery,
    ):
        yield own_tool.failed(CUT.id, kind("there is no such thing at all"), "zh")
    for parameters in PROBLEMS:
        with pytest.raises(ProxyError) as caught:
            Query.parse(parameters)
        yield own_tool.failed(CUT.id, caught.value, "zh")


def about_a_refusal():
    for budget in (Budget(50), Budget(50, 10, 10)):
        plan = planned([system("规则" * 900), user("问题"), *exchange(["结果" * 500])], pipeline(budget))
        # It begins with OpenAI's own words, by which clients tell what it is.
        yield re.sub(
            r"This model's maximum context length[^.]*\.[^.]*\.", "", refusal.does_not_fit(plan, "m", 99, "zh")
        )
    yield refusal.refused_twice(900, "zh")


EVERY = [about_an_artifact, about_media, about_what_was_not_fetched, about_reading, about_a_refusal]


@pytest.mark.parametrize("rendered", EVERY)
def test_no_notice_in_chinese_holds_an_english_sentence(rendered):
    for text in rendered():
        assert ENGLISH.search(text) is None, text
        assert re.search(r"[\u4e00-\u9fff]", text), text


def phrases():
    yield from refusal._WORDS["zh"].values()
    for section in SECTIONS.values():
        yield from (chinese for _, chinese in section.values())


def test_no_phrase_that_notices_are_made_of_holds_one_either():
    for phrase in phrases():
        assert ENGLISH.search(phrase) is None, phrase


def test_an_english_sentence_would_be_seen():
    assert ENGLISH.search("未能读取：there is no such line")
    assert ENGLISH.search(own_tool.failed(CUT.id, errors.RangeOutside("there is no line 9"), "en"))
