"""The proxy's own tool, from the agent's side and from the upstream's: calls that the agent never sees, answered on the
way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.answer_shapes import understood
from support.journey import BASH, KEY, World, long_text, one_call
from support.upstream import (
    FAILURES,
    Answer,
    Call,
    FailsLater,
    Has,
    Reply,
    ScriptedModel,
    Sent,
    Usage,
    in_turn,
    reads,
    words,
)

from proxy.core.models import LimitName, facts
from proxy.core.notices import is_ours
from proxy.demo import prompt_tokens
from proxy.shell.planning import Planner

LONG = long_text(5_000)
FETCH = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
MANY = [{"type": "function", "function": {"name": f"fetch_{number}"}} for number in range(128)]
"""The maximum number of tools that OpenAI accepts."""
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def request(text: str = LONG, tools: Any = (FETCH,), **members: Any) -> dict[str, Any]:
    return one_call(text, "fetch", tools=list(tools), **members)


def answer_to(world: World, body: dict[str, Any], stream: bool = False, **how: Any) -> dict[str, Any]:
    """Message, finish reason and usage, as a client parses them."""
    if stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = world.ask(body, **how)
    assert answer.status_code == 200, answer.text
    if stream:
        reported = understood(answer.content)
        assert reported["done"]
        return {name: reported[name] for name in ("message", "finish", "usage")}
    found = answer.json()
    choice = found["choices"][0]
    message = {"content": choice["message"].get("content") or "", "tool_calls": choice["message"].get("tool_calls", [])}
    return {"message": message, "finish": choice["finish_reason"], "usage": found["usage"]}


def name_of(world: World) -> str:
    """The artifact of the long result."""
    world.ask(request(), x_context_proxy_mode="on")
    world.upstream.sent.clear()
    return next(name for name in world.kept if name.startswith("tool_fetch_"))


def tools_in(received: Sent) -> list[str]:
    return [tool["function"]["name"] for tool in json.loads(received.body).get("tools", [])]


def learnt(build: Any, **stated: Any) -> tuple[World, str]:
    """A world, and the name of the artifact in it; its model is taught later, and counts a thousand tokens for ever."""
    world = build(behind=ScriptedModel(says=words("Hm."), reports=Usage(1_000, 0, 10)), **stated)
    return world, name_of(world)


def teach(world: World, *replies: Reply) -> None:
    world.upstream.says = in_turn(*replies)


@STREAMED
def test_a_call_is_answered_on_the_way_and_never_reaches_the_agent(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    teach(world, reads(name, "Let me look.", lines="2500-2502"), Reply("It is 42."))
    reported = answer_to(world, request(), stream)
    assert reported["message"]["content"] == "Let me look.\n\nIt is 42."
    assert (reported["message"]["tool_calls"], reported["finish"]) == ([], "stop")
    first, second = world.upstream.sent
    assert second.body.startswith(first.body[: first.body.index(b'"tools"') - 10])
    call, page = second.messages[-2:]
    assert (call["content"], call["tool_calls"][0]["function"]["name"]) == ("Let me look.", "read_artifact")
    assert page["tool_call_id"] == call["tool_calls"][0]["id"]
    assert is_ours(page["content"])
    assert page["content"].endswith("".join(LONG.splitlines(keepends=True)[2499:2502]))
    read = world.logged("artifact_read")[0]
    assert (read["artifact"], read["round"], read["bytes"]) == (name, 1, len(page["content"]))
    done = world.logged("request_done", 2)[-1]
    assert (done["retrieval_rounds"], done["outcome"]) == (1, "answered")
    assert reported["usage"]["prompt_tokens"] == 1_000 == done["usage"]["prompt_tokens"] / 2
    assert "line 2500" not in world.log_text


CUT = pytest.mark.parametrize("text", [LONG, "short"], ids=["cut", "nothing cut"])


@CUT
@pytest.mark.parametrize(
    ("tools", "more", "may"),
    [
        ([FETCH], {}, True),
        ([FETCH], {"tool_choice": "auto"}, True),
        ([FETCH], {"tool_choice": "none"}, True),
        ([FETCH], {"tool_choice": "required"}, False),
        ([FETCH], {"tool_choice": {"type": "function", "function": {"name": "fetch"}}}, False),
        ([FETCH], {"response_format": {"type": "text"}}, True),
        ([FETCH], {"response_format": {"type": "json_object"}}, False),
        (MANY[:127], {}, True),
        (MANY, {}, False),
        ([FETCH, BASH], {}, False),
        ([FETCH], {"n": 2}, False),
        ([FETCH, {"type": "function", "function": {"name": "read_artifact"}}], {}, False),
        ([], {}, True),
    ],
)
def test_the_tool_goes_with_what_is_cut_and_with_nothing_else(
    tools: Any, more: Any, may: bool, text: str, build: Any
) -> None:
    world = build()
    body = request(text, tools, **more)
    answer = world.ask(body)
    offered = may and text == LONG
    assert (tools_in(world.upstream.last)[len(tools) :] == ["read_artifact"]) == offered
    assert ("retrieval_tool=1" in answer.headers.get("x-context-proxy-edits", "")) == offered
    if text != LONG:
        assert world.upstream.last.body == json.dumps(body).encode()
    tools_bytes = world.upstream.last.body.partition(b'"tools"')[2]
    world.ask({**body, "messages": [*body["messages"], {"role": "user", "content": "Go on."}]})
    assert world.upstream.last.body.partition(b'"tools"')[2] == tools_bytes


def test_a_history_that_holds_a_notice_of_ours_brings_the_tool_with_it(build: Any) -> None:
    world = build()
    body = {"model": "m", "messages": [{"role": "user", "content": "Go on."}]}
    world.ask(body)
    assert tools_in(world.upstream.last) == []
    summary = "So far: [context-proxy: 9 messages are kept in tool_messages_0123456789abcdef.json]"
    world.ask({**body, "messages": [{"role": "user", "content": summary}, *body["messages"]]})
    assert tools_in(world.upstream.last) == ["read_artifact"]


def test_an_agent_that_reads_files_gets_the_tool_only_when_messages_are_left_out(build: Any) -> None:
    world = build(8_000)
    read = {"type": "function", "function": {"name": "read_file"}}
    world.ask(request(long_text(2_000), [read]))
    assert (len(world.kept), tools_in(world.upstream.last)) == (1, ["read_file"])
    talk = [{"role": role, "content": f"{n} {'word ' * 200}"} for n in range(40) for role in ("user", "assistant")]
    world.ask({**request("short", [read]), "messages": [*talk, {"role": "user", "content": "And?"}]})
    assert tools_in(world.upstream.last) == ["read_file", "read_artifact"]


@CUT
@pytest.mark.parametrize("how", [{"mode": "observe"}, {"mode": "off"}, {"enabled": False}])
def test_our_tool_is_not_offered_when_nothing_may_be_changed(how: Any, text: str, build: Any) -> None:
    world = build(**how)
    body = json.dumps(request(text)).encode()
    world.ask(body)
    assert world.upstream.last.body == body


@pytest.mark.parametrize(("policy", "offered"), [("always", True), ("never", False)])
def test_the_operator_decides(policy: str, offered: bool, build: Any) -> None:
    world = build(artifacts={"retrieval_tool": policy})
    for tools in ([FETCH], [BASH]):
        world.ask(request("short", tools))
        assert ("read_artifact" in tools_in(world.upstream.last)) == offered


@STREAMED
def test_several_calls_at_once_share_the_room_of_one_result(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    both = Reply("", (*reads(name).calls, *reads(name, grep="line 4711:", context=1).calls))
    teach(world, both, Reply("Done."))
    assert answer_to(world, request(), stream)["message"]["content"] == "Done."
    pages = [message["content"] for message in world.upstream.last.messages[-2:]]
    assert pages[0].splitlines()[1] == "line 0: value 0"
    assert "line 4711: " in pages[1]
    assert len(pages[1]) < 400
    assert sum(map(len, pages)) <= 51_200


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"id": "tool_fetch_0123456789abcdef.txt"}, "artifact not found"),
        ({"id": "../../etc/passwd"}, "needs the id of an artifact"),
        ({}, "needs the id of an artifact"),
        ({"lines": "99999-"}, "5,000 lines"),
        ({"lines": "from the start"}, "`lines` must be"),
        ({"grep": "("}, "regular expression"),
        ({"id": "", "grep": "("}, "Nothing was searched"),
    ],
)
def test_the_model_learns_what_could_not_be_read(arguments: Any, says: str, build: Any) -> None:
    world, name = learnt(build)
    wanted = {"id": name, **arguments} if arguments and "id" not in arguments else arguments
    teach(world, Reply("", (Call("read_artifact", wanted),)), Reply("I see."))
    assert answer_to(world, request())["message"]["content"] == "I see."
    result = world.upstream.last.messages[-1]["content"]
    assert says in result
    assert "quoted text" not in result


def test_an_artifact_of_another_key_is_not_there(build: Any) -> None:
    world, name = learnt(build)
    teach(world, reads(name), Reply("I see."))
    answer_to(world, request(long_text(4_000)), key="sk-another")
    assert "artifact not found" in world.upstream.last.messages[-1]["content"]


@STREAMED
@pytest.mark.parametrize("spoken", [True, False])
def test_after_eight_readings_the_model_is_warned_and_then_stopped(spoken: bool, stream: bool, build: Any) -> None:
    world, name = learnt(build)
    teach(world, reads(name, "Once more." if spoken else "", lines="1-5"))
    reported = answer_to(world, request(), stream)
    assert len(world.upstream.sent) == 9
    assert [len(received.messages) for received in world.upstream.sent] == [4 + 2 * round for round in range(9)]
    assert "last of 8 readings" in world.upstream.last.messages[-1]["content"]
    assert "last of 8 readings" not in world.upstream.last.messages[-3]["content"]
    assert (reported["finish"], reported["message"]["tool_calls"]) == ("stop", [])
    content = reported["message"]["content"]
    assert content.startswith("\n\n".join(["Once more."] * 9 if spoken else ["("]))
    assert "8 pages" in content
    done = world.logged("request_done", 2)[-1]
    assert (done["retrieval_rounds"], done["usage"]["prompt_tokens"]) == (8, 9_000)
    usage = reported["usage"]
    assert usage["prompt_tokens"] == 1_000
    assert usage["completion_tokens"] == done["usage"]["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_the_time_of_all_rounds_is_in_a_header_if_one_can_still_be_sent(build: Any) -> None:
    world, name = learnt(build)
    teach(world, reads(name, lines="1-5"), Reply("Done."), Reply("Plain."))
    answer = world.ask(request())
    counted = dict(pair.split("=") for pair in answer.headers["x-context-proxy-usage"].split(";"))
    usage = world.logged("request_done", 2)[-1]["usage"]
    assert {member: int(tokens) for member, tokens in counted.items()} == usage
    assert usage["prompt_tokens"] == 2_000
    assert usage["total_tokens"] == 2_000 + usage["completion_tokens"]
    plain = world.ask(request())  # one round, whose usage the client gets
    assert "x-context-proxy-usage" not in plain.headers
    assert "usage" not in world.logged("request_done", 3)[-1]


@STREAMED
def test_what_later_rounds_count_is_not_held_against_the_estimate_of_the_first(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    estimate = world.logged("request_done")[0]["tokens_after"]

    def has_read(messages: list[Any]) -> bool:
        return "lines 1-" in str(messages[-1]["content"])

    world.upstream.says = lambda sent: Reply("Done.") if has_read(sent.messages) else reads(name)
    world.upstream.reports = 1.0
    world.upstream.counts = lambda body, _: (3 if has_read(body["messages"]) else 1) * estimate
    for _ in range(4):
        answer_to(world, request(), stream)
    assert [line["value"] for line in world.log("lesson_learned")] == [1.0]


def mixed(name: str) -> Reply:
    """The model calls the agent's tool, reads an artifact, and calls the agent's tool again."""
    return Reply(
        "Both.", (Call("fetch", {"page": 1}), *reads(name, lines="2507-2508").calls, Call("fetch", {"page": 2}))
    )


def answered(body: dict[str, Any], message: dict[str, Any], *texts: str) -> dict[str, Any]:
    """The agent's next request: the answer as it saw it, and what its tools said."""
    said_before = {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]}
    calls = [call["id"] for call in message["tool_calls"]]
    results = [{"role": "tool", "tool_call_id": call, "content": text} for call, text in zip(calls, texts, strict=True)]
    return {**body, "messages": [*body["messages"], said_before, *results]}


