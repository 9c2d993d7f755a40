from __future__ import annotations

from proxy.shell.models import trials
from proxy.shell.models.trials import EVERY, SELDOM, Trials

M = ("m", "one", 8_192)


def test_one_of_so_many_requests_is_one_to_try_with() -> None:
    found = Trials()
    due = [number for number in range(1, 3 * EVERY + 1) if found.is_due(M)]
    assert due == [EVERY, 2 * EVERY, 3 * EVERY]


def test_a_window_that_is_confirmed_in_figures_is_tried_half_as_often_each_time() -> None:
    found, due = Trials(), list[int]()
    for number in range(1, 15 * EVERY + 1):
        if found.is_due(M):
            due.append(number)
            found.note_confirmed(M)
    assert due == [EVERY, 3 * EVERY, 7 * EVERY, 15 * EVERY]
    for _ in range(20):
        found.note_confirmed(M)
    assert sum(found.is_due(M) for _ in range(2 * SELDOM)) == 2


def test_another_window_of_the_model_is_tried_anew() -> None:
    found = Trials()
    found.note_confirmed(M)
    other = ("m", "one", 16_384)
    assert [found.is_due(other) for _ in range(EVERY)][-1]


def test_windows_are_counted_apart_and_no_more_than_are_allowed() -> None:
    found = Trials()
    for number in range(EVERY - 1):
        assert not found.is_due(M)
        for other in range(trials._MAX_WINDOWS - 1):
            assert not found.is_due((f"{number}-{other}", "", 1))
    assert found.is_due(M)
    for other in range(trials._MAX_WINDOWS + 1):
        found.is_due((f"last-{other}", "", 1))
    assert len(found._cut) == trials._MAX_WINDOWS
