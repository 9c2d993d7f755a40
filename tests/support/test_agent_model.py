"""The scripted model: what it says is one answer in both forms, it refuses in every form that is known, it counts, and
it keeps what came."""

from __future__ import annotations

import itertools
import json
from typing import Any

import aiohttp
import pytest

from proxy.demo import model_server as embedded
from support import messages_answers, responses_answers
from support.agent_model import WIRES, AgentModel, Refuses
from support.model_turns import Answer, Reply, Usage
from support.scripted_upstream import Request, ScriptedUpstream

LOG = "line 17: took 4 ms\n" * 200
MESSAGES, RESPONSES = messages_answers.PATH, responses_answers.PATH
TOOLS = {
    MESSAGES: [{"name": "read_log", "input_schema": {"type": "object"}}],
    RESPONSES: [{"type": "function", "name": "read_log", "parameters": {"type": "object"}}],
}


class Agent:
    """A client of either API: it does what the model says, and keeps the whole conversation."""

    def __init__(self, model: AgentModel, path: str, **options: Any) -> None:
        self.model, self.path, self.options = model, path, options
        self.items: list[dict[str, Any]] = [{"role": "user", "content": "Read the logs."}]

    def ask(self) -> Answer:
        named = {"messages": self.items, "max_tokens": 100} if self.path == MESSAGES else {"input": self.items}
        body = {"model": "m", "tools": TOOLS[self.path], **named, **self.options}
        return self.model.answer("POST", self.path, Request(b"", [], json.dumps(body).encode()))

    def turn(self) -> list[dict[str, Any]]:
        """One turn; returns the results that it brought, none at the end."""
        answer = self.ask()
        assert answer.status == 200, answer.body
        content = content_of(self.path, answer)
        if self.path == MESSAGES:
            results = [{"type": "tool_result", "tool_use_id": call, "content": LOG} for call in calls_in(content)]
            self.items.append({"role": "assistant", "content": content})
            self.items += [{"role": "user", "content": results}] if results else []
        else:
            results = [{"type": "function_call_output", "call_id": call, "output": LOG} for call in calls_in(content)]
            self.items += [*content, *results]
        return results


def calls_in(items: list[dict[str, Any]]) -> list[str]:
    return [item.get("call_id") or item["id"] for item in items if item["type"] in ("tool_use", "function_call")]


def content_of(path: str, answer: Answer) -> list[dict[str, Any]]:
    """What an answer says, put together from its events if it has any."""
    if not answer.content_type.startswith("text/event-stream"):
        return json.loads(answer.body)["content" if path == MESSAGES else "output"]
    return blocks_of(answer) if path == MESSAGES else items_of(answer)


def events_of(answer: Answer) -> list[dict[str, Any]]:
    found = []
    for event in answer.body.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def blocks_of(answer: Answer) -> list[dict[str, Any]]:
    """The blocks of a message, from their deltas alone."""
    blocks: list[dict[str, Any]] = []
    for event in events_of(answer):
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"] | ({"input": ""} if "input" in event["content_block"] else {}))
        if event["type"] == "content_block_delta":
            members = {"text", "thinking", "signature"} & event["delta"].keys()
            for name in members:
                blocks[event["index"]][name] += event["delta"][name]
            if "partial_json" in event["delta"]:
                blocks[event["index"]]["input"] += event["delta"]["partial_json"]
    return [block | ({"input": json.loads(block["input"])} if "input" in block else {}) for block in blocks]


def items_of(answer: Answer) -> list[dict[str, Any]]:
    """The items of a response, from the end of each; its deltas must add up to them."""
    events = events_of(answer)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    for place, item in enumerate(items):
        deltas = [e["delta"] for e in events if e["type"].endswith(".delta") and e["output_index"] == place]
        text = item["content"][0]["text"] if item["type"] == "message" else item.get("arguments", item.get("input", ""))
        assert "".join(deltas) == text
    assert events[-1]["response"]["output"] == items
    return items


WIRE = pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
WANTS_THOUGHTS = {
    MESSAGES: {"thinking": {"type": "adaptive"}},
    RESPONSES: {"include": ["reasoning.encrypted_content"], "store": False},
}


