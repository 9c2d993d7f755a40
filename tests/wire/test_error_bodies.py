"""The bodies of errors, opened: what is found in every shape, the report, and the verdict on it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import ErrorCode, ErrorReport, ErrorText, Figures, Place, Scope, Sent, Verdict, VerdictKind
from proxy.wire import DEFAULT, judge_answer, report_of

MESSAGE = "the prompt has 33001 tokens, which does not fit"


def texts(body: str | bytes, status: int = 400) -> dict[str, str]:
    """What is found in a body, by its path."""
    report = report_of(status, [], body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"))
    return {one.path: one.text for one in report.texts}


def test_a_key_that_is_content_never_reaches_a_path():
    assert list(texts(json.dumps({"my secret sentence": {"message": MESSAGE}}))) == ["*.message"]


def test_a_cut_or_mended_json_is_read_member_by_member():
    assert texts('{"error":{"message":"' + MESSAGE) == {"message": MESSAGE}
    mended = "failed: {'code': 400, 'message': \"it\\'s " + MESSAGE + "\", 'param': None} at once, sir"
    assert texts(mended) == {"message": "it's " + MESSAGE, "": "at once, sir"}


def test_members_that_are_no_error_leave_a_text_whole():
    text = "use 'parameters': {'truncation': 'only_first'} for this. " + MESSAGE
    assert list(texts(text).values()) == [text]
    assert list(texts(text.replace("'", '"')).values()) == [text.replace("'", '"')]


def test_a_list_of_errors_amid_a_text_is_taken_apart_and_another_list_is_not():
    error = json.dumps([{"error": {"message": MESSAGE}}])
    assert list(texts(f"upstream said: {error}").values()) == ["upstream said", MESSAGE]
    assert list(texts("allowed: [[1], [2]], no more").values()) == ["allowed: [[1], [2]], no more"]


@pytest.mark.parametrize("text", ["", "  ", "None"])
def test_a_text_that_says_nothing_is_none(text: str):
    assert texts(text) == {}


def test_nesting_wrapping_and_breadth_are_bounded():
    many = {str(index): [f"text number {index} {item}" for item in range(9)] for index in range(64)}
    assert len(report_of(400, [], json.dumps(many).encode()).texts) == 128
    assert texts('{"a":' * 60 + '"x y"' + "}" * 60) == {}
    wrapped = MESSAGE
    for _ in range(9):
        wrapped = json.dumps({"error": wrapped})
    assert all(path.count(">") <= 6 for path in texts(wrapped))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (MESSAGE, ""),
        (f"<html><h1>{MESSAGE}</h1></html>", ""),
        ({"error": {"message": MESSAGE}}, "error.message"),
        ({"error": MESSAGE}, "error"),
        ({"message": MESSAGE}, "message"),
        ({"detail": MESSAGE}, "detail"),
        ({"detail": [{"msg": MESSAGE, "input": "secret words"}]}, "detail[0].msg"),
        ([{"error": {"message": MESSAGE}}], "[0].error.message"),
        ({"errors": [{"message": MESSAGE}]}, "errors[0].message"),
        ({"errors": {"messages": [MESSAGE]}}, "errors.messages[0]"),
        ({"code": 20015, "msg": MESSAGE}, "msg"),
        ({"error_code": 336103, "error_msg": MESSAGE}, "error_msg"),
        ({"base_resp": {"status_code": 2013, "status_msg": MESSAGE}}, "base_resp.status_msg"),
        ({"error": {"code": "400", "message": "Param Incorrect", "param": MESSAGE}}, "error.param"),
        (
            {"error": {"metadata": {"raw": json.dumps({"error": {"message": MESSAGE}})}}},
            "error.metadata.raw>error.message",
        ),
        ({"detail": "Error code: 400 - {'object': 'error', 'message': '" + MESSAGE + "'}"}, "detail>message"),
        (
            {"message": "AnthropicException - b'" + json.dumps({"error": {"message": MESSAGE}}) + "'"},
            "message>error.message",
        ),
        ("upstream said: " + json.dumps({"error": {"message": MESSAGE}}), "error.message"),
        ("upstream said: " + json.dumps({"error": MESSAGE}).replace('"', '\\"'), "error"),
        ('event:error\ndata:{"message":"' + MESSAGE + '"}\n\n', "event[0]>message"),
    ],
)
def test_every_delivery_leads_to_the_message(body, path: str):
    raw = body if isinstance(body, str) else json.dumps(body)
    assert texts(raw)[path] == MESSAGE


def test_what_repeats_the_request_or_the_model_is_never_read():
    echoes = {"input": MESSAGE, "messages": [{"content": MESSAGE}], "failed_generation": MESSAGE, "message": "no"}
    report = report_of(400, [], json.dumps({"error": echoes}).encode() + b" ")
    assert (report.texts, report.codes[0].text) == ([], "no")


UNKNOWN_PARAMETER = {"message": "Unknown parameter: foo.", "code": "unknown_parameter"}
OVERFLOW = {"message": "Your input is too long", "code": "context_length_exceeded"}
QUOTED = "This model's maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens."
REQUEST = {
    "model": "m",
    "instructions": QUOTED,
    "system": [{"type": "text", "text": QUOTED}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": QUOTED}]}],
    "input": [{"role": "user", "content": QUOTED}],
    "prompt": QUOTED,
    "tools": [{"name": "f", "description": QUOTED, "parameters": {"message": {"description": QUOTED}}}],
    "metadata": {"note": QUOTED, "message": QUOTED},
    "context_length": 4096,
    "prompt_tokens": 9000,
}


def echoing(error: dict[str, str]) -> dict[str, bytes]:
    """An error in a body that repeats the request, as gateways do."""
    failed = {"object": "response", "status": "failed", "error": error, "output": []}
    failed |= {name: REQUEST[name] for name in ("instructions", "tools", "metadata")}
    amid = {**error, "message": f"{error['message']} {json.dumps(REQUEST)}"}
    return {
        name: json.dumps(body).encode()
        for name, body in {
            "beside": {"error": error, "request": REQUEST},
            "beside, under another name": {"error": error, "body": REQUEST},
            "beside, as a text": {"error": error, "payload": json.dumps(REQUEST)},
            "flat": {"error": error, **REQUEST},
            "inside": {"error": {**error, **REQUEST}},
            "all flat": {**error, **REQUEST},
            "amid the message": {"error": amid},
            "amid the message, as Python prints it": {"error": {**error, "message": f"{error['message']} {REQUEST}"}},
            "a response": failed,
        }.items()
    } | {
        "the event of a response": b"event: response.failed\ndata: "
        + json.dumps({"type": "response.failed", "response": failed}).encode()
        + b"\n\n",
        "plain text": f"{error['message']} ({error['code']}) {json.dumps(REQUEST)}".encode(),
    }


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("way", echoing(OVERFLOW))
def test_an_error_is_judged_by_its_own_place_whatever_of_the_request_it_repeats(way: str, status: int):
    request = json.dumps(REQUEST).encode()
    assert not judge_answer(status, [], echoing(UNKNOWN_PARAMETER)[way], request=request).is_overflow
    verdict = judge_answer(status, [], echoing(OVERFLOW)[way], request=request)
    assert (verdict.is_overflow, verdict.limit, verdict.prompt) == (True, None, None)
    assert QUOTED not in verdict.upstream_message


def test_a_name_of_a_part_of_the_request_in_a_sentence_repeats_nothing():
    for text in ("Error in 'messages': the prompt is too long", "'input': too long, 9000 > 4096", '"prompt": too long'):
        assert list(texts(text).values()) == [text]


def test_a_number_under_the_name_of_a_part_of_the_request_repeats_nothing():
    report = report_of(400, [], b'{"error": {"message": "Too long, sorry", "prompt": 9000, "n_ctx": 8192}}')
    assert report.stated.limit == 8192


def test_codes_and_structured_numbers_are_kept_apart_from_texts():
    body = {
        "error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 8192, "ratio": float("nan"), "ok": True}
    }
    report = report_of(400, [], json.dumps(body).encode())
    assert [code.text for code in report.codes] == ["400", "exceed_context_size_error"]
    assert report.stated == Figures(limit=8192, limit_scope=Scope.WINDOW)


def test_lines_without_a_field_name_continue_the_data():
    body = ': hello\nretry: 3\nevent: error\ndata: {\n  "message":\n  "' + MESSAGE + '"}\n\ndata: [DONE]\n\n'
    assert list(texts(body).values()) == [MESSAGE]
    assert list(texts(body, 200).values()) == [MESSAGE]


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"role": "assistant", "content": MESSAGE}, "finish_reason": "stop"}]},
        {"id": "1", "base_resp": {"status_code": 0, "status_msg": MESSAGE}, "message": MESSAGE},
        {"response": MESSAGE, "done": False},
        {"message": {"role": "assistant", "content": MESSAGE}, "done": False},
        [MESSAGE],
    ],
)
def test_what_a_success_says_is_never_read(body):
    assert texts(json.dumps(body), 200) == {}
    assert texts(f"data: {json.dumps(body)}\n\n", 200) == {}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": MESSAGE}},
        {"id": "1", "choices": [], "error": MESSAGE},
        {"id": "1", "choices": [{"error": {"message": MESSAGE}}]},
        {"type": "response.failed", "response": {"error": {"message": MESSAGE}}},
        {"object": "error", "message": MESSAGE},
        {"error_code": 336103, "error_msg": MESSAGE},
        {"code": 400, "msg": MESSAGE},
    ],
)
def test_an_error_inside_a_success_is_read(body):
    assert list(texts(json.dumps(body), 200).values()) == [MESSAGE]
    assert list(texts(f"data: {json.dumps(body)}\n\n", 200).values()) == [MESSAGE]


BEGUN = b'event: response.created\ndata: {"type":"response.created"}\n\n'


@pytest.mark.parametrize("body", [b"", b"  ", b": ping\n\n", b"data: [DONE]\n\n", BEGUN])
def test_a_success_without_an_object_is_silent(body: bytes):
    assert report_of(200, [], body).is_silent


@pytest.mark.parametrize("name", ["response", "message"])
def test_a_success_in_a_success_is_read_only_so_deep(name):
    """Not every Python refuses JSON that is nested deeper than its functions can follow."""
    error = {"error": {"message": "prompt is too long"}}
    found = [report_of(200, [], json.dumps(within(name, error, depth)).encode()) for depth in (8, 9, 500)]
    assert [bool(one.texts) for one in found] == [True, False, False]


def within(name, value, depth):
    for _ in range(depth):
        value = {name: value, "id": "x"}
    return value


def test_what_is_longer_than_any_error_is_not_read_to_its_end():
    assert report_of(200, [], b"[" * 65_536 + b"]").is_bare_text
    assert texts(b" " * 65_536 + MESSAGE.encode()) == {}


def test_of_a_failed_response_the_request_that_it_repeats_is_no_evidence():
    error = {"code": "server_error", "message": "no"}
    response = {"instructions": "If the prompt is too long, say so.", "error": error}
    event = json.dumps({"type": "response.failed", "response": response})
    found = report_of(200, [], f"event: response.failed\ndata: {event}\n\n".encode())
    assert [one.text for one in found.texts + found.codes] == ["server_error", "no"]


def reported(**members: object) -> ErrorReport:
    return report_of(400, [], json.dumps({"error": members}).encode())


def test_texts_and_codes_come_with_their_paths():
    report = reported(message="Too long, sorry", type="input_too_long")
    assert report.texts == [ErrorText("error.message", "Too long, sorry")]
    assert report.codes == [ErrorCode("error.type", "input_too_long")]
    assert (report.status, report.body_bytes) == (400, 67)


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
    assert reported(param=param).codes == [ErrorCode("error.param", param, place)]
    assert reported(code=param).codes == [ErrorCode("error.code", param, None)]
    assert reported(param=f"{param} is too long").texts == [ErrorText("error.param", f"{param} is too long")]


@pytest.mark.parametrize(
    ("members", "stated"),
    [
        ({"n_ctx": 8192, "n_prompt_tokens": 9001}, Figures(limit=8192, limit_scope=Scope.WINDOW, prompt=9001)),
        (
            {"max_input_tokens": 6000, "total_tokens": 7000},
            Figures(limit=6000, limit_scope=Scope.INPUT, requested=7000),
        ),
        ({"prompt_tokens": 9001}, Figures(prompt=9001)),
        ({"n_ctx": 0, "max_model_len": 4096}, Figures(limit=4096, limit_scope=Scope.WINDOW)),
        ({"n_ctx": -1, "prompt_tokens": 0}, Figures()),
        ({"seed": 7}, Figures()),
    ],
)
def test_sizes_are_recognised_by_their_members(members: dict[str, int], stated: Figures):
    assert reported(**members).stated == stated


def test_a_wait_is_requested_by_a_header():
    assert report_of(429, [(b"Retry-After", b"3")], b"").asks_to_wait
    assert not report_of(429, [(b"content-type", b"retry-after")], b"").asks_to_wait


def test_of_a_success_endings_are_reported():
    body = {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 10, "completion_tokens": 0}}
    report = report_of(200, [], json.dumps(body).encode())
    assert report.endings == [ErrorCode("choices.finish_reason", "length")]
    assert (report.texts, report.codes) == ([], [])


def test_a_success_in_plain_text_and_an_empty_one_are_distinguished():
    plain, silent = report_of(200, [], b"Input is too long"), report_of(200, [], b"")
    assert (plain.is_bare_text, plain.is_silent, plain.body_bytes) == (True, False, 17)
    assert (silent.is_bare_text, silent.is_silent) == (False, True)


TOO_LONG = "The input (140012 tokens) is longer than the model's context length (131072 tokens)."
SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


def refused(message: str, request: bytes = b"", status: int = 400, **members: object) -> Verdict:
    return judge_answer(status, [], json.dumps({"error": {"message": message, **members}}).encode(), request=request)


def test_a_success_in_plain_text_needs_strong_words_and_few():
    text = "An error occurred (validationException): Input is too long for requested model."
    assert judge_answer(200, [], text.encode()).is_overflow
    assert judge_answer(200, [], b"Token limit exceeded").kind is VerdictKind.ACCEPTED
    assert judge_answer(200, [], text.encode() * 99).kind is VerdictKind.ACCEPTED


def test_members_of_an_error_are_taken_for_what_they_are():
    verdict = refused("no room left", n_ctx=8192, n_prompt_tokens=9001)
    assert (verdict.kind, verdict.limit, verdict.limit_scope, verdict.evidence) == (
        VerdictKind.PROMPT,
        8192,
        Scope.WINDOW,
        "error.message",
    )
    code = "string_above_max_length"
    assert refused("A string too long", code=code, param="messages[0].content").kind is VerdictKind.FIELD
    assert refused("A string too long", code=code, param="messages[0].tool_calls[0].id").kind is VerdictKind.FIELD
    assert refused(TOO_LONG, param="messages[0].role").kind is VerdictKind.FIELD
    assert not refused(TOO_LONG, status=429, code="rate_limit_exceeded").is_overflow


def test_an_ending_that_means_a_full_window():
    body = {"choices": [{"finish_reason": "model_context_window_exceeded"}], "usage": {"prompt_tokens": 8190}}
    verdict = DEFAULT.judged(200, [], json.dumps(body).encode(), sent=None, request=b"")
    assert (verdict.kind, verdict.prompt, verdict.evidence) == (VerdictKind.PROMPT, 8190, "choices.finish_reason")


NOTHINGS = [
    b"",
    b"data: [DONE]\n\n",
    b"{}",
    b'{"choices": []}',
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\ndata: [DONE]\n\n',
    b": hi\n\n",
]
"""llama-cpp-python refuses like this: https://github.com/abetlen/llama-cpp-python/issues/1498"""


