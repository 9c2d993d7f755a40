from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_bytes import MESSAGES as ANY_MESSAGES
from support.request_bodies import MEMBERS, bodies, joined, next_bodies

from proxy.errors import MalformedRequest
from proxy.wire.chat_completions.message import ChatMessage
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.messages.wire import MESSAGES
from proxy.wire.moved_messages import beginning_like
from proxy.wire.request import Request
from proxy.wire.responses.wire import RESPONSES

LONG_LISTS = st.builds(
    lambda some, places: [some[place % len(some)] for place in places],
    st.lists(ANY_MESSAGES, min_size=4, max_size=6),
    st.lists(st.integers(0, 11), min_size=7, max_size=12),
)
"""Messages of which some come again, which is what makes it hard to say where a list goes on."""


def outcome(body, known=None):
    """All that a request is, or that it was refused."""
    try:
        request = CHAT_COMPLETIONS.parse(body, known, len(known.conversation) if known else 0)
    except MalformedRequest:
        return "refused"
    members = [(name, b"" if name == "messages" else bytes(raw)) for name, raw in request.members.items()]
    return request.body, members, request.conversation.messages, request.ends, request.has_images


def known_request(pieces):
    try:
        return CHAT_COMPLETIONS.parse(joined(pieces))
    except MalformedRequest:
        return None


@settings(max_examples=300)
@given(st.data(), bodies(LONG_LISTS), st.lists(ANY_MESSAGES, max_size=3), MEMBERS)
def test_a_body_that_begins_otherwise_reads_as_if_nothing_were_known(data, pieces, head, before):
    known = known_request(pieces)
    _, name, items, after, blank = pieces
    body = data.draw(next_bodies([before, name, [*head, *items[len(head) :]], after, blank]))
    anew = outcome(body)
    for last in range(len(known.ends) if known else 0):
        beginning = beginning_like(CHAT_COMPLETIONS, body, known, last)
        if beginning is not None:
            assert outcome(body, beginning) == anew


def chat(*contents, clock="10:00", **members):
    """A body whose messages are these contents, of users and the model by turns, after one of the system."""
    listed = [{"role": "system", "content": f"It is {clock}."}]
    listed += [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(contents)]
    return json.dumps({**members, "messages": listed}).encode()


WORDS = [f"message {number}" for number in range(12)]


@pytest.mark.parametrize(
    "body",
    [
        chat(*WORDS, "new", clock="10:01"),
        chat(*WORDS, "new", clock="ten o'clock and a little more"),
        chat(*WORDS, "new", metadata={"turn": 2}),
        chat("another task", *WORDS[1:], "new"),
        chat(*WORDS[:-1], "reworded", "new", clock="10:01"),
    ],
    ids=["clock", "longer clock", "metadata", "task", "clock and last message"],
)
def test_only_what_was_written_anew_is_read(body, monkeypatch):
    known = CHAT_COMPLETIONS.parse(chat(*WORDS))
    beginning = beginning_like(CHAT_COMPLETIONS, body, known, 10)
    opened = []
    read = ChatMessage.read
    monkeypatch.setattr(ChatMessage, "read", lambda raw: opened.append(raw) or read(raw))
    request = CHAT_COMPLETIONS.parse(body, beginning, len(beginning.conversation))
    assert len(opened) <= 3
    assert sum(one is other for one, other in zip(request.conversation, known.conversation, strict=False)) >= 10
    monkeypatch.undo()
    assert request.conversation.messages == CHAT_COMPLETIONS.parse(body).conversation.messages
    assert request.ends == CHAT_COMPLETIONS.parse(body).ends


