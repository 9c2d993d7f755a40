"""A fixed list of draws; `make fuzz` draws others."""

from __future__ import annotations

import random

import msgspec
import pytest

from drawn.case import drawn
from drawn.rules import check

DRAWS = 200
PARTS = 10
"""So that several workers share them."""


@pytest.mark.parametrize("part", range(PARTS))
def test_settings_features_and_refusals_drawn_together_break_no_rule(part: int) -> None:
    broken = []
    for number in range(part, DRAWS, PARTS):
        try:
            check(msgspec.json.encode(drawn(random.Random(number))))
        except AssertionError as error:
            broken.append((number, str(error)[:300]))
    assert not broken
