"""The short way to a plan says what the long one does, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.media_samples import image_part, png
from support.strategies import (
    any_histories,
    budgets,
    conversation,
    exchange,
    part,
    pipeline,
    user,
)

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.plain_plan import plain_plan
from proxy.core.compaction.plan import ImageLimit, plan
from proxy.core.conversation.size import Size
from proxy.core.media.placement import Routes
from proxy.core.media.routing import RouteMedia
from proxy.core.models.profile import Modality

PLAIN = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
BLIND = RouteMedia(Routes(frozenset({Modality.TEXT})))


def steps(budget=None, **changes):
    every = pipeline(budget or Budget(10_000))
    return replace(every, local=(BLIND, *every.local), **changes)


@given(any_histories(), budgets(), st.integers(0, 50))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_it_says_what_the_long_way_does_or_nothing(history, budget, tools_tokens):
    found, base, every = conversation(history), Size(tokens=tools_tokens), steps(budget)
    made = plain_plan(found, base, every)
    assert made is None or made == plan(found, base, every)[0]


def test_a_plain_conversation_takes_it():
    found = conversation(PLAIN)
    made = plain_plan(found, Size(tokens=3), steps())
    assert made == plan(found, Size(tokens=3), steps())[0]
    assert made is not None
    assert made.fits
    assert [block.tokens_after for block in made.blocks] == [5, 5, 5]


@pytest.mark.parametrize(
    ("history", "every"),
    [
        ([user("a"), *exchange(["x"])], steps()),
        ([{"role": "user", "name": "Bob", "content": "a"}], steps()),
        ([user([part("see"), image_part(png(3, 3))])], steps()),
        (PLAIN, steps(Budget(14))),
        (PLAIN, steps(images=ImageLimit(1, (BLIND,)))),
    ],
    ids=["a result of a tool", "a name", "an image for the blind", "over the room", "a limit of images"],
)
def test_what_may_need_something_goes_the_long_way(history, every):
    assert plain_plan(conversation(history), Size(), every) is None
