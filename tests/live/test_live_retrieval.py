"""The stream helpers of real clients over answers that took several rounds, and a client that leaves in one of them."""

import asyncio
import json
from typing import Any

import pytest
from support.live_proxy import running_before
from support.sdks import openai_python
from support.upstream import model_server
from support.upstream.sockets import CHUNKED, LAST_CHUNK, SocketServer, chunk, soon

from proxy.core.retrieval_tool import RETRIEVAL_TOOL

TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}}},
    }
    for name in ("fetch", "weather")
]
READ = '{"id": "tool_fetch_0123456789abcdef.txt"}'
PURE = f"call {RETRIEVAL_TOOL} {READ}\ncall {RETRIEVAL_TOOL} {READ}"
BOTH = f'call fetch {{"page": 1}}\nand {RETRIEVAL_TOOL} {READ}\nand weather {{"page": 2}}'
MIXED = f"call {RETRIEVAL_TOOL} {READ}\n{BOTH}"


UNCHANGED = {"x-context-proxy-mode": "off"}


NOTICE = "So far: [context-proxy: 9 messages are kept in tool_messages_0123456789abcdef.json]"
"""With it in its history, a request is offered the proxy's tool."""


def request(script):
    messages = [{"role": "system", "content": NOTICE}, {"role": "user", "content": script}]
    return {"model": "m", "messages": messages, "tools": TOOLS}


@pytest.fixture(scope="module")
def base_url(tmp_path_factory):
    with running_before(model_server(8_000), tmp_path_factory.mktemp("retrieval")) as proxy:
        yield proxy.base_url


@pytest.mark.parametrize("script", [PURE, MIXED], ids=["pure", "mixed"])
def test_openai_python_puts_the_stream_together(script, base_url):
    with openai_python().OpenAI(base_url=base_url, api_key="sk-test", max_retries=0) as client:
        alone = client.chat.completions.create(**request(script), extra_headers=UNCHANGED).usage
        whole = client.chat.completions.create(**request(script))
        with client.chat.completions.stream(**request(script), stream_options={"include_usage": True}) as stream:
            names = {event.chunk.id for event in stream if event.type == "chunk"}
            streamed = stream.get_final_completion()
    choice, spoken = whole.choices[0], streamed.choices[0]
    assert (spoken.message.content, spoken.message.role) == (choice.message.content, "assistant")
    assert spoken.finish_reason == choice.finish_reason == ("tool_calls" if script is MIXED else "stop")
    calls = [call.function.arguments for call in spoken.message.tool_calls or ()]
    assert calls == [call.function.arguments for call in choice.message.tool_calls or ()]
    assert calls == (['{"page": 1}', '{"page": 2}'] if script is MIXED else [])
    assert len(names) == 1
    # The client's own prompt with the tool in its list, whatever was read for it on the way.
    for usage in (whole.usage, streamed.usage):
        assert alone.prompt_tokens < usage.prompt_tokens < alone.prompt_tokens + 250
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert usage.completion_tokens > alone.completion_tokens


@pytest.mark.parametrize("script", [PURE, MIXED], ids=["pure", "mixed"])
def test_openai_node_puts_the_stream_together(script, base_url, node):
    found = json.loads(node("reading.mjs", base_url, json.dumps(request(script))))
    assert found["text"] == found["content"] != ""
    assert (found["role"], found["one"]) == ("assistant", True)
    assert found["calls"] == (['{"page": 1}', '{"page": 2}'] if script is MIXED else [])
    assert found["finish"] == ("tool_calls" if script is MIXED else "stop")


def test_openai_python_continues_after_a_mixed_answer(base_url):
    with openai_python().OpenAI(base_url=base_url, api_key="sk-test", max_retries=0) as client:
        options = request(BOTH)
        message = client.chat.completions.create(**options).choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in message.tool_calls]
        # The model server refuses a history in which calls and results are not paired.
        done = client.chat.completions.create(**{**options, "messages": [*options["messages"], message, *results]})
        assert "6 messages reached me" in done.choices[0].message.content, "what was read stands behind the results"


