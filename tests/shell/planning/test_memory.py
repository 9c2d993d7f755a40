from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.planning import ConversationMemory
from proxy.wire.chat_completions import CHAT_COMPLETIONS

ALICE, BOB = b"alice", b"bob"
PLENTY = 10_000_000


def request_of(*contents, model="m", user="u" * 256):
    """Its head is as long as what requests are kept together by, so that `contents` alone make the difference."""
    messages = b",".join(b'{"role":"user","content":"%s"}' % content.encode() for content in contents)
    return CHAT_COMPLETIONS.parse(
        b'{"model":"%s","user":"%s","messages":[%s]}' % (model.encode(), user.encode(), messages)
    )


class Plan:
    """As much of a plan as is needed to remember it."""

    def __init__(self, request, tenant, more_bytes=0):
        self.wire, self.request, self.tenant = CHAT_COMPLETIONS, request, tenant
        self.held_bytes = 2 * len(request.body) + more_bytes


def find(memory, tenant, body):
    return memory.find((CHAT_COMPLETIONS.path, tenant), body)


def remember(memory, tenant, request, instead_of, more_bytes=0):
    memory.remember(Plan(request, tenant, more_bytes), instead_of)


def remembered(memory, tenant, request):
    """Whether exactly this request is still known."""
    match = find(memory, tenant, request.body)
    return match is not None and match.known.request is request


def test_the_next_turn_finds_the_one_before():
    memory = ConversationMemory(PLENTY)
    first = request_of("a", "b")
    remember(memory, ALICE, first, None)
    match = find(memory, ALICE, request_of("a", "b", "c").body)
    assert match.known.request is first
    assert match.shared_messages == 2
    assert first.body[: match.shared_bytes].endswith(b'"b"}')


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=6), max_size=8), st.lists(st.sampled_from("ab"), max_size=6))
def test_no_other_request_shares_more_than_the_one_that_is_found_unless_that_is_nearly_all(conversations, contents):
    memory = ConversationMemory(PLENTY)
    requests = [request_of(*conversation) for conversation in conversations]
    for request in requests:
        remember(memory, ALICE, request, None)
    body = request_of(*contents).body
    match = find(memory, ALICE, body)
    most = max((one.shared_messages(body) for one in requests), default=0)
    if match is None:
        assert most == 0
    elif match.shared_messages != most:
        assert match.is_continued
        assert match.shared_bytes >= 0.9 * len(body)
        assert match.shared_messages == match.known.request.shared_messages(body)


def test_one_tenant_never_sees_what_another_sent():
    memory = ConversationMemory(PLENTY)
    remember(memory, ALICE, request_of("a", "b"), None)
    assert find(memory, BOB, request_of("a", "b", "c").body) is None
    assert find(memory, b"", request_of("a", "b", "c").body) is None


def test_a_conversation_is_replaced_by_its_continuation():
    memory = ConversationMemory(PLENTY)
    turns = [request_of(*"abcdefgh"[: end + 1]) for end in range(8)]
    for turn in turns:
        remember(memory, ALICE, turn, find(memory, ALICE, turn.body))
    assert memory._kept.held_bytes == 2 * len(turns[-1].body)
    assert remembered(memory, ALICE, turns[-1])


def test_a_match_that_was_forgotten_meanwhile_does_no_harm():
    memory = ConversationMemory(PLENTY)
    first, second = request_of("a"), request_of("a", "b")
    remember(memory, ALICE, first, None)
    match = find(memory, ALICE, second.body)
    remember(memory, ALICE, second, match)
    remember(memory, ALICE, request_of("a", "c"), match)
    assert memory._kept.held_bytes == 2 * (len(second.body) + len(request_of("a", "c").body))


@given(st.lists(st.tuples(st.sampled_from([ALICE, BOB]), st.lists(st.sampled_from("abc"), max_size=5)), max_size=40))
def test_what_is_held_is_counted_and_bounded(arrivals):
    memory = ConversationMemory(2_000)
    for tenant, contents in arrivals:
        request = request_of(*contents)
        remember(memory, tenant, request, find(memory, tenant, request.body))
        held = [one for together in memory._heads.values() for one in together]
        assert set(held) == set(memory._kept)
        assert memory._kept.held_bytes == sum(2 * len(one.request.body) for one in held) <= 2_000
        assert all(memory._heads.values())


def test_a_request_larger_than_the_whole_memory_is_not_kept_and_pushes_no_other_out():
    memory = ConversationMemory(1_000)
    other = request_of("a")
    remember(memory, ALICE, other, None)
    remember(memory, ALICE, request_of("x" * 2_000), None)
    assert remembered(memory, ALICE, other)
    assert memory._kept.held_bytes == 2 * len(other.body)


def test_an_abandoned_conversation_is_evicted_before_an_active_one_with_another_head():
    left, other, goes_on = request_of("x" * 100), request_of("x" * 100, model="n"), request_of("y" * 100)
    memory = ConversationMemory(2 * (len(left.body) + len(other.body)))
    for request in (left, other, goes_on):
        remember(memory, ALICE, request, find(memory, ALICE, request.body))
    assert [remembered(memory, ALICE, request) for request in (left, other, goes_on)] == [False, True, True]


def test_the_least_recently_used_goes_first():
    first, second, third = (request_of("x" * 100, model=name) for name in ("m1", "m2", "m3"))
    memory = ConversationMemory(2 * len(first.body) + 2 * len(third.body))
    remember(memory, ALICE, first, None)
    remember(memory, ALICE, second, None)
    again = request_of("x" * 100, model="m1")
    remember(memory, ALICE, again, find(memory, ALICE, again.body))
    remember(memory, ALICE, third, None)
    assert remembered(memory, ALICE, again)
    assert remembered(memory, ALICE, third)
    assert not remembered(memory, ALICE, second)


def test_of_conversations_with_the_same_head_the_latest_are_kept():
    memory = ConversationMemory(PLENTY)
    requests = [request_of(str(number)) for number in range(64 + 6)]
    for request in requests:
        remember(memory, ALICE, request, None)
    assert [remembered(memory, ALICE, request) for request in requests] == [False] * 6 + [True] * 64


def test_what_the_knowledge_holds_besides_the_request_counts():
    memory = ConversationMemory(PLENTY)
    request = request_of("a")
    remember(memory, ALICE, request, None, more_bytes=PLENTY)
    assert not remembered(memory, ALICE, request)
    remember(memory, ALICE, request, None, more_bytes=PLENTY // 2)
    assert remembered(memory, ALICE, request)
