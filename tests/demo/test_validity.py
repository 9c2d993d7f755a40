from __future__ import annotations

import httpx
import pytest
from support.demo_server import HELLO, ask

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
