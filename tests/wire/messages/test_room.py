"""The room for a prompt on the Messages API, and how it is reported if nothing fits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.messages_conversations import assistant, body_of, result, spelled, text, use, user
from support.strategies import pipeline

from proxy.core.compaction import Budget, BudgetRules, budget_for, clamped_reply, plan
from proxy.core.conversation import Conversation, Size
from proxy.core.models import ModelProfile
from proxy.core.overflow import Unit, Verdict, VerdictKind, sizes_of
from proxy.shell.planning import Match
from proxy.wire.messages import MESSAGES


def planned(tokens, words=3_000):
    conversation = MESSAGES.parse(spelled(body_of([user("word " * words)]))).conversation
    made, _ = plan(Conversation(conversation.messages), Size(), pipeline(Budget(tokens)))
    return made


@pytest.mark.parametrize("apart", [False, True])
def test_no_room_is_kept_for_a_reply_that_may_go_beyond_the_window(apart):
    made = budget_for(ModelProfile("m", 100_000), 64_000, exact=True, rules=BudgetRules(), reply_is_apart=apart)
    assert (made.reserved_reply_tokens == 0) == apart
    assert (clamped_reply(made, 64_000, 90_000) is None) == apart


def test_both_sizes_of_a_refusal_are_those_of_the_request_as_it_came():
    made = planned(1_000)
    prompt, most = sizes_of(made, 1_200, Verdict(VerdictKind.ACCEPTED))
    assert (prompt, most) == (made.before.tokens, 1_200)
    counted = Verdict(VerdictKind.PROMPT, limit=1_100, prompt=3_333, unit=Unit.TOKENS)
    assert sizes_of(replace(made, after=made.before), 1_200, counted) == (3_333, 1_100)


def test_without_a_known_limit_the_reported_one_is_below_the_prompt():
    made = planned(100_000)
    prompt, most = sizes_of(made, 128_000, Verdict(VerdictKind.PROMPT))
    assert prompt == made.before.tokens
    assert most == prompt - 1


def test_a_limit_in_bytes_is_reported_as_its_share_of_the_tokens():
    made = planned(100_000)
    bound = replace(made, budget=Budget(100_000, None, made.before.bytes // 2))
    prompt, most = sizes_of(bound, 128_000, Verdict(VerdictKind.ACCEPTED))
    assert most == pytest.approx(prompt / 2, abs=2)


def test_a_conversation_continues_if_its_last_message_with_many_results_is_rewritten():
    many = [use(number) for number in range(9)]
    known = MESSAGES.parse(spelled(body_of([user("a"), assistant(many), user([result(n, "x") for n in range(9)])])))
    marked = [*(result(n, "x") for n in range(8)), result(8, "x", cache_control={"type": "ephemeral"})]
    body = spelled(body_of([user("a"), assistant(many), user(marked), assistant([text("b")]), user("c")]))
    shared = known.shared_messages(body)
    assert shared == 1
    assert not Match(SimpleNamespace(request=known), shared).is_continued  # too little of it is known
    longer = MESSAGES.parse(spelled(body_of([user("a"), assistant("b"), user("c"), assistant(many), user(marked)])))
    assert Match(SimpleNamespace(request=longer), 3).is_continued
