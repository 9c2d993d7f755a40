from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.json_bytes import spelled_array
from support.responses_items import inputs

from proxy.core.retrieval_tool import OwnCall
from proxy.wire.responses import COMPACTIONS, RESPONSES

# The wire

USER = {"role": "user", "content": "go"}
WEATHER = {"type": "function", "name": "weather"}
TOOLS_ITEM = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}


def call(name="a", kind="function_call"):
    return {"type": kind, "call_id": name, "name": "ls", "arguments": "{}"}


def output(name="a", kind="function_call_output"):
    return {"type": kind, "call_id": name, "output": f"of {name}"}


def body_of(*items, **members):
    return json.dumps({"model": "m", "input": items, **members}).encode()


def read(*items, **members):
    return RESPONSES.parse(body_of(*items, **members))


SHAPE = RESPONSES.shape
PART_UNSEEN, HELD = (read(USER, **members).shape for members in ({"prompt": {"id": "p"}}, {"conversation": "c"}))
COMPACTED = COMPACTIONS.parse(body_of(USER)).shape


def test_shapes_say_whether_all_is_there_and_whether_a_request_may_be_changed_before_it_is_refused():
    shapes = (SHAPE, PART_UNSEEN, HELD, COMPACTED)
    assert [shape.is_whole for shape in shapes] == [True, False, False, True]
    assert [shape.items_add_tools for shape in shapes] == [False, False, True, True]
    assert [shape.goes_first_as_it_came for shape in shapes] == [False, False, False, True]


@given(inputs(), st.sampled_from([None, 1]))
def test_a_request_is_read_as_views_of_its_items_and_written_with_their_bytes(items, indent):
    spelled = [json.dumps(item, indent=indent).encode() for item in items]
    request = RESPONSES.parse(b'{"model":"m","temperature":0.10,"input":' + spelled_array(spelled) + b"}")
    assert [bytes(item) for message in request.conversation for item in message.items()] == spelled
    rendered = RESPONSES.render(request, list(request.conversation), {})
    assert json.loads(rendered) == {"model": "m", "temperature": 0.1, "input": items}
    assert b"0.10" in rendered
    assert all(message.raw in rendered for message in request.conversation)


@pytest.mark.parametrize("body", [b'{"input": "hi"}', b'{"prompt": {"id": "p"}}', b'{"input": null}', b'{"input": []}'])
def test_an_input_may_be_a_text_or_nothing(body):
    request = RESPONSES.parse(body)
    assert [message.role for message in request.conversation] == (["user"] if b"hi" in body else [])
    assert json.loads(RESPONSES.render(request, request.conversation.messages, {})) == json.loads(body)


def test_a_text_becomes_an_item_beside_others():
    request = RESPONSES.parse(b'{"input": "hi"}')
    more = RESPONSES.message(json.dumps(call()).encode())
    body = json.loads(RESPONSES.render(request, [*request.conversation, more], {}))
    assert body["input"] == [{"role": "user", "content": "hi"}, call()]


@pytest.mark.parametrize(
    ("members", "shape", "name"),
    [
        ({}, SHAPE, ""),
        ({"prompt": {"id": "p"}}, PART_UNSEEN, ""),
        ({"prompt": None}, SHAPE, ""),
        ({"previous_response_id": "resp_1"}, HELD, "resp_1"),
        ({"previous_response_id": None, "conversation": ""}, SHAPE, ""),
        ({"previous_response_id": None, "conversation": "conv_1"}, HELD, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, HELD, "conv_1"),
        ({"conversation": {"id": 7}, "previous_response_id": ""}, HELD, ""),
        ({"truncation": "auto"}, HELD, ""),
        ({"truncation": "disabled"}, SHAPE, ""),
    ],
)
def test_content_held_elsewhere_is_recognised_by_the_members_and_has_a_name(members, shape, name):
    request = read(USER, **members)
    assert (request.shape, RESPONSES.continues(request)) == (shape, name)


@pytest.mark.parametrize("items", [[USER, {"type": "item_reference", "id": "x"}], [USER, {"id": "x"}]])
def test_what_only_the_server_knows_is_no_measure(items):
    assert read(*items).shape == PART_UNSEEN
    longer = body_of(*items, call(), output())
    known = read(*items, call(), output())
    assert RESPONSES.parse(longer, known, known.shared_messages(longer)).shape == PART_UNSEEN


