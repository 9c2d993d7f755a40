"""Properties of every input of the Responses API."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_bytes import spelled_array
from support.responses_items import inputs
from support.strategies import budgets, pipeline
from support.valid_responses import complaints

from proxy.core.compaction import plan
from proxy.core.conversation import Size, size_of
from proxy.core.tokens import ByteClassCounter
from proxy.wire import Request
from proxy.wire.responses import RESPONSES


def body_of(items: Any, **members: Any) -> bytes:
    return json.dumps({"model": "m", "input": items, **members}).encode()


def parsed(items: Any, **members: Any) -> Request:
    return RESPONSES.parse(body_of(items, **members))


def sent(request: Request, budget: Any) -> tuple[dict[str, Any], Any]:
    made, _ = plan(request.conversation, Size(), pipeline(budget))
    return json.loads(RESPONSES.render(request, made.sent, {})), made


@settings(deadline=None, max_examples=40)
@given(inputs(), budgets())
def test_what_is_valid_stays_valid(items, budget):
    request = parsed(items)
    body, made = sent(request, budget)
    if not complaints(json.loads(request.body)):
        assert complaints(body) == []
    begins = next((at for at, item in enumerate(items) if item.get("type") != "additional_tools" and at), len(items))
    assert body["input"][:begins] == items[:begins]
    fixed = ("compaction", "item_reference", "tool_search_output", "additional_tools", "configuration_update")
    assert [i for i in body["input"] if i.get("type") in fixed] == [i for i in items if i.get("type") in fixed]
    assert made.after == sum((size_of(message, ByteClassCounter()) for message in made.sent), Size())


@settings(deadline=None, max_examples=60)
@given(inputs(), budgets())
def test_an_item_that_no_edit_names_keeps_its_bytes(items, budget):
    spelled = [json.dumps(item, indent=3).encode() for item in items]
    request = RESPONSES.parse(b'{"model":"m","input":' + spelled_array(spelled, b"\n") + b"}")
    made, _ = plan(request.conversation, Size(), pipeline(budget))
    body = RESPONSES.render(request, made.sent, {})
    edited = {edit.message for edit in made.edits}
    position = 0
    for index, message in enumerate(request.conversation.messages):
        if index not in edited:
            position = body.index(message.raw, position) + len(message.raw)
            for item in message.items():
                assert bytes(item) in spelled


@settings(deadline=None, max_examples=60)  # each plans three times
@given(inputs(), st.data())
def test_reading_on_from_a_known_request_is_as_reading_anew(items, data):
    stop = data.draw(st.integers(0, len(items)))
    known = parsed(items[:stop])
    body = body_of(items)
    shared = known.shared_messages(body)
    again, anew = RESPONSES.parse(body, known, shared), RESPONSES.parse(body)
    assert again.conversation == anew.conversation
    assert again.ends == anew.ends
    budget = data.draw(budgets())
    _, progress = plan(known.conversation, Size(), pipeline(budget))
    is_taken_over = shared and again.conversation.messages[shared - 1] is known.conversation.messages[shared - 1]
    earlier = progress if is_taken_over and progress.messages <= shared else None
    assert (
        plan(again.conversation, Size(), pipeline(budget), earlier)[0].messages
        == plan(anew.conversation, Size(), pipeline(budget))[0].messages
    )


@settings(deadline=None, max_examples=100)
@given(inputs())
def test_an_agent_loop_is_known_but_for_what_is_new(items):
    call = {"type": "function_call", "call_id": "new", "name": "x", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "new", "output": "y"}
    known = parsed([{"role": "user", "content": "go"}, call, output])
    longer = body_of([{"role": "user", "content": "go"}, call, output, *items])
    assert known.shared_messages(longer) == 3


@settings(deadline=None, max_examples=60)
@given(inputs(), budgets(), st.sampled_from(["previous_response_id", "conversation"]))
def test_nothing_is_left_out_where_the_upstream_holds_the_rest(items, budget, member):
    request = parsed(items, **{member: "x_1"})
    body, _ = sent(request, budget)
    assert not request.shape.is_whole
    assert [item.get("type") for item in body["input"]] == [item.get("type") for item in items]


@settings(deadline=None, max_examples=60)
@given(inputs(), budgets())
def test_the_wish_for_a_compaction_stays_last_and_untouched(items, budget):
    request = parsed([*items, {"type": "compaction_trigger"}])
    body, _ = sent(request, budget)
    assert request.shape.goes_first_as_it_came
    assert body["input"][-1] == {"type": "compaction_trigger"}
    if not complaints(json.loads(request.body)):
        assert complaints(body) == []
