from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import exchange as exchanged
from support.strategies import pipeline, planned, user

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Budget
from proxy.core.compaction.message_report import (
    MAX_ROLE_CHARACTERS,
    MAX_TOOL_CHARACTERS,
    MessageReport,
    in_model_tokens,
)
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage

KEPT = Artifact(b"a")
REPORT = MessageReport("tool", "ls", 100, 40, ("truncate_tool_output",), (KEPT.id,))


def test_names_in_a_record_are_bounded():
    message = ChatMessage.read(b'{"role":"%b","content":"x"}' % (b"r" * 900))
    report = MessageReport.of(TrackedMessage.of(0, message, "t" * 900, ByteClassCounter()))
    assert (len(report.role), len(report.tool)) == (MAX_ROLE_CHARACTERS, MAX_TOOL_CHARACTERS)
    assert (report.reasons, report.artifacts) == ((), ())
    assert report.tokens_before == report.tokens_after > 0


def test_a_message_that_is_cut_is_reported_with_the_reason_once_and_the_place_where_it_is_kept():
    made = planned([user(), *exchanged(["a long line\n" * 9_000])], pipeline(Budget(10**6)))
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


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 1.7]))
def test_people_are_told_sizes_in_the_tokens_of_the_model(before, after, ratio):
    budget = Budget(10**6, ratio=ratio)
    (told,) = in_model_tokens([REPORT._replace(tokens_before=before, tokens_after=after)], budget)
    assert (told.tokens_before, told.tokens_after) == (budget.model_tokens(before), budget.model_tokens(after))
    assert told._replace(tokens_before=0, tokens_after=0) == REPORT._replace(tokens_before=0, tokens_after=0)
