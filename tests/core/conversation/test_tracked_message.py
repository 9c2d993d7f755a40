from __future__ import annotations

import json
import pickle

import pytest
from support.strategies import exchange, pipeline, planned, spelled, user

from proxy.core.artifact import Artifact
from proxy.core.compaction import Budget
from proxy.core.conversation import (
    Edit,
    MessageReport,
    Parts,
    Reason,
    TrackedMessage,
    Words,
)
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage

COUNTER = ByteClassCounter()


def entry(content, **members):
    return TrackedMessage.of(
        3, ChatMessage.read(spelled({"role": "tool", "content": content, **members})), "ls", COUNTER
    )


def edit(text, reason=Reason.OLD_RESULT, path=("content",)):
    return Edit(3, path, text, reason)


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


def test_a_later_edit_of_the_same_place_replaces_an_earlier_one():
    after = entry("a long text " * 50).edited((edit("the first cut"),), COUNTER).edited((edit("second"),), COUNTER)
    assert after.message.content() == "second"
    assert len(after.edits) == 2


def test_edits_of_different_places_coexist():
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


KEPT = Artifact(b"a")
REPORT = MessageReport("tool", "ls", 100, 40, ("truncate_tool_output",), (KEPT.id,))


def test_names_in_a_record_are_bounded():
    message = ChatMessage.read(b'{"role":"%b","content":"x"}' % (b"r" * 900))
    report = MessageReport.of(TrackedMessage.of(0, message, "t" * 900, ByteClassCounter()))
    assert (len(report.role), len(report.tool)) == (32, 128)
    assert (report.reasons, report.artifacts) == ((), ())
    assert report.tokens_before == report.tokens_after > 0


def test_a_message_that_is_cut_is_reported_with_the_reason_once_and_the_place_where_it_is_kept():
    made = planned([user(), *exchange(["a long line\n" * 9_000])], pipeline(Budget(10**6)))
    (edit,) = made.edits
    report = made.blocks[2]
    assert report.reasons == ("truncate_tool_output",)
    assert report.artifacts == (edit.artifact.id,)
    assert 0 < report.tokens_after < report.tokens_before


def test_of_a_message_that_goes_whole_what_was_cut_before_no_longer_matters():
    gone = REPORT.left_out()
    assert (gone.tokens_before, gone.tokens_after, gone.reasons, gone.artifacts) == (100, 0, ("old_exchange",), ())
    assert gone.kept_in(KEPT).artifacts == (KEPT.id,)


def test_the_note_adds_its_tokens_and_names_its_artifact_once():
    noted = REPORT.with_note(7, KEPT)
    assert (noted.tokens_after, noted.artifacts) == (47, (KEPT.id,))
    assert noted.reasons == ("truncate_tool_output", "omission_note")
    other = Artifact(b"b")
    assert REPORT.with_note(7, other).artifacts == (KEPT.id, other.id)
    assert REPORT.with_note(7, None).artifacts == (KEPT.id,)


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_name_wherever_it_is_written(reason: Reason) -> None:
    assert Reason(reason.value) is reason
    assert f"{reason}={json.dumps(reason)}" == f'{reason.value}="{reason.value}"'
    assert pickle.loads(pickle.dumps(reason)) is reason


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_has_words_for_one_change_and_for_several(reason: Reason) -> None:
    assert "#" not in reason.one
    assert reason.several == reason.one or reason.several.count("#") == 1
