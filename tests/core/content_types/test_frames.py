from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_files import ADTS_FRAME, MP3_FRAME, id3, transport_stream

from proxy.core.content_types import frames


@given(st.integers(3, 9))
def test_frames_that_follow_each_other_are_a_sound(count):
    assert frames.mpeg_audio(MP3_FRAME * count) == "audio/mpeg"
    assert frames.aac(ADTS_FRAME * count) == "audio/aac"


def test_one_frame_before_anything_else_is_a_coincidence():
    assert frames.mpeg_audio(MP3_FRAME + b"\0" * 900) == ""
    assert frames.aac(ADTS_FRAME + b"\0" * 900) == ""


def test_a_frame_that_begins_a_byte_late_breaks_the_row():
    assert frames.mpeg_audio(MP3_FRAME + b"\0" + MP3_FRAME * 2) == ""


@pytest.mark.parametrize(
    ("behind", "mime"),
    [
        (MP3_FRAME * 3, "audio/mpeg"),
        (b"\0" * 40 + ADTS_FRAME * 3, "audio/aac"),
        (b"fLaC\0\0\0\x22", "audio/flac"),
        (b"", "audio/mpeg"),
    ],
)
def test_what_stands_behind_a_tag_says_which_sound_it_is(behind, mime):
    assert frames.mpeg_audio(id3() + behind) == mime


def test_a_sound_that_begins_in_the_middle_of_a_frame_is_found_near_its_beginning_only():
    assert frames.mpeg_audio_within(MP3_FRAME[9:] + MP3_FRAME * 3) == "audio/mpeg"
    assert frames.mpeg_audio_within(b"\0" * 20_000 + MP3_FRAME * 3) == ""


@pytest.mark.parametrize("length", [188, 192])
def test_packets_of_one_length_are_a_transport_stream(length):
    content = transport_stream(length)
    assert frames.transport_stream(content) == "video/mp2t"
    assert frames.transport_stream(content[:length]) == ""


@given(st.binary(max_size=400))
def test_no_bytes_make_it_raise(content):
    for look in (frames.mpeg_audio, frames.aac, frames.transport_stream, frames.mpeg_audio_within):
        assert look(content) in ("", "audio/mpeg", "audio/aac", "audio/flac", "video/mp2t")
