from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import CSV, JPEG, PDF, PNG, SVG, WAV, audio_part, file_part, image_part
from support.strategies import notices, spelled

from proxy.core.conversation import Parts, Route
from proxy.core.media import RouteMedia, Routes, modalities_in
from proxy.core.models import Modality, ModelProfile, ToolImages
from proxy.wire.chat_completions import ChatMessage

ALL = Routes(frozenset(Modality))
TEXT_ONLY = Routes(frozenset({Modality.TEXT}))
CONTENTS = st.one_of(st.binary(max_size=80), st.sampled_from([PNG, JPEG, PDF, WAV, SVG, CSV]))
MIMES = st.sampled_from(["", "image/png", "application/pdf", "audio/wav", "nonsense"])


@given(
    st.one_of(
        st.builds(image_part, CONTENTS, MIMES),
        st.builds(file_part, CONTENTS, MIMES),
        st.builds(audio_part, CONTENTS, MIMES),
    ),
    CONTENTS,
    st.sampled_from([ALL, TEXT_ONLY, Routes(), Routes(is_strict=True), Routes(max_bytes=10), Routes(max_images=0)]),
    st.sampled_from(["user", "tool", "assistant"]),
    st.sampled_from(ToolImages),
)
def test_every_content_has_one_place_and_what_is_taken_out_is_kept(part, content, routes, role, target):
    message = ChatMessage.read(spelled({"role": role, "tool_call_id": "c", "content": [part]}))
    step = RouteMedia(routes, target)
    found = list(step(1, message, "ls", notices()))
    assert found == list(step(1, message, "ls", notices()))
    for edit in found:
        assert isinstance(edit.becomes, Parts | str)
        if edit.media.route == Route.DESCRIPTION:
            assert edit.media.reason
            came = message.parts()[1][0].attachment.content()
            assert edit.artifact is None if not came else edit.artifact.content == came


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
        (Routes(frozenset()), False, "model"),
        (Routes(refused=frozenset({Modality.VISION})), False, "model"),
        (Routes(), True, "model"),
        (Routes(), False, "place"),
    ],
)
def test_the_place_is_the_reason_only_where_nothing_is_known_of_the_model(routes, can_hold, why):
    assert routes.why_not(Modality.VISION, can_hold=can_hold) == why


def test_what_a_model_must_read_follows_from_the_declared_types_of_the_parts():
    parts = [image_part(), file_part(b"x"), audio_part(), {"type": "text", "text": "a"}]
    message = ChatMessage.read(spelled({"role": "user", "content": parts}))
    assert modalities_in(message) == {Modality.VISION, Modality.FILE, Modality.AUDIO}
    assert modalities_in(ChatMessage.read(b'{"role":"user","content":"a"}')) == frozenset()
    declared = {"image/png": Modality.VISION, " Audio/wav": Modality.AUDIO, "video/x": Modality.VIDEO}
    for mime, modality in (declared | {"text/plain": Modality.FILE, "": Modality.FILE}).items():
        block = {"type": "image", "source": {"type": "base64", "media_type": mime, "data": "AAAA"}}
        message = ChatMessage.read(spelled({"role": "user", "content": [block]}))
        assert modalities_in(message) == {modality}


@pytest.mark.parametrize(("length", "route"), [(51_200, "text"), (51_201, "description")])
def test_a_text_that_came_as_a_file_is_text_up_to_the_length_of_a_tool_result(length, route):
    part = file_part(b"a" * length, "text/plain")
    message = ChatMessage.read(spelled({"role": "user", "content": [part]}))
    (edit,) = RouteMedia(TEXT_ONLY)(0, message, "", notices())
    assert edit.media.route == route
