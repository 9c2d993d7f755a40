"""The embedded model server, over real sockets."""

import json
from typing import Any

import httpx
import pytest
from support.demo_server import HELLO, TOO_LONG, WINDOW, ask
from support.serving import serving
from support.upstream import scripted
from support.waiting import PATIENCE_SECONDS

from proxy.demo import FLAVOURS, IMAGE_TOKENS, Load, count, create_model_server, prompt_tokens


def words_of_length(tokens):
    """A conversation of exactly so many tokens."""
    messages = [{"role": "user", "content": " hello" * (tokens - 7)}]
    assert prompt_tokens(messages) == tokens
    return messages


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_over_the_window_is_refused_in_openais_words(server, stream):
    tokens = prompt_tokens(TOO_LONG)
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


def test_the_last_token_of_the_window_is_the_replys(server):
    assert ask(server, words_of_length(WINDOW - 1)).status_code == 200
    assert ask(server, words_of_length(WINDOW)).status_code == 400


def test_openai_requires_the_reply_limit_to_fit_too(server):
    assert ask(server, words_of_length(150), max_tokens=50).status_code == 200
    refused = ask(server, words_of_length(150), max_completion_tokens=51)
    assert refused.status_code == 400
    assert "you requested 201 tokens (150 in the messages, 51 in the completion)" in refused.text


def test_vllm_shows_its_window_among_the_models():
    with (
        serving(create_model_server(WINDOW, scripted, FLAVOURS["vllm"])) as url,
        httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS, verify=False) as client,
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
def test_a_result_without_its_call_is_refused(server, messages, param):
    refused = ask(server, messages)
    assert refused.status_code == 400
    assert "must be a response to a preceeding message with 'tool_calls'" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == param


@pytest.mark.parametrize("after", [[], HELLO])
def test_a_call_without_its_result_is_refused(server, after):
    refused = ask(server, [*HELLO, ASSISTANT, RESULT_A, *after])
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].endswith("did not have response messages: b")


def test_results_may_come_in_any_order(server):
    assert ask(server, [*HELLO, ASSISTANT, RESULT_B, RESULT_A]).status_code == 200


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"messages": [1]}', b'{"messages": [{"role": "x"}]}', b"[" * 100_000]
)
def test_what_is_no_chat_request_is_a_400_in_openais_shape(server, body):
    refused = server.post("/chat/completions", content=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"


LOAD = Load(message_tokens=36_000, tool_tokens=182, reply_tokens=None, window_tokens=32_768)
REAL_WORDS = {
    "openai": (
        "This model's maximum context length is 32768 tokens. However, your messages resulted in 36182 tokens (36000 "
        "in the messages, 182 in the functions). Please reduce the length of the messages or functions."
    ),
    "vllm": (
        "This model's maximum context length is 32768 tokens. However, your request has 36182 input tokens. Please "
        "reduce the length of the input messages."
    ),
    "llama.cpp": "request (36182 tokens) exceeds the available context size (32768 tokens), try increasing it",
    "dashscope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 32767]",
}


@pytest.mark.parametrize("name", FLAVOURS)
def test_each_flavour_refuses_in_its_own_words(name):
    assert FLAVOURS[name].refusal(LOAD)["error"]["message"] == REAL_WORDS[name]


def test_llama_cpp_ends_a_long_reply_instead_of_refusing_it():
    load = Load(message_tokens=150, tool_tokens=0, reply_tokens=100, window_tokens=WINDOW)
    assert FLAVOURS["llama.cpp"].accepts(load)
    assert not FLAVOURS["vllm"].accepts(load)


HELLO_TOKENS = 3 + 3 + 1 + 2
"""Priming, frame, `user`, `hello world`."""


def test_usage_counts_the_text_and_the_frame_of_each_message(server):
    answer = ask(server, HELLO).json()
    assert answer["usage"]["prompt_tokens"] == HELLO_TOKENS
    spoken = answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == count(spoken) + count("assistant")
    assert answer["usage"]["total_tokens"] == HELLO_TOKENS + answer["usage"]["completion_tokens"]


def test_tool_definitions_count_and_are_named_in_the_refusal(server):
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    counted = ask(server, HELLO, tools=tools).json()["usage"]["prompt_tokens"]
    assert counted == HELLO_TOKENS + count(json.dumps(tools))
    refused = ask(server, TOO_LONG, tools=tools).json()["error"]["message"]
    assert f" in the messages, {count(json.dumps(tools))} in the functions)." in refused


def test_an_image_is_counted_by_its_price_and_not_by_its_bytes(server):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 5000}}
    messages = [{"role": "user", "content": [image]}]
    refused = ask(server, messages).json()["error"]["message"]
    assert f"resulted in {IMAGE_TOKENS + HELLO_TOKENS - 2} tokens" in refused


def events_of(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_says_what_the_json_answer_says(server):
    whole = ask(server, HELLO).json()
    events = events_of(ask(server, HELLO, stream=True, stream_options={"include_usage": True}))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_no_usage_unless_requested(server):
    assert all("usage" not in event for event in events_of(ask(server, HELLO, stream=True)))


def test_a_reply_that_may_not_be_so_long_ends_with_length(server):
    choice = ask(server, HELLO, max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert 0 < count(choice["message"]["content"]) <= 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_real_client_plays_a_script_with_parallel_calls(stream):
    import openai

    script = 'Please:\ncall read {"path": "a.txt"}\nand read {"path": "ä b.txt"}\ncall ls {}'
    messages: list[Any] = [{"role": "user", "content": script}]
    played = []
    with (
        serving(create_model_server(4_000, scripted)) as url,
        openai.OpenAI(
            base_url=url, api_key="none", max_retries=0, http_client=openai.DefaultHttpxClient(trust_env=False)
        ) as client,
    ):
        for _ in range(3):
            if stream:
                with client.chat.completions.stream(model="any", messages=messages) as events:
                    spoken = events.get_final_completion().choices[0].message.to_dict()
            else:
                spoken = client.chat.completions.create(model="any", messages=messages).choices[0].message.to_dict()
            calls: Any = spoken.get("tool_calls") or []
            played.append([(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls])
            messages.append({key: spoken[key] for key in ("role", "content", "tool_calls") if spoken.get(key)})
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
    assert played == [[("read", {"path": "a.txt"}), ("read", {"path": "ä b.txt"})], [("ls", {})], []]
    assert "Done after 2 steps" in messages[-1]["content"]


def test_a_script_continues_when_its_older_turns_are_gone():
    script = {"role": "user", "content": "call a {}\ncall b {}\ncall c {}"}
    second = {
        "role": "assistant",
        "content": scripted([script, {"role": "assistant", "content": "Script step 1"}]).text,
    }
    reply = scripted([script, second, {"role": "tool", "content": "short"}])
    assert [call.name for call in reply.calls] == ["c"]


def test_a_new_script_starts_from_its_first_line():
    old = [{"role": "user", "content": "call a {}"}, {"role": "assistant", "content": "Script step 1"}]
    reply = scripted([*old, {"role": "user", "content": "call b {}\nand c {}"}])
    assert [call.name for call in reply.calls] == ["b", "c"]


def test_a_script_for_an_agent_that_reads_its_calls_from_the_text_is_written_as_fenced_blocks():
    script = {"role": "user", "content": "write shell cat a.txt\ncall b {}"}
    first = scripted([script])
    assert (first.text, first.calls) == ("Script step 1\n```shell\ncat a.txt\n```", ())
    second = scripted([script, {"role": "assistant", "content": first.text}, {"role": "system", "content": "seen"}])
    assert [call.name for call in second.calls] == ["b"]
