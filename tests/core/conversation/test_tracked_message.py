from __future__ import annotations

import pytest
from support.strategies import spelled

from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import Parts, Words
from proxy.core.conversation.size import size_of
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage

COUNTER = ByteClassCounter()


def entry(content, **members):
    return TrackedMessage.of(
        3, ChatMessage.read(spelled({"role": "tool", "content": content, **members})), "ls", COUNTER
    )


def edit(text, reason=Reason.OLD_RESULT, path=("content",)):
    return Edit(3, path, text, reason)


def test_an_edited_entry_is_measured_on_its_bytes():
    before = entry("a long text " * 50)
    after = before.edited((edit("short"),), COUNTER)
    assert after.message.raw == b'{"role":"tool","content":"short"}'
    assert after.size == size_of(after.message, COUNTER)
    assert (after.original, after.original_size) == (before.original, before.size)
    assert before.message.raw == before.original.raw


def test_an_edit_that_does_not_shorten_is_not_made():
    before = entry("short")
    assert before.edited((edit("just as long as"),), COUNTER) is before
    assert before.edited((edit("tiny!"),), COUNTER).message.raw != before.original.raw  # a blank less behind the colon
    tight = before.edited((edit("tiny!"),), COUNTER)
    assert tight.edited((edit("tight"),), COUNTER) is tight


def test_a_character_that_an_upstream_chokes_on_is_replaced_though_that_takes_more_bytes():
    before = TrackedMessage.of(3, ChatMessage.read(b'{"role":"tool","content":"\\b"}'), "", COUNTER)
    after = before.edited((Edit(3, ("content",), "\ufffd", Reason.SANITISE),), COUNTER)
    assert after.message.content() == "\ufffd"


def test_a_later_edit_of_the_same_place_stands_for_an_earlier_one():
    after = entry("a long text " * 50).edited((edit("the first cut"),), COUNTER).edited((edit("second"),), COUNTER)
    assert after.message.content() == "second"
    assert len(after.edits) == 2


def test_edits_of_different_places_stand_side_by_side():
    before = entry("x" * 900, reasoning_content="y" * 900)
    after = before.edited((edit("short"),), COUNTER).edited((edit(None, path=("reasoning_content",)),), COUNTER)
    assert after.message.raw == b'{"role":"tool","content":"short"}'


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a", [(("content",), "a")]),
        ("", [(("content",), "")]),
        ([{"text": "a"}, {"type": "image_url"}, "b", {"text": 5}], [(("content", 0, "text"), "a")]),
        (None, []),
        (7, []),
    ],
)
def test_the_texts_of_a_content_come_with_their_paths(content, texts):
    assert list(ChatMessage.read(spelled({"content": content})).texts()) == texts


def test_a_message_that_is_no_object_has_no_texts():
    assert list(ChatMessage.read(b"[]").texts()) == []


def test_an_edit_is_of_the_message_as_earlier_ones_left_it():
    before = entry([{"type": "text", "text": "x" * 900}, {"type": "text", "text": "y" * 900}])
    routed = before.edited((edit(Parts((Words("both"),)), Reason.ROUTE_MEDIA),), COUNTER)
    after = routed.edited((edit("cut", path=("content", 0, "text")),), COUNTER)
    assert after.message.content() == [{"type": "text", "text": "cut"}]
    assert (after.original, after.whole) == (before.original, routed.message)


def edit_of_media(text):
    return edit(text, Reason.ROUTE_MEDIA)


def test_what_excerpts_are_made_of_is_the_message_once_its_media_are_routed():
    before = entry("short")
    routed = before.edited((edit_of_media("a description, which may be longer"),), COUNTER)
    assert routed.whole.content() == "a description, which may be longer"
    assert routed.whole_size == routed.size
    assert routed.edited((edit("a cut"),), COUNTER).whole is routed.whole


def test_what_follows_a_message_is_measured_with_it():
    behind = ChatMessage.read(b'{"role":"user","content":"an image"}')
    alone = entry("short")
    followed = alone.followed_by([behind], COUNTER)
    assert followed.size == alone.size
    assert followed.sent_size == alone.size + size_of(behind, COUNTER)
