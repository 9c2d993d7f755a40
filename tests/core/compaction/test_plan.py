from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.media_samples import base64_of, image_part, png
from support.strategies import (
    CountingCounter,
    any_histories,
    budgets,
    conversation,
    exchange,
    pairing_faults,
    part,
    pipeline,
    planned,
    spelled,
    system,
    turn_by_turn,
    user,
    valid_histories,
)

from proxy.core.compaction import Budget, Reading, plan
from proxy.core.conversation import SYSTEM_ROLES, TOOL_ROLES, Conversation, Message, Reason, Size, size_of
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.core.notices import ArtifactAccess
from proxy.core.text import ExcerptLimits, jsontext
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage

thorough = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
LANGUAGES = st.sampled_from(["en", "zh"])


TEXT_REASONS = {
    Reason.TRUNCATE_TOOL_OUTPUT,
    Reason.OLD_RESULT,
    Reason.NEWEST_RESULT,
    Reason.LONG_OLD_TEXT,
    Reason.NEWEST_TEXT,
}


def texts_of_parts(message: Message) -> list[str]:
    return [text for _, text in message.texts()]


def last_user(messages: list[Message]) -> Message:
    return [message for message in messages if message.role == "user"][-1]


def sent(made) -> list[Message]:
    return [ChatMessage.read(raw) for raw in made.messages]


def left_out(made) -> set[int]:
    return {edit.message for edit in made.edits if edit.reason is Reason.OLD_EXCHANGE}


def measured(messages, base: Size) -> Size:
    return sum((size_of(ChatMessage.read(raw), ByteClassCounter()) for raw in messages), base)


OPENINGS = st.sampled_from(
    ["Use this context.", "Observation:", "```", "[step 3] ran:", "Sum it up:", "结果：", "", "x"]
)


@st.composite
def chats(draw) -> list[dict[str, str]]:
    """Chats without calls, whose messages may begin like tool output, alike, or in any other way."""
    found = [system()] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 6))):
        lines = "".join(f"row {turn}.{number} of the document\n" for number in range(draw(st.integers(0, 200))))
        found += [user(f"{draw(OPENINGS)}\n{lines}"), {"role": "assistant", "content": f"answer {turn}"}]
    calls = draw(st.integers(0, 2))
    return found[:-1] if not calls else [*found[:-1], *exchange(["y" * 300] * calls)]


@given(chats(), st.sampled_from([600, 1_500, 3_000, 8_000]), LANGUAGES)
@thorough
def test_nothing_else_is_spared_for_the_last_user_message_however_it_begins(history, tokens, language):
    budget = Budget(tokens)
    made = planned(history, pipeline(budget, language=language))
    users = [index for index, message in enumerate(history) if message["role"] == "user"]
    *_, last = users
    assert last not in left_out(made)
    if any(edit.message == last and edit.reason in TEXT_REASONS for edit in made.edits):
        kept_users = [index for index in users if index not in left_out(made)]
        assert len(kept_users) <= 3, "the task, what is no output, and the last one"
        for index in kept_users[:-1]:
            left = made.blocks[index].tokens_after
            assert left <= budget.task_tokens + 200, "its share, and the notice"


@given(valid_histories(), budgets(), st.integers(1, 3), st.booleans())
@thorough
def test_what_the_model_works_on_stays_while_pages_are_read(history, budget, pages, is_replayed):
    offered = replace(pipeline(budget).notices, way=ArtifactAccess(tool=True))
    made = dataclasses.replace(pipeline(budget), is_replayed=is_replayed, notices=offered)
    received = len(history)
    since = max((index for index in range(received) if history[index]["role"] == "assistant"), default=0)
    for page in range(pages):
        shown = f"[context-proxy: lines 1-9 of 99 of tool_sh_0123456789abcdef.txt]\n{'row ' * 50 * page}"
        history = [*history, *exchange([shown], first_call=10_000 + page, tool="read_artifact")]
    found = conversation(history)
    own, progress = plan(Conversation(found.messages[:received]), Size(), made)
    read, further = plan(found, Size(), made, progress, Reading(received))

    def given_up(edits):
        arriving = (Reason.TRUNCATE_TOOL_OUTPUT, Reason.OMISSION_NOTE)
        return {(e.message, str(e.at), e.reason) for e in edits if e.message >= since and e.reason not in arriving}

    assert given_up(read.edits) <= (given_up(own.edits) if is_replayed else set())
    for known in (further, None):
        assert plan(found, Size(), made, known, Reading(received))[0].edits == read.edits
    cut, _ = plan(found, Size(), made, None, Reading(received, may_cut=True))
    assert read.fits or cut.after.tokens <= read.after.tokens, "it is the plan where no page fits"


