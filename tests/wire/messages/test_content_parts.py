"""How blocks are read and written."""

from __future__ import annotations

import json

import pytest
from support.messages_conversations import DOCUMENT, IMAGE, MARK, PNG, spelled, text, use

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Carried, Route, Shown, Words
from proxy.wire.messages.content_parts import is_image, json_of, markable, read_part


def read(block):
    return read_part(spelled(block), block)


@pytest.mark.parametrize(
    ("block", "said"), [(text("a"), "a"), (text(""), ""), (use(1), None), ("a", None), ({"text": "a"}, None)]
)
def test_only_a_text_block_has_a_text(block, said):
    found = read(block)
    assert (found.raw, found.text, found.attachment, found.rest) == (spelled(block), said, None, b"")


def test_media_have_a_content_and_the_rest_of_their_block():
    found = read({**IMAGE, **MARK})
    assert (found.text, found.attachment.payload) == (None, PNG)
    assert json.loads(found.rest)["cache_control"] == MARK["cache_control"]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        (Shown(Route.IMAGE, media_type(b"")), True),
        (Shown(Route.FILE, media_type(b"")), False),
        (Carried(spelled(IMAGE)), True),
        (Carried(spelled(DOCUMENT)), False),
        (Carried(spelled(text('an "image"'))), False),
        (Carried(spelled({"type": "new", "of": "image"})), False),
        (Words("image"), False),
    ],
)
def test_images_are_known_by_their_type_or_by_where_they_go(item, found):
    assert is_image(item) is found


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (Carried(b'{"x" : 1}'), b'{"x" : 1}'),
        (Words("b"), spelled(text("b"))),
        (Words("b", like=spelled(text("a", **MARK))), spelled(text("b", **MARK))),
        (Words("b", like=spelled(use(1))), spelled(text("b"))),
        (Words("b", like=b'"a"', instead_of=spelled({**IMAGE, **MARK})), spelled(text("b", **MARK))),
    ],
)
def test_a_block_keeps_its_bytes_and_a_text_the_mark_of_what_it_replaces(item, written):
    assert json.loads(json_of(item)) == json.loads(written)
    assert not isinstance(item, Carried) or json_of(item) == written


def test_only_an_empty_text_loses_its_mark():
    assert json.loads(markable(spelled(text("", **MARK)))) == text("")
    for block in (text("a", **MARK), text(""), {**IMAGE, **MARK}, [MARK]):
        assert markable(spelled(block)) == spelled(block)