@WIRE
@pytest.mark.parametrize("stream", [False, True])
def test_it_leads_an_agent_to_the_end_with_thoughts_beside_its_calls(path, stream):
    model = AgentModel(steps=5)
    agent = Agent(model, path, stream=stream, **WANTS_THOUGHTS[path])
    results = [len(agent.turn()) for _ in range(6)]
    assert results == [1, 2, 1, 1, 2, 0], "two calls in every third step"
    assert "Done after 5 steps." in json.dumps(agent.items[-1])
    assert "Done after" not in json.dumps(agent.items[:-1])
    assert model.complaints == []
    thoughts = [item for item in json.dumps(agent.items).split("{") if '"thinking"' in item or '"reasoning"' in item]
    assert len(thoughts) == 6
    assert [seen.step for seen in model.seen] == [0, 1, 2, 3, 4, 5]


@WIRE
def test_what_it_has_said_is_held_against_what_comes_back(path):
    model = AgentModel()
    agent = Agent(model, path, **WANTS_THOUGHTS[path])
    agent.turn()
    if path == MESSAGES:
        agent.items[1]["content"][0]["thinking"] = "Something else."
    else:
        agent.items[1]["encrypted_content"] = "gAAAAelse"
    answer = agent.ask()
    assert answer.status == 400
    assert model.complaints
    assert model.complaints[0] in json.loads(answer.body)["error"]["message"]


@WIRE
def test_no_id_comes_twice(path):
    agent = Agent(AgentModel(steps=6), path, **WANTS_THOUGHTS[path])
    while agent.turn():
        pass
    ids = [line.split('"')[0] for line in json.dumps(agent.items).split('"id": "')[1:]]
    assert len(ids) == len(set(ids)) >= 8


@WIRE
def test_usage_is_what_is_counted_and_says_what_was_cached(path):
    model = AgentModel(steps=2)
    agent = Agent(model, path)
    agent.turn()
    usage = json.loads(agent.ask().body)["usage"]
    if path == MESSAGES:
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert usage["input_tokens"] + read + written == model.seen[-1].tokens
    else:
        read = usage["input_tokens_details"]["cached_tokens"]
        assert usage["input_tokens"] == model.seen[-1].tokens
    assert read == model.seen[0].tokens
    assert model.seen[-1].tokens - model.seen[0].tokens >= embedded.count(LOG)


