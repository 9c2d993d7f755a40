from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import audio_part, file_part, image_part
from support.strategies import spelled

from proxy.core.content_types import ContentKind, MediaType
from proxy.core.conversation.attachment import Attachment, Route, Shape
from proxy.core.conversation.edit import RoutedMedia
from proxy.core.media.descriptions import OmissionReason
from proxy.core.media.routes import MediaPlacement, Routes, modalities_in, modality_claimed
from proxy.core.models.profile import Modality
from proxy.wire.chat_completions.message import ChatMessage

SETS = st.frozensets(st.sampled_from(Modality))


@given(st.none() | SETS, SETS, st.booleans(), st.sampled_from(Modality))
def test_a_refusal_counts_for_more_than_what_is_stated_and_what_nobody_states_is_neither_yes_nor_no(
    stated, refused, is_strict, modality
):
    reads = Routes(stated, refused, is_strict).reads(modality)
    if modality in refused:
        assert reads is False
    elif stated is not None:
        assert reads is (modality in stated)
    else:
        assert reads is ((modality is Modality.TEXT) if is_strict else None)


@pytest.mark.parametrize(
    ("routes", "can_hold", "why"),
    [
        (Routes(frozenset()), False, OmissionReason.MODEL),
        (Routes(refused=frozenset({Modality.VISION})), False, OmissionReason.MODEL),
        (Routes(), True, OmissionReason.MODEL),
        (Routes(), False, OmissionReason.PLACE),
    ],
)
def test_the_place_is_the_reason_only_where_nothing_is_known_of_the_model(routes, can_hold, why):
    assert routes.why_not(Modality.VISION, can_hold=can_hold) is why


def test_what_a_model_must_read_is_told_by_what_the_parts_of_a_message_say_of_themselves():
    parts = [image_part(), file_part(b"x"), audio_part(), {"type": "text", "text": "a"}]
    message = ChatMessage.read(spelled({"role": "user", "content": parts}))
    assert modalities_in(message) == {Modality.VISION, Modality.FILE, Modality.AUDIO}
    assert modalities_in(ChatMessage.read(b'{"role":"user","content":"a"}')) == frozenset()


@pytest.mark.parametrize(
    ("declared", "modality"),
    [
        ("image/png", Modality.VISION),
        (" Audio/wav", Modality.AUDIO),
        ("video/x", Modality.VIDEO),
        ("text/plain", Modality.FILE),
        ("", Modality.FILE),
    ],
)
def test_a_block_is_read_as_what_it_is_declared_to_be(declared, modality):
    assert modality_claimed(Attachment(Shape.BLOCK, declared=declared)) is modality
    assert modality_claimed(Attachment(Shape.IMAGE, declared=declared)) is Modality.VISION


def test_what_is_noted_of_a_placement_is_neither_its_content_nor_its_words():
    png = MediaType("image/png", ContentKind.IMAGE, "png")
    placed = MediaPlacement(Route.DESCRIPTION, png, words="SECRET", byte_count=7, reason="model")
    assert placed.noted == RoutedMedia("image", "image/png", "description", 7, "model")
    assert not placed.stays
    assert MediaPlacement(Route.UNKNOWN, png).stays
