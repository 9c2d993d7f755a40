from __future__ import annotations

import pytest

from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText, Sent


@pytest.mark.parametrize(("status", "is_success"), [(199, False), (200, True), (299, True), (300, False), (400, False)])
def test_a_success_is_told_by_the_status(status, is_success):
    assert ErrorReport(status).is_success is is_success


def test_a_text_or_a_code_is_an_error():
    assert not ErrorReport(200).has_error
    assert ErrorReport(200, texts=(ErrorText("error", "too long"),)).has_error
    assert ErrorReport(200, codes=(ErrorCode("error.code", "400"),)).has_error


def test_only_a_small_reply_limit_explains_a_reply_without_a_token():
    assert [Sent(reply_tokens=limit).asks_for_little for limit in (None, 1, 255, 256)] == [False, True, True, False]