@WIRE
def test_a_picture_is_counted_by_a_price_and_not_by_its_bytes(path):
    data = "iVBORw0KGgo=" * 10_000
    source = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    part = source if path == MESSAGES else {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    model = AgentModel(steps=0)
    agent = Agent(model, path)
    agent.ask()
    agent.items[0]["content"] = [part]
    agent.ask()
    assert 1_000 < model.seen[1].tokens - model.seen[0].tokens < 2_000


@WIRE
def test_counting_alone_is_kept_apart_and_agrees(path):
    model = AgentModel()
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": LOG}], "input": LOG}
    where = {MESSAGES: f"{MESSAGES}/count_tokens", RESPONSES: f"{RESPONSES}/input_tokens"}[path]
    answer = model.answer("POST", where, Request(b"", [], json.dumps(body).encode()))
    assert json.loads(answer.body)["input_tokens"] == embedded.count(LOG)
    assert (len(model.counted), model.seen) == (1, [])


FORMS = [(path, form) for path in WIRES for form in WIRES[path].answers.REFUSALS]


@pytest.mark.parametrize(("path", "form"), FORMS)
@pytest.mark.parametrize("stream", [False, True])
def test_it_refuses_once_at_a_turn_in_any_form(path, form, stream):
    model = AgentModel(refuses=Refuses(form, turn=2, once=True))
    agent = Agent(model, path, stream=stream)
    agent.turn()
    refused = agent.ask()
    assert (model.refusals, model.seen[-1].refused) == (1, True)
    if refused.status == 200:
        reported = refused.body.decode()
        words = ("event: error", "response.failed", "incomplete", "model_context_window_exceeded")
        assert any(word in reported for word in words)
        assert "Step 2" not in reported
    assert agent.turn(), "the same again is answered"
    assert model.refusals == 1


@WIRE
def test_a_form_of_streams_is_the_vendors_own_in_a_whole_answer(path):
    wire = WIRES[path]
    for form in wire.answers.IN_STREAM:
        refusals = {stream: refused(path, form, stream=stream) for stream in (False, True)}
        assert refusals[True].status == 200
        assert refusals[False] == refused(path, wire.own_words, stream=False)


def refused(path: str, form: str, *, stream: bool) -> Answer:
    return Agent(AgentModel(refuses=Refuses(form, limit=10)), path, stream=stream).ask()


@WIRE
def test_a_limit_holds_for_ever_and_is_reported_truthfully(path):
    model = AgentModel(refuses=Refuses("vllm", turn=3))
    agent = Agent(model, path)
    agent.turn()
    agent.turn()
    for _ in range(3):
        reported = json.loads(agent.ask().body)["error"]["message"]
        assert f"maximum context length is {model.limit} tokens" in reported
        assert f"has {model.seen[-1].tokens} input tokens" in reported
    assert model.seen[1].tokens < model.limit < model.seen[2].tokens
    del agent.items[1 : 3 if path == MESSAGES else 4]  # the first exchange: it says words and calls, then the result
    assert agent.turn(), "a smaller request is accepted, and the work continues"
    assert "Step 3" in json.dumps(agent.items)


def test_what_the_server_holds_is_counted_and_may_be_cut_by_it():
    model = AgentModel(refuses=Refuses("openai", turn=3), truncates=True)
    answer, previous, results = None, None, [{"role": "user", "content": "Read the logs."}]
    for _ in range(2):
        answer = Agent(model, RESPONSES, previous_response_id=previous)
        answer.items = results
        response = json.loads(answer.ask().body)
        previous = response["id"]
        ids = calls_in(response["output"])
        results = [{"type": "function_call_output", "call_id": name, "output": LOG} for name in ids]
    last = Agent(model, RESPONSES, previous_response_id=previous)
    last.items = results
    assert last.ask().status == 400
    assert model.seen[-1].tokens > 2 * embedded.count(LOG), "with what it holds"
    last.options["truncation"] = "auto"
    answer = json.loads(last.ask().body)
    assert answer["usage"]["input_tokens"] == model.limit


def test_an_unknown_response_id_is_refused():
    agent = Agent(AgentModel(), RESPONSES, previous_response_id="resp_9")
    error = json.loads(agent.ask().body)["error"]
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


def test_a_request_for_a_summary_gets_one_that_leads_on():
    agent = Agent(AgentModel(), MESSAGES)
    agent.turn()
    agent.items[-1]["content"].append({"type": "text", "text": "Write a detailed summary. TEXT ONLY."})
    agent.turn()
    assert agent.items[-1]["content"][0]["text"].startswith("<summary>Step 1 of 8")
    agent.items = [{"role": "user", "content": json.dumps(agent.items[-1])}]
    agent.turn()
    assert "Step 2 of 8." in json.dumps(agent.items)


async def test_openai_reads_its_streams_and_its_refusals():
    from openai import AsyncOpenAI, BadRequestError

    model = AgentModel(steps=1, refuses=Refuses("openai", turn=2))
    async with (
        ScriptedUpstream(model) as upstream,
        AsyncOpenAI(base_url=upstream.base_url, api_key="k", max_retries=0) as c,
    ):
        options = {"model": "m", "tools": TOOLS[RESPONSES], "include": ["reasoning.encrypted_content"]}
        async with c.responses.stream(input="Read the logs.", **options) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
        made = {"type": "function_call_output", "call_id": final.output[-1].call_id, "output": LOG}
        with pytest.raises(BadRequestError) as reported:
            await c.responses.create(input=[*final.output, made], **options)
        assert reported.value.code == "context_length_exceeded"


def test_every_usage_adds_up():
    body = {"model": "m"}
    for prompt, cached in itertools.product((0, 2, 500), (0, 2, 400)):
        if cached <= prompt:
            answer, _ = messages_answers.answered(body, Reply("Yes."), Usage(prompt, cached, 3), 1)
            usage = json.loads(answer.body)["usage"]
            assert sum(number for name, number in usage.items() if name != "output_tokens") == prompt
            assert min(usage.values()) >= 0


async def test_an_upgrade_to_a_websocket_is_not_found():
    model = AgentModel()
    async with ScriptedUpstream(model) as upstream, aiohttp.ClientSession() as client:
        async with client.get(f"{upstream.base_url}/responses", headers={"upgrade": "websocket"}) as answer:
            assert answer.status == 404
        async with client.head(f"http://127.0.0.1:{upstream.port}/") as answer:
            assert answer.status == 404
    assert model.others == ["GET /v1/responses", "HEAD /"]
