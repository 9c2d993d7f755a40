from __future__ import annotations

import json

import pytest
from support.strategies import conversation, exchange, notices, part, pipeline, planned, system, user

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.compaction.plan import plan
from proxy.core.compaction.steps.cut_to_fit import CutToFit, excerpted
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.size import Size
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.catalogue import MARK
from proxy.core.text.excerpt import ExcerptLimits
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage

LOG = "".join(f"{number:05} a line of a log\n" for number in range(3_000))
UNCUT = ExcerptLimits(10**9, 10**9)


def cut(made):
    return {edit.message: edit for edit in made.edits if edit.reason is Reason.NEWEST_RESULT}


@pytest.mark.parametrize("budget", [Budget(4_000), Budget(10**9, 12_000), Budget(10**9, None, 12_000)])
def test_the_newest_result_is_cut_to_what_fits_and_is_told_of_the_whole(budget):
    made = planned([system(), user(), *exchange([LOG])], pipeline(budget, limits=UNCUT))
    assert made.fits
    edit = cut(made)[3]
    assert edit.artifact.content.decode() == LOG
    assert "of 3,000 lines" in edit.becomes
    used = made.after.tokens / 4_000 if budget.room_chars is budget.room_bytes else made.after.chars / 12_000
    assert used > 0.85


def test_small_results_are_spared_while_large_ones_can_give():
    made = planned([user(), *exchange([LOG, "small", LOG, "x\n" * 40])], pipeline(Budget(5_000), limits=UNCUT))
    assert made.fits
    assert sorted(cut(made)) == [2, 4]
    lengths = [len(cut(made)[index].becomes) for index in (2, 4)]
    assert max(lengths) < 1.5 * min(lengths)


def test_each_text_of_a_list_gives_its_share():
    made = planned([user(), *exchange([[part("short"), part(LOG), part(LOG)]])], pipeline(Budget(5_000), limits=UNCUT))
    assert made.fits
    assert {edit.at for edit in made.edits} == {("content", 1, "text"), ("content", 2, "text")}


def test_an_excerpt_is_made_from_the_whole_and_not_from_an_excerpt():
    made = planned([user(), *exchange([LOG])], pipeline(Budget(1_500), limits=ExcerptLimits(2_000, 30_000)))
    assert made.fits
    assert {edit.reason for edit in made.edits} == {Reason.TRUNCATE_TOOL_OUTPUT, Reason.NEWEST_RESULT}
    assert {edit.artifact.content for edit in made.edits} == {LOG.encode()}
    assert json.loads(made.messages[-1])["content"].count("[context-proxy: ") == 1


def test_twenty_parallel_results_fit_together():
    made = planned([user(), *exchange([LOG] * 20)], pipeline(Budget(8_000), limits=UNCUT))
    assert made.fits
    assert len(cut(made)) == 20


def text_of(made, position):
    return ChatMessage.read(made.messages[position]).content()


def test_a_last_user_message_that_does_not_fit_is_cut_in_its_middle_and_told_of_the_whole():
    made = planned([system(), user("Read this. " + LOG + " What is wrong?")], pipeline(Budget(4_000)))
    assert made.fits
    told = text_of(made, 1)
    assert told.startswith("Read this. ")
    assert told.endswith(" What is wrong?")
    assert told.count(MARK) == 1
    assert made.after.tokens > 0.85 * 4_000
    assert [(edit.reason, edit.artifact.content.decode()) for edit in made.edits] == [
        (Reason.NEWEST_TEXT, "Read this. " + LOG + " What is wrong?")
    ]


def test_everything_else_gives_before_the_last_user_message_does():
    history = [user("task " * 300), {"role": "assistant", "content": LOG}, user("now this " * 300)]
    made = planned(history, pipeline(Budget(2_600)))
    assert made.fits
    assert text_of(made, 2).endswith("now this " * 300)
    assert len(text_of(made, 1)) < len(LOG)


def test_words_that_have_to_stay_are_cut_in_their_middle():
    newest = exchange(["ok"], words="thinking " * 9_000)
    made = planned([user("u"), *newest], pipeline(Budget(2_000)))
    assert made.fits
    assert text_of(made, 1).startswith("thinking ")
    assert MARK in text_of(made, 1)
    assert json.loads(made.messages[1])["tool_calls"] == newest[0]["tool_calls"]


@pytest.mark.parametrize("form", [json.dumps, dict], ids=["text", "object"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_arguments_that_have_to_stay_are_cut_and_stay_json(language, form):
    written = {"path": "src/main.py", "content": LOG, "edits": [{"old": "short", "new": LOG}], "force": True}
    calls = exchange(["ok"], arguments=form(written), tool="write_file")
    made = planned([user("u"), *calls], pipeline(Budget(3_000), language=language))
    assert made.fits
    sent = json.loads(made.messages[1])["tool_calls"][0]["function"]["arguments"]
    assert type(sent) is type(form(written))
    sent = sent if isinstance(sent, dict) else json.loads(sent)
    assert (sent["path"], sent["force"], sent["edits"][0]["old"]) == ("src/main.py", True, "short")
    for text in (sent["content"], sent["edits"][0]["new"]):
        assert text.startswith("00000 a line")
        assert text.endswith("a line of a log\n")
        assert text.count(MARK) == 1
    assert written in [json.loads(artifact.content) for artifact in made.artifacts if artifact.tool == "arguments"]
    assert made.after.tokens > 0.6 * 3_000


def test_the_arguments_of_a_function_call_are_cut_like_those_of_a_tool():
    called = {"role": "assistant", "content": None, "function_call": {"name": "w", "arguments": json.dumps({"a": LOG})}}
    made = planned([user("u"), called, {"role": "function", "name": "w", "content": "ok"}], pipeline(Budget(3_000)))
    assert made.fits
    sent = json.loads(json.loads(made.messages[1])["function_call"]["arguments"])
    assert sent["a"].count(MARK) == 1


def test_arguments_that_are_no_json_are_cut_as_text():
    made = planned([user("u"), *exchange(["ok"], arguments="a" * 90_000)], pipeline(Budget(2_000)))
    assert made.fits
    sent = json.loads(made.messages[1])["tool_calls"][0]["function"]["arguments"]
    assert sent.startswith("aaa")
    assert MARK in sent


def test_only_what_system_texts_and_tools_take_is_refused():
    assert not planned([system(LOG), user("u")], pipeline(Budget(4_000))).fits


def test_what_fits_together_is_not_cut():
    entries = [
        TrackedMessage.of(index, message, "", ByteClassCounter())
        for index, message in enumerate(planned_messages(["a " * 100, "b " * 100]))
    ]
    together = sum(entry.size.tokens for entry in entries)
    assert list(excerpted(entries, together, notices(), Reason.OLD_RESULT)) == []


def planned_messages(results):
    return [message for message in conversation(exchange(results)) if message.role == "tool"]


def test_an_excerpt_that_was_not_enough_is_not_made_again():
    history = conversation([user(), *exchange(["some line\n" * 40] * 5)])
    window = plan(history, Size(), pipeline(Budget(10**9)))[1].window
    step = CutToFit(notices(), ContextWindow.newest_results, Reason.NEWEST_RESULT)
    assert [change.edits[0].message for change in step(window, Budget(10).ceiling)] == [2, 3, 4, 5, 6]
