from __future__ import annotations

import pytest

from proxy.core.artifact_reading.patterns import MAX_CONTEXT, MAX_PATTERN_CHARACTERS
from proxy.core.notices import retrieval
from proxy.core.notices.catalogue import MARK
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactQuery, RangeOutside

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
NAME = "tool_sh_0123456789abcdef.txt"


@LANGUAGES
@pytest.mark.parametrize(
    "error",
    [
        ArtifactNotFound("no such artifact"),
        ArtifactStoreUnavailable("the disk is gone"),
        BadArtifactQuery("`grep` must have 1 to 500 characters", param="grep"),
        BadArtifactQuery("`context` must be 0 to 50 lines", param="context"),
        RangeOutside("lines 5-9 of 3"),
    ],
)
def test_a_call_that_cannot_be_answered_is_told_which_artifact_and_why_in_one_line(error, language):
    said = retrieval.failed(NAME, error, language)
    assert said.startswith(MARK)
    assert said.endswith("]\n")
    assert said.count("\n") == 1
    assert NAME in said


def test_every_reason_has_chinese_words_of_its_own():
    errors = [
        ArtifactNotFound("x"),
        ArtifactStoreUnavailable("x"),
        BadArtifactQuery("x", param="grep"),
        BadArtifactQuery("x", param="context"),
    ]
    assert len({retrieval.failed(NAME, error, "zh") for error in errors}) == len(errors)


def test_an_english_reason_is_the_message_of_the_error():
    assert "at most 7" in retrieval.failed(NAME, BadArtifactQuery("at most 7", param="grep"), "en")


def test_a_bound_that_was_passed_is_told_in_chinese():
    assert str(MAX_PATTERN_CHARACTERS) in retrieval.failed(NAME, BadArtifactQuery("x", param="grep"), "zh")
    assert str(MAX_CONTEXT) in retrieval.failed(NAME, BadArtifactQuery("x", param="context"), "zh")


@LANGUAGES
def test_counts_stand_in_what_is_said_of_too_many_calls_and_readings(language):
    assert "17" in retrieval.too_many(17, language)
    assert "8" in retrieval.last_reading(8, language)
    assert "8" in retrieval.stopped(8, language)


@LANGUAGES
def test_what_a_person_reads_is_a_sentence_and_no_notice_for_models(language):
    for said in (retrieval.stopped(8, language), retrieval.withheld(language)):
        assert said.strip()
        assert MARK not in said


@LANGUAGES
def test_a_call_that_names_nothing_is_told_so(language):
    assert retrieval.unnamed(language).startswith(MARK)
    assert retrieval.unnamed("en") != retrieval.unnamed("zh")


@LANGUAGES
def test_a_search_that_cannot_be_made_is_told_why_in_one_line(language):
    said = retrieval.not_searched(BadArtifactQuery("`tool` must be a text", param="tool"), language)
    assert said.startswith(MARK)
    assert said.endswith("]\n")
    assert "`tool`" in said
