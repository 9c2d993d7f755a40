"""The scripted model: what it says is one answer in both forms, it refuses in every form that is known, it counts, and
it keeps what came."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from proxy.demo import count
from support.spellings import SPELLINGS
from support.upstream import (
    FACES,
    Answer,
    Has,
    Over,
    OverAtStep,
    Request,
    ScriptedModel,
    SocketServer,
    once,
    scripted,
    worker,
)
from support.upstream.__main__ import model_of, parser
from support.upstream.chat_answers import REFUSALS, Load

LOG = "line 17: took 4 ms\n" * 200
MESSAGES, RESPONSES = (FACES[name].path for name in ("messages", "responses"))
BY_PATH = {face.path: face for face in FACES.values()}


class Agent:
    """A client of either API: it does what the model says, and keeps the whole conversation."""

    def __init__(self, model: ScriptedModel, path: str, **options: Any) -> None:
        self.model, self.path, self.options = model, path, options
        self.spelling = SPELLINGS[BY_PATH[path].name]
        self.items: list[dict[str, Any]] = self.spelling.user("Read the logs.")

    def ask(self) -> Answer:
        named = {"model": "m", self.spelling.member: self.items, "max_tokens": 100, "tools": TOOLS[self.path]}
        return self.model.answer("POST", self.path, Request(b"", [], json.dumps(named | self.options).encode()))

    def turn(self) -> list[dict[str, Any]]:
        """One turn; returns the results that it brought, none at the end."""
        answer = self.ask()
        assert answer.status == 200, answer.body
        said = self.spelling.reply_in(answer.body, streamed=False)
        results = self.spelling.results([(call, LOG) for call in said.calls]) if said.calls else []
        self.items += [*said.items, *results]
        return results


TOOLS = {
    MESSAGES: [{"name": "read_log", "input_schema": {"type": "object"}}],
    RESPONSES: [{"type": "function", "name": "read_log", "parameters": {"type": "object"}}],
}


WIRE = pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
WANTS_THOUGHTS = {
    MESSAGES: {"thinking": {"type": "adaptive"}},
    RESPONSES: {"include": ["reasoning.encrypted_content"], "store": False},
}


@WIRE
def test_what_it_has_said_is_held_against_what_comes_back(path):
    model = worker(steps=8)
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
def test_usage_is_what_is_counted_and_says_what_was_cached(path):
    model = worker(steps=2)
    agent = Agent(model, path)
    agent.turn()
    usage = json.loads(agent.ask().body)["usage"]
    if path == MESSAGES:
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert usage["input_tokens"] + read + written == model.sent[-1].tokens
    else:
        read = usage["input_tokens_details"]["cached_tokens"]
        assert usage["input_tokens"] == model.sent[-1].tokens
    assert read == model.sent[0].tokens
    assert model.sent[-1].tokens - model.sent[0].tokens >= count(LOG)


@WIRE
def test_a_picture_is_counted_by_a_price_and_not_by_its_bytes(path):
    data = "iVBORw0KGgo=" * 10_000
    source = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    part = source if path == MESSAGES else {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    model = worker(steps=0)
    agent = Agent(model, path)
    agent.ask()
    agent.items[0]["content"] = [part]
    agent.ask()
    assert 1_000 < model.sent[1].tokens - model.sent[0].tokens < 2_000


@WIRE
def test_counting_alone_is_kept_apart_and_agrees(path):
    model = worker(steps=8)
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": LOG}], "input": LOG}
    where = {MESSAGES: f"{MESSAGES}/count_tokens", RESPONSES: f"{RESPONSES}/input_tokens"}[path]
    answer = model.answer("POST", where, Request(b"", [], json.dumps(body).encode()))
    assert json.loads(answer.body)["input_tokens"] == count(LOG)
    assert (len(model.others), model.sent) == (1, [])


@WIRE
def test_a_form_of_streams_is_the_vendors_own_in_a_whole_answer(path):
    own, *in_streams = BY_PATH[path].in_streams
    for form in in_streams:
        refusals = {stream: refused(path, form, stream=stream) for stream in (False, True)}
        assert refusals[True].status == 200
        assert refusals[False] == refused(path, own, stream=False)


def refused(path: str, form: str, *, stream: bool) -> Answer:
    return Agent(worker(Over("prompt", 10, form)), path, stream=stream).ask()


@WIRE
def test_a_limit_holds_for_ever_and_is_reported_truthfully(path):
    rule = OverAtStep("vllm", 3)
    model = worker(rule)
    agent = Agent(model, path)
    agent.turn()
    agent.turn()
    for _ in range(3):
        reported = json.loads(agent.ask().body)["error"]["message"]
        assert f"maximum context length is {rule.limit} tokens" in reported
        assert f"has {model.sent[-1].tokens} input tokens" in reported
    assert model.sent[1].tokens < rule.limit < model.sent[2].tokens
    del agent.items[1 : 3 if path == MESSAGES else 4]  # the first exchange: it says words and calls, then the result
    assert agent.turn(), "a smaller request is accepted, and the work continues"
    assert "Step 3" in json.dumps(agent.items)


def test_what_the_server_holds_is_counted_and_may_be_cut_by_it():
    rule = OverAtStep("openai", 3, is_cut_by="truncation")
    model = worker(rule)
    previous, results = None, SPELLINGS["responses"].user("Read the logs.")
    for _ in range(2):
        agent = Agent(model, RESPONSES, previous_response_id=previous)
        agent.items = results
        results = agent.turn()
        previous = f"resp_{len(model.sent):024d}"
    last = Agent(model, RESPONSES, previous_response_id=previous)
    last.items = results
    assert last.ask().status == 400
    assert model.sent[-1].tokens > 2 * count(LOG), "with what it holds"
    last.options["truncation"] = "auto"
    answer = json.loads(last.ask().body)
    assert answer["usage"]["input_tokens"] == rule.limit


def test_a_request_for_a_summary_gets_one_that_leads_on():
    agent = Agent(worker(steps=8), MESSAGES)
    agent.turn()
    agent.items[-1]["content"].append({"type": "text", "text": "Write a detailed summary. TEXT ONLY."})
    agent.turn()
    assert agent.items[-1]["content"][0]["text"].startswith("<summary>Step 1 of 8")
    agent.items = [{"role": "user", "content": json.dumps(agent.items[-1])}]
    agent.turn()
    assert "Step 2 of 8." in json.dumps(agent.items)


async def test_openai_reads_its_streams_and_its_refusals():
    from openai import AsyncOpenAI, BadRequestError

    model = worker(OverAtStep("openai", 2), steps=1)
    async with (
        SocketServer(model) as upstream,
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


async def test_an_upgrade_to_a_websocket_is_not_found():
    model = worker(steps=8)
    async with SocketServer(model) as upstream, aiohttp.ClientSession() as client:
        async with client.get(f"{upstream.base_url}/responses", headers={"upgrade": "websocket"}) as answer:
            assert answer.status == 404
        async with client.head(f"http://127.0.0.1:{upstream.port}/") as answer:
            assert answer.status == 404
    assert model.others == ["GET /v1/responses", "HEAD /"]


def conversation_of(api: str, **sizes: int) -> dict[str, Any]:
    """A request of an API with so many images, documents, exchanges, calls in one message, or tools."""
    spelling = SPELLINGS[api]
    items = spelling.user("Look.", ["image"] * sizes.get("images", 0) + ["file"] * sizes.get("documents", 0))
    for number in range(sizes.get("exchanges", 1)):
        calls = [f"call_{number}_{index}" for index in range(sizes.get("calls", 1))]
        items += spelling.called([(call, {"command": "make"}) for call in calls])
        items += spelling.results([(call, "x" * sizes.get("characters", 9)) for call in calls])
    tools = [f"tool_{number}" for number in range(sizes.get("tools", 1))]
    return {"model": "m", **spelling.request("You help.", items, tools, sizes.get("reply"))}


LIMITS = [
    ("images", {"images": 3}, 2),
    ("media", {"images": 2, "documents": 1}, 1),
    ("messages", {"exchanges": 9}, 6),
    ("calls", {"calls": 5}, 4),
    ("tools", {"tools": 9}, 8),
    ("string", {"characters": 500}, 499),
    ("characters", {"characters": 5_000}, 4_000),
    ("image bytes", {"images": 1}, 9),
    ("media bytes", {"images": 4}, 99),
    ("pixels", {"images": 1}, 2),
    ("bytes", {"characters": 5_000}, 5_000),
    ("prompt", {"characters": 50_000}, 500),
    ("reply", {"reply": 9_000}, 8_000),
    ("total", {"reply": 9_000}, 9_000),
]


def answer_of(model: ScriptedModel, api: str, body: dict[str, Any]) -> Answer:
    found = model.answer("POST", FACES[api].path, Request(b"", [], json.dumps(body).encode()))
    assert isinstance(found, Answer)
    return found


@pytest.mark.parametrize("api", FACES)
@pytest.mark.parametrize(("what", "sizes", "limit"), LIMITS, ids=[row[0] for row in LIMITS])
def test_a_limit_refuses_what_is_over_it_and_nothing_else_in_any_api(api, what, sizes, limit):
    rule = Over(what, limit, "too much: {seen} of {limit}, over by {excess}", 413)
    model = ScriptedModel([rule])
    refused = answer_of(model, api, conversation_of(api, **sizes))
    assert (refused.status, rule.refused, model.refusals) == (413, 1, 1)
    assert f"of {limit}" in refused.body.decode()
    small = conversation_of(api, reply=1)
    assert answer_of(ScriptedModel([Over(what, max(limit, 1_000_000), "no")]), api, small).status == 200


@pytest.mark.parametrize("api", FACES)
@pytest.mark.parametrize("arrives", ["first event", "after content"])
def test_a_refusal_arrives_where_the_script_says_and_whole_answers_have_it_in_their_body(api, arrives):
    rule = Over("prompt", 1, "It is {prompt} of {limit}.", arrives=arrives)
    model = ScriptedModel([rule])
    body = conversation_of(api)
    streamed = answer_of(model, api, {**body, "stream": True})
    assert (streamed.status, streamed.refuses, model.refusals) == (200, True, 1)
    assert (b"So" in streamed.body) == (arrives == "after content")
    assert b"of 1." in streamed.pieces()[-1]
    assert answer_of(model, api, {**body, "stream": False}).status == 400


def test_a_rule_of_once_refuses_once_and_a_mark_refuses_where_it_stands():
    model = ScriptedModel([once(Over("prompt", 1, "no")), Has(['"bash"'], "no bash here", 422)])
    plain, marked = conversation_of("chat", exchanges=0), conversation_of("chat")
    assert [answer_of(model, "chat", plain).status for _ in range(2)] == [400, 200]
    assert answer_of(model, "chat", marked).status == 422


def test_what_it_counts_reports_and_cuts_is_as_told():
    body = conversation_of("chat", characters=40_000)
    true = FACES["chat"].count(body)
    half, silent, dumb = ScriptedModel(counts=0.5), ScriptedModel(cuts_at=100), ScriptedModel(reports=None)
    prompts = [json.loads(answer_of(model, "chat", body).body)["usage"]["prompt_tokens"] for model in (half, silent)]
    assert prompts == [true // 2, 100]
    assert "usage" not in json.loads(answer_of(dumb, "chat", body).body)


def test_as_a_process_it_has_the_same_script():
    line = ["--over=prompt=9", "--words=vllm", "--over=images=2", "--status=413", "--arrives=first event"]
    model = model_of(parser().parse_args(line))
    assert model.rules[1:] == [Over("prompt", 9, "vllm"), Over("images", 2, status=413, arrives="first event")]
    assert answer_of(model, "chat", conversation_of("chat")).status == 400


REFUSED = Load(message_tokens=36_000, tool_tokens=182, reply_tokens=None, window_tokens=32_768)
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


@pytest.mark.parametrize("name", REFUSALS)
def test_each_server_refuses_in_its_own_words(name):
    assert REFUSALS[name](REFUSED)["error"]["message"] == REAL_WORDS[name]


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


HELLO = {"role": "user", "content": "hello"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]}
RESULTS = {name: {"role": "tool", "tool_call_id": name, "content": "seen"} for name in "ab"}
ALONE = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
OPEN = "The following tool_call_ids did not have response messages: b"


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([HELLO, CALLED, RESULTS["b"], RESULTS["a"]], ""),
        ([HELLO, RESULTS["a"]], ALONE),
        ([HELLO, CALLED, RESULTS["a"], RESULTS["a"]], ALONE),
        ([HELLO, CALLED, RESULTS["a"]], OPEN),
        ([HELLO, CALLED, RESULTS["a"], HELLO], OPEN),
        ([{"role": "x"}], "Invalid value for 'messages[0].role'."),
    ],
)
def test_chat_demands_that_calls_and_results_pair_up(messages, complaint):
    (said,) = FACES["chat"].complaints({"messages": messages}) or [""]
    assert complaint in said if complaint else said == ""
