"""How many images a request may hold: decisions are replayed, so that earlier content stays the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.media_samples import base64_of, image_part, mcp_block, png
from support.strategies import conversation, exchange, pairing_faults, part, pipeline, planned, turn_by_turn, user

from proxy.core.compaction import Budget, Cap
from proxy.core.conversation import Size, size_of
from proxy.core.media import SUMS, RouteMedia, Routes
from proxy.core.models import LimitName, Modality, ToolImages
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage

SEEING = frozenset({Modality.TEXT, Modality.VISION})


def limited(max_images, target=ToolImages.USER_AFTER_BATCH, budget=None, reads=SEEING):
    every = pipeline(budget or Budget(10**6))
    routes = Routes(reads, max_images=max_images)
    blind = RouteMedia(structs.replace(routes, max_images=0), target)
    local = (RouteMedia(routes, target), *every.local)
    return replace(every, local=local, caps=(Cap(max_images, SUMS[LimitName.IMAGES], (blind, *every.local)),))


def images(made):
    return sum(ChatMessage.read(raw).images for raw in made.messages)


def taking_pictures(count, *, per_batch=1):
    found = [user("Take pictures.")]
    for number in range(count):
        results = [[part("done"), image_part(png(3, 2 + number * per_batch + each))] for each in range(per_batch)]
        found += exchange(results, first_call=number * 10, tool="shot")
    return found


@pytest.mark.parametrize("target", [ToolImages.KEEP, ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT])
def test_the_oldest_are_described_down_to_half_and_the_prefix_stays_until_then(target):
    counts, changed, before = [], 0, ()
    for made in turn_by_turn(conversation(taking_pictures(12)), limited(4, target))[2:]:
        counts.append(images(made))
        changed += made.messages[: len(before)] != before
        before = made.messages
        assert pairing_faults(list(made.messages)) == [] or not made.messages[-1].startswith(b'{"role":"tool"')
    assert max(counts) == 4
    assert min(counts[8:]) >= 2
    assert changed <= 8, "the cut moves once in three pictures"
    assert b"There are more images than can be shown at once." in b"".join(before)


def test_a_batch_that_is_done_again_keeps_the_words_before_a_user_message_that_follows():
    history = []
    for number in range(6):
        results = [[part("done"), image_part(png(3, 2 + 2 * number + each))] for each in range(2)]
        history += [user("Look."), *exchange(results, first_call=number * 10, tool="shot")]
    made = planned(history, limited(10, ToolImages.USER_AFTER_ASSISTANT))
    assert images(made) == 5, "one of the fourth batch is left"
    roles = [ChatMessage.read(raw).role for raw in made.messages]
    with_images = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert roles == [*with_images[:4] * 3, *with_images * 3][:-1]
    sizes = [size_of(ChatMessage.read(raw), ByteClassCounter()) for raw in made.messages]
    assert sum(sizes, Size()).bytes == made.after.bytes


def test_of_the_newest_message_no_more_than_needed_is_described():
    content = [image_part(png(3, 2 + number)) for number in range(6)]
    made = planned([user(content)], limited(4))
    kinds = [one["type"] for one in json.loads(made.messages[0])["content"]]
    assert kinds == ["text", "text", "image_url", "image_url", "image_url", "image_url"]
    batch = planned(taking_pictures(1, per_batch=6), limited(4))
    assert images(batch) == 4
    assert base64_of(png(3, 7)) in batch.messages[-1].decode()
    assert base64_of(png(3, 3)) not in batch.messages[-1].decode()


def test_images_for_a_model_of_unknown_modalities_are_limited_too():
    content = [image_part(png(3, 2 + number)) for number in range(6)]
    content.append({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
    made = planned([user(content)], limited(2, ToolImages.KEEP, reads=None))
    assert [one["type"] for one in json.loads(made.messages[0])["content"]] == ["text"] * 5 + ["image_url"] * 2
    older = planned([user(content), *exchange(["a"]), user([image_part()])], limited(2, ToolImages.KEEP, reads=None))
    assert "https://example.org/a.png" in older.messages[0].decode()
    assert images(older) <= 2


def test_images_in_a_text_are_limited_from_its_end():
    blocks = [mcp_block(png(3, 2 + number)) for number in range(4)]
    made = planned([user("a"), *exchange([json.dumps(blocks)])], limited(2))
    assert images(made) == 2


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(1, 5),
    st.sampled_from([ToolImages.KEEP, ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT]),
    st.sampled_from([10**6, 4_000, 900]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_limit_holds_the_sizes_are_true_and_nothing_depends_on_what_follows(batches, limit, target, room):
    history = [user([part("Look."), image_part()])]
    for number, count in enumerate(batches):
        results = [[part("words " * 50), image_part(png(3, 2 + number))] for _ in range(count)] or ["no picture"]
        history += exchange(results, first_call=number * 10)
    found, every = conversation(history), limited(limit, target, Budget(room))
    made = planned(found, every)
    assert images(made) <= max(limit, 1)
    assert made.after == sum((size_of(ChatMessage.read(raw), ByteClassCounter()) for raw in made.messages), Size())
    assert pairing_faults(list(made.messages)) == []
    assert turn_by_turn(found, every)[-1].messages == made.messages
    assert sum(block.tokens_after for block in made.blocks) == made.after.tokens
    again = planned([json.loads(raw) for raw in made.messages], limited(limit, target))
    assert images(again) == images(made)