def event(delta, finish=None):
    made = {"id": "chatcmpl-1", "created": 1, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(made).encode() + b"\n\n"


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": RETRIEVAL_TOOL, "arguments": READ}}


class Reader:
    """An upstream whose model reads, and then thinks until the client disconnects."""

    def __init__(self):
        self.thinking, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, connection):
        while True:
            if b'"role":"tool"' in (await connection.asked()).body:
                self.thinking.set()
                await connection.until_closed()
                self.left.set()
                return
            first = event({"role": "assistant", "content": "Let me look."})
            last = event({"tool_calls": [CALL]}) + event({}, "tool_calls") + b"data: [DONE]\n\n"
            await connection.send(CHUNKED + chunk(first) + chunk(last) + LAST_CHUNK)


async def test_a_client_that_leaves_in_a_later_round_frees_the_upstream_at_once(proxy, connect):
    reader = Reader()
    async with SocketServer(reader, proxy.upstream_port), connect(proxy) as client:
        body = json.dumps({**request("Go."), "stream": True}).encode()
        client.ask("POST /v1/chat/completions", body, "x-request-id: left-reading")
        await client.head()
        assert b"Let me look." in await client.chunk()
        await soon(reader.thinking.wait())
        client.writer.close()
        await soon(reader.left.wait())
    done = await proxy.logged(event="request_done", request_id="left-reading")
    assert (done["outcome"], done["retrieval_rounds"]) == ("client_left", 1)


async def test_around_a_reading_each_event_reaches_the_client_before_the_next_is_sent(proxy, connect):
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    words = [event({"content": f"word {number} "}) for number in range(40)]
    first = [event({"role": "assistant", "content": "Let me look. "}), *words[:20]]
    long = event({"content": "x" * 5_000})
    call = event({"tool_calls": [CALL]})
    second = [event({"content": "There. "}), *words[20:], long, *words[:3]]
    usage = b'data: {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\n'
    ends = [event({}, "tool_calls"), usage, b"data: [DONE]\n\n"], [event({}, "stop"), usage, b"data: [DONE]\n\n"]

    async def script(connection):
        while True:
            is_second = b'"role":"tool"' in (await connection.asked()).body
            await connection.send(CHUNKED)
            for piece in second if is_second else first:
                for part in (piece[:9], piece[9:]) if piece is words[7] else (piece,):
                    await connection.send(chunk(part))
                reported = await taken.get()
                assert reported == piece or (piece is second[0] and b"\\n\\nThere. " in reported), "a new paragraph"
            if not is_second:
                await connection.send(chunk(call))
            await connection.send(b"".join(map(chunk, ends[is_second])) + LAST_CHUNK)

    async with SocketServer(script, proxy.upstream_port), connect(proxy) as client:
        for turn in range(2):  # the second one on the same connections
            body = json.dumps({**request(f"Go {turn}."), "stream": True}).encode()
            client.ask("POST /v1/chat/completions", body, f"x-request-id: read-{turn}")
            assert (await client.head())[0] == 200
            told_bytes = 0
            for _ in [*first, *second]:
                reported = b""
                while not reported.endswith(b"\n\n"):
                    reported += await client.chunk()
                taken.put_nowait(reported)
                told_bytes += len(reported)
            rest = b""
            while piece := await client.chunk():
                rest += piece
            assert rest.endswith(b"data: [DONE]\n\n")
            assert (rest.count(b"[DONE]"), b"read_artifact" in rest) == (1, False)
            done = await proxy.logged(event="request_done", request_id=f"read-{turn}")
            assert (done["outcome"], done["retrieval_rounds"]) == ("answered", 1)
            assert (done["prompt_tokens"], done["reply_tokens"]) == (9, 4)
            assert done["answer_bytes"] == told_bytes + len(rest)
