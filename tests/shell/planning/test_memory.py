import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_bytes import MESSAGES as ANY_MESSAGES
from support.request_bodies import MEMBERS, bodies, joined, next_bodies

from proxy.errors import MalformedRequest
from proxy.shell.planning import ConversationMemory, beginning_like
from proxy.wire import Request
from proxy.wire.chat_completions import CHAT_COMPLETIONS, ChatMessage
from proxy.wire.messages import MESSAGES
from proxy.wire.responses import RESPONSES

ALICE, BOB = b"alice", b"bob"
PLENTY = 10_000_000


def request_of(*contents, model="m", user="u" * 256):
    """Its head is as long as what requests are kept together by, so that `contents` alone make the difference."""
    messages = b",".join(b'{"role":"user","content":"%s"}' % content.encode() for content in contents)
    return CHAT_COMPLETIONS.parse(
        b'{"model":"%s","user":"%s","messages":[%s]}' % (model.encode(), user.encode(), messages)
    )


def remember(memory, tenant, request, knowledge, instead_of, more_bytes=0):
    held_bytes = 2 * len(request.body) + more_bytes
    memory.remember(tenant, request, knowledge, instead_of, held_bytes)


def remembered(memory, tenant, request):
    """Whether exactly this request is still known."""
    match = memory.find(tenant, request.body)
    return match is not None and match.remembered.request is request


def test_the_next_turn_finds_the_one_before():
    memory = ConversationMemory(PLENTY)
    first = request_of("a", "b")
    remember(memory, ALICE, first, "knowledge", None)
    match = memory.find(ALICE, request_of("a", "b", "c").body)
    assert match.remembered.request is first
    assert match.remembered.knowledge == "knowledge"
    assert match.shared_messages == 2
    assert first.body[: match.shared_bytes].endswith(b'"b"}')


def test_the_longest_match_is_found_wherever_it_was_put():
    memory = ConversationMemory(PLENTY)
    requests = [request_of("a"), request_of("a", "b", "c"), request_of("a", "b"), request_of("a", "x", "c", "d")]
    for request in requests:
        remember(memory, ALICE, request, None, None)
    match = memory.find(ALICE, request_of("a", "b", "c", "d").body)
    assert match.remembered.request is requests[1]
    assert match.shared_messages == 3


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=6), max_size=8), st.lists(st.sampled_from("ab"), max_size=6))
def test_no_other_request_shares_more_than_the_one_that_is_found_unless_that_is_nearly_all(conversations, contents):
    memory = ConversationMemory(PLENTY)
    requests = [request_of(*conversation) for conversation in conversations]
    for request in requests:
        remember(memory, ALICE, request, None, None)
    body = request_of(*contents).body
    match = memory.find(ALICE, body)
    most = max((one.shared_messages(body) for one in requests), default=0)
    if match is None:
        assert most == 0
    elif match.shared_messages != most:
        assert match.is_continued
        assert match.shared_bytes >= 0.9 * len(body)
        assert match.shared_messages == match.remembered.request.shared_messages(body)


def test_one_tenant_never_sees_what_another_sent():
    memory = ConversationMemory(PLENTY)
    remember(memory, ALICE, request_of("a", "b"), "secret", None)
    assert memory.find(BOB, request_of("a", "b", "c").body) is None
    assert memory.find(b"", request_of("a", "b", "c").body) is None


def test_nothing_in_common_is_no_match():
    memory = ConversationMemory(PLENTY)
    remember(memory, ALICE, request_of("a"), None, None)
    assert memory.find(ALICE, request_of("b").body) is None
    assert memory.find(ALICE, b"") is None


def test_a_conversation_is_replaced_by_its_continuation():
    memory = ConversationMemory(PLENTY)
    turns = [request_of(*"abcdefgh"[: end + 1]) for end in range(8)]
    for turn in turns:
        remember(memory, ALICE, turn, None, memory.find(ALICE, turn.body))
    assert memory._kept.held_bytes == 2 * len(turns[-1].body)
    assert remembered(memory, ALICE, turns[-1])


def test_a_match_that_was_forgotten_meanwhile_does_no_harm():
    memory = ConversationMemory(PLENTY)
    first, second = request_of("a"), request_of("a", "b")
    remember(memory, ALICE, first, None, None)
    match = memory.find(ALICE, second.body)
    remember(memory, ALICE, second, None, match)
    remember(memory, ALICE, request_of("a", "c"), None, match)
    assert memory._kept.held_bytes == 2 * (len(second.body) + len(request_of("a", "c").body))


@given(st.lists(st.tuples(st.sampled_from([ALICE, BOB]), st.lists(st.sampled_from("abc"), max_size=5)), max_size=40))
def test_what_is_held_is_counted_and_bounded(arrivals):
    memory = ConversationMemory(2_000)
    for tenant, contents in arrivals:
        request = request_of(*contents)
        remember(memory, tenant, request, None, memory.find(tenant, request.body))
        held = [one for together in memory._heads.values() for one in together]
        assert set(held) == set(memory._kept)
        assert memory._kept.held_bytes == sum(2 * len(one.request.body) for one in held) <= 2_000
        assert all(memory._heads.values())


