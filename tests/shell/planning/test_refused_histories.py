"""Which sealed reasoning is known to be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.shell.planning import refused_histories
from proxy.shell.planning.refused_histories import RefusedHistories
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.request import Request

ASKED = {"role": "user", "content": "Go on."}


def thought(seal: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "Done.", "reasoning_details": [{"signature": seal}]}


def request(*messages: Any, model: str = "m") -> Request:
    return CHAT_COMPLETIONS.parse(json.dumps({"model": model, "messages": messages}).encode())


def seals(found: Request) -> list[bool]:
    return [b"signature" in message.raw for message in found.conversation if message.role == "assistant"]


def note(known, refused, left=None):
    known.note_seals("t", refused, refused.unsealed(left))


def test_seals_that_the_repair_has_kept_are_not_remembered():
    known = RefusedHistories()
    note(known, request(ASKED, thought("a"), ASKED, thought("b")), left=2)
    assert known.without_seals("t", request(ASKED, thought("b"))).healed == ()
    assert known.without_seals("t", request(ASKED, thought("a"))).healed != ()


def test_what_was_refused_is_left_out_and_what_is_newer_stays() -> None:
    known = RefusedHistories()
    note(known, request(ASKED, thought("a"), thought("b"), ASKED))
    later = request(ASKED, thought("a"), thought("b"), ASKED, thought("c"), ASKED)
    assert seals(known.without_seals("t", later)) == [False, False, True]


def test_the_newest_refusal_counts() -> None:
    known = RefusedHistories()
    for turn in ([thought("a")], [thought("a"), thought("b")]):
        note(known, request(*turn, ASKED))
    assert seals(known.without_seals("t", request(thought("a"), thought("b"), thought("c")))) == [False, False, True]


@pytest.mark.parametrize(("tenant", "model", "seal"), [("u", "m", "a"), ("t", "n", "a"), ("t", "m", "b")])
def test_other_clients_models_and_reasoning_are_left_alone(tenant: str, model: str, seal: str) -> None:
    known = RefusedHistories()
    note(known, request(thought("a"), ASKED))
    other = request(thought(seal), ASKED, model=model)
    assert known.without_seals(tenant, other) is other


def test_known_messages_are_not_looked_up_again() -> None:
    known = RefusedHistories()
    note(known, request(thought("a"), ASKED))
    later = request(thought("a"), ASKED, thought("b"))
    assert known.without_seals("t", later, 1) is later
    assert known.without_seals("t", later, 0) is not later


def test_a_request_without_seals_leaves_nothing_to_remember() -> None:
    known = RefusedHistories()
    note(known, request({"role": "assistant", "content": "Done."}, ASKED))
    plain = request({"role": "assistant", "content": "Done."}, ASKED, thought("a"))
    assert known.without_seals("t", plain) is plain


LOST = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
}


@pytest.mark.parametrize(("tenant", "model", "is_known"), [("t", "m", True), ("u", "m", False), ("t", "n", False)])
def test_a_call_without_a_result_is_remembered_for_its_client_and_model(
    tenant: str, model: str, is_known: bool
) -> None:
    known = RefusedHistories()
    assert not known.has_unpaired("t", request(LOST))
    known.note_unpaired("t", request(ASKED, LOST, ASKED), may_repeat=False)
    assert known.has_unpaired(tenant, request(ASKED, LOST, ASKED, ASKED, model=model)) is is_known
    assert not known.has_unpaired("t", request(ASKED, thought("a"), ASKED))


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_histories, "MAX_KNOWN", 2)
    known = RefusedHistories()
    for seal in "abc":
        note(known, request(thought(seal)))
    assert [seals(known.without_seals("t", request(thought(seal)))) for seal in "abc"] == [[True], [False], [False]]
