from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.demo.model_server import create_model_server
from proxy.demo.scripted import scripted
from proxy.demo.servers import serving


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