@given(any_histories(), budgets(), LANGUAGES)
@thorough
def test_what_no_edit_names_keeps_its_bytes_and_the_order_stays(history, budget, language):
    found = conversation(history)
    made = planned(found, pipeline(budget, language=language))
    gone = left_out(made)
    kept = [index for index in range(len(found)) if index not in gone]
    assert len(kept) == len(made.messages)
    paths = {}
    for edit in made.edits:
        paths.setdefault(edit.message, set()).add(edit.at)
    for index, raw in zip(kept, made.messages, strict=True):
        original = found[index].raw
        if index not in paths:
            assert raw == original
            continue
        touched = {path[0] for path in paths[index]}
        before, after = jsontext.members(original), jsontext.members(raw)
        assert [name for name in before if name in after] == list(after)
        for name in before:
            if name not in touched:
                assert bytes(after[name]) == bytes(before[name])
    if not made.edits:
        assert list(made.messages) == [message.raw for message in found]
        assert not made.changed


@given(valid_histories(), budgets())
@thorough
def test_a_valid_history_stays_valid_as_calls_and_results_go_together(history, budget):
    found = conversation(history)
    made = planned(found, pipeline(budget))
    assert pairing_faults([message.raw for message in found]) == []
    assert pairing_faults(list(made.messages)) == []


@given(any_histories(), budgets(), LANGUAGES)
@thorough
def test_a_system_text_stays_whole_and_so_does_the_last_user_message_until_nothing_else_can_give(
    history, budget, language
):
    found = conversation(history)
    made = planned(found, pipeline(budget, language=language))
    kept = sent(made)
    instructions = [message.raw for message in found if message.role in SYSTEM_ROLES]
    assert [message.raw for message in kept if message.role in SYSTEM_ROLES] == instructions
    cut = {edit.message for edit in made.edits if edit.reason in (Reason.NEWEST_TEXT, Reason.NEWEST_RESULT)}
    users = [index for index, message in enumerate(found) if message.role == "user"]
    assert not users or not left_out(made) & {users[0], users[-1]}
    if users and users[-1] not in cut:
        before, after = texts_of_parts(last_user(list(found))), texts_of_parts(last_user(kept))
        # The note of what is left out may stand beside its text, or in a part of its own; nothing is taken from it.
        assert all(any(text in noted for noted in after) for text in before)


@given(any_histories(), budgets())
@thorough
def test_going_on_from_the_last_turn_gives_the_same_plan_as_starting_anew(history, budget):
    found, steps = conversation(history), pipeline(budget)
    base = Size(40, 120, 130)
    plans = turn_by_turn(found, steps, base)
    for stop in {0, *range(len(found), 0, -7)}:
        made = plans[stop]
        anew = planned(Conversation(found.messages[:stop]), steps, base)
        assert made == anew


@given(valid_histories(max_turns=4), budgets())
@thorough
def test_between_two_cuts_what_was_sent_is_the_head_of_what_is_sent_next(history, budget):
    found, steps = conversation(history), pipeline(budget)
    for before, after in pairwise(turn_by_turn(found, steps)):
        cut = left_out(before) != left_out(after) or _budget_edits(before) != _budget_edits(after)
        if not cut and before.fits:
            assert after.messages[: len(before.messages)] == before.messages


def _budget_edits(made):
    return [e for e in made.edits if e.reason not in (Reason.TRUNCATE_TOOL_OUTPUT, Reason.OLD_EXCHANGE)]


@given(any_histories())
@thorough
def test_a_local_edit_is_the_same_in_every_longer_conversation(history):
    found, steps = conversation(history), pipeline(Budget(10**9))
    whole = planned(found, steps)
    for stop in range(len(found)):
        shorter = planned(Conversation(found.messages[:stop]), steps)
        assert shorter.edits == tuple(edit for edit in whole.edits if edit.message < stop)
        assert shorter.messages == whole.messages[:stop]


@given(any_histories(), budgets(), LANGUAGES)
@thorough
def test_the_promised_size_is_the_size_of_what_is_sent(history, budget, language):
    base = Size(100, 300, 310)
    found = conversation(history)
    made = planned(found, pipeline(budget, language=language), base)
    assert made.after == measured(made.messages, base)
    assert made.before == measured([message.raw for message in found], base)
    assert made.fits == budget.admits(made.after)
    assert bool(made.largest) == (not made.fits and bool(made.messages))


