from __future__ import annotations

import pytest

from proxy.shell.artifacts.cooldown import COOLDOWN_SECONDS, NO_ANSWER, Cooldown


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_store_that_has_always_answered_is_asked(clock: Clock) -> None:
    assert Cooldown(clock).why is None


@pytest.mark.parametrize(
    ("seconds", "why"), [(0, NO_ANSWER), (COOLDOWN_SECONDS - 1, NO_ANSWER), (COOLDOWN_SECONDS, None)]
)
def test_a_store_that_gave_no_answer_is_left_alone_for_a_while(clock: Clock, seconds: float, why: str | None) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now += seconds
    assert cooldown.why == why


def test_each_time_without_an_answer_counts_from_itself(clock: Clock) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now += COOLDOWN_SECONDS - 1
    cooldown.begin()
    clock.now += COOLDOWN_SECONDS - 1
    assert cooldown.why == NO_ANSWER


def test_a_clock_that_is_set_back_does_not_leave_the_store_alone_for_ever(clock: Clock) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    clock.now -= 100_000
    assert cooldown.why is None


def test_a_store_that_is_held_is_left_alone_until_that_ends_and_so_is_one_that_gave_no_answer(clock: Clock) -> None:
    cooldown = Cooldown(clock)
    cooldown.begin()
    cooldown.hold("no secret")
    clock.now += 100 * COOLDOWN_SECONDS
    assert cooldown.why == "no secret"
    cooldown.begin()
    cooldown.end()
    assert cooldown.why is None
