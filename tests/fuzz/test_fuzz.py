"""Every case that is kept, and a few that are made: the same in every run. `make fuzz` looks for new ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from drawn.case import Case
from fuzz.targets import CORPUS, TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_kept_case_breaks_no_rule(path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes())


@pytest.mark.parametrize(
    "path", [path for path in KEPT if path.parent.name == "conversations"], ids=lambda path: path.name
)
def test_a_kept_conversation_is_still_a_case(path: Path) -> None:
    msgspec.json.decode(path.read_bytes(), type=Case)  # what is none would break no rule, unseen


@pytest.mark.parametrize("name", TARGETS)
def test_no_case_breaks_a_rule(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(target.cases)
    def one(case: bytes) -> None:
        target.check(case)

    one()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_break_no_rule(name: str) -> None:
    @settings(max_examples=60)
    @given(st.binary(max_size=200))
    def one(case: bytes) -> None:
        TARGETS[name].check(case)

    one()


def test_every_target_has_cases_and_every_case_a_target() -> None:
    assert {path.parent.name for path in KEPT} == set(TARGETS)