@given(any_histories(), budgets(), LANGUAGES)
@thorough
def test_the_blocks_show_what_became_of_each_message(history, budget, language):
    base = Size(100, 300, 310)
    found = conversation(history)
    made = planned(found, pipeline(budget, language=language), base)
    assert [block.role for block in made.blocks] == [message.role for message in found]
    assert sum(block.tokens_before for block in made.blocks) + base.tokens == made.before.tokens
    assert sum(block.tokens_after for block in made.blocks) + base.tokens == made.after.tokens
    gone, edited = left_out(made), {edit.message for edit in made.edits}
    named = {edit.artifact.id for edit in made.edits if edit.artifact is not None}
    named |= {artifact.id for artifact in made.artifacts}
    for index, block in enumerate(made.blocks):
        assert (block.tokens_after == 0) == (index in gone)
        assert bool(block.reasons) == (index in edited)
        assert set(block.reasons) == {edit.reason.value for edit in made.edits if edit.message == index}
        assert set(block.artifacts) <= named
        assert block.artifacts or not gone or index not in gone, "what is left out is kept somewhere"


@given(any_histories(), budgets(), LANGUAGES)
@thorough
def test_no_message_gets_longer_but_for_the_note(history, budget, language):
    found = conversation(history)
    made = planned(found, pipeline(budget, language=language))
    noted = {edit.message for edit in made.edits if edit.reason is Reason.OMISSION_NOTE}
    kept = [index for index in range(len(found)) if index not in left_out(made)]
    for index, raw in zip(kept, made.messages, strict=True):
        if index not in noted:
            assert len(raw) <= len(found[index].raw)
    assert len(noted) <= 1
    added = [edit.after_chars - edit.before_chars for edit in made.edits if edit.reason is Reason.OMISSION_NOTE]
    assert sum(added) <= sum(len(found[index].raw) for index in left_out(made)), "no longer than what it replaces"


@given(any_histories(), budgets())
@thorough
def test_what_fits_is_neither_refused_nor_given_up(history, budget):
    steps = pipeline(budget, limits=ExcerptLimits(10**9, 10**9))
    found = conversation(history)
    size = measured([message.raw for message in found], Size())
    made = planned(found, steps)
    if budget.high_mark.excess(size) is None:
        assert made.fits
        assert made.edits == ()


@given(valid_histories(), budgets())
@thorough
def test_every_omission_is_mentioned_in_the_note(history, budget):
    made = planned(history, pipeline(budget))
    assert bool(left_out(made)) == (Reason.OMISSION_NOTE in [edit.reason for edit in made.edits])


@given(valid_histories(), st.integers(200, 4_000), st.booleans())
@thorough
def test_what_must_stay_is_sent_whenever_it_fits(history, room, in_bytes):
    """System text, last user message and newest exchange; the results of that one may be cut."""
    found = conversation(history)
    last = next(index for index in reversed(range(len(found))) if found[index].role == "user")
    newest = next(index for index in reversed(range(len(found))) if found[index].role not in TOOL_ROLES)
    must = [m for i, m in enumerate(found) if m.role in SYSTEM_ROLES or i == last or i >= newest]
    need = measured([message.raw for message in must], Size())
    budget = Budget(10**9, None, room * 3) if in_bytes else Budget(room)
    if budget.admits(need):
        assert planned(found, pipeline(budget, limits=ExcerptLimits(10**9, 10**9))).fits


@given(valid_histories(), st.integers(300, 4_000))
@thorough
def test_everything_taken_out_of_contents_is_in_an_artifact(history, room):
    found = conversation(history)
    made = planned(found, pipeline(Budget(room)))
    kept_content = [artifact.content for artifact in made.artifacts]
    for edit in made.edits:
        if edit.reason in TEXT_REASONS:
            texts = dict(found[edit.message].texts()) | {one.at: one.text for one in found[edit.message].arguments()}
            text = texts[edit.at]
            assert edit.artifact.content == text.encode("utf-8", "surrogatepass")
            assert edit.artifact.content in kept_content
    chains = [jsontext.members(content) for content in kept_content if content.startswith(b'{"earlier":')]
    originals = [bytes(raw) for members in chains for raw in jsontext.items(members["messages"])]
    assert sorted(originals) == sorted(found[index].raw for index in left_out(made))


