"""Parts of messages that both APIs have in common."""

from __future__ import annotations

import json

import pytest

from proxy.core.content_types import media_type
from proxy.core.conversation import Attachment, Carried, Parts, Route, Shape, Shown, Words
from proxy.wire.chat_completions import ChatMessage
from proxy.wire.responses import ResponsesMessage

TEXT = {"type": "text", "text": "a"}
MEDIA = Attachment(Shape.IMAGE, "AAAA")


class SomeMessage(ChatMessage, frozen=True):
    """One whose API has parts of its own."""

    attachment_of = staticmethod(lambda part: MEDIA if "media" in part else None)
    media_part = staticmethod(lambda _: {"media": 1})
    text_part = staticmethod(lambda words, _: {"says": words.text})
    rest_of = staticmethod(lambda _: b"the rest")


def read(part):
    return SomeMessage.read_part(json.dumps(part).encode(), part)


def written(item):
    return SomeMessage.json_of(item, "user")


@pytest.mark.parametrize(
    ("part", "text"), [("a", "a"), (TEXT, "a"), ({"text": ""}, ""), ({"text": 5}, None), (7, None)]
)
def test_a_part_has_the_text_that_it_states(part, text):
    found = read(part)
    assert (found.raw, found.text, found.attachment, found.rest) == (json.dumps(part).encode(), text, None, b"")


def test_media_have_a_content_and_the_rest_of_their_part():
    found = read({"media": "AAAA"})
    assert (found.text, found.attachment, found.rest) == (None, MEDIA, b"the rest")


@pytest.mark.parametrize(
    ("item", "made"),
    [
        (Carried(b'{"x" : 1}'), b'{"x" : 1}'),
        (Words("b"), b'{"says":"b"}'),
        (Words("b", like=b'{"text":"a","x":1}'), b'{"text":"b","x":1}'),
        (Words("b", like=b'"a"'), b'{"says":"b"}'),
    ],
)
def test_a_part_keeps_its_bytes_and_a_text_the_members_of_the_one_before(item, made):
    assert written(item) == made


def test_media_are_written_as_the_api_has_them():
    assert written(Shown(Route.IMAGE, media_type(b""), MEDIA.content(), like=b"")) == b'{"media":1}'


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
    carried = Parts(tuple(Carried(json.dumps(part).encode()) for part in parts), as_text=True)
    assert json.loads(ChatMessage(b"{}").replacement(carried, in_text=False)) == (parts if text is None else text)


@pytest.mark.parametrize(
    ("content", "may"), [(b"null", True), (b'""', True), (b"[]", True), (b"7", False), (b"{}", False)]
)
@pytest.mark.parametrize("view", [ChatMessage, ResponsesMessage])
def test_a_note_may_be_put_into_a_text_into_parts_and_where_a_content_is_null(view, content, may):
    assert view.read(b'{"role":"user","content":%b}' % content).can_carry_a_note is may
