"""How parts are read and written."""

from __future__ import annotations

import json

import pytest
from support.messages_conversations import PNG

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Carried, Parts, Route, Shown, Words
from proxy.wire.chat_completions.content_parts import json_of, read_part, replacement

TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}


def read(part):
    return read_part(json.dumps(part).encode(), part)


def test_media_have_a_content_and_the_rest_of_their_part():
    found = read(IMAGE)
    assert (found.text, found.attachment.payload) == (None, PNG)
    assert json.loads(found.rest)["image_url"]["detail"] == "low"
    shown = Shown(Route.IMAGE, media_type(b""), found.attachment.content(), like=found.rest)
    assert json.loads(json_of(shown))["image_url"]["detail"] == "low"


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (Carried(b'{"x" : 1}'), b'{"x" : 1}'),
        (Words("b"), b'{"type":"text","text":"b"}'),
        (Words("b", like=b'{"text":"a","type":"text","x":1}'), b'{"text":"b","type":"text","x":1}'),
        (Words("b", like=b'"a"'), b'{"type":"text","text":"b"}'),
    ],
)
def test_a_part_keeps_its_bytes_and_a_text_the_members_of_the_one_before(item, written):
    assert json_of(item) == written


@pytest.mark.parametrize(
    ("new", "in_text", "written"),
    [
        (None, True, None),
        ("a", False, "a"),
        (Parts((Words("a"),)), True, "a"),
        (Parts((Words("a"),)), False, [TEXT]),
        (Parts((Words("a"), Words("a"))), True, [TEXT, TEXT]),
        (Parts((Words("a"), Words("a")), as_text=True), True, [TEXT, TEXT]),
        (Parts((Words("a"), Words("a")), as_text=True), False, "a\na"),
        (Parts((Carried(b'{"type":"x"}'),)), True, [{"type": "x"}]),
        (Parts((Words("a"), Carried(b'{"type":"x"}')), as_text=True), False, [TEXT, {"type": "x"}]),
        (Parts((Words("a"), Carried(b'"b"')), as_text=True), False, [TEXT, "b"]),
        (Parts((Carried(b'{"type":"text","text":5}'),), as_text=True), False, [{"type": "text", "text": 5}]),
    ],
)
def test_a_text_stays_one_and_parts_become_one_where_only_a_text_is_read(new, in_text, written):
    found = replacement(new, in_text=in_text)
    assert (found if found is None else json.loads(found)) == written