def test_a_request_larger_than_the_whole_memory_is_not_kept():
    memory = ConversationMemory(1_000)
    remember(memory, ALICE, request_of("x" * 2_000), None, None)
    assert memory._kept.held_bytes == 0
    assert not memory._heads


def test_a_request_larger_than_the_whole_memory_pushes_no_other_out():
    memory = ConversationMemory(1_000)
    other = request_of("a")
    remember(memory, ALICE, other, None, None)
    remember(memory, ALICE, request_of("x" * 2_000), None, None)
    assert remembered(memory, ALICE, other)


def test_an_abandoned_conversation_is_evicted_before_an_active_one_with_another_head():
    left, other, goes_on = request_of("x" * 100), request_of("x" * 100, model="n"), request_of("y" * 100)
    memory = ConversationMemory(2 * (len(left.body) + len(other.body)))
    for request in (left, other, goes_on):
        remember(memory, ALICE, request, None, memory.find(ALICE, request.body))
    assert [remembered(memory, ALICE, request) for request in (left, other, goes_on)] == [False, True, True]


def test_the_least_recently_used_goes_first():
    first, second, third = (request_of("x" * 100, model=name) for name in ("m1", "m2", "m3"))
    memory = ConversationMemory(2 * len(first.body) + 2 * len(third.body))
    remember(memory, ALICE, first, None, None)
    remember(memory, ALICE, second, None, None)
    again = request_of("x" * 100, model="m1")
    remember(memory, ALICE, again, None, memory.find(ALICE, again.body))
    remember(memory, ALICE, third, None, None)
    assert remembered(memory, ALICE, again)
    assert remembered(memory, ALICE, third)
    assert not remembered(memory, ALICE, second)


def test_of_conversations_with_the_same_head_the_latest_are_kept():
    memory = ConversationMemory(PLENTY)
    requests = [request_of(str(number)) for number in range(64 + 6)]
    for request in requests:
        remember(memory, ALICE, request, None, None)
    assert [remembered(memory, ALICE, request) for request in requests] == [False] * 6 + [True] * 64


def test_conversations_side_by_side_under_one_system_prompt_do_not_push_each_other_out():
    memory = ConversationMemory(PLENTY)
    one, other = request_of("system", "one"), request_of("system", "other")
    for request in (one, other):
        remember(memory, ALICE, request, None, memory.find(ALICE, request.body))
    match = memory.find(ALICE, request_of("system", "one", "more").body)
    assert match.shared_messages == 2


def test_what_the_knowledge_holds_besides_the_request_counts():
    memory = ConversationMemory(PLENTY)
    request = request_of("a")
    remember(memory, ALICE, request, None, None, more_bytes=PLENTY)
    assert not remembered(memory, ALICE, request)
    remember(memory, ALICE, request, None, None, more_bytes=PLENTY // 2)
    assert remembered(memory, ALICE, request)


def talk(clock, *texts):
    """A body of one agent, whose system text contains the time."""
    listed = [{"role": "system", "content": f"It is {clock}."}]
    listed += [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    return json.dumps({"messages": listed}).encode()


def test_the_beginning_of_a_body_is_known_although_it_is_written_anew():
    memory, words = ConversationMemory(PLENTY), [f"word {n}" for n in range(8)]
    first = CHAT_COMPLETIONS.parse(talk("ten", *words))
    remember(memory, ALICE, first, None, None)
    body = talk("eleven", *words, "more")
    beginning = memory.beginning(CHAT_COMPLETIONS, ALICE, body)
    assert beginning.conversation.messages[1:] == first.conversation.messages[1:]
    assert memory.beginning(CHAT_COMPLETIONS, BOB, body) is None
    remember(memory, ALICE, CHAT_COMPLETIONS.parse(body), None, None)  # takes the place of the first
    assert memory.beginning(CHAT_COMPLETIONS, ALICE, talk("twelve", *words)) is not None
    assert memory.beginning(CHAT_COMPLETIONS, ALICE, talk("twelve", *words[::-1])) is None


def test_the_beginning_of_a_body_is_looked_for_in_a_few_conversations_that_are_still_kept():
    memory = ConversationMemory(PLENTY)
    words = [[f"word {n} of {number}" for n in range(8)] for number in range(9)]
    for one in words:
        remember(memory, ALICE, CHAT_COMPLETIONS.parse(talk("ten", *one)), None, None)
    found = [memory.beginning(CHAT_COMPLETIONS, ALICE, talk("eleven", *one)) is not None for one in words]
    assert found == [False] + [True] * 8
    small = ConversationMemory(100)
    remember(small, ALICE, CHAT_COMPLETIONS.parse(talk("ten", *words[0])), None, None)
    assert small.beginning(CHAT_COMPLETIONS, ALICE, talk("eleven", *words[0])) is None


LONG_LISTS = st.builds(
    lambda some, places: [some[place % len(some)] for place in places],
    st.lists(ANY_MESSAGES, min_size=4, max_size=6),
    st.lists(st.integers(0, 11), min_size=7, max_size=12),
)
"""Messages with repetitions, which make it hard to find where a list continues."""


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
    put_in = request.in_place(lambda index, one: (one, request.conversation[1]) if index == 2 else (one,))
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
