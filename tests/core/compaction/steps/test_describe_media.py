from __future__ import annotations

from dataclasses import replace

import pytest
from support.media_samples import PNG, base64_of
from support.strategies import exchange, notices, part, planned, user
from support.strategies import pipeline as text_pipeline

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.steps.describe_media import DescribeOldMedia
from proxy.core.media.placement import Routes
from proxy.core.media.routing import RouteMedia
from proxy.core.models.profile import ToolImages
from proxy.core.tokens.counters import ByteClassCounter

SHOT = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64_of(PNG * 100)}}
SHOTS = [[part(f"shot {number}"), SHOT] for number in range(6)]
HISTORY = [
    user([part("watch"), SHOT]),
    *(one for n, shot in enumerate(SHOTS) for one in exchange([shot], first_call=n)),
]
WHOLE = 7 * 9_200


def showing(images: int) -> tuple[RouteMedia, ...]:
    return (RouteMedia(Routes(max_images=images), ToolImages.KEEP),)


def sent(budget: Budget, history=HISTORY):
    every = text_pipeline(budget)
    step = DescribeOldMedia(showing, notices("en"), ByteClassCounter())
    made = planned(history, replace(every, local=(), compaction_steps=(step, *every.compaction_steps[1:])))
    return made, [b'"image_url"' in raw for raw in made.messages if b'"tool_call_id"' in raw]


@pytest.mark.parametrize("described", [1, 3, 5])
def test_where_bytes_are_short_the_oldest_media_of_results_are_described_and_kept(described):
    budget = Budget(10**6).for_bytes(int(WHOLE - (described - 0.5) * 9_200))
    made, shows = sent(budget)
    assert made.fits
    assert shows == [False] * described + [True] * (6 - described)
    assert b'"image_url"' in made.messages[0], "the user showed it"
    assert {artifact.content for artifact in made.artifacts} == {PNG * 100}


def test_where_tokens_are_short_no_image_is_described():
    made, shows = sent(Budget(600))
    assert made.fits
    assert 0 < len(shows) < 6
    assert all(shows)


def test_where_both_are_short_no_more_are_described_than_bytes_ask_for():
    made, shows = sent(Budget(1_400).for_bytes(WHOLE - 9_200 // 2))
    assert made.fits
    assert True in shows[:-1], "texts and exchanges give the rest"


def test_where_media_do_not_suffice_exchanges_go_as_well():
    texts = [one for n in range(8) for one in exchange(["words " * 2_000], first_call=100 + n)]
    made, shows = sent(Budget(10**6).for_bytes(60_000), [*HISTORY, *texts])
    assert made.fits
    assert not any(shows)
    assert len(made.messages) < len(HISTORY) + len(texts)


def test_a_limit_that_the_operator_set_holds_after_a_refusal_too():
    assert Budget(10**6, None, 5_000).for_bytes(9_000).room_bytes == 5_000
    assert Budget(10**6, None, 5_000).for_bytes(4_000).room_bytes == 4_000
    assert Budget(10**6).for_bytes(4_000).room_bytes == 4_000
