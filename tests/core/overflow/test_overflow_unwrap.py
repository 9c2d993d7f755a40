"""`unwrap` and `nested`: every delivery ends in the same leaves."""

import json

import pytest

from proxy.core.overflow.error_fields import MAX_LEAVES, ErrorFields, joined, snake
from proxy.core.overflow.nested import collect
from proxy.core.overflow.unwrap import MAX_BODY_BYTES, unwrap

MESSAGE = "the prompt has 33001 tokens, which does not fit"


def texts(body: str | bytes, *, is_success: bool = False) -> dict[str, str]:
    leaves = unwrap(body.encode() if isinstance(body, str) else body, is_success=is_success)
    return {leaf.path: leaf.text for leaf in leaves.texts}


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


def test_what_repeats_the_request_or_the_model_is_never_a_leaf():
    echoes = {"input": MESSAGE, "messages": [{"content": MESSAGE}], "failed_generation": MESSAGE, "message": "no"}
    assert list(texts(json.dumps({"error": echoes}) + " ").values()) == []
    assert unwrap(json.dumps({"error": echoes}).encode(), is_success=False).codes[0].text == "no"


def test_codes_and_structured_numbers_are_kept_apart_from_texts():
    body = {
        "error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 8192, "ratio": float("nan"), "ok": True}
    }
    leaves = unwrap(json.dumps(body).encode(), is_success=False)
    assert [leaf.text for leaf in leaves.codes] == ["400", "exceed_context_size_error"]
    assert leaves.numbers == {"n_ctx": (8192, "error.n_ctx")}


def test_a_key_that_is_content_never_reaches_a_path():
    assert list(texts(json.dumps({"my secret sentence": {"message": MESSAGE}}))) == ["*.message"]
    assert joined("", 7) == "*"


def test_a_cut_or_mended_json_is_read_member_by_member():
    assert texts('{"error":{"message":"' + MESSAGE) == {"message": MESSAGE}
    mended = "failed: {'code': 400, 'message': \"it\\'s " + MESSAGE + "\", 'param': None} at once, sir"
    assert texts(mended) == {"message": "it's " + MESSAGE, "": "at once, sir"}


def test_members_that_are_no_error_leave_a_text_whole():
    text = "use 'parameters': {'truncation': 'only_first'} for this. " + MESSAGE
    assert list(texts(text).values()) == [text]
    assert list(texts(text.replace("'", '"')).values()) == [text.replace("'", '"')]


def test_html_loses_its_tags():
    assert texts("<html><h1>413 Request Entity Too Large</h1></html>") == {"": "413 Request Entity Too Large"}


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
    leaves = unwrap(json.dumps({"choices": [{"finish_reason": "length"}, 3], "usage": usage}).encode(), is_success=True)
    assert [(leaf.path, leaf.text) for leaf in leaves.finish_reasons] == [("finish_reason", "length")]
    assert (leaves.prompt_tokens, leaves.completion_tokens) == (10, 0)


@pytest.mark.parametrize("body", [b"", b"  ", b": ping\n\n", b"data: [DONE]\n\n"])
def test_a_success_without_an_object_is_silent(body: bytes):
    assert unwrap(body, is_success=True).is_silent


def test_nesting_wrapping_and_breadth_are_bounded():
    leaves = ErrorFields()
    collect(leaves, "", "", {str(index): [f"text number {index} {item}" for item in range(9)] for index in range(64)})
    assert len(leaves.texts) == MAX_LEAVES
    assert unwrap(b'{"a":' * 60 + b'"x y"' + b"}" * 60, is_success=False).texts == []
    wrapped = MESSAGE
    for _ in range(9):
        wrapped = json.dumps({"error": wrapped})
    assert all(leaf.path.count(">") <= 6 for leaf in unwrap(wrapped.encode(), is_success=False).texts)
    assert unwrap(b"[" * MAX_BODY_BYTES + b"]", is_success=True).is_bare_text


@pytest.mark.parametrize("name", ["response", "message"])
def test_a_success_in_a_success_is_read_only_so_deep(name):
    """Not every Python refuses JSON that is nested deeper than its functions can follow."""
    error = {"error": {"message": "prompt is too long"}}
    found = [unwrap(json.dumps(within(name, error, depth)).encode(), is_success=True) for depth in (8, 9, 500)]
    assert [leaves.has_error for leaves in found] == [True, False, False]


def within(name, value, depth):
    for _ in range(depth):
        value = {name: value, "id": "x"}
    return value


def test_names_are_compared_in_snake_case():
    assert [snake(name) for name in ("errorCode", "error-msg", "Message")] == ["error_code", "error_msg", "message"]
