"""Which sealed reasoning is known to be refused."""

import json

import pytest
from support.planners import planner

from proxy.core.overflow import Outcome, Verdict, VerdictKind
from proxy.shell.planning import HeldConversations, RefusedHistories
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.responses import RESPONSES

ASKED = {"role": "user", "content": "Go on."}


def thought(seal):
    return {"role": "assistant", "content": "Done.", "reasoning_details": [{"signature": seal}]}


def request(*messages, model="m"):
    return CHAT_COMPLETIONS.parse(json.dumps({"model": model, "messages": messages}).encode())


def seals(found):
    return [b"signature" in message.raw for message in found.conversation if message.role == "assistant"]


def note(known, refused, left=None):
    known.note_seals("t", refused, refused.unsealed(left))


def test_seals_that_the_repair_has_kept_are_not_remembered():
    known = RefusedHistories()
    note(known, request(ASKED, thought("a"), ASKED, thought("b")), left=2)
    assert known.without_seals("t", request(ASKED, thought("b"))).healed == ()
    assert known.without_seals("t", request(ASKED, thought("a"))).healed != ()


def test_what_was_refused_is_left_out_and_what_is_newer_stays():
    known = RefusedHistories()
    note(known, request(ASKED, thought("a"), thought("b"), ASKED))
    later = request(ASKED, thought("a"), thought("b"), ASKED, thought("c"), ASKED)
    assert seals(known.without_seals("t", later)) == [False, False, True]


def test_the_newest_refusal_counts():
    known = RefusedHistories()
    for turn in ([thought("a")], [thought("a"), thought("b")]):
        note(known, request(*turn, ASKED))
    assert seals(known.without_seals("t", request(thought("a"), thought("b"), thought("c")))) == [False, False, True]


@pytest.mark.parametrize(("tenant", "model", "seal"), [("u", "m", "a"), ("t", "n", "a"), ("t", "m", "b")])
def test_other_clients_models_and_reasoning_are_left_alone(tenant, model, seal):
    known = RefusedHistories()
    note(known, request(thought("a"), ASKED))
    other = request(thought(seal), ASKED, model=model)
    assert known.without_seals(tenant, other) is other


def test_known_messages_are_not_looked_up_again():
    known = RefusedHistories()
    note(known, request(thought("a"), ASKED))
    later = request(thought("a"), ASKED, thought("b"))
    assert known.without_seals("t", later, 1) is later
    assert known.without_seals("t", later, 0) is not later


def test_a_request_without_seals_leaves_nothing_to_remember():
    known = RefusedHistories()
    note(known, request({"role": "assistant", "content": "Done."}, ASKED))
    plain = request({"role": "assistant", "content": "Done."}, ASKED, thought("a"))
    assert known.without_seals("t", plain) is plain


CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
LOST = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.mark.parametrize(("tenant", "model", "is_known"), [("t", "m", True), ("u", "m", False), ("t", "n", False)])
def test_a_call_without_a_result_is_remembered_for_its_client_and_model(tenant, model, is_known):
    known = RefusedHistories()
    assert not known.has_unpaired("t", request(LOST))
    known.note_unpaired("t", request(ASKED, LOST, ASKED), may_repeat=False)
    assert known.has_unpaired(tenant, request(ASKED, LOST, ASKED, ASKED, model=model)) is is_known
    assert not known.has_unpaired("t", request(ASKED, thought("a"), ASKED))


def test_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.memory.MAX_KNOWN", 2)
    known = RefusedHistories()
    for seal in "abc":
        note(known, request(thought(seal)))
    assert [seals(known.without_seals("t", request(thought(seal)))) for seal in "abc"] == [[True], [False], [False]]


ACCEPTED = Outcome(200, Verdict(VerdictKind.ACCEPTED))


async def planned(**members):
    body = {"model": "m", "input": [{"role": "user", "content": "Go on."}], **members}
    return await planner().plan(RESPONSES, b"t", json.dumps(body).encode())


async def asking(**members):
    found = (await planned(**members)).left_to_the_upstream()
    assert found is not None
    return found


async def test_the_next_turn_continues_from_the_response_and_truncates_at_once():
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), ACCEPTED, b'{"id":"resp_2"}', "t")
    for name in ("resp_1", "resp_2"):
        assert held.planned(await planned(previous_response_id=name), "t").members == {"truncation": b'"auto"'}
    for tenant, name in (("t", "resp_3"), ("u", "resp_2")):
        turn = await planned(previous_response_id=name)
        assert held.planned(turn, tenant) is turn


async def test_a_conversation_keeps_its_name():
    held = HeldConversations()
    held.note(await asking(conversation={"id": "conv_1"}), ACCEPTED, b"{}", "t")
    assert held.planned(await planned(conversation="conv_1"), "t").members
    alone = await planned()
    assert held.planned(alone, "t") is alone


@pytest.mark.parametrize(
    "outcome",
    [*(Outcome(status, Verdict(VerdictKind.PROMPT)) for status in (200, 400)), Outcome(500, ACCEPTED.verdict)],
)
async def test_only_what_the_upstream_has_shortened_is_remembered(outcome):
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), outcome, b"", "t")
    held.note(await planned(previous_response_id="resp_1"), ACCEPTED, b"", "t")
    turn = await planned(previous_response_id="resp_1")
    assert held.planned(turn, "t") is turn


async def test_a_client_that_requests_usage_itself_is_left_unchanged():
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), ACCEPTED, b"", "t")
    turn = await planned(previous_response_id="resp_1", truncation="auto")
    assert held.planned(turn, "t") is turn


async def test_the_oldest_are_forgotten_and_long_names_are_not_kept(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.memory.MAX_KNOWN", 2)
    held = HeldConversations()
    for name in ("a", "b", "c", "x" * 501):
        held.note(await asking(previous_response_id=name), ACCEPTED, b"", "t")
    remembered = [bool(held.planned(await planned(previous_response_id=name), "t").members) for name in "abc"]
    assert remembered == [False, True, True]
    long = await planned(previous_response_id="x" * 501)
    assert held.planned(long, "t") is long
