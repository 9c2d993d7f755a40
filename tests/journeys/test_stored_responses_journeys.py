"""The proxy's own tool where the upstream keeps responses, which it does by default, and clients continue from one by
its id."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.journey import World, long_text
from support.responses_journey import PATH
from support.upstream import Call, Reply, ScriptedModel
from support.upstream.keeping import at_most, keeping, without_our_tool

LONG = long_text(5_000)
PAGE = "line 2500: value"
"""In no excerpt."""
FETCH = {"type": "function", "name": "fetch", "parameters": {"type": "object"}, "strict": False}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def request(items: object, previous: str | None = None, **members: Any) -> dict[str, Any]:
    continues = {} if previous is None else {"previous_response_id": previous}
    return {"model": "m", "input": items, "tools": [FETCH], **continues, **members}


def task() -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": "c", "name": "fetch", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": LONG}
    return [{"role": "user", "content": "Look."}, call, result]


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


class Chain:
    """A client that continues from the response before."""

    def __init__(self, world: World, *, stream: bool = False, **members: Any) -> None:
        self.world = world
        self.stream = stream
        self.members = members
        self.previous: str | None = None
        self.output: Sequence[dict[str, Any]] = ()

    def ask(self, items: object, **where: Any) -> Sequence[dict[str, Any]]:
        """The output of a response that is not refused."""
        body = request(items, self.previous, stream=self.stream, **self.members)
        answer = self.world.ask(body, path=PATH, **where)
        assert answer.status_code == 200, answer.text
        if not self.stream:
            response = answer.json()
        else:
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
            assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
            response = events[-1]["response"]
            assert events[0]["response"]["id"] == response["id"]
        self.previous, self.output = response["id"], response["output"]
        assert "read_artifact" not in json.dumps(self.output)
        return self.output

    def results(self, text: str = "fetched") -> list[dict[str, Any]]:
        """An output for each call that the client has seen."""
        calls = [item["call_id"] for item in self.output if item["type"] == "function_call"]
        return [{"type": "function_call_output", "call_id": call, "output": text} for call in calls]


def started(build: Any, window: int = 128_000, **stated: Any) -> tuple[World, ScriptedModel, Call]:
    """A world in which a long result is kept, and a call that reads two lines of it."""
    server = keeping(Reply("First."))
    world = build(window, behind=server, **stated)
    world.ask(request(task()), path=PATH)
    server.sent.clear()
    name = next(name for name in world.kept if name.startswith("tool_fetch_"))
    return world, server, Call("read_artifact", {"id": name, "lines": "2500-2501"})


def asked(server: ScriptedModel) -> list[Any]:
    """The bodies, without what the server holds."""
    return [json.loads(body) for body in server.bodies]


def tool_lists(server: ScriptedModel) -> set[str]:
    return {json.dumps(body.get("tools")) for body in asked(server)}


def results_in(items: Sequence[Any]) -> list[str]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


@STREAMED
def test_a_chain_continues_from_a_response_in_which_the_model_has_read(build: Any, stream: bool) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=stream)
    server.says += [Reply("", (call,)), Reply("", (call,)), Reply("It is 6."), Reply("", (call,)), Reply("Still 6.")]
    chain.ask(task())
    chain.ask(user("Really?"))
    assert chain.ask(user("Thanks."))[-1]["content"][0]["text"] == "Reply 7."
    assert server.refusals == 0
    assert PAGE in json.dumps(server.held[str(chain.previous)])
    assert len(tool_lists(server)) == 1
    assert [item["content"] for item in server.held[str(chain.previous)] if item.get("role") == "user"] == [
        "Look.",
        "Really?",
        "Thanks.",
    ]


@STREAMED
@pytest.mark.parametrize("rounds", [0, 2])
def test_what_is_hidden_beside_calls_of_the_client_is_answered(build: Any, stream: bool, rounds: int) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=stream)
    server.says += [Reply("", (call,))] * rounds
    server.says += [Reply("Both.", (call, Call("fetch", {"n": 1}), call)), Reply("Done.")]
    chain.ask(task())
    chain.ask(chain.results())
    assert server.refusals == 0
    *pages, fetched = results_in(asked(server)[-1]["input"])
    assert [PAGE in page for page in pages] == [True, True]
    assert fetched == "fetched"
    chain.ask(user("Thanks."))
    assert server.refusals == 0
    assert len(tool_lists(server)) == 1


@STREAMED
def test_a_chain_continues_from_a_model_that_was_stopped(build: Any, stream: bool) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=stream)
    server.says += [Reply("", (call,))] * 9
    text = chain.ask(task())[-1]["content"][0]["text"]
    chain.ask(user("Go on."))
    assert server.refusals == 0
    assert results_in(asked(server)[-1]["input"]) == [text]
    chain.ask(user("Thanks."))
    assert server.refusals == 0


TOO_LONG_FOR_A_PAGE = [*task(), {"role": "user", "content": "words " * 6_400}]
SMALL = {"tool_output": {"max_bytes": 3_000}}


@STREAMED
def test_without_room_for_a_page_the_model_reads_so_and_continues(build: Any, stream: bool) -> None:
    world, server, call = started(build, 8_000, **SMALL)
    chain = Chain(world, stream=stream)
    server.says += [Reply("", (call,)), Reply("It is 6.")]
    assert chain.ask(TOO_LONG_FOR_A_PAGE)[-1]["content"][0]["text"] == "It is 6."
    (result,) = results_in(asked(server)[-1]["input"])[1:]
    assert "room" in result
    assert PAGE not in result
    chain.ask(user("Go on."))
    assert server.refusals == 0


@STREAMED
def test_an_upstream_without_room_for_one_line_gets_a_smaller_prompt_with_it(build: Any, stream: bool) -> None:
    world, server, call = started(build, 8_000, **SMALL)
    Chain(world, stream=stream).ask(TOO_LONG_FOR_A_PAGE)
    world, full, _ = started(build, 8_000, **SMALL)
    full.rules = [*full.rules, at_most(server.last.tokens)]
    full.says += [Reply("", (call,)), Reply("It is 6.")]
    chain = Chain(world, stream=stream)
    assert chain.ask(TOO_LONG_FOR_A_PAGE)[-1]["content"][0]["text"] == "It is 6."
    assert full.refusals == 1
    assert results_in(asked(full)[-1]["input"])[1:] == results_in(asked(full)[-2]["input"])[1:]


@STREAMED
@pytest.mark.parametrize("rounds", [0, 2])
def test_another_replica_continues_from_the_same_records(build: Any, stream: bool, rounds: int) -> None:
    world, server, call = started(build, proxies=[{}, {}, {}])
    chain = Chain(world, stream=stream)
    server.says += [*[Reply("", (call,))] * rounds, Reply("Both.", (call, Call("fetch", {})))]
    chain.ask(task())
    chain.ask(chain.results(), proxy=1)
    assert PAGE in results_in(asked(server)[-1]["input"])[0]
    chain.ask(user("Thanks."), proxy=2)
    assert server.refusals == 0


def test_another_key_gets_no_page(build: Any) -> None:
    world, server, call = started(build, history="off")
    chain = Chain(world)
    server.says += [Reply("", (call, Call("fetch", {})))]
    chain.ask(task())
    answer = world.ask(request(chain.results(), chain.previous), path=PATH, key="sk-another")
    assert answer.status_code == 400
    assert PAGE not in json.dumps(asked(server)[-1])
    chain.ask(chain.results())
    assert PAGE in json.dumps(asked(server)[-1])


def test_a_turn_that_forces_a_call_continues_too(build: Any) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=True)
    server.says += [Reply("", (call,)), Reply("It is 6."), Reply("", (call, Call("fetch", {})))]
    for number in range(2):
        chain.ask(task())
        chain.members = {"tool_choice": "required"}
        chain.ask(chain.results() or user("Go."))
        assert server.refusals == 0
        assert [tool["name"] for tool in asked(server)[-1]["tools"]] == ["fetch"], number
        chain.members, chain.previous = {}, None


def test_a_request_whose_edits_are_taken_back_still_answers_what_is_hidden(build: Any) -> None:
    world, server, call = started(build)
    chain = Chain(world)
    server.says += [Reply("", (call, Call("fetch", {})))]
    chain.ask(task())
    server.rules = [*server.rules, without_our_tool()]
    body = request(chain.results(), chain.previous)
    answer = world.ask(gzip.compress(json.dumps(body).encode()), path=PATH, content_encoding="gzip")
    assert answer.status_code == 200, answer.text
    assert [len(body["tools"]) for body in asked(server)[-2:]] == [2, 1]
    assert PAGE in json.dumps(asked(server)[-1])


@STREAMED
def test_a_client_that_repeats_its_items_behind_an_id_gets_the_page_once(build: Any, stream: bool) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=stream)
    chain.ask(task())
    server.says += [Reply("", (call, Call("fetch", {})))]
    before, question = chain.previous, user("Again.")
    output = chain.ask(question)
    chain.previous = before
    chain.ask([*question, *output, *chain.results()])
    assert server.refusals == 0
    assert json.dumps(asked(server)[-1]).count(PAGE) == 1


@STREAMED
@pytest.mark.parametrize("spoken", ["", "Let me look."])
@pytest.mark.parametrize("calls", ["none", "after ours", "before ours"])
def test_a_client_that_sends_its_whole_list_sends_no_thought_without_what_followed_it(
    build: Any, stream: bool, spoken: str, calls: str
) -> None:
    world, server, call = started(build)
    chain = Chain(world, stream=stream, include=["reasoning.encrypted_content"])
    fetch = Call("fetch", {})
    last = {"none": (), "after ours": (call, fetch), "before ours": (fetch, call)}[calls]
    server.says += [Reply(spoken, (call,), "hm"), Reply("", (call,), "so"), Reply(spoken or "6.", last, "ah")]
    items = task()
    for new in ([], user("Thanks."), user("Bye.")):
        items += [*chain.results(), *new]
        items += chain.ask(items)
        chain.previous = None
        assert server.refusals == 0
    assert len(tool_lists(server)) == 1
    assert (PAGE in json.dumps(asked(server)[-1])) == (calls != "none")


def test_a_lost_record_costs_the_page_and_not_the_conversation(build: Any) -> None:
    world, server, call = started(build, proxies=[{}, {}])
    chain = Chain(world)
    server.says += [Reply("", (call, Call("fetch", {})))]
    chain.ask(task())
    for path in (world.folder / "tool-output").glob("tool_read_artifact_*"):
        path.unlink()
    chain.ask(chain.results(), proxy=1)
    lacking, fetched = results_in(asked(server)[-1]["input"])
    assert "interrupted" in lacking
    assert fetched == "fetched"
    chain.ask(user("Thanks."), proxy=1)
    assert server.refusals == 1


def test_a_client_that_continues_without_its_tools_is_healed(build: Any) -> None:
    world, server, call = started(build)
    chain = Chain(world)
    server.says += [Reply("", (call, Call("fetch", {})))]
    chain.ask(task())
    chain.members = {"tools": []}
    chain.ask(chain.results())
    assert (server.refusals, len(results_in(asked(server)[-1]["input"]))) == (1, 2)


def test_later_rounds_of_a_conversation_too_long_for_its_upstream_request_truncation_at_once(build: Any) -> None:
    world, server, call = started(build)
    chain = Chain(world)
    chain.ask(task())
    server.rules = [*server.rules, at_most(1_000)]
    server.says += [Reply("", (call,)), Reply("", (call,)), Reply("It is 6.")]
    chain.ask(user("Really?"))
    assert server.refusals == 1
    assert [body.get("truncation") for body in asked(server)[-4:]] == [None, "auto", "auto", "auto"]


@pytest.mark.parametrize(
    "members",
    [
        {"store": False, "previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"truncation": "auto"},
        {"background": True},
        {"tools": []},
    ],
)
def test_it_is_not_offered(build: Any, members: dict[str, Any]) -> None:
    server = keeping()
    server.held["resp_1"] = []
    world = build(128_000, behind=server)
    body = json.dumps(request(user("Look."), **members)).encode()
    world.ask(body, path=PATH)
    assert world.upstream.last.body == body
