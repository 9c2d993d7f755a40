from __future__ import annotations

import re
from typing import ClassVar

import pytest

from proxy.wire.replies import RoundsUsage, added


class Usage(RoundsUsage):
    totals_of: ClassVar = {"asked": "prompt_tokens", "said": "completion_tokens", "both": "total_tokens"}
    of_the_prompt = re.compile(r"asked(?:_\w+)?")


def over(*rounds):
    usage = Usage()
    for one in rounds:
        usage.add(one)
    return usage


def test_usage_covers_the_clients_own_prompt_and_everything_the_model_wrote():
    usage = over({"asked": 10, "asked_cached": 4, "said": 2, "both": 12})
    assert usage.for_client({"asked": 15, "asked_cached": 9, "said": 3, "both": 18, "tier": "flex"}) == {
        "asked": 10,
        "asked_cached": 4,
        "said": 5,
        "both": 15,
        "tier": "flex",
    }


def test_the_record_has_the_tokens_of_all_rounds_under_its_own_names():
    usage = over({"asked": 10, "said": 2, "both": 12})
    assert usage.totals({"asked": 15, "said": 3, "both": 18}) == {
        "prompt_tokens": 25,
        "completion_tokens": 5,
        "total_tokens": 30,
    }


def test_an_uncounted_round_changes_nothing():
    assert over({}, {"asked": 5, "said": 2}).for_client({}) == {"asked": 5, "said": 2}
    assert Usage().for_client({}) == Usage().totals({}) == {}


def test_a_total_that_the_upstream_did_not_report_is_not_made_up():
    assert "both" not in over({"asked": 5}).for_client({"said": 2})
    assert over({"asked": 5}).for_client({"said": "2", "both": 7})["both"] == 7


@pytest.mark.parametrize("found", ["5", True, None, 2.5, [1]])
def test_only_a_whole_number_is_a_total(found):
    assert Usage().totals({"asked": found, "said": 3}) == {"completion_tokens": 3}


@pytest.mark.parametrize(
    ("before", "now", "together"),
    [
        ({"cost": 0.5}, {"cost": 0.25}, {"cost": 0.75}),
        ({"tier": "flex"}, {"tier": "default"}, {"tier": "default"}),
        ({"tier": "flex"}, {"tier": None}, {"tier": "flex"}),
        ({"cached": True}, {"cached": True}, {"cached": True}),
        ({"details": {"audio": 1}}, {"details": {"text": 2}}, {"details": {"audio": 1, "text": 2}}),
        ({"details": {"audio": 1}}, {"details": 7}, {"details": 7}),
    ],
)
def test_numbers_of_two_rounds_are_added_and_anything_else_is_as_the_last_one_said(before, now, together):
    assert added(before, now) == together