@pytest.mark.parametrize(
    "body",
    [
        chat(*WORDS[:10], "another", "answer", clock="10:01"),
        chat("another task", "and another answer", *WORDS[2:], "new"),
        chat(*WORDS, "new", clock="x" * 70_000),
        b'{"messages": null}',
        json.dumps({"messages": [], "more": json.loads(chat(*WORDS))["messages"]}).encode(),
        json.dumps({"more": {"messages": json.loads(chat(*WORDS))["messages"]}, "messages": []}).encode(),
        json.dumps({"text": chat(*WORDS).decode(), "messages": []}).encode(),
        b"",
        b"[]",
    ],
    ids=["other end", "other beginning", "far away", "no list", "other list", "nested", "in a text", "empty", "array"],
)
def test_in_doubt_nothing_is_found(body):
    assert beginning_like(CHAT_COMPLETIONS, body, CHAT_COMPLETIONS.parse(chat(*WORDS)), 12) is None


def test_nothing_is_found_by_means_of_a_request_that_the_client_did_not_write_like_that():
    request = CHAT_COMPLETIONS.parse(chat(*WORDS))
    body = chat(*WORDS, "new", clock="10:01")
    assert isinstance(beginning_like(CHAT_COMPLETIONS, body, request, 12), Request)
    put_in = request.completed({2: (request.conversation[2], request.conversation[1])}, b"a" * 16 * 13)
    assert beginning_like(CHAT_COMPLETIONS, body, put_in, 12) is None
    assert beginning_like(CHAT_COMPLETIONS, body, request.continued([request.conversation[1]]), 12) is None
    assert [beginning_like(CHAT_COMPLETIONS, body, request, last) for last in (0, 13)] == [None, None]


@pytest.mark.parametrize("image_in", ["old head", "new head", "the rest"])
def test_whether_there_are_images_is_what_the_body_says(image_in):
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
    plain, rest = json.loads(chat(*WORDS, clock="ten"))["messages"][0], json.loads(chat(*WORDS))["messages"][1:]
    if image_in == "the rest":
        rest[4] = image
    known, body = [
        json.dumps({"messages": [image if image_in == where else {**plain, "name": where}, *rest]}).encode()
        for where in ("old head", "new head")
    ]
    beginning = beginning_like(CHAT_COMPLETIONS, body, CHAT_COMPLETIONS.parse(known), 12)
    assert beginning.has_images == CHAT_COMPLETIONS.parse(body).has_images == (image_in != "old head")


MESSAGES_ITEMS = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "assistant", "content": [{"type": "compaction", "content": "x"}]},
]
RESPONSES_ITEMS = [
    {"type": "message", "role": "user", "content": "a"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    {"type": "reasoning", "id": "rs", "summary": []},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "long " * 40},
    {"type": "item_reference", "id": "r"},
    {"type": "tool_search_output", "call_id": "s", "tools": []},
]


@st.composite
def requests_of_items(draw):
    """A wire, and two lists of items for it: one conversation before and after its first items were written anew."""
    wire, kinds = draw(st.sampled_from([(MESSAGES, MESSAGES_ITEMS), (RESPONSES, RESPONSES_ITEMS)]))
    one = st.sampled_from(kinds)
    usual = draw(st.lists(st.sampled_from(kinds[:2]), min_size=5, max_size=8)) if draw(st.booleans()) else []
    rest = [*draw(st.lists(one, max_size=8)), *usual, *draw(st.lists(one, max_size=3))]
    heads = [draw(st.lists(one, min_size=1, max_size=2)) for _ in range(2)]
    return wire, [*heads[0], *rest], [*heads[1], *rest, *draw(st.lists(one, max_size=2))]


@settings(max_examples=500)
@given(requests_of_items(), st.sampled_from([{}, {"prompt": {"id": "p"}}, {"previous_response_id": "r"}]))
def test_items_that_belong_together_are_never_torn_apart(case, members):
    wire, *lists = case
    name = "messages" if wire is MESSAGES else "input"
    known = wire.parse(json.dumps({"model": "m", name: lists[0]}).encode())
    body = json.dumps({"model": "m", **members, name: lists[1]}).encode()
    fresh = wire.parse(body)
    for last in range(len(known.ends)):
        beginning = beginning_like(wire, body, known, last)
        if beginning is not None:
            found = wire.parse(body, beginning, len(beginning.conversation))
            assert found.conversation.messages == fresh.conversation.messages
            assert (found.ends, found.shape, found.has_images) == (fresh.ends, fresh.shape, fresh.has_images)
