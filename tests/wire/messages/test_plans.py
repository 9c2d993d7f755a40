"""Plans for conversations of the Messages API: what was valid stays valid, and what no edit names keeps its bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages_conversations import (
    IMAGE,
    MARK,
    assistant,
    body_of,
    histories,
    result,
    spelled,
    system,
    text,
    use,
    user,
)
from support.strategies import budgets, pipeline
from support.valid_messages import complaints

from proxy.core.compaction import Budget, plan
from proxy.core.conversation import Reason, Size, size_of
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.core.tokens import ByteClassCounter
from proxy.wire.messages import MESSAGES


def planned(body, made):
    request = MESSAGES.parse(spelled(body))
    found, _ = plan(request.conversation, Size(), made)
    return request, found, json.loads(MESSAGES.render(request, found.sent, {}))


def agent_run(exchanges, output="a line of output\n" * 40):
    found = [user("Find the bug in src/app.py.")]
    for number in range(exchanges):
        found += [
            assistant([use(10 * number, path=f"a{number}.py"), use(10 * number + 1)]),
            user([result(10 * number + 1, output), result(10 * number, f"{number} {output}")]),
        ]
    return found


def marked(messages):
    *before, last = messages
    return [*before, user([*last["content"][:-1], {**last["content"][-1], **MARK}])]


@settings(deadline=None, max_examples=30)
@given(histories(), budgets())
def test_what_was_valid_stays_valid_whatever_is_left_out(history, budget):
    body = body_of(history)
    if complaints(body):
        return
    _, _, sent = planned(body, pipeline(budget))
    assert complaints(sent) == []


@settings(deadline=None, max_examples=30)
@given(histories(), budgets())
def test_what_no_edit_names_keeps_its_bytes(history, budget):
    request, made, _ = planned(body_of(history), pipeline(budget))
    touched = {edit.message for edit in made.edits}
    listed = MESSAGES.render(request, made.sent, {})
    for index, message in enumerate(request.conversation):
        if index not in touched:
            assert message.raw in listed
    assert made.after == sum((size_of(message, ByteClassCounter()) for message in made.sent), Size())


@settings(deadline=None, max_examples=40)  # each plans a history turn by turn
@given(histories(), budgets(), st.integers(1, 10))
def test_a_plan_with_memory_is_the_plan_without_while_the_mark_moves(history, budget, step):
    """Compared with a plan from scratch now and then, and at the end: what goes wrong in the memory stays in it."""
    made, known, earlier = pipeline(budget), None, None
    for stop in range(1, len(history) + 1):
        turn = history[:stop]
        if turn[-1]["role"] == "user" and isinstance(turn[-1]["content"], list):
            turn = marked(turn)
        body = spelled(body_of(turn, system="s"))
        shared = known.shared_messages(body) if known else 0
        request = MESSAGES.parse(body, known, shared)
        same = known is not None and request.conversation.messages[:shared] == known.conversation.messages[:shared]
        usable = earlier if same and earlier is not None and earlier.messages <= shared else None
        found, earlier = plan(request.conversation, Size(), made, usable)
        if (len(history) - stop) % step == 0:
            assert found == plan(MESSAGES.parse(body).conversation, Size(), made)[0]
        known = request


def test_a_mark_that_moves_moves_no_cut_and_all_but_the_last_message_is_known():
    history = agent_run(40)
    made = pipeline(Budget(6_000))
    known, progress, plans = None, None, []
    for stop in range(3, len(history) + 1, 2):
        body = spelled(body_of(marked(history[:stop])))
        request = MESSAGES.parse(body, known, shared := known.shared_messages(body) if known else 0)
        if known is not None:
            assert shared == len(known.conversation) - 3  # the last item made two, and the one before may continue
            assert progress.messages == shared
        found, progress = plan(request.conversation, Size(), made, progress)
        plain, _ = plan(MESSAGES.parse(spelled(body_of(history[:stop]))).conversation, Size(), made)
        assert [edit.becomes for edit in found.edits] == [edit.becomes for edit in plain.edits]
        assert found.artifacts == plain.artifacts
        plans.append(found)
        known = request
    assert any(edit.reason is Reason.OLD_EXCHANGE for edit in plans[-1].edits)


def test_results_of_one_message_are_cut_one_by_one_and_the_end_of_each_stays():
    reminder = "\n<system-reminder>Mind the plan.</system-reminder>"
    body = body_of(
        [
            user("go"),
            assistant([use(1), use(2)]),
            user([result(1, "short"), result(2, "\n".join(f"line {n}" for n in range(9_999)) + reminder, **MARK)]),
        ]
    )
    _, made, sent = planned(body, pipeline(Budget(100_000)))
    first, second = sent["messages"][2]["content"]
    assert first == result(1, "short")
    assert second["cache_control"] == MARK["cache_control"]
    assert second["content"].endswith(reminder)
    assert "[context-proxy: " in second["content"]
    assert [edit.reason for edit in made.edits] == [Reason.TRUNCATE_TOOL_OUTPUT]


def test_a_system_text_goes_with_the_exchange_before_it():
    history = agent_run(30)
    for at in range(len(history), 2, -2):
        history.insert(at, system(f"after {at}"))
    _, _, sent = planned(body_of(history), pipeline(Budget(4_000)))
    assert complaints(sent) == []
    roles = [message["role"] for message in sent["messages"]]
    assert roles.count("system") == roles.count("assistant") < 30


def test_thoughts_are_sent_as_they_came_or_not_at_all():
    thought = {"type": "thinking", "thinking": "w" * 5_000, "signature": "sig=="}
    history = agent_run(30)
    for message in history:
        if message["role"] == "assistant":
            message["content"] = [thought, *message["content"]]
    _, _, sent = planned(body_of(history), pipeline(Budget(9_000)))
    first_blocks = [message["content"][0] for message in sent["messages"] if message["role"] == "assistant"]
    assert 0 < len(first_blocks) < 30
    assert all(block == thought for block in first_blocks)


def test_an_exchange_that_brought_tools_stays_whole():
    history = agent_run(30)
    history[2]["content"][0]["content"] = [{"type": "tool_reference", "tool_name": "Read"}]
    _, _, sent = planned(body_of(history, tools=[{"name": "Read"}]), pipeline(Budget(4_000)))
    assert sent["messages"][1] == history[1]
    assert sent["messages"][2]["content"][: len(history[2]["content"])] == history[2]["content"]
    assert complaints(sent) == []


def test_images_stay_in_results_where_the_model_reads_them_and_are_described_where_not():
    history = [user("look"), assistant([use(1)]), user([result(1, [text("shot"), IMAGE], **MARK)])]
    for reads, expected in ((Modality.VISION, 0), (Modality.TEXT, 1)):
        every = pipeline(Budget(100_000))
        step = RouteMedia(Routes(frozenset({Modality.TEXT, reads})), ToolImages.KEEP)
        _, made, sent = planned(body_of(history), replace(every, local=(step, *every.local)))
        shown = sent["messages"][2]["content"][0]["content"]
        assert len(made.artifacts) == expected
        assert shown == [text("shot"), IMAGE] if not expected else "[cannot read]" in shown[1]["text"]
        assert sent["messages"][2]["content"][0]["cache_control"] == MARK["cache_control"]


@pytest.mark.parametrize("task", ["Mind the plan.", [text("Mind the plan.", **MARK), text("And the tests.")]])
def test_the_omission_note_is_a_block_at_the_end_of_the_task(task):
    history = [user("earlier words"), user(task), *agent_run(40)[1:]]
    _, made, sent = planned(body_of(history), pipeline(Budget(6_000)))
    assert complaints(sent) == []
    *blocks, note = sent["messages"][1]["content"]
    assert blocks == (task if isinstance(task, list) else [text(task)])
    assert note["type"] == "text"
    assert note["text"].startswith("[context-proxy: ")
    [edit] = [edit for edit in made.edits if edit.reason is Reason.OMISSION_NOTE]
    assert (edit.message, edit.becomes.items[-1].text) == (1, note["text"])
    assert sum("left out" in json.dumps(message) for message in sent["messages"]) == 1


def test_the_exchange_between_the_first_two_user_messages_stays_the_same_in_every_cut():
    """The note follows it: before it, it would invalidate the prompt cache after every cut."""
    first, *later = [agent_run(61)[at : at + 2] for at in range(1, 121, 2)]
    begun = [user("task"), *first, user("and now?")]
    later = [message for exchange in later for message in exchange]
    heads, notes = set(), set()
    for count in range(30, len(later), 4):
        _, _, sent = planned(body_of([*begun, *later[:count], user("and then?")]), pipeline(Budget(6_000)))
        assert complaints(sent) == []
        question, note = sent["messages"][3]["content"]
        heads.add(json.dumps([*sent["messages"][:3], question]))
        notes.add(note["text"])
    assert len(heads) == 1
    assert len(notes) > 2
