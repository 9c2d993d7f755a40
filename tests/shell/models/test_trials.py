from __future__ import annotations

from proxy.shell.models import trials
from proxy.shell.models.trials import EVERY, Trials


def test_one_of_so_many_requests_is_one_to_try_with() -> None:
    found = Trials()
    due = [number for number in range(1, 3 * EVERY + 1) if found.is_due("m")]
    assert due == [EVERY, 2 * EVERY, 3 * EVERY]


def test_models_are_counted_apart_and_no_more_than_are_allowed() -> None:
    found = Trials()
    for number in range(EVERY - 1):
        assert not found.is_due("m")
        for other in range(trials._MAX_MODELS - 1):
            assert not found.is_due(f"{number}-{other}")
    assert found.is_due("m")
    for other in range(trials._MAX_MODELS + 1):
        found.is_due(f"last-{other}")
    assert len(found._cut) == trials._MAX_MODELS
