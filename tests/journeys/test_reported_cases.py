"""Public bug reports end well, where their files are: the folder that `REPORTED_CASES` names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.reported_cases import play_all

FOLDER = os.environ.get("REPORTED_CASES", "")


@pytest.mark.skipif(not FOLDER, reason="REPORTED_CASES names no folder with reported cases")
def test_reported_cases_end_well_and_cost_a_second_send_in_few_turns() -> None:
    found = list(play_all(Path(FOLDER)))
    print(*(one.row for one in found), sep="\n")
    assert found
    assert [one.row for one in found if not one.ends_well or sum(sent > 1 for sent in one.sends) > 2] == []