def test_each_cut_lists_those_before_it_and_the_note_names_the_last():
    history = [system(), user("start")]
    for number in range(120):
        history += exchange([f"line {number} of the log\n" * 30], first_call=number)
    made = planned(history, pipeline(Budget(3_000)))
    cuts = [artifact for artifact in made.artifacts if "messages" in artifact.id]
    assert len(cuts) > 1
    named = [jsontext.value(artifact.content)["earlier"] for artifact in cuts]
    ids = [artifact.id for artifact in cuts]
    assert named == [ids[:at][::-1] for at in range(len(ids))]
    (note,) = [edit for edit in made.edits if edit.reason is Reason.OMISSION_NOTE]
    assert note.artifact == cuts[-1]
    assert cuts[-1].id in note.becomes
    assert f"{len(left_out(made)):,} earlier messages" in note.becomes


def test_the_note_survives_on_a_result_that_is_cut_after_it_was_written():
    history = [system("s" * 3_000), user("u")]
    for number in range(6):
        history += exchange(["an old result\n" * 200], first_call=number)
    history += exchange(["new output, line after line\n" * 260], first_call=7)
    made = planned(history, pipeline(Budget(2_200)))
    reasons = [edit.reason for edit in made.edits]
    assert Reason.NEWEST_RESULT in reasons
    assert Reason.OMISSION_NOTE in reasons
    assert made.after == measured(made.messages, Size())
    assert made.fits


