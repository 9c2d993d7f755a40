"""The embedded model server, over real sockets."""

from __future__ import annotations

import httpx
import pytest
from support.demo_server import HELLO, TOO_LONG, WINDOW, ask

from proxy.demo import model as embedded
from proxy.demo.model_server import create_model_server
from proxy.demo.refusals import FLAVOURS
from proxy.demo.servers import serving


def words_of_length(tokens: int) -> list[dict[str, str]]:
    """A conversation of exactly so many tokens."""
    messages = [{"role": "user", "content": " hello" * (tokens - 7)}]
    assert embedded.prompt_tokens(messages) == tokens
    return messages


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_over_the_window_is_refused_in_openais_words(server: httpx.Client, stream: bool) -> None:
    tokens = embedded.prompt_tokens(TOO_LONG)
    refused = ask(server, TOO_LONG, stream=stream)
    assert refused.status_code == 400
    assert refused.json() == {
        "error": {
            "message": "This model's maximum context length is 200 tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


def test_the_last_token_of_the_window_is_the_replys(server: httpx.Client) -> None:
    assert ask(server, words_of_length(WINDOW - 1)).status_code == 200
    assert ask(server, words_of_length(WINDOW)).status_code == 400


def test_openai_wants_the_reply_that_is_asked_for_to_fit_too(server: httpx.Client) -> None:
    assert ask(server, words_of_length(150), max_tokens=50).status_code == 200
    refused = ask(server, words_of_length(150), max_completion_tokens=51)
    assert refused.status_code == 400
    assert "you requested 201 tokens (150 in the messages, 51 in the completion)" in refused.text


def test_vllm_shows_its_window_among_the_models() -> None:
    with (
        serving(create_model_server(WINDOW, FLAVOURS["vllm"])) as url,
        httpx.Client(trust_env=False, verify=False) as client,
    ):
        assert client.get(f"{url}/models").json()["data"][0]["max_model_len"] == WINDOW


ASSISTANT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
    ],
}
RESULT_A = {"role": "tool", "tool_call_id": "a", "content": "one"}
RESULT_B = {"role": "tool", "tool_call_id": "b", "content": "two"}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([*HELLO, RESULT_A], "messages.[1].role"),
        ([*HELLO, ASSISTANT, RESULT_A, RESULT_B, *HELLO, RESULT_B], "messages.[5].role"),
        ([*HELLO, ASSISTANT, RESULT_A, RESULT_A], "messages.[3].role"),
    ],
)
def test_a_result_without_its_call_is_refused(server: httpx.Client, messages: object, param: str) -> None:
    refused = ask(server, messages)
    assert refused.status_code == 400
    assert "must be a response to a preceeding message with 'tool_calls'" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == param


@pytest.mark.parametrize("after", [[], HELLO])
def test_a_call_without_its_result_is_refused(server: httpx.Client, after: list[object]) -> None:
    refused = ask(server, [*HELLO, ASSISTANT, RESULT_A, *after])
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].endswith("did not have response messages: b")


def test_results_may_come_in_any_order(server: httpx.Client) -> None:
    assert ask(server, [*HELLO, ASSISTANT, RESULT_B, RESULT_A]).status_code == 200


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"messages": [1]}', b'{"messages": [{"role": "x"}]}', b"[" * 100_000]
)
def test_what_is_no_chat_request_is_a_400_in_openais_shape(server: httpx.Client, body: bytes) -> None:
    refused = server.post("/chat/completions", content=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