def test_a_request_for_a_compaction_goes_first_as_it_came():
    trigger = {"type": "compaction_trigger"}
    assert read(USER, trigger).shape == COMPACTED
    assert not read(USER, {"type": "item_reference", "id": "x"}, trigger).shape.is_whole
    assert read(trigger, USER).shape is SHAPE
    assert COMPACTIONS.parse(body_of(USER)).shape == COMPACTED
    held = read(USER, trigger, previous_response_id="resp_1").shape
    assert (held.goes_first_as_it_came, held.read) == (True, HELD.read)
    assert all(shape.goes_first_as_it_came for shape in (COMPACTED, held))


def test_an_output_that_comes_late_makes_the_whole_be_read_again():
    items = [USER, call(kind="custom_tool_call"), output(kind="custom_tool_call_output"), USER]
    known = read(*items)
    later = [*items, output(kind="custom_tool_call_output"), USER]
    body = body_of(*later)
    shared = known.shared_messages(body)
    request = RESPONSES.parse(body, known, shared)
    assert shared == 4
    assert request.conversation == read(*later).conversation
    assert request.conversation[1] is not known.conversation[1]


def test_a_continued_request_is_read_from_where_it_continues():
    known = read(USER, call(), output(), USER)
    body = body_of(USER, call(), output(), USER, call("b"), output("b"))
    request = RESPONSES.parse(body, known, known.shared_messages(body))
    assert request.conversation[1] is known.conversation[1]
    assert request.shape is SHAPE


def test_only_where_the_upstream_holds_the_rest_is_the_cutting_left_to_it():
    assert RESPONSES.left_to_the_upstream(read(USER, previous_response_id="r")) == {"truncation": b'"auto"'}
    assert RESPONSES.left_to_the_upstream(read(USER, truncation="auto")) == {}
    assert RESPONSES.left_to_the_upstream(read(USER)) == {}


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"instructions": b'"be brief"'}, b'"be brief"'),
        ({"instructions": b"null"}, b""),
        ({"instructions": b'""'}, b""),
        ({}, b""),
    ],
)
def test_instructions_are_a_member_of_the_request(members, found):
    assert RESPONSES.instructions(members) == found


def test_tools_that_come_as_items_count_as_tools():
    tools = [{"type": "namespace", "name": "fs", "tools": [{"name": "cat"}]}, {"type": "custom", "name": "exec"}]
    item = {"type": "additional_tools", "role": "developer", "tools": tools}
    request = read(item, USER, tools=[{"name": "ls"}])
    assert RESPONSES.tool_names(RESPONSES.tools(request)) == ["ls", "cat", "exec"]
    assert request.conversation[0].text() == ""
    assert RESPONSES.tool_names(RESPONSES.tools(read(item, USER))) == ["cat", "exec"]
    assert json.loads(RESPONSES.tools(read(USER, tools=[WEATHER]))) == [WEATHER]


def test_our_tool_is_not_offered_where_an_item_adds_to_the_tools():
    assert RESPONSES.with_tool(read(TOOLS_ITEM, USER, tools=[WEATHER], store=False), "always") is None


def test_images_are_recognised_by_the_names_of_parts_and_members():
    assert RESPONSES.may_hold_images(b'{"type":"image_generation_call"}')
    assert not RESPONSES.may_hold_images(b'{"type":"input_text","text":"an image"}')
    assert RESPONSES.may_name_images(b'{"type":"input_image","image_url":"https://example.org"}')
    assert not RESPONSES.may_name_images(b'{"type":"input_image","file_id":"f"}')


def test_tools_that_an_item_adds_are_known_in_every_later_turn():
    tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    known = read(tools, USER, call(), output())
    body = body_of(tools, USER, call(), output(), call("b"), output("b"))
    shared = known.shared_messages(body)
    later = RESPONSES.parse(body, known, shared)
    assert later.conversation[2] is known.conversation[2]
    anew = RESPONSES.parse(body.replace(b'"b"', b'"\\u0062"'), known, shared)
    assert anew.conversation[2] is not known.conversation[2]
    for request in (known, later, anew):
        assert RESPONSES.tool_names(RESPONSES.tools(request)) == ["exec"]


