from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import CSV, JPEG, PDF, PNG, SVG, WAV, audio_part, file_part, image_part, png
from support.strategies import notices, spelled

from proxy.core.content_types import ContentKind, MediaType
from proxy.core.conversation import Attachment, FetchError, Route, RoutedMedia, Shape, Unfetched
from proxy.core.media import Routes, modalities_in
from proxy.core.media.descriptions import OmissionReason
from proxy.core.media.placement import MAX_TEXT_BYTES, MediaPlacement, modality_claimed, not_here, place
from proxy.core.models import Modality, ModelProfile
from proxy.wire.chat_completions import ChatMessage

ALL = Routes(frozenset(Modality))
TEXT_ONLY = Routes(frozenset({Modality.TEXT}))
UNKNOWN = Routes()


def attached(content: bytes, shape: Shape = Shape.IMAGE, declared: str = "image/png", **more) -> Attachment:
    return Attachment(shape, base64.b64encode(content).decode(), declared, is_data_url=True, **more)


def placed(routes, attachment, *, can_hold=True, is_too_many=False):
    return place(routes, attachment, b"{}", "ls", notices(), can_hold=can_hold, is_too_many=is_too_many)


@given(
    st.one_of(st.binary(max_size=80), st.sampled_from([PNG, JPEG, PDF, WAV, SVG, CSV])),
    st.sampled_from(Shape),
    st.sampled_from(["", "image/png", "application/pdf", "audio/wav", "nonsense"]),
    st.sampled_from([ALL, TEXT_ONLY, UNKNOWN, Routes(is_strict=True), Routes(max_bytes=10)]),
    st.booleans(),
    st.booleans(),
)
def test_every_content_has_one_place_and_what_is_taken_out_is_kept(content, shape, declared, routes, hold, many):
    attachment = attached(content, shape, declared)
    found = placed(routes, attachment, can_hold=hold, is_too_many=many)
    assert found == placed(routes, attachment, can_hold=hold, is_too_many=many)
    if found.route is Route.DESCRIPTION:
        assert found.words
        assert found.reason in set(OmissionReason)
        assert found.artifact is None or found.artifact.content == content
        assert found.artifact is not None or not content
    if found.route is Route.UNKNOWN:
        assert found.stays


@pytest.mark.parametrize(
    ("routes", "route", "reason"),
    [
        (ALL, Route.IMAGE, ""),
        (TEXT_ONLY, Route.DESCRIPTION, "model"),
        (UNKNOWN, Route.UNKNOWN, ""),
        (Routes(is_strict=True), Route.DESCRIPTION, "model"),
        (Routes(frozenset(Modality), refused=frozenset({Modality.VISION})), Route.DESCRIPTION, "model"),
        (Routes(frozenset(Modality), max_bytes=20), Route.DESCRIPTION, "too_large"),
        (Routes(frozenset(Modality), max_image_pixels=5), Route.DESCRIPTION, "too_many_pixels"),
        (Routes(max_image_pixels=5), Route.DESCRIPTION, "too_many_pixels"),
    ],
)
def test_an_image_goes_where_the_model_and_the_limits_let_it(routes, route, reason):
    found = placed(routes, attached(png(3, 2)))
    assert (found.route, found.reason) == (route, reason)


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (SVG, "format")])
def test_what_an_image_part_cannot_show_is_described(content, reason):
    assert placed(ALL, attached(content)).reason == reason


def test_an_image_over_the_number_of_its_message_is_described_and_so_is_one_without_a_place():
    assert placed(ALL, attached(PNG), is_too_many=True).reason == "too_many"
    assert placed(ALL, attached(PNG), can_hold=False).reason == "place"


def test_an_image_with_a_wrong_type_gets_a_new_part_and_one_with_the_right_type_stays():
    assert placed(ALL, attached(PNG)).stays
    corrected = placed(ALL, attached(JPEG))
    assert not corrected.stays
    assert corrected.found.mime == "image/jpeg"


@pytest.mark.parametrize(("length", "route"), [(MAX_TEXT_BYTES, Route.TEXT), (MAX_TEXT_BYTES + 1, Route.DESCRIPTION)])
def test_a_text_that_came_as_a_file_is_text_up_to_the_length_of_a_tool_result(length, route):
    found = placed(TEXT_ONLY, attached(b"a" * length, Shape.FILE, "text/plain"))
    assert found.route is route


def test_broken_base64_is_kept_as_it_was_written():
    broken = Attachment(Shape.IMAGE, "iVBOR!", "image/png", is_data_url=True)
    found = placed(TEXT_ONLY, broken)
    assert found.reason == "broken"
    assert found.artifact.content == b"iVBOR!"
    assert placed(UNKNOWN, broken).route is Route.UNKNOWN


def test_what_is_elsewhere_stays_for_a_model_that_reads_it_and_is_named_to_one_that_does_not():
    away = Attachment(Shape.IMAGE, address="https://h/a.png")
    assert placed(ALL, away).stays
    described = placed(TEXT_ONLY, away)
    assert described.route is Route.DESCRIPTION
    assert "https://h/a.png" in described.words
    assert described.artifact is None


def test_content_that_could_not_be_fetched_is_replaced_by_the_reason():
    found = not_here(Attachment(Shape.IMAGE, address="https://h/a.png"), Unfetched(FetchError.TIMEOUT), notices())
    assert found.route is Route.DESCRIPTION
    assert found.reason == FetchError.TIMEOUT.value
    assert found.words


SETS = st.frozensets(st.sampled_from(Modality))


@given(st.none() | SETS, SETS, SETS, st.booleans(), st.sampled_from(Modality))
def test_a_refusal_outweighs_a_statement_and_without_either_the_answer_is_unknown(
    stated, unstated, refused, is_strict, modality
):
    reads = Routes(stated, refused, is_strict, unstated=unstated).reads(modality)
    if not is_strict:
        profile = ModelProfile("m", modalities=stated, unstated=unstated, refused=refused)
        assert profile.reads(modality) is reads
    if modality in refused:
        assert reads is False
    elif stated is not None and modality not in unstated:
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


def test_what_a_model_must_read_follows_from_the_declared_types_of_the_parts():
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
