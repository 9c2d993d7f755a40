from __future__ import annotations

import pytest

from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText


@pytest.mark.parametrize(("status", "is_success"), [(199, False), (200, True), (299, True), (300, False), (400, False)])
def test_a_success_is_told_by_the_status(status, is_success):
    assert ErrorReport(status).is_success is is_success


def test_a_text_or_a_code_is_an_error():
    assert not ErrorReport(200).has_error
    assert ErrorReport(200, texts=(ErrorText("error", "too long"),)).has_error
    assert ErrorReport(200, codes=(ErrorCode("error.code", "400"),)).has_error


@pytest.mark.parametrize(
    ("codes", "is_wordless"),
    [((), True), (("400",), True), (("400", "1261"), True), (("400", "invalid_request"), False), (("",), False)],
)
def test_an_answer_of_numbers_alone_says_no_word(codes, is_wordless):
    assert ErrorReport(400, codes=tuple(ErrorCode("code", code) for code in codes)).is_wordless is is_wordless
    assert not ErrorReport(400, texts=(ErrorText("error", "no"),)).is_wordless
