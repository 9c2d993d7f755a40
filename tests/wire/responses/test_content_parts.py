"""How parts are read and written."""

from __future__ import annotations

import json

import pytest
from support.messages_conversations import PNG

from proxy.core.content_types import media_type
from proxy.core.conversation.attachment import Route
from proxy.core.conversation.message import Carried, Shown, Words
from proxy.wire.responses.content_parts import as_one_text, json_of, read_part

TEXT = {"type": "input_text", "text": "a"}
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}


def read(part):
    return read_part(json.dumps(part).encode(), part)


@pytest.mark.parametrize(
    ("part", "text"), [("a", "a"), (TEXT, "a"), ({"text": ""}, ""), ({"text": 5}, None), (7, None)]
)
def test_a_part_has_the_text_that_it_states(part, text):
    found = read(part)
    assert (found.raw, found.text, found.attachment, found.rest) == (json.dumps(part).encode(), text, None, b"")


def test_media_have_a_content_and_the_rest_of_their_part():
    found = read(IMAGE)
    assert (found.text, found.attachment.payload) == (None, PNG)
    shown = Shown(Route.IMAGE, media_type(b""), found.attachment.content(), like=found.rest)
    assert json.loads(json_of(shown, "user"))["detail"] == "low"


@pytest.mark.parametrize(
    ("item", "role", "written"),
    [
        (Carried(b'{"x" : 1}'), "user", b'{"x" : 1}'),
        (Words("b"), "user", b'{"type":"input_text","text":"b"}'),
        (Words("b"), "assistant", b'{"type":"output_text","text":"b","annotations":[]}'),
        (Words("b", like=b'{"text":"a","x":1}'), "assistant", b'{"text":"b","x":1}'),
        (Words("b", like=b'"a"'), "tool", b'{"type":"input_text","text":"b"}'),
    ],
)
def test_a_part_keeps_its_bytes_and_a_text_says_whose_it_is(item, role, written):
    assert json_of(item, role) == written


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([TEXT, {"type": "output_text", "text": "b"}], "a\nb"),
        ([TEXT, {"type": "output_text", "text": "b", "annotations": []}], None),
        ([TEXT, "b"], None),
        ([TEXT, {"type": "x"}], None),
        ([{"type": "input_text", "text": 5}], None),
    ],
)
def test_only_plain_texts_become_one(parts, text):
    assert as_one_text([json.dumps(part).encode() for part in parts]) == text
