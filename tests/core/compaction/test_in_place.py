"""Messages that are made shorter each by itself: as many come out as went in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import base64_of, image_part, png
from support.strategies import conversation, exchange, pipeline, system, user

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.in_place import compressed
from proxy.core.media.placement import Routes
from proxy.core.media.routing import RouteMedia
from proxy.core.models.profile import Modality, ToolImages

SEEING = frozenset({Modality.TEXT, Modality.VISION})
LONG = "".join(f"line {number} of a log\n" for number in range(4_000))
TARGETS = [ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT, ToolImages.TEXT, ToolImages.KEEP]


def steps(target=ToolImages.USER_AFTER_BATCH, budget=None):
    every = pipeline(budget or Budget(10**6))
    return replace(every, local=(RouteMedia(Routes(SEEING), target, in_place=True), *every.local))


def contents(made):
    return [json.loads(message.raw)["content"] for message in made.messages]


def test_a_long_result_becomes_an_excerpt_and_all_else_keeps_its_bytes():
    talk = conversation([system(), user("Read it."), *exchange([LONG, "short"])])
    made = compressed(talk, steps())
    changed = [index for index, message in enumerate(made.messages) if message.raw != talk[index].raw]
    assert changed == [3]
    assert made.reasons == {"truncate_tool_output": 1}
    assert [artifact.content.decode() for _, artifact in made.taken_out()] == [LONG]
    assert made.tokens_after < made.tokens_before


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_that_a_result_shows_stays_in_its_message(target):
    talk = conversation([user("Look."), *exchange([[image_part(png())]])])
    made = compressed(talk, steps(target))
    assert len(made.messages) == len(talk)
    kind = contents(made)[2][0]["type"] if isinstance(contents(made)[2], list) else "text"
    assert kind == ("text" if target is ToolImages.TEXT else "image_url")


def test_base64_in_the_text_of_a_result_is_described_where_it_would_have_moved():
    talk = conversation([user("Look."), *exchange([f"data:image/png;base64,{base64_of(png())}"])])
    made = compressed(talk, steps())
    assert "image_url" not in made.messages[2].raw.decode()
    assert [artifact.content for _, artifact in made.taken_out()] == [png()]


def test_the_last_messages_stay_as_they_are_when_that_is_asked_for():
    talk = conversation([user("Read."), *exchange([LONG]), *exchange([LONG + "x"], first_call=5)])
    for protected, cut in ((0, [2, 4]), (1, [2]), (3, []), (10**30, [])):
        made = compressed(talk, steps(), protected)
        assert [entry.index for entry in made.entries if entry.edits] == cut


def test_what_could_not_be_kept_goes_back_and_counts_as_it_came():
    talk = conversation([user("Read."), *exchange([LONG, LONG + "x"])])
    made = compressed(talk, steps())
    (_, first), (_, second) = made.taken_out()
    rest = made.without({first.id})
    assert rest.messages[2].raw == talk[2].raw
    assert [artifact for _, artifact in rest.taken_out()] == [second]
    assert made.tokens_after < rest.tokens_after < rest.tokens_before
    assert made.without(set()) is made


def test_the_same_content_in_two_messages_is_kept_once():
    talk = conversation([user("Read."), *exchange([LONG, LONG])])
    assert len(list(compressed(talk, steps()).taken_out())) == 1


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 8))
def test_rows_and_roles_are_those_that_came(sizes, protected):
    messages = [system(), user("Go on.")]
    for number, size in enumerate(sizes):
        messages += exchange([LONG[: size * 30_000], [image_part(png())]], first_call=10 * number)
    talk = conversation(messages)
    made = compressed(talk, steps(), protected)
    assert [message.role for message in made.messages] == [message.role for message in talk]
    assert [message.answers for message in made.messages] == [message.answers for message in talk]