@pytest.mark.parametrize("body", NOTHINGS)
def test_a_success_that_holds_nothing_is_suspect_when_the_request_is_long(body: bytes):
    def is_suspect(tokens: int) -> bool:
        verdict = judge_answer(200, [], body, sent=Sent(tokens, window_tokens=8192))
        assert verdict.kind is VerdictKind.EMPTY
        return verdict.is_suspect

    assert is_suspect(8000)
    assert not is_suspect(4000)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "usage": {"prompt_tokens": 9000, "completion_tokens": 0}},
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"type": "ping"},
    ],
)
def test_usage_and_empty_messages_are_answers(body):
    for raw in (json.dumps(body), f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"):
        assert judge_answer(200, [], raw.encode(), sent=Sent(9000, window_tokens=9000)).kind is VerdictKind.ACCEPTED


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error": {"code": 400, "message": ""}}', b"  \n"])
@pytest.mark.parametrize("status", [400, 413])
def test_an_empty_refusal_of_a_long_request_to_an_unknown_model_is_suspect(status: int, body: bytes):
    verdict = judge_answer(status, [], body, sent=Sent(40_000, window_is_certain=False))
    assert (verdict.kind, verdict.is_suspect) == (VerdictKind.UNKNOWN, True)


@pytest.mark.parametrize("ascii_only", [True, False])
def test_numbers_beside_a_word_beyond_ascii_are_found_however_they_were_escaped(ascii_only: bool):
    request = json.dumps({"content": "超过上限 4096，输入 9000"}, ensure_ascii=ascii_only).encode()
    assert refused("输入 9000 tokens 超过上限 4096 tokens", request).may_be_echo


def test_a_word_that_is_no_text_beside_a_number_is_no_error():
    text = "maximum context length is 4096 \ud800 tokens, but the prompt has 9000 tokens"
    assert refused(text, b'{"model": "m"}').limit_is_learnable


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    for ascii_only in (True, False):
        request = json.dumps({"content": before + text + after}, ensure_ascii=ascii_only)
        assert refused(text, request.encode("utf-8", "surrogatepass")).may_be_echo


@pytest.mark.parametrize("title", ["Error", "\x00", "E4"])
def test_a_short_word_beside_a_refusal_is_no_echo(title: str):
    body = json.dumps({"title": title, "detail": SENTENCE.format(limit=4_096, count=9_000)}).encode()
    assert judge_answer(400, [], body, request=b'{"model": "m", "messages": []}').limit_is_learnable


LIMITS = st.integers(min_value=1_000, max_value=2_000_000)


@st.composite
def sizes(draw) -> tuple[int, int]:
    """A limit and a size that breaks it."""
    limit = draw(LIMITS)
    return limit, limit + draw(st.integers(min_value=1, max_value=limit))


WRAPPINGS = {
    "nested string": lambda body: json.dumps({"error": {"message": body, "code": 400}}),
    "array": lambda body: f"[{body}]",
    "detail": lambda body: json.dumps({"detail": body}),
    "errors": lambda body: json.dumps({"errors": [json.loads(body)]}),
    "metadata.raw": lambda body: json.dumps(
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": body, "provider_name": "X"}}}
    ),
    "text": lambda body: f"Error from provider (X): {body}. Received Model Group=gpt-4-0613",
    "bytes": lambda body: json.dumps({"error": {"message": f"AnthropicException - b'{body}'"}}),
}


@given(sizes(), st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=3), st.booleans())
def test_no_wrapping_changes_kind_or_limit(pair, names, in_a_stream):
    limit, prompt = pair
    body = json.dumps(
        {"error": {"message": f"The prompt has {prompt} tokens, over the context length of {limit} tokens"}}
    )
    for name in names:
        wrapped = WRAPPINGS[name](body)
        body = wrapped if wrapped[0] in "[{" else json.dumps({"message": wrapped})
    raw = f"event: error\ndata: {body}\n\n" if in_a_stream else body
    statuses = (200, 400) if in_a_stream else (400,)
    for status in statuses:
        verdict = judge_answer(status, [], raw.encode())
        assert (verdict.kind, verdict.limit, verdict.prompt) == (VerdictKind.PROMPT, limit, prompt)