@pytest.mark.parametrize(
    ("evidence", "name"),
    [
        (b'{"id":"resp_1","object":"response","output":[{"id":"resp_2"}]}', "resp_1"),
        (b'event: response.created\ndata: {"type":"response.created","response":{"id": "resp_1"}}', "resp_1"),
        (b'{"id":"msg_1"}', ""),
        (b'{"id":"resp_' + b"x" * 501 + b'"}', ""),
    ],
)
def test_a_reply_is_named_by_the_id_of_its_response_if_that_is_kept(evidence, name):
    assert RESPONSES.named_in(read(USER), evidence) == name
    assert RESPONSES.named_in(read(USER, store=True), evidence) == name
    assert RESPONSES.named_in(read(USER, store=False), evidence) == ""


@pytest.mark.parametrize("items", [[], ["go"], [USER, output("b")], [USER, call("b"), output("b")]])
@pytest.mark.parametrize("count", [0, 2])
def test_what_the_upstream_waits_for_comes_before_the_items_of_the_client(items, count):
    reported = items[0] if items == ["go"] else items
    body = {"model": "m", "previous_response_id": "resp_1", "input": reported, "stream": True}
    request = RESPONSES.parse(json.dumps(body).encode())
    results = [RESPONSES.result(OwnCall(f"own_{number}", "{}"), "page") for number in range(count)]
    whole = RESPONSES.continued_from(request, "resp_2", results)
    found = json.loads(whole.body)
    if items == ["go"] and count:
        reported = [{"role": "user", "content": "go"}]
    assert found["input"] == [*map(json.loads, results), *reported] if count else found["input"] == reported
    assert {**found, "input": 0} == {**body, "previous_response_id": "resp_2", "input": 0}
    assert (whole.is_rewritten, whole.put_in) == (True, tuple(range(count)))
    assert (whole.shape, whole.stream, RESPONSES.continues(whole)) == (HELD, True, "resp_2")
    assert [message.is_companion for message in whole.conversation] == [False, True, True, True, True][
        : len(whole.conversation)
    ]


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_request_of_a_conversation_gets_no_response_to_continue_from(conversation):
    """The API refuses both together: https://platform.openai.com/docs/api-reference/responses/create"""
    body = {"model": "m", "conversation": conversation, "input": [USER]}
    request, lacking = RESPONSES.parse(json.dumps(body).encode()), RESPONSES.result(OwnCall("a", ""), "none")
    whole = RESPONSES.continued_from(request, RESPONSES.continues(request), [lacking])
    assert json.loads(whole.body) == {**body, "input": [json.loads(lacking), USER]}
    assert (whole.shape, whole.put_in, RESPONSES.continues(whole)) == (HELD, (0,), "conv_1")


def test_a_model_that_the_path_names_stays_named():
    request = replace(read(USER, model=None, previous_response_id="resp_1"), model="of the path", put_in=(0,))
    whole = RESPONSES.continued_from(request, "resp_1", [b'{"type":"function_call_output"}'])
    assert (whole.model, whole.put_in) == ("of the path", (0, 1))


def test_items_added_to_a_held_conversation_are_omitted_only_with_the_rest_of_it():
    held = read(USER, previous_response_id="resp_1")
    more = [RESPONSES.message(json.dumps(item).encode()) for item in (call("b"), output("b"))]
    assert [message.is_companion for message in held.continued(more).conversation] == [False, True, True]
    assert [message.is_companion for message in read(USER).continued(more).conversation] == [False, False, False]


@pytest.mark.parametrize(
    ("refusal", "call_id"),
    [
        ("No tool output found for function call call_1-a.b.", "call_1-a.b"),
        ("No tool output found for function call call_1. (request_id: req_2)", "call_1"),
        ("No tool output found for function call " + "x" * 300, ""),
        ("No tool call found for function call output with call_id call_1.", ""),
        ("No tool output found for custom tool call ctc_1.", ""),
        ("", ""),
    ],
)
def test_a_refusal_names_the_call_that_has_no_output(refusal, call_id):
    assert RESPONSES.unanswered_in(refusal) == call_id
