"""Which conversations an upstream is asked at once to shorten."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.planners import planner

from proxy.core.overflow import Verdict, VerdictKind
from proxy.core.overflow.retry import Outcome
from proxy.shell.planning.planned import Planned
from proxy.shell.relay import held_conversations
from proxy.shell.relay.held_conversations import HeldConversations
from proxy.wire.responses.wire import RESPONSES

ACCEPTED = Outcome(200, Verdict(VerdictKind.ACCEPTED))


async def planned(**members: Any) -> Planned:
    body = {"model": "m", "input": [{"role": "user", "content": "Go on."}], **members}
    return await planner().plan(RESPONSES, b"t", json.dumps(body).encode())


async def asking(**members: Any) -> Planned:
    found = (await planned(**members)).left_to_the_upstream()
    assert found is not None
    return found


async def test_the_next_turn_continues_from_the_response_and_is_asked_at_once() -> None:
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), ACCEPTED, b'{"id":"resp_2"}', "t")
    for name in ("resp_1", "resp_2"):
        assert held.planned(await planned(previous_response_id=name), "t").members == {"truncation": b'"auto"'}
    for tenant, name in (("t", "resp_3"), ("u", "resp_2")):
        turn = await planned(previous_response_id=name)
        assert held.planned(turn, tenant) is turn


async def test_a_conversation_keeps_its_name() -> None:
    held = HeldConversations()
    held.note(await asking(conversation={"id": "conv_1"}), ACCEPTED, b"{}", "t")
    assert held.planned(await planned(conversation="conv_1"), "t").members
    alone = await planned()
    assert held.planned(alone, "t") is alone


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(400, Verdict(VerdictKind.PROMPT)),
        Outcome(200, Verdict(VerdictKind.PROMPT)),
        Outcome(500, ACCEPTED.verdict),
    ],
)
async def test_only_what_the_upstream_has_shortened_is_remembered(outcome: Outcome) -> None:
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), outcome, b"", "t")
    held.note(await planned(previous_response_id="resp_1"), ACCEPTED, b"", "t")
    turn = await planned(previous_response_id="resp_1")
    assert held.planned(turn, "t") is turn


async def test_a_client_that_asks_itself_is_not_asked_for() -> None:
    held = HeldConversations()
    held.note(await asking(previous_response_id="resp_1"), ACCEPTED, b"", "t")
    turn = await planned(previous_response_id="resp_1", truncation="auto")
    assert held.planned(turn, "t") is turn


async def test_the_oldest_are_forgotten_and_long_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_conversations, "MAX_KNOWN", 2)
    held = HeldConversations()
    for name in ("a", "b", "c", "x" * 501):
        held.note(await asking(previous_response_id=name), ACCEPTED, b"", "t")
    asked = [bool(held.planned(await planned(previous_response_id=name), "t").members) for name in "abc"]
    assert asked == [False, True, True]
    long = await planned(previous_response_id="x" * 501)
    assert held.planned(long, "t") is long