@given(st.integers(min_value=100, max_value=599), st.binary(max_size=400), st.none() | LIMITS, st.none() | LIMITS)
def test_any_bytes_are_judged(status, body, estimate, window):
    verdict = judge_answer(status, [(b"retry-after", body[:9])], body, sent=Sent(estimate, window_tokens=window))
    assert 0.0 <= verdict.confidence <= 1.0


NAMES = st.sampled_from(["error", "message", "code", "type", "choices", "usage", "detail", "param"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.sampled_from([200, 400, 500]), st.booleans())
def test_any_json_is_judged(value, status, in_a_stream):
    raw = json.dumps(value)
    verdict = judge_answer(status, [], (f"data: {raw}\n\n" if in_a_stream else raw).encode())
    assert len(verdict.upstream_message) <= 2_000


HOSTILE = [
    "[",
    '{"a":',
    '"\\',
    "'message': \"",
    "1 ",
    "1,234,",
    "a. ",
    "a_",
    "prompt is too long: 5 > 4, ",
    "request id: ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_repetition_ends_and_is_no_error_of_ours(piece):
    body = (piece * 70_000).encode()[:200_000]
    assert judge_answer(400, [], body).kind in set(VerdictKind)
    assert judge_answer(200, [], b'{"error":"' + body).kind in set(VerdictKind)


def test_lists_in_lists_within_a_text_are_not_followed_for_ever():
    text = f"failed: {'[' * 900}{']' * 900}"
    assert list(texts(text).values()) == [text]
