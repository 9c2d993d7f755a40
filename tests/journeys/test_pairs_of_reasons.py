"""Any two reasons for which an upstream refuses a conversation, one at a time, are cured in one turn and then known: a
sample of all ordered pairs; `python -m support.pairs` plays the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pairs import ALL, costs_too_much, pairs, played

EACH = 29
"""Prime, so that the sample meets each reason as the first and as the second one."""
PUT_IN = {
    "messages": [("pairing", "empty")],
    "chat": [("user after tool", "reasoning"), ("reasoning", "user after tool")],
}
"""Pairs in which a repair leaves or puts in what the other one concerns."""


@pytest.mark.parametrize("api", ALL)
def test_no_turn_is_lost_for_two_reasons_in_either_order(tmp_path: Path, api: str) -> None:
    failed = {}
    for number, pair in enumerate([*list(pairs(api))[::EACH], *PUT_IN.get(api, ())]):
        seen, lacks = played(api, pair, tmp_path / str(number))
        if costs_too_much(seen, lacks):
            failed[pair] = seen, lacks
    assert failed == {}
