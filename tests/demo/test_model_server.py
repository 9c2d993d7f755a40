"""The embedded model server, over real sockets."""

from __future__ import annotations

import httpx
import pytest
from support.demo_server import TOO_LONG, WINDOW, ask

from proxy.demo import counting
from proxy.demo.model_server import create_model_server
from proxy.demo.refusals import FLAVOURS
from proxy.demo.servers import serving


def words_of_length(tokens: int) -> list[dict[str, str]]:
    """A conversation of exactly so many tokens."""
    messages = [{"role": "user", "content": " hello" * (tokens - 7)}]
    assert counting.prompt_tokens(messages) == tokens
    return messages


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_over_the_window_is_refused_in_openais_words(server: httpx.Client, stream: bool) -> None:
    tokens = counting.prompt_tokens(TOO_LONG)
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
