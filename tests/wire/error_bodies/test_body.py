"""`body`: every delivery leads to the same texts, and of a success only errors are read."""

import json

import pytest

from proxy.wire.error_bodies.body import MAX_BODY_BYTES, holds_nothing, opened

MESSAGE = "the prompt has 33001 tokens, which does not fit"


def texts(body: str | bytes, *, is_success: bool = False) -> dict[str, str]:
    found = opened(body.encode() if isinstance(body, str) else body, is_success=is_success)
    return {text.path: text.text for text in found.texts}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (MESSAGE, ""),
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
    assert list(texts(json.dumps({"error": echoes}) + " ").values()) == []
    assert opened(json.dumps({"error": echoes}).encode(), is_success=False).codes[0].text == "no"


def test_codes_and_structured_numbers_are_kept_apart_from_texts():
    body = {
        "error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 8192, "ratio": float("nan"), "ok": True}
    }
    found = opened(json.dumps(body).encode(), is_success=False)
    assert [code.text for code in found.codes] == ["400", "exceed_context_size_error"]
    assert found.numbers == {"n_ctx": (8192, "error.n_ctx")}


def test_lines_without_a_field_name_go_on_with_the_data():
    body = ': hello\nretry: 3\nevent: error\ndata: {\n  "message":\n  "' + MESSAGE + '"}\n\ndata: [DONE]\n\n'
    assert list(texts(body).values()) == [MESSAGE]
    assert list(texts(body, is_success=True).values()) == [MESSAGE]


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
    assert texts(json.dumps(body), is_success=True) == {}
    assert texts(f"data: {json.dumps(body)}\n\n", is_success=True) == {}


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
    assert list(texts(json.dumps(body), is_success=True).values()) == [MESSAGE]
    assert list(texts(f"data: {json.dumps(body)}\n\n", is_success=True).values()) == [MESSAGE]


def test_finish_reasons_and_usage_of_a_success_are_kept():
    usage = {"prompt_tokens": 10, "completion_tokens": 0}
    found = opened(json.dumps({"choices": [{"finish_reason": "length"}, 3], "usage": usage}).encode(), is_success=True)
    assert [(ending.path, ending.text) for ending in found.endings] == [("finish_reason", "length")]
    assert (found.counted_prompt, found.counted_reply) == (10, 0)


@pytest.mark.parametrize("body", [b"", b"  ", b": ping\n\n", b"data: [DONE]\n\n"])
def test_a_success_without_an_object_is_silent(body: bytes):
    assert opened(body, is_success=True).is_silent


@pytest.mark.parametrize("name", ["response", "message"])
def test_a_success_in_a_success_is_read_only_so_deep(name):
    """Not every Python refuses JSON that is nested deeper than its functions can follow."""
    error = {"error": {"message": "prompt is too long"}}
    found = [opened(json.dumps(within(name, error, depth)).encode(), is_success=True) for depth in (8, 9, 500)]
    assert [bool(one.texts) for one in found] == [True, False, False]


def within(name, value, depth):
    for _ in range(depth):
        value = {name: value, "id": "x"}
    return value


def test_what_is_longer_than_any_error_is_not_read_to_its_end():
    assert opened(b"[" * MAX_BODY_BYTES + b"]", is_success=True).is_bare_text
    assert texts(b" " * MAX_BODY_BYTES + MESSAGE.encode()) == {}


def test_an_event_without_any_part_of_an_answer_holds_nothing():
    assert holds_nothing(b'{"choices":[],"prompt_filter_results":[{}]}')
    assert holds_nothing(b"{}")
    for data in (b"", b"[DONE]", b'{"choices":[],"usage":{"prompt_tokens":3}}', b'{"error":"no"}', b'{"type":"ping"}'):
        assert not holds_nothing(data)


def test_of_a_failed_response_the_request_that_it_repeats_is_no_evidence():
    error = {"code": "server_error", "message": "no"}
    response = {"instructions": "If the prompt is too long, say so.", "error": error}
    event = json.dumps({"type": "response.failed", "response": response})
    found = opened(f"event: response.failed\ndata: {event}\n\n".encode(), is_success=True)
    assert [one.text for one in found.texts + found.codes] == ["server_error", "no"]


def test_a_stream_that_only_begins_is_silent():
    assert opened(b'event: response.created\ndata: {"type":"response.created"}\n\n', is_success=True).is_silent
