"""`nested`: whatever a text is wrapped in, it is found; what is not an error is left whole."""

import json

import pytest

from proxy.wire.error_bodies.nested import MAX_FOUND, Found, collect, collect_text, joined, snake

MESSAGE = "the prompt has 33001 tokens, which does not fit"


def texts(text: str) -> dict[str, str]:
    found = Found()
    collect_text(found, "", "", text)
    return {one.path: one.text for one in found.texts}


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


def test_names_are_compared_in_snake_case():
    assert [snake(name) for name in ("errorCode", "error-msg", "Message")] == ["error_code", "error_msg", "message"]


def test_a_list_of_errors_amid_a_text_is_taken_apart_and_another_list_is_not():
    error = json.dumps([{"error": {"message": MESSAGE}}])
    assert list(texts(f"upstream said: {error}").values()) == ["upstream said", MESSAGE]
    assert list(texts("allowed: [[1], [2]], no more").values()) == ["allowed: [[1], [2]], no more"]


@pytest.mark.parametrize("text", ["", "  ", "None"])
def test_a_text_that_says_nothing_is_none(text: str):
    assert texts(text) == {}


def test_nesting_wrapping_and_breadth_are_bounded():
    found = Found()
    collect(found, "", "", {str(index): [f"text number {index} {item}" for item in range(9)] for index in range(64)})
    assert len(found.texts) == MAX_FOUND
    assert texts('{"a":' * 60 + '"x y"' + "}" * 60) == {}
    wrapped = MESSAGE
    for _ in range(9):
        wrapped = json.dumps({"error": wrapped})
    assert all(path.count(">") <= 6 for path in texts(wrapped))


def test_lists_in_lists_within_a_text_are_not_followed_for_ever():
    text = f"failed: {'[' * 900}{']' * 900}"
    assert list(texts(text).values()) == [text]
