from __future__ import annotations

import pytest

from proxy.shell.artifacts.cooldown import COOLDOWN_SECONDS, Cooldown


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_store_that_has_always_answered_is_asked(clock: Clock) -> None:
    assert not Cooldown(clock).is_on


@pytest.mark.parametrize(("seconds", "is_on"), [(0, True), (COOLDOWN_SECONDS - 1, True), (COOLDOWN_SECONDS, False)])
def test_a_store_that_gave_no_answer_is_left_alone_for_a_while(clock: Clock, seconds: float, is_on: bool) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now += seconds
    assert cooldown.is_on is is_on


def test_each_time_without_an_answer_counts_from_itself(clock: Clock) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now += COOLDOWN_SECONDS - 1
    cooldown.begin()
    clock.now += COOLDOWN_SECONDS - 1
    assert cooldown.is_on


def test_a_clock_that_is_set_back_does_not_leave_the_store_alone_for_ever(clock: Clock) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now -= 100_000
    assert not cooldown.is_on
