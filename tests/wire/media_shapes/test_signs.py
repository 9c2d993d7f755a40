from __future__ import annotations

import base64
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_bytes import spelled
from support.media_samples import PNG

from proxy.wire.media_shapes.signs import MIN_CHARACTERS, may_hold_media

BLANKS_AND_WORDS = st.lists(st.text(string.ascii_letters + string.digits, max_size=20)).map(" ".join)


def raw(content) -> bytes:
    return json.dumps({"role": "tool", "content": content}).encode()


@given(BLANKS_AND_WORDS)
def test_a_message_of_plain_words_is_not_opened(text):
    assert may_hold_media(raw(text)) is False
    assert may_hold_media(raw([{"type": "text", "text": text}])) is False


@given(BLANKS_AND_WORDS, st.sampled_from(["utf-8", "ascii"]), st.binary(min_size=MIN_CHARACTERS, max_size=200))
def test_base64_in_a_text_is_a_sign_whatever_stands_around_it(before, how, content):
    text = f"{before} {base64.b64encode(content).decode()}"
    assert may_hold_media(b'{"content":' + spelled(text, how) + b"}")


@pytest.mark.parametrize(("length", "found"), [(MIN_CHARACTERS - 1, False), (MIN_CHARACTERS, True)])
def test_a_run_of_letters_is_a_sign_from_the_length_of_the_shortest_file_on(length, found):
    assert may_hold_media(raw(f"a {'x' * length} z")) is found


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"type": "image_url"}, True),
        ({"type": "input_audio"}, True),
        ({"type": "unheard_of"}, True),
        ({"type": "text"}, False),
        ({"type": "function"}, False),
    ],
)
def test_every_part_that_is_no_text_and_no_call_is_a_sign(part, found):
    assert may_hold_media(raw([part])) is found


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64,aa",
        '{"routing": "file"}',
        '{"resource": {}}',
        '{"file_data": ""}',
        '{"format": "wav"}',
        '{"mimeType": "a/b"}',
        '{"media_type": "a/b"}',
        '{"contentType": "a/b"}',
        '{"mimeType" \n\t: "a/b"}',
        '{"of": "{\\"contentType\\"\\n : 1}"}',
    ],
)
def test_what_declares_a_content_of_any_length_is_a_sign(text):
    assert may_hold_media(raw(text))


@pytest.mark.parametrize("how", ["utf-8", "ascii", "escaped"])
def test_a_file_that_was_decoded_by_force_is_found_in_every_spelling(how):
    text = PNG.decode(errors="replace")
    assert may_hold_media(b'{"content":' + spelled(text, how) + b"}")
    assert may_hold_media(raw("%PDF-1.4 of letters only"))


@pytest.mark.parametrize("written", ["\ufffd".encode(), b"\\ufffd", b"\\uFFFD", b"\\u0001"])
def test_what_stands_for_a_byte_that_was_no_text_is_a_sign_however_it_is_written(written):
    assert may_hold_media(b'{"content":"a ' + written + b'"}')