@pytest.mark.parametrize(("room", "least"), [(60_000, 0.9 * 0.23 * 60_000), (200_000, 0.8 * 20_000)])
def test_the_note_takes_its_share_of_the_room_and_never_more_than_its_most(room, least):
    history = [system(), user("start")]
    for number in range(room // 2_500):
        lines = "".join(f"def name_{number}_{line}(): pass\n" for line in range(300))
        history += exchange([lines], first_call=number)
    made = planned(history, pipeline(Budget(room)))
    (note,) = [edit for edit in made.edits if edit.reason is Reason.OMISSION_NOTE]
    assert least < ByteClassCounter().count(note.becomes[: note.after_chars - note.before_chars]) < 1.1 * 20_000


def test_where_there_is_little_room_the_note_is_brief_and_there_is_always_one():
    must = [system("s" * 900), user("u" * 300), *exchange(["ok"], first_call=99)]
    need = measured([spelled(message) for message in must], Size()).tokens
    history = [must[0], user("first"), *exchange(["old result\n" * 300]), {"role": "assistant", "content": "done"}]
    made = planned([*history, *must[1:]], pipeline(Budget(need + 107)))
    assert made.fits
    assert [edit.reason for edit in made.edits] == [*[Reason.OLD_EXCHANGE] * 2, Reason.OMISSION_NOTE]
    assert len(made.artifacts) == 1


def test_a_room_that_the_tools_alone_fill_is_reported_and_raises_nothing():
    made = planned([], pipeline(Budget(10)), Size(11, 30, 30))
    assert not made.fits
    assert made.messages == () == made.largest


def parallel_run(count: int) -> list:
    return [system(), user("do all"), *exchange([f"{number} output\n" * 200 for number in range(count)])]


LONG_RUN = [system(), user("one task")]
for _number in range(80):
    LONG_RUN += exchange([f"result {_number}\n" * 40], first_call=_number, words="thinking about it")

SHAPES = {
    "80 exchanges under one user message": LONG_RUN,
    "20 parallel calls": parallel_run(20),
    "only a system message": [system("rule " * 3_000)],
    "no messages": [],
    "empty messages": [{}, {"role": "user"}, {"role": "user", "content": ""}, {"role": "user", "content": None}],
    "a tool message first": [{"role": "tool", "tool_call_id": "c", "content": "x" * 30_000}, *LONG_RUN],
    "the assistant last": [*LONG_RUN, {"role": "assistant", "content": "Sure, here is"}],
    "the old role `function`": [
        user("hi"),
        *(
            message
            for number in range(50)
            for message in (
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": f"old style {number}\n" * 60},
            )
        ),
    ],
    "a chat without tools": [
        message
        for number in range(80)
        for message in (user(f"question {number} " * 30), {"role": "assistant", "content": "answer " * 60})
    ]
    + [user("the last question")],
    "system messages in the middle": [
        message for number in range(60) for message in (*exchange(["out\n" * 90], first_call=number), system("mind it"))
    ],
    "huge arguments in the newest exchange": [*LONG_RUN, *exchange(["ok"], first_call=999, arguments="a" * 90_000)],
    "lists of parts": [user([part("look"), part("here")]), *exchange([[part("row\n" * 9_000), part("b")]] * 4)],
    "one line of 200 KB": [user("read"), *exchange(["x1" * 100_000])],
    "lone surrogates": [user("go"), *exchange(["读\ud800" * 9_000])],
    "Chinese": [user("读取"), *(m for n in range(60) for m in exchange(["读取文件时发生错误\n" * 60], first_call=n))],
}
BUDGETS = {
    "tokens": Budget(4_000),
    "characters": Budget(10**9, 12_000),
    "bytes": Budget(10**9, None, 14_000),
    "all": Budget(4_000, 12_000, 14_000),
}


@pytest.mark.parametrize("unit", BUDGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_conversation_is_planned_and_keeps_the_promises(shape, unit):
    history, budget, base = SHAPES[shape], BUDGETS[unit], Size(50, 150, 150)
    found = conversation(history)
    made = planned(found, pipeline(budget), base)
    assert made.after == measured(made.messages, base)
    if not pairing_faults([message.raw for message in found]):
        assert pairing_faults(list(made.messages)) == []
    last_words = found[-1].raw if len(found) and found[-1].role == "assistant" else None
    assert last_words is None or made.messages[-1] == last_words
    assert made.fits == (shape != "only a system message")


def test_old_turns_of_a_chat_go_whole_and_the_first_message_kept_is_the_users():
    made = planned(SHAPES["a chat without tools"], pipeline(Budget(4_000)))
    roles = [message.role for message in sent(made)]
    assert len(roles) < 161
    assert roles[::2] == ["user"] * (len(roles) // 2 + 1)


def test_a_request_that_the_client_will_not_continue_leaves_no_trace_in_the_progress():
    """A prefill is part of one request only: the next one is planned from before it."""
    history = conversation([user("a"), {"role": "assistant", "content": "I"}])
    steps = pipeline(Budget(1_000))
    made, progress = plan(history, Size(), steps)
    assert progress.messages == 1
    assert progress.before == measured([history[0].raw], Size())
    assert made.messages == tuple(message.raw for message in history)


PREFILL = {"role": "assistant", "content": "Here is the next step:"}


def exchange_of_another_id(number):
    call, result = exchange([f"line {number}\n" * 60], first_call=number)
    return [call, {**result, "tool_call_id": "of a call that does not exist"}]


@pytest.mark.parametrize(
    ("made_of", "ending"),
    [(lambda number: exchange([f"line {number}\n" * 60], first_call=number), [PREFILL]), (exchange_of_another_id, [])],
    ids=["each turn ends with a prefill", "no result answers a call"],
)
def test_turns_that_never_end_complete_are_planned_from_the_one_before_and_as_from_scratch(made_of, ending):
    history, counter, earlier = [system(), user("start")], CountingCounter(), None
    counted = []
    for number in range(60):
        history += made_of(number)
        found = conversation([*history, *ending])
        before = counter.chars
        made, earlier = plan(found, Size(), pipeline(Budget(1_000_000), counter=counter), earlier)
        counted.append(counter.chars - before)
        assert earlier.messages == len(history)
        if number % 20 == 0:
            assert made == planned(found, pipeline(Budget(1_000_000)))
    assert max(counted[1:]) < 3 * min(counted[1:])


@pytest.mark.parametrize("ending", [[], [PREFILL]], ids=["complete", "with a prefill"])
def test_a_cut_run_that_never_ends_complete_is_planned_as_from_scratch(ending):
    history, earlier = [system(), user("start")], None
    for number in range(40):
        history += exchange_of_another_id(number) if number % 3 else exchange(["a line\n" * 60], first_call=number)
        found = conversation([*history, *ending])
        made, earlier = plan(found, Size(), pipeline(Budget(1_500)), earlier)
        assert made == planned(found, pipeline(Budget(1_500)))


def test_a_prefill_that_makes_a_request_too_long_has_something_given_up_for_it():
    history = [*LONG_RUN[:30], {"role": "assistant", "content": "word " * 600}]
    whole = measured([message.raw for message in conversation(history)], Size()).tokens
    made = planned(history, pipeline(Budget(whole - 1)))
    assert made.fits
    assert left_out(made)
    assert sent(made)[-1].content() == "word " * 600


def test_the_work_for_a_growing_conversation_grows_with_its_length_only():
    def work(exchanges: int) -> int:
        history = [system(), user("start")]
        for number in range(exchanges):
            history += exchange([f"line {number}\n" * 60], first_call=number)
        counter = CountingCounter()
        turn_by_turn(conversation(history), pipeline(Budget(4_000), counter=counter))
        return counter.calls + counter.chars // 500

    half, whole, double = work(60), work(120), work(240)
    assert whole < 2.5 * half
    assert double < 2.5 * whole


PROGRAM = """
import hashlib
from support.strategies import conversation, exchange, pipeline, planned, system, user
from proxy.core.compaction.budget import Budget
history = [system(), user("begin in src/main.py")]
for n in range(60):
    names = " ".join(f"module_{n}.symbol_{i * n % 17}" for i in range(30))
    history += exchange([names, f"error: {names} failed\\n" * 9], first_call=n * 2, words=f"look into symbol_{n % 7}")
made = planned(history, pipeline(Budget(3000)))
assert made.edits
print(hashlib.sha256(repr((made.messages, made.after, [a.id for a in made.artifacts])).encode()).hexdigest())
"""


def test_two_processes_with_different_hash_seeds_make_the_same_plan():
    repository = Path(__file__).parents[3]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=repository,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{repository}:{repository / 'tests'}"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "33")
    }
    assert len(outputs) == 1


def test_nothing_is_given_up_where_system_texts_alone_are_too_much():
    history = [*(system("Be careful. " * 10) for _ in range(50)), user("a"), *exchange(["x" * 900]), user("b")]
    made = planned(history, pipeline(Budget(500)))
    assert not made.fits
    assert made.edits == ()
    assert {entry.message.role for entry in made.largest} == {"system", "tool"}


def test_the_largest_messages_are_named_when_it_does_not_fit():
    history = [system("s" * 50_000), user("u" * 90_000), *exchange(["small"])]
    made = planned(history, pipeline(Budget(2_000)))
    assert [entry.index for entry in made.largest][:2] == [1, 0]
    assert len(made.largest) == 4


def test_a_text_is_found_by_its_json_whatever_way_the_client_spells_it():
    message = exchange(["中文内容\n" * 3_000])[1]
    spellings = [json.dumps(message).encode(), json.dumps(message, ensure_ascii=False).encode()]
    first, second = (planned(Conversation((ChatMessage.read(raw),)), pipeline(Budget(10**6))) for raw in spellings)
    assert first.messages == second.messages
    assert first.artifacts == second.artifacts


@pytest.mark.parametrize("fill", [0.3, 0.6, 1.0])
def test_a_cut_goes_under_whatever_share_of_the_room_may_be_used_up(fill):
    history = [system("be brief"), user("go")]
    for n in range(60):
        history += exchange([f"result {n} " + "word " * 200], first_call=n)
    made = planned(conversation(history), pipeline(Budget(8_000, fill=fill)))
    assert made.before.tokens > 8_000
    assert 8_000 * fill * 0.4 < made.after.tokens <= 8_000 * fill


def test_nothing_is_given_up_for_a_guessed_room():
    history = [
        system("Be brief."),
        *(part for n in range(8) for part in (user(f"{n} " * 900), *exchange(["word " * 900]))),
    ]
    assert planned(history, pipeline(Budget(2_000))).edits
    made = planned(history, pipeline(Budget(2_000, room_is_guessed=True)))
    assert made.edits == ()
    assert made.may_be_sent


def test_before_a_server_that_cuts_silently_what_does_not_fit_is_as_small_as_it_can_be():
    history = [system("Rule. " * 3_000), user("Fix it."), *exchange(["word " * 900]), *exchange(["word " * 900])]
    refused = planned(history, pipeline(Budget(2_000)))
    assert (refused.edits, refused.may_be_sent) == ((), False)
    made = planned(history, pipeline(Budget(2_000, window_may_be_wrong=True)))
    assert (made.fits, made.may_be_sent) == (False, True)
    assert made.after.tokens < refused.after.tokens
    assert json.loads(made.messages[0]) == history[0]


@given(any_histories(), budgets(), st.integers(1, 6))
@thorough
def test_from_any_point_back_a_plan_continues_as_if_all_were_new(history, budget, rewritten):
    """The newest messages are written anew, as agents do with reminders and cache marks."""
    steps = pipeline(budget)
    old = conversation(history)
    made, progress = plan(old, Size(), steps)
    shared = max(0, len(old) - rewritten)
    new = Conversation((*old[:shared], *conversation([user("other words"), *exchange(["x" * 900]), user()])))
    point = progress.within(shared)
    assert point is None or point.messages <= shared
    assert plan(new, Size(), steps, point)[0] == plan(new, Size(), steps)[0]
    assert plan(old, Size(), steps, progress)[0] == made, "and it stays a point to continue from"


def test_the_last_two_exchanges_may_be_rewritten_and_only_they_are_read_again():
    history = [system(), user("task")]
    for number in range(12):
        history += exchange([f"line {number}\n" * 200], first_call=number)
    counter = CountingCounter()
    steps = pipeline(Budget(100_000), counter=counter)
    _, progress = plan(conversation(history), Size(), steps)
    counter.calls = 0
    for message in (history[-3], history[-1]):
        message["content"] = "rewritten"
    _, again = plan(conversation(history), Size(), steps, progress.within(len(history) - 3))
    assert counter.calls == 3
    assert again.within(len(history)) is not None


def test_a_newest_message_that_is_written_anew_again_and_again_is_all_that_is_read():
    history, counter = [system(), user("task")], CountingCounter()
    for number in range(12):
        history += exchange([f"line {number}\n" * 200], first_call=number)
        history.append({"role": "assistant", "content": f"Step {number} is done."})
    steps = pipeline(Budget(100_000), counter=counter)
    _, progress = plan(conversation([*history, user("go")]), Size(), steps)
    for number in range(6):
        counter.calls = 0
        found = conversation([*history, user(f"no, {number}")])
        made, progress = plan(found, Size(), steps, progress.within(len(history)))
        assert counter.calls == 1
        assert made == planned(found, steps)


def long_run(exchanges: int, task: str = "task", clock: str = "16:10") -> Conversation:
    history = [system(f"It is {clock}."), user(task)]
    for number in range(exchanges):
        history += exchange([f"line {number:03}\n" * 200], first_call=number)
    return conversation(history)


def other(found: Conversation, index: int, words: str = "16:11") -> ChatMessage:
    return ChatMessage.read(found[index].raw.replace(b"16:10", words.encode()))


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("room", [4_000, 100_000])
def test_an_always_kept_message_of_the_same_size_and_names_may_replace_another(index, room):
    steps, old, task = pipeline(Budget(room)), long_run(30, "task of 16:10"), ["16:10", "16:11"]
    _, progress = plan(old, Size(), steps)
    new = Conversation((*old[:index], other(old, index), *old[index + 1 :], *long_run(2)[2:]))
    point = progress.exchanged({index: new[index]}, steps)
    assert point is not None
    assert [len(point.earlier), point.messages] == [2, len(old)], task
    assert plan(new, Size(), steps, point)[0] == plan(new, Size(), steps)[0]


@pytest.mark.parametrize(
    ("room", "task", "index", "words"),
    [
        (4_000, "task of 16:10", 0, "noon"),  # another size
        (4_000, "task of 16:10", 1, "a/b.c"),  # another name of that size
        (100_000, "x" * 16_000 + "16:10", 1, "16:11"),  # may have been shortened
        (4_000, "x " * 2_000 + "16:10", 1, "16:11"),  # is shortened
        (4_000, "task", 3, "16:11"),  # is left out
        (100_000, "task", 2, "16:11"),  # the model's
        (100_000, "task", 61, "16:11"),  # the last, which is not walked yet
        (600, "x " * 600 + "16:10", 0, "16:11"),  # everything was tried
    ],
)
def test_any_other_message_in_that_place_means_a_plan_of_its_own(room, task, index, words):
    steps, old = pipeline(Budget(room)), long_run(30, task)
    _, progress = plan(old, Size(), steps)
    progress = replace(progress, messages=min(progress.messages, 61))
    assert progress.exchanged({index: other(old, index, words)}, steps) is None


@pytest.mark.parametrize("text", ["turn", "turn at 16:10"])
def test_the_note_moves_to_the_message_that_replaces_its_carrier(text):
    turns = [({"role": "assistant", "content": "long words " * 300}, user(f"{text} {number}")) for number in range(12)]
    old, steps = conversation([user("first"), *chain.from_iterable(turns)]), pipeline(Budget(4_000))
    made, progress = plan(old, Size(), steps)
    carrier = next(edit.message for edit in made.edits if edit.reason is Reason.OMISSION_NOTE)
    assert old[carrier].role == "user"
    new = Conversation((*old[:carrier], other(old, carrier), *old[carrier + 1 :], *long_run(2)[2:]))
    point = progress.exchanged({carrier: new[carrier]}, steps)
    assert point is not None
    assert plan(new, Size(), steps, point)[0] == plan(new, Size(), steps)[0]


def results_without_a_call(count, size=1):
    return [user(), *({"role": "tool", "tool_call_id": f"c{n}", "content": "ok\n" * size} for n in range(count))]


def test_what_must_stay_is_not_cut_anew_with_each_of_the_messages_that_follow():
    tried = []

    def resort(window, _):
        tried.append(len(window.entries))
        return iter(())

    made = dataclasses.replace(pipeline(Budget(500)), last_resorts=(resort,))
    planned(results_without_a_call(1_000), made)
    assert tried[:16] == list(range(tried[0], tried[0] + 16))
    assert len(tried) < 80
    assert tried[-1] == 1_001


@pytest.mark.parametrize("size", [1, 200])
def test_a_conversation_whose_cuts_wait_is_planned_alike_at_once_and_turn_by_turn(size):
    history, made = conversation(results_without_a_call(60, size)), pipeline(Budget(1_500))
    by_turns = turn_by_turn(history, made)
    for stop in range(1, 62, 6):
        at_once = planned(Conversation(history.messages[:stop]), made)
        assert at_once.messages == by_turns[stop].messages
    assert by_turns[-1].fits is (size == 1)


SEEING = frozenset({Modality.TEXT, Modality.VISION})
LONG = "".join(f"line {number} of a log\n" for number in range(4_000))
TARGETS = [ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT, ToolImages.TEXT, ToolImages.KEEP]


def one_by_one(messages, target=ToolImages.USER_AFTER_BATCH, protected=0):
    """The conversation, and its plan if each message is shortened on its own."""
    talk, every = conversation(messages), pipeline(Budget(10**6))
    local = (RouteMedia(Routes(SEEING), target, in_place=True), *every.local)
    steps = dataclasses.replace(every.without_steps(), local=local).up_to(len(talk) - protected)
    return talk, plan(talk, Size(), steps)[0]


def test_an_image_that_a_result_shows_stays_in_its_message_if_none_may_move():
    for target in TARGETS:
        talk, made = one_by_one([user("Look."), *exchange([[image_part(png())]])], target)
        assert len(made.sent) == len(talk)
        content = json.loads(made.messages[2])["content"]
        assert (content[0]["type"] == "image_url") is (target is not ToolImages.TEXT)


def test_base64_in_the_text_of_a_result_is_described_where_it_would_have_moved():
    _, made = one_by_one([user("Look."), *exchange([f"data:image/png;base64,{base64_of(png())}"])])
    assert b"image_url" not in made.messages[2]
    assert [artifact.content for artifact in made.artifacts] == [png()]


def test_the_last_messages_stay_unchanged_on_request():
    messages = [user("Read."), *exchange([LONG]), *exchange([LONG + "x"], first_call=5)]
    for protected, cut in ((0, [2, 4]), (1, [2]), (3, []), (10**30, [])):
        talk, made = one_by_one(messages, protected=protected)
        assert [index for index, message in enumerate(made.messages) if message != talk[index].raw] == cut


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 8))
def test_rows_and_roles_are_those_that_came_if_each_is_shortened_on_its_own(sizes, protected):
    messages = [system(), user("Go on.")]
    for number, size in enumerate(sizes):
        messages += exchange([LONG[: size * 30_000], [image_part(png())]], first_call=10 * number)
    talk, made = one_by_one(messages, protected=protected)
    assert [message.role for message in made.sent] == [message.role for message in talk]
    assert [message.answers for message in made.sent] == [message.answers for message in talk]


@thorough
@given(valid_histories(), budgets())
def test_ids_of_calls_need_to_be_unique_in_their_message_only(messages, budget):
    """The cuts are the same if every message uses the same call ids."""
    unique, repeated = json.loads(json.dumps(messages)), json.loads(json.dumps(messages))
    for number, (one, other) in enumerate(zip(unique, repeated, strict=True)):
        for place, (call, again) in enumerate(zip(one.get("tool_calls", ()), other.get("tool_calls", ()), strict=True)):
            name = call["id"]
            call["id"], again["id"] = f"{number:04}{place:04}", f"{0:04}{place:04}"
            for answer, same in zip(unique[number:], repeated[number:], strict=True):
                if answer.get("tool_call_id") == name:
                    answer["tool_call_id"], same["tool_call_id"] = call["id"], again["id"]
    first, second = (planned(found, pipeline(budget)) for found in (unique, repeated))
    assert [(edit.message, edit.reason) for edit in first.edits] == [(e.message, e.reason) for e in second.edits]
    assert pairing_faults(list(second.messages)) == []
