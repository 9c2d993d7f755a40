"""`report`: what the members of an error are for."""

from __future__ import annotations

import json

import pytest

from proxy.core.overflow import ErrorCode, ErrorReport, ErrorText, Place, Scope, Stated
from proxy.wire.error_bodies import report_of


def reported(**members: object) -> ErrorReport:
    return report_of(400, [], json.dumps({"error": members}).encode())


def test_texts_and_codes_come_with_their_paths():
    assert reported(message="Too long, sorry", type="input_too_long") == ErrorReport(
        400,
        texts=(ErrorText("error.message", "Too long, sorry"),),
        codes=(ErrorCode("error.type", "input_too_long"),),
        body_bytes=67,
    )


@pytest.mark.parametrize(
    ("param", "place"),
    [
        ("messages", Place.TEXT),
        ("messages[3].content", Place.TEXT),
        ("messages.3.content[0].text", Place.TEXT),
        ("input", Place.TEXT),
        ("messages[0].role", Place.ELSEWHERE),
        ("messages[0].name", Place.ELSEWHERE),
        ("tools[3].function.name", Place.ELSEWHERE),
        ("model", Place.ELSEWHERE),
        ("max_tokens", Place.UNCLEAR),
    ],
)
def test_a_param_names_a_part_of_the_request(param: str, place: Place):
    assert reported(param=param).codes == (ErrorCode("error.param", param, place),)


def test_a_code_with_the_name_of_a_part_of_the_request_is_no_place():
    assert reported(code="model").codes == (ErrorCode("error.code", "model", None),)


def test_a_param_that_is_a_sentence_is_a_text():
    assert reported(param="the prompt is too long").texts == (ErrorText("error.param", "the prompt is too long"),)


@pytest.mark.parametrize(
    ("members", "stated"),
    [
        ({"n_ctx": 8192, "n_prompt_tokens": 9001}, Stated(8192, Scope.WINDOW, "error.n_ctx", 9001)),
        (
            {"max_input_tokens": 6000, "total_tokens": 7000},
            Stated(6000, Scope.INPUT, "error.max_input_tokens", None, 7000),
        ),
        ({"prompt_tokens": 9001}, Stated(prompt=9001)),
        ({"n_ctx": 0, "max_model_len": 4096}, Stated(4096, Scope.WINDOW, "error.max_model_len")),
        ({"n_ctx": -1, "prompt_tokens": 0}, Stated()),
        ({"seed": 7}, Stated()),
    ],
)
def test_sizes_are_told_by_the_members_they_stand_in(members: dict[str, int], stated: Stated):
    assert reported(**members).stated == stated


def test_a_request_to_wait_stands_in_a_header():
    assert report_of(429, [(b"Retry-After", b"3")], b"").asks_to_wait
    assert not report_of(429, [(b"content-type", b"retry-after")], b"").asks_to_wait


def test_of_a_success_endings_and_counts_are_reported():
    body = {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 10, "completion_tokens": 0}}
    report = report_of(200, [], json.dumps(body).encode())
    assert (report.endings, report.counted_prompt, report.counted_reply) == (
        (ErrorCode("finish_reason", "length"),),
        10,
        0,
    )
    assert not report.has_error


def test_a_success_in_plain_text_and_one_without_a_word_are_told_apart():
    said, silent = report_of(200, [], b"Input is too long"), report_of(200, [], b"")
    assert (said.is_bare_text, said.is_silent, said.body_bytes) == (True, False, 17)
    assert (silent.is_bare_text, silent.is_silent) == (False, True)