FORCED = pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "fetch"}}], ids=["any tool", "one tool"]
)


@STREAMED
def test_a_model_that_never_calls_it_alone_has_its_page_in_the_next_turn(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    teach(world, mixed(name), mixed(name), Reply("All done."))
    body = request()
    for _ in range(2):
        reported = answer_to(world, body, stream)
        calls = [call["function"]["arguments"] for call in reported["message"]["tool_calls"]]
        assert (calls, reported["finish"]) == (['{"page": 1}', '{"page": 2}'], "tool_calls")
        assert reported["message"]["content"] == "Both."
        body = answered(body, reported["message"], "one", "two")
    assert len(world.upstream.sent) == 2
    *known, page = world.upstream.last.messages
    assert [message["role"] for message in known[-5:]] == ["assistant", "tool", "assistant", "tool", "tool"]
    assert page["role"] == "user"
    assert page["content"].splitlines()[-2:] == LONG.splitlines()[2506:2508]
    # It is read once; the history stays the client's.
    assert answer_to(world, body, stream)["message"]["content"] == "All done."
    assert world.upstream.last.messages[: len(known)] == known
    answer_to(
        world,
        {
            **body,
            "messages": [
                *body["messages"],
                {"role": "assistant", "content": "All done."},
                {"role": "user", "content": "And?"},
            ],
        },
        stream,
    )
    assert LONG.splitlines()[2507] not in world.upstream.last.text


def test_another_tenant_and_another_conversation_get_no_page_that_was_left_out(build: Any) -> None:
    world, name = learnt(build)
    teach(world, mixed(name), Reply("Done."))
    body = answered(request(), answer_to(world, request())["message"], "one", "two")
    other = {**body, "messages": [{"role": "user", "content": "Another task."}, *body["messages"][1:]]}
    for asked, key in ((body, "sk-another"), (other, KEY)):
        answer_to(world, asked, key=key)
        assert world.upstream.last.messages[-1]["content"] == "two"


@FORCED
@STREAMED
def test_a_turn_that_forces_a_call_withholds_the_tool_and_changes_no_message(
    choice: Any, stream: bool, build: Any
) -> None:
    world, _ = learnt(build)
    for members in ({}, {"tool_choice": choice}, {}):
        answer_to(world, request(**members), stream)
    before, forced, after = world.upstream.sent
    assert (tools_in(before), tools_in(forced)) == (["fetch", "read_artifact"], ["fetch"])
    assert before.body == after.body
    assert json.dumps(before.messages) == json.dumps(forced.messages)
    assert "read_artifact" in json.dumps(forced.messages)


def test_pages_are_not_cut_again_nor_kept_again(build: Any) -> None:
    world, name = learnt(build, tool_output={"max_bytes": 600, "max_lines": 10})
    teach(world, reads(name, lines="7-8"), reads(name, lines="1-400"), Reply("Done."))
    answer_to(world, request())
    pages = [
        message["content"] for message in world.upstream.last.messages if "of 5000 of tool_" in str(message["content"])
    ]
    assert len(pages) == 2
    assert all("are shown" not in page for page in pages)
    assert not [kept for kept in world.kept if kept.startswith("tool_read_artifact_")]


@STREAMED
def test_a_small_window_gets_small_pages(stream: bool, build: Any) -> None:
    world, name = learnt(build, window_tokens=8_000)
    teach(world, *[reads(name)] * 5, Reply("Done."))
    assert answer_to(world, request(), stream)["message"]["content"] == "Done."
    first, *more, last = [message["content"] for message in world.upstream.last.messages[4:] if message["content"]]
    assert first.startswith("Text: [context-proxy: lines 1-263 of 5000 of tool_fetch_")
    assert all(len(page) < len(first) for page in more[1:])
    assert last.endswith("there is no room for a page. Go on with what you have.]\n")


ENDS_HERE = "(The answer ends here: the model read a part of what was cut, and the request to go on with it "


@STREAMED
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("spoken", ["Let me look.", ""])
def test_an_answer_ends_with_a_sentence_however_a_later_round_fails(
    spoken: str, failure: str, stream: bool, build: Any
) -> None:
    world, name = learnt(build)
    world.upstream.rules, world.upstream.says = [FailsLater(failure)], in_turn(reads(name, spoken))
    reported = answer_to(world, request(), stream)
    content, cause = reported["message"]["content"].rsplit("failed: ", 1)
    assert content == (f"{spoken}\n\n" if spoken else "") + ENDS_HERE
    assert (reported["finish"], reported["message"].get("tool_calls") or []) == ("stop", [])
    (line,) = world.log("reading_broken")
    assert (line["level"], cause.removesuffix(".)")) == ("warning", line["problem"])
    assert failure != "busy" or cause == "HTTP 429.)"
    assert world.logged("request_done", 2)[-1]["outcome"] == "answered"


def test_the_sentence_at_the_end_is_in_the_language_of_the_notices(build: Any) -> None:
    world, name = learnt(build, language="zh")
    world.upstream.rules, world.upstream.says = [FailsLater("busy")], in_turn(reads(name))
    assert "继续回答的请求失败：HTTP 429。" in answer_to(world, request())["message"]["content"]


TOO_MANY = "Invalid 'tools': array too long. Expected an array with maximum length 20, but got one with length 21."
MOST_TOOLS = f"{facts.AT_MOST}{LimitName.TOOLS}"


def test_the_tool_is_not_offered_again_where_no_more_tools_than_the_clients_are_allowed(build: Any) -> None:
    world = build(128_000, Has(["read_artifact"], TOO_MANY, 400))
    many = [{**FETCH, "function": {**FETCH["function"], "name": f"fetch_{number}"}} for number in range(20)]
    sends = [world.ask(request(LONG, many)).headers["x-context-proxy-attempts"] for _ in range(3)]
    assert (sends, len(tools_in(world.upstream.last))) == (["2", "1", "1"], 20)
    assert [(line["lesson"], line["value"]) for line in world.log("lesson_learned")] == [(MOST_TOOLS, 20)]
    world.upstream.rules = []
    world.ask(json.dumps(request()).encode())
    assert "read_artifact" in tools_in(world.upstream.last)


@pytest.mark.parametrize(
    ("status", "message"), [(400, "Unknown field."), (422, "tools: Extra inputs are not permitted")]
)
def test_an_upstream_that_does_not_take_the_tool_gets_the_cut_without_it(status: int, message: str, build: Any) -> None:
    world = build(128_000, Has(['"name": "read_artifact"', '"name":"read_artifact"'], message, status))
    body = request()
    answer = world.ask(body)
    assert (answer.status_code, tools_in(world.upstream.last)) == (200, ["fetch"])
    assert answer.headers["x-context-proxy-attempts"] == "2"
    answer = world.ask(body)
    assert (answer.headers["x-context-proxy-attempts"], len(world.upstream.sent)) == ("1", 3)
    assert "read_artifact" not in tools_in(world.upstream.last)
    assert [line["lesson"] for line in world.log("lesson_learned")] == [facts.REFUSES_OUR_TOOL]
    world.ask({**body, "model": "another"})
    assert "read_artifact" in tools_in(world.upstream.sent[3])


def test_a_refusal_of_the_original_too_says_nothing_of_the_tool(build: Any) -> None:
    world = build(128_000, Has([""], "Unknown field."))
    for _ in range(2):
        assert world.ask(request()).status_code == 400
    assert facts.REFUSES_OUR_TOOL not in [line["lesson"] for line in world.log("lesson_learned")]


TOO_LONG = "Input is too long for requested model."


def _too_long_with_pages(sent: Sent) -> Answer | None:
    """An upstream whose window is smaller than stated, which shows only when pages arrive."""
    if len(sent.body) < 8_000 or "read_artifact(" not in sent.text:
        return None
    message = "This model's maximum context length is 6000 tokens. However, your messages resulted in 7000 tokens."
    return sent.face.error(message, code="context_length_exceeded", param="messages")


@STREAMED
def test_a_later_round_that_is_too_long_is_healed_unseen(stream: bool, build: Any) -> None:
    world, name = learnt(build, tool_output={"max_bytes": 3_000})
    world.upstream.rules, world.upstream.says = (
        [_too_long_with_pages],
        in_turn(reads(name), reads(name), Reply("Done.")),
    )
    assert answer_to(world, request(), stream)["message"]["content"] == "Done."
    refused = world.logged("overflow_detected")[0]
    assert refused["request_id"] == world.logged("request_done", 2)[-1]["request_id"]
    assert world.logged("overflow_retried")


@STREAMED
@pytest.mark.parametrize("limit", [26_000, None])
def test_a_limit_that_a_page_runs_into_makes_the_page_smaller(limit: int | None, stream: bool, build: Any) -> None:
    world, name = learnt(build)

    def refusing(sent: Sent) -> Answer | None:
        tokens = prompt_tokens(sent.messages)
        if len(sent.messages) == 4 or tokens <= (limit or 26_000):
            return None
        numbers = f"This model's maximum context length is {limit} tokens. Your messages resulted in {tokens} tokens."
        return sent.face.error(numbers if limit else "Input is too long.", code="context_length_exceeded")

    world.upstream.rules, world.upstream.says = [refusing], in_turn(reads(name, "Let me look."), Reply("Done."))
    assert answer_to(world, request(), stream)["message"]["content"] == "Let me look.\n\nDone."
    _, refused, taken = (received.messages[-1]["content"] for received in world.upstream.sent)
    assert is_ours(taken)
    assert 400 < len(taken) < len(refused)
    assert [line["cure"] for line in world.log("overflow_retried")] == ["emergency"]


@STREAMED
@pytest.mark.parametrize("spoken", ["Let me look.", ""])
def test_a_model_whose_pages_never_fit_continues_without_them(spoken: str, stream: bool, build: Any) -> None:
    world, name = learnt(build, tool_output={"max_bytes": 6_000})

    def refusing(sent: Sent) -> Answer | None:
        last = sent.messages[-1]
        has_page = last["role"] == "tool" and "lines 1-" in last["content"]
        return sent.face.error(TOO_LONG, code="context_length_exceeded") if has_page else None

    work = Reply("", (Call("fetch", {"page": 2}),))
    world.upstream.rules, world.upstream.says = [refusing], in_turn(reads(name, spoken), work)
    reported = answer_to(world, request(), stream)
    assert (reported["message"]["content"], reported["finish"]) == (spoken, "tool_calls")
    assert [call["function"]["name"] for call in reported["message"]["tool_calls"]] == ["fetch"]
    assert "no room for a page" in world.upstream.last.messages[-1]["content"]


@STREAMED
@pytest.mark.parametrize("spoken", ["Let me look.", ""])
def test_an_answer_ends_where_nothing_fits_any_more(spoken: str, stream: bool, build: Any) -> None:
    world, name = learnt(build, tool_output={"max_bytes": 6_000})

    def refusing(sent: Sent) -> Answer | None:
        is_first = len(sent.messages) == 4
        return None if is_first else sent.face.error(TOO_LONG, code="context_length_exceeded")

    world.upstream.rules, world.upstream.says = [refusing], in_turn(reads(name, spoken))
    reported = answer_to(world, request(), stream)
    assert reported["finish"] == "stop"
    assert reported["message"]["content"].startswith(f"{spoken}\n\n(" if spoken else "(")
    assert "could not be given" in reported["message"]["content"]


@pytest.mark.breaks_the_proxy
@STREAMED
def test_a_defect_of_the_proxy_costs_the_page_and_not_the_answer(
    stream: bool, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, name = learnt(build)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Planner, "plan_further", broken)
    teach(world, reads(name, "Let me look."))
    reported = answer_to(world, request(), stream)
    assert reported["message"]["content"].startswith("Let me look.\n\n(The answer ends here: ")
    assert reported["finish"] == "stop"
    teach(world, mixed(name))
    assert [call["function"]["name"] for call in answer_to(world, request(), stream)["message"]["tool_calls"]] == [
        "fetch",
        "fetch",
    ]
    assert len(world.logged("planning_failed")) == 1
