from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from support.demo_server import HELLO, TOO_LONG, ask

from proxy.demo import model as embedded
from proxy.demo.model import scripted
from proxy.demo.model_server import create_model_server
from proxy.demo.servers import serving

HELLO_TOKENS = 3 + 3 + 1 + 2
"""Priming, frame, `user`, `hello world`."""


def test_usage_counts_the_text_and_the_frame_of_each_message(server: httpx.Client) -> None:
    answer = ask(server, HELLO).json()
    assert answer["usage"]["prompt_tokens"] == HELLO_TOKENS
    spoken = answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == embedded.count(spoken) + embedded.count("assistant")
    assert answer["usage"]["total_tokens"] == HELLO_TOKENS + answer["usage"]["completion_tokens"]


def test_tool_definitions_count_and_are_named_in_the_refusal(server: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    counted = ask(server, HELLO, tools=tools).json()["usage"]["prompt_tokens"]
    assert counted == HELLO_TOKENS + embedded.count(json.dumps(tools))
    refused = ask(server, TOO_LONG, tools=tools).json()["error"]["message"]
    assert f" in the messages, {embedded.count(json.dumps(tools))} in the functions)." in refused


def test_an_image_is_counted_by_its_price_and_not_by_its_bytes(server: httpx.Client) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 5000}}
    messages = [{"role": "user", "content": [image]}]
    refused = ask(server, messages).json()["error"]["message"]
    assert f"resulted in {embedded.IMAGE_TOKENS + HELLO_TOKENS - 2} tokens" in refused


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_says_what_the_json_answer_says(server: httpx.Client) -> None:
    whole = ask(server, HELLO).json()
    events = events_of(ask(server, HELLO, stream=True, stream_options={"include_usage": True}))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_no_usage_unless_it_is_asked_for(server: httpx.Client) -> None:
    assert all("usage" not in event for event in events_of(ask(server, HELLO, stream=True)))


def test_a_reply_that_may_not_be_so_long_ends_with_length(server: httpx.Client) -> None:
    choice = ask(server, HELLO, max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert 0 < embedded.count(choice["message"]["content"]) <= 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_real_client_plays_a_script_with_parallel_calls(stream: bool) -> None:
    import openai

    script = 'Please:\ncall read {"path": "a.txt"}\nand read {"path": "ä b.txt"}\ncall ls {}'
    messages: list[Any] = [{"role": "user", "content": script}]
    played = []
    with (
        serving(create_model_server(4_000, policy=scripted)) as url,
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


def test_a_script_goes_on_when_its_older_turns_are_gone() -> None:
    script = {"role": "user", "content": "call a {}\ncall b {}\ncall c {}"}
    second = {
        "role": "assistant",
        "content": scripted([script, {"role": "assistant", "content": "Script step 1"}]).text,
    }
    reply = scripted([script, second, {"role": "tool", "content": "short"}])
    assert [call.name for call in reply.calls] == ["c"]


def test_a_new_script_starts_from_its_first_line() -> None:
    old = [{"role": "user", "content": "call a {}"}, {"role": "assistant", "content": "Script step 1"}]
    reply = scripted([*old, {"role": "user", "content": "call b {}\nand c {}"}])
    assert [call.name for call in reply.calls] == ["b", "c"]


def test_a_script_for_an_agent_that_reads_its_calls_from_the_text_is_written_as_fenced_blocks() -> None:
    script = {"role": "user", "content": "write shell cat a.txt\ncall b {}"}
    first = scripted([script])
    assert (first.text, first.calls) == ("Script step 1\n```shell\ncat a.txt\n```", ())
    second = scripted([script, {"role": "assistant", "content": first.text}, {"role": "system", "content": "seen"}])
    assert [call.name for call in second.calls] == ["b"]
