"""The bodies of the compress API: what may stand in them, and how its errors look."""

from __future__ import annotations

import json

import pytest

from proxy.errors import ArtifactNotFound, CompressionTimeout, MalformedRequest
from proxy.wire import compress_api

MESSAGES = [{"role": "user", "content": "hello"}]


def parsed(**members):
    return compress_api.compress_request_in(json.dumps({"messages": MESSAGES, "model": "m", **members}).encode())


def test_members_that_are_not_known_are_ignored():
    found = parsed(tools=[{"type": "function"}], max_tokens=5, config={"protect_recent": 2, "mode": 1}, frozen=True)
    assert (found.protected, found.window_tokens, found.request.model) == (2, None, "m")
    assert found.request.members.keys() == {"messages", "model"}


def test_null_is_as_good_as_nothing_and_a_model_may_be_left_out():
    found = parsed(model=None, config=None, token_budget=None)
    assert (found.protected, found.window_tokens, found.request.model) == (0, None, "")
    assert parsed(config={"protect_recent": None}).protected == 0


def test_a_budget_has_an_upper_bound():
    assert parsed(token_budget=32_000).window_tokens == 32_000
    assert parsed(token_budget=10**300).window_tokens == 100_000_000


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": [None]}, "messages"),
        ({"model": 5}, "model"),
        ({"config": []}, "config"),
        ({"config": {"protect_recent": 1.5}}, "config.protect_recent"),
        ({"config": {"protect_recent": -1}}, "config.protect_recent"),
        ({"token_budget": 0}, "token_budget"),
        ({"token_budget": True}, "token_budget"),
        ({"token_budget": "many"}, "token_budget"),
    ],
)
def test_a_wrong_type_is_refused_by_name(members, param):
    with pytest.raises(MalformedRequest) as caught:
        parsed(**members)
    assert caught.value.param == param
    assert param.partition(".")[0] in caught.value.message
    error = json.loads(compress_api.error_body(caught.value))["error"]
    assert (error["type"], error["message"]) == ("invalid_request", caught.value.message)


@pytest.mark.parametrize("body", [b"", b"[]", b"no json", b'{"hash": 5}', b"{}", b'{"hash": null}'])
def test_a_hash_is_a_string(body):
    with pytest.raises(MalformedRequest):
        compress_api.hash_in(body)


def test_other_errors_are_named_by_their_code():
    errors = CompressionTimeout("slow"), ArtifactNotFound("gone")
    kinds = [json.loads(compress_api.error_body(error))["error"]["type"] for error in errors]
    assert kinds == ["compression_timeout", "artifact_not_found"]


def test_an_original_that_is_no_text_is_a_data_url_and_one_with_half_a_pair_is_json():
    reported = {"tool": "Bash", "tokens": 9, "lines": (3, 1), "count": 1}
    picture = json.loads(compress_api.original_body("ab" * 12, b"\x89PNG\xff", "image/png", **reported))
    assert picture["original_content"] == "data:image/png;base64,iVBOR/8="
    half = compress_api.original_body("ab" * 12, "x\ud800".encode("utf-8", "surrogatepass"), "text/plain", **reported)
    assert json.loads(half)["original_content"] == "x\ud800"
