from __future__ import annotations

import base64
import json

import pytest
from support.media_samples import PDF
from support.messages_conversations import DOCUMENT, IMAGE, MARK, PNG, text

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Attachment, Route, Shape, Shown
from proxy.wire.messages.media_parts import attachment_of, block_of, mark_in, rest_of

URL = "https://example.org/d/a.png"


def of(kind, source, **members):
    return attachment_of({"type": kind, "source": source, **members})


def shown(content, route=Route.IMAGE, like=None, address=""):
    return json.loads(block_of(Shown(route, media_type(content or b""), content, address, like=like)))


@pytest.mark.parametrize(("kind", "shape"), [("image", Shape.IMAGE), ("document", Shape.FILE)])
def test_base64_is_a_content_with_its_declared_type(kind, shape):
    found = of(kind, {"type": "base64", "media_type": "a/b", "data": PNG}, title="T")
    assert (found.shape, found.payload, found.declared) == (shape, PNG, "a/b")
    assert found.is_elsewhere is False


def test_a_declared_type_that_is_no_text_is_none():
    assert of("image", {"type": "base64", "media_type": 7, "data": PNG}).declared == ""


def test_what_stands_elsewhere_is_named_by_its_address_and_its_last_part():
    assert of("image", {"type": "url", "url": URL}) == Attachment(
        Shape.IMAGE, address=URL, declared="image/*", name="a.png"
    )
    assert of("document", {"type": "file", "file_id": "file_1"}) == Attachment(
        Shape.FILE, address="file_1", declared="document/*"
    )


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64"},
        {"type": "base64", "data": 7},
        {"type": "url", "url": "nowhere"},
        {"type": "file", "file_id": None},
        {"type": "new", "data": PNG},
        {},
    ],
)
def test_a_source_of_which_nobody_can_tell_what_it_is_holds_nothing(source):
    assert of("image", source) is None


@pytest.mark.parametrize("block", [DOCUMENT, text("a"), {"type": "image"}, {"type": "image", "source": "x"}])
def test_texts_and_images_without_a_source_hold_nothing(block):
    assert attachment_of(block) is None


def test_a_block_of_another_api_holds_what_that_api_says():
    found = attachment_of({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
    assert (found.shape, found.payload) == (Shape.IMAGE, PNG)


def test_the_rest_of_a_block_is_what_is_neither_its_content_nor_long():
    block = {**DOCUMENT, **MARK, "citations": {"enabled": True}, "odd": "x" * 5_000}
    assert json.loads(rest_of(block)) == {**MARK, "title": "t", "citations": {"enabled": True}}


def test_an_image_is_written_with_what_the_old_block_says():
    assert shown(base64.b64decode(PNG), like=rest_of({**IMAGE, **MARK})) == {**IMAGE, **MARK}


@pytest.mark.parametrize("route", [route for route in Route if route is not Route.IMAGE])
def test_whatever_is_no_image_is_a_document(route):
    found = shown(PDF, route)
    assert found["type"] == "document"
    assert found["source"]["media_type"] == "application/pdf"
    assert base64.b64decode(found["source"]["data"]) == PDF


def test_what_is_not_here_is_shown_by_its_address():
    assert shown(None, address=URL) == {"type": "image", "source": {"type": "url", "url": URL}}


@pytest.mark.parametrize(
    ("like", "mark"),
    [
        (rest_of({**IMAGE, **MARK}), MARK),
        (b'{"cache_control":null}', {}),
        (b'{"title":"t"}', {}),
        (b"7", {}),
        (None, {}),
    ],
)
def test_of_an_old_block_only_its_mark_goes_to_a_text(like, mark):
    assert mark_in(like) == mark
