from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation import Attachment, Conversation, Shape
from proxy.wire.chat_completions import ChatMessage


def read(**members):
    return ChatMessage.read(json.dumps(members).encode())


def test_a_conversation_is_a_sequence_of_its_messages():
    first, second = read(role="user", content="a"), read(role="assistant", content="b")
    conversation = Conversation((first, second))
    assert len(conversation) == 2
    assert list(conversation) == [first, second]
    assert conversation[1] is second
    assert conversation.index(second) == 1


def test_the_content_of_a_message_is_not_shown_by_repr():
    assert "SECRET" not in repr(Conversation((read(role="user", content="SECRET"),)))


@given(st.binary(max_size=300), st.integers(1, 400))
def test_content_is_the_same_in_base64_or_plain(content, count):
    encoded = Attachment(Shape.IMAGE, base64.b64encode(content).decode())
    plain = Attachment(Shape.IMAGE, plain=content)
    assert encoded.content() == plain.content() == content
    assert plain.head(count) == content[:count]
    assert content.startswith(encoded.head(count))
    assert len(encoded.head(count)) <= count


@given(st.binary(max_size=300))
def test_its_length_is_known_without_parsing_it_and_never_too_small(content):
    reported = Attachment(Shape.FILE, base64.b64encode(content).decode()).byte_count
    assert len(content) <= reported <= len(content) + 2
    assert Attachment(Shape.FILE, plain=content).byte_count == len(content)


def test_broken_base64_has_no_content_and_no_beginning():
    broken = Attachment(Shape.IMAGE, "AAAAA!")
    assert broken.content() is None
    assert broken.head(100) == b""


@pytest.mark.parametrize(("stated", "name"), [("photo.png", "photo.png"), ("", "found.png"), ("a.png", "found.png")])
def test_once_it_is_fetched_a_name_that_was_stated_beside_its_address_stays(stated, name):
    elsewhere = Attachment(Shape.IMAGE, name=stated, address="https://h/x/a.png")
    assert elsewhere.is_elsewhere
    here = elsewhere.fetched(b"bytes", "image/png", "found.png")
    assert (here.is_elsewhere, here.is_fetched) == (False, True)
    assert (here.content(), here.declared, here.name) == (b"bytes", "image/png", name)


@pytest.mark.parametrize("shape", Shape)
def test_only_content_inside_a_text_has_no_part(shape):
    assert Attachment(shape).is_part is (shape not in (Shape.TEXT, Shape.FORCED))


def test_neither_content_nor_address_is_printed():
    assert "SECRET" not in repr(Attachment(Shape.IMAGE, "SECRET", address="SECRET", plain=b"SECRET"))
