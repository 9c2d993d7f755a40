"""How parts are read and written."""

from __future__ import annotations

import json

import pytest
from support.messages_conversations import PNG

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Carried, Route, Shown, Words
from proxy.wire.responses.content_parts import json_of, read_part

TEXT = {"type": "input_text", "text": "a"}
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}


def read(part):
    return read_part(json.dumps(part).encode(), part)


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
