from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from support.json_bytes import VALUES, messages

from proxy.core.conversation import MESSAGE_TOKENS, Size, size_of, size_of_tools
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage


class Letters:
    """Counts a token for each character, so that sums can be done by hand."""

    name = "letters"
    exact = True

    def count(self, text):
        return len(text)


def tokens_of(**members):
    return size_of(ChatMessage.read(json.dumps(members).encode()), Letters()).tokens - MESSAGE_TOKENS


def png(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


def data_url(content):
    return "data:image/png;base64," + base64.b64encode(content).decode()


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.mark.parametrize(
    ("members", "tokens"),
    [
        ({"role": "user", "content": "12345"}, 5),
        ({"role": "assistant", "content": None}, 0),
        ({"role": "user"}, 0),
        ({"role": "user", "content": 7}, 0),
        ({"role": "user", "content": [{"type": "text", "text": "123"}, {"type": "text", "text": "45"}]}, 6),
        ({"role": "user", "content": ["123", "45"]}, 6),
        ({"role": "assistant", "content": "1", "reasoning_content": "23", "refusal": "4"}, 6),
        ({"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "ab", "arguments": "{}"}}]}, 5),
        ({"role": "assistant", "tool_calls": [{"function": None}, None, 5]}, 0),
        ({"role": "assistant", "tool_calls": "none"}, 0),
    ],
)
def test_the_texts_of_a_message_are_counted_with_a_line_feed_between(members, tokens):
    assert tokens_of(**members) == tokens


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (image(data_url(png(512, 512))), 85 + 170),
        (image(data_url(png(1024, 1024))), 85 + 4 * 170),
        (image(data_url(png(1024, 1024)), detail="low"), 85),
        (image(data_url(png(1024, 1024)), detail=5), 85 + 4 * 170),
        ({"type": "image_url", "image_url": data_url(png(512, 512))}, 85 + 170),
        (image(data_url(png(512, 512) + b"rest")[:-5]), 85 + 170),
        (image("https://example.com/a.png"), 765),
        (image("data:image/png;base64,!!!!"), 765),
        (image("data:image/png;base64,é"), 765),
        (image("data:image/png,raw"), 765),
        (image("data:"), 765),
        (image(None), 765),
        ({"type": "image_url", "image_url": []}, 765),
        ({"type": "input_audio", "input_audio": {"data": "AAAA"}}, 765),
        ({"type": "file", "file": {}}, 765),
    ],
)
def test_media_cost_what_their_pixels_cost_and_never_what_their_base64_is_long(part, tokens):
    assert tokens_of(role="user", content=[part]) == tokens


def test_an_image_beside_a_text_adds_to_it():
    picture = image(data_url(png(512, 512)))
    assert tokens_of(role="user", content=[{"type": "text", "text": "12345"}, picture, picture]) == 5 + 2 * 255


def test_a_size_says_characters_of_text_and_bytes_of_json():
    raw = '{"role":"user", "content":"né"}'.encode()
    assert size_of(ChatMessage.read(raw), Letters()) == Size(MESSAGE_TOKENS + 2, 2, len(raw))


@given(messages() | VALUES)
def test_every_json_value_has_a_size_as_a_message(raw):
    for counter in (Letters(), ByteClassCounter()):
        size = size_of(ChatMessage.read(raw), counter)
        assert size.tokens >= MESSAGE_TOKENS
        assert size.chars >= 0
        assert size.bytes == len(raw)
        assert size == size_of(ChatMessage.read(raw), counter)


@given(VALUES)
def test_every_json_value_has_a_size_as_tools(raw):
    assert size_of_tools(raw, Letters()).chars > 0


def test_no_tools_weigh_nothing():
    assert size_of_tools(None, Letters()) == Size()
    assert size_of_tools(b'[{"a":1}]', Letters()) == Size(9, 9, 9)
