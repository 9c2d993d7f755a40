from __future__ import annotations

import json
from dataclasses import replace as replace_in
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.media_samples import PNG, base64_of
from support.strategies import (
    conversation,
    exchange,
    kept_of,
    notices,
    part,
    pipeline,
    planned,
    system,
    turn_by_turn,
    user,
)

from proxy.core.compaction import Budget, compaction_steps, last_resorts, plan
from proxy.core.conversation import Reason, Size, size_of
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import ToolImages
from proxy.core.notices import MARK
from proxy.core.text import ExcerptLimits
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage

LOG = "".join(f"{number:05} a line of a log\n" for number in range(3_000))
NOTE_SHARE = 0.23
"""The largest share of the room that the note may take."""
UNCUT = ExcerptLimits(10**9, 10**9)


def reasons(messages, room):
    made = planned(messages, pipeline(Budget(room), limits=UNCUT))
    assert made.fits
    return [edit.reason for edit in made.edits if edit.reason is not Reason.OMISSION_NOTE]


def test_the_newest_result_gives_before_the_words_of_the_user():
    task = user("the task " * 200)
    assert set(reasons([task, *exchange([LOG])], 5_000)) == {Reason.NEWEST_RESULT}


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_users_words_are_cut_only_if_nothing_else_is_left(where):
    question = user("asked " * 9_000)
    history = [question, *exchange(["short"])] if where == "first" else [*exchange(["short"]), question]
    assert Reason.NEWEST_TEXT in reasons(history, 3_000)
    made = planned(history, pipeline(Budget(3_000), limits=UNCUT))
    (cut,) = [json.loads(raw)["content"] for raw in made.messages if b"asked asked" in raw]
    assert cut.startswith("asked ")
    assert len(cut) < 20_000


def test_a_long_last_user_message_gives_way_before_the_newest_result_is_gone():
    history = [user("go on"), *exchange(["old"]), user("asked " * 9_000), *exchange([LOG], first_call=9)]
    made = planned(history, pipeline(Budget(1_200), limits=UNCUT))
    assert made.fits
    question, result = (json.loads(raw)["content"] for raw in (made.messages[-3], made.messages[-1]))
    assert "00000 a line of a log" in result
    assert len(question) > 3 * len(result) > 600


def cut(made):
    return {edit.message: edit for edit in made.edits if edit.reason is Reason.NEWEST_RESULT}


@pytest.mark.parametrize("budget", [Budget(4_000), Budget(10**9, 12_000), Budget(10**9, None, 12_000)])
def test_the_newest_result_is_cut_to_what_fits_with_a_notice_about_the_whole(budget):
    made = planned([system(), user(), *exchange([LOG])], pipeline(budget, limits=UNCUT))
    assert made.fits
    edit = cut(made)[3]
    assert edit.artifact.content.decode() == LOG
    assert "of 3,000 lines" in edit.becomes
    used = made.after.tokens / 4_000 if budget.room_chars is budget.room_bytes else made.after.chars / 12_000
    assert used > 0.85


def test_of_a_guessed_window_only_the_limit_in_characters_makes_the_newest_result_give():
    history = [system(), user(), *exchange([LOG])]
    assert not cut(planned(history, pipeline(Budget(4_000, room_is_guessed=True), limits=UNCUT)))
    made = planned(history, pipeline(Budget(4_000, 12_000, room_is_guessed=True), limits=UNCUT))
    assert list(cut(made)) == [3]
    assert 0.85 < made.after.chars / 12_000 <= 1


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


def test_a_last_user_message_that_does_not_fit_is_cut_in_the_middle_with_a_notice_about_the_whole():
    made = planned([system(), user("Read this. " + LOG + " What is wrong?")], pipeline(Budget(4_000)))
    assert made.fits
    reported = text_of(made, 1)
    assert reported.startswith("Read this. ")
    assert reported.endswith(" What is wrong?")
    assert reported.count(MARK) == 1
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


def test_arguments_that_are_no_json_are_cut_as_text():
    made = planned([user("u"), *exchange(["ok"], arguments="a" * 90_000)], pipeline(Budget(2_000)))
    assert made.fits
    sent = json.loads(made.messages[1])["tool_calls"][0]["function"]["arguments"]
    assert sent.startswith("aaa")
    assert MARK in sent


PATCH = "+ a line of a patch\n" * 800
LEAVES = st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=40), st.just(PATCH))
ARGUMENTS = st.dictionaries(
    st.text(max_size=8), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5), max_size=4
)


def short_values(value):
    if isinstance(value, dict):
        return {name: short_values(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [short_values(inner) for inner in value]
    return "long" if isinstance(value, str) and len(value) > 100 else value


@settings(deadline=None)
@given(ARGUMENTS, st.integers(300, 5_000))
def test_arguments_stay_json_with_all_names_and_all_short_values(arguments, room):
    text = json.dumps(arguments)
    made = planned([user("u"), *exchange(["ok"], arguments=text)], pipeline(Budget(room)))
    sent = json.loads(made.messages[1])["tool_calls"][0]["function"]["arguments"]
    if sent != text:
        assert short_values(json.loads(sent)) == short_values(arguments)
        assert len(sent.encode()) < len(text)
        assert text in [artifact.content.decode() for artifact in made.artifacts]


SHOT = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64_of(PNG * 100)}}
SHOTS = [[part(f"shot {number}"), SHOT] for number in range(6)]
HISTORY = [
    user([part("watch"), SHOT]),
    *(one for n, shot in enumerate(SHOTS) for one in exchange([shot], first_call=n)),
]
WHOLE = 7 * 9_200


def showing(images: int) -> tuple[RouteMedia, ...]:
    return (RouteMedia(Routes(max_images=images), ToolImages.KEEP),)


def sent(budget: Budget, history=HISTORY):
    every = pipeline(budget)
    step, *_ = compaction_steps(notices("en"), budget, showing, ByteClassCounter())
    made = planned(history, replace_in(every, local=(), compaction_steps=(step, *every.compaction_steps[1:])))
    return made, [b'"image_url"' in raw for raw in made.messages if b'"tool_call_id"' in raw]


@pytest.mark.parametrize("described", [1, 3, 5])
def test_where_bytes_are_short_the_oldest_media_of_results_are_described_and_kept(described):
    budget = Budget(10**6).for_bytes(int(WHOLE - (described - 0.5) * 9_200))
    made, shows = sent(budget)
    assert made.fits
    assert shows == [False] * described + [True] * (6 - described)
    assert b'"image_url"' in made.messages[0], "the user showed it"
    assert {artifact.content for artifact in made.artifacts} == {PNG * 100}


def test_where_tokens_are_short_no_image_is_described():
    made, shows = sent(Budget(640))
    assert made.fits
    assert 0 < len(shows) < 6
    assert all(shows)


def test_where_both_are_short_no_more_are_described_than_bytes_ask_for():
    made, shows = sent(Budget(1_400).for_bytes(WHOLE - 9_200 // 2))
    assert made.fits
    assert True in shows[:-1], "texts and exchanges give the rest"


def test_where_media_do_not_suffice_exchanges_go_as_well():
    texts = [one for n in range(8) for one in exchange(["words " * 2_000], first_call=100 + n)]
    made, shows = sent(Budget(10**6).for_bytes(60_000), [*HISTORY, *texts])
    assert made.fits
    assert not any(shows)
    assert len(made.messages) < len(HISTORY) + len(texts)


STEPS = compaction_steps(notices(), Budget(0), showing, ByteClassCounter())
GOAL = Budget(0).ceiling
LONG = "because " * 600


def thinking(messages, text=LONG):
    messages[0]["reasoning_content"] = text
    return messages


def edited(made):
    return [(edit.message, edit.reason) for edit in made.edits]


THOUGHTFUL = [
    user("a"),
    *thinking(exchange(["r" * 300])),
    *thinking(exchange(["r" * 300], first_call=2)),
    {"role": "assistant", "content": "done", "reasoning_content": LONG},
    user("b"),
    *thinking(exchange(["r" * 300], first_call=4)),
]


def test_long_reasoning_of_finished_turns_goes_first_and_all_else_stays():
    made = planned(THOUGHTFUL, pipeline(Budget(3_365, low_mark=0.59)))
    assert edited(made) == [(1, Reason.OLD_REASONING), (3, Reason.OLD_REASONING), (5, Reason.OLD_REASONING)]
    dropped = json.loads(made.messages[1])
    assert dropped["reasoning_content"].startswith(MARK)
    assert made.edits[0].artifact.id in dropped["reasoning_content"]
    assert dropped["tool_calls"] == THOUGHTFUL[1]["tool_calls"]
    assert all(edit.before_chars > 4_000 for edit in made.edits)


def test_chinese_is_measured_in_characters_however_it_is_written():
    history = [user("a"), *thinking(exchange(["r"]), "因为" * 900), user("b"), *thinking(exchange(["r"]), "因" * 2_001)]
    kept = kept_of([*history, {"role": "assistant", "content": "x", "reasoning_content": ["r" * 2_000]}, user()])
    changes = [edit for change in STEPS[1](kept, GOAL) for edit in change.edits]
    assert [(edit.message, edit.before_chars) for edit in changes] == [(4, 2_001), (6, 2_004)]


def test_no_more_reasoning_is_dropped_than_is_needed():
    first, second = thinking(exchange(["r"]), LONG * 5), thinking(exchange(["r"], first_call=3))
    made = planned([user("a"), *first, user("b"), *second, user("c" * 3_000)], pipeline(Budget(9_000)))
    assert edited(made) == [(1, Reason.OLD_REASONING)]
    assert json.loads(made.messages[4])["reasoning_content"] == LONG


PASTED = "".join(f"{number:05} a pasted line\n" for number in range(3_000))
ANSWER = {"role": "assistant", "content": "yes"}
STEP = STEPS[2]


def edits(*history):
    """The edits of a history, each once; shortened text is not shortened again."""
    kept = kept_of(list(history))
    changes = list(STEP(kept, GOAL))
    for change in changes:
        kept.apply(change)
    assert list(STEP(kept, GOAL)) == []
    return [edit for change in changes for edit in change.edits]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_long_text_of_a_finished_turn_is_cut_in_its_middle_once(role):
    (edit,) = edits({"role": role, "content": PASTED}, ANSWER, user("next"))
    reported = edit.becomes
    assert reported.startswith("00000 a pasted line\n")
    assert reported.endswith("02999 a pasted line\n")
    assert 0.7 < len(reported) / len(PASTED) <= 0.8
    assert edit.artifact.content.decode() == PASTED
    assert edit.artifact.id.startswith("tool_messages_")
    assert (edit.message, edit.at, edit.reason) == (0, ("content",), Reason.LONG_OLD_TEXT)


@pytest.mark.parametrize(
    "history",
    [
        *([{"role": role, "content": PASTED}, user("a"), ANSWER, user("next")] for role in ("system", "tool", "")),
        [user("a"), ANSWER, user(PASTED), {"role": "assistant", "content": PASTED}],
    ],
    ids=["the operator's", "a tool's", "nobody's", "the last user message and what follows"],
)
def test_texts_of_others_and_of_the_turn_that_goes_on_stay(history):
    assert edits(*history) == []


def test_texts_that_are_not_so_long_stay():
    parts = [part(PASTED[:16_000]), part(PASTED[:30_000]), part(PASTED), {"type": "image_url"}]
    assert [edit.at for edit in edits(user(parts), ANSWER, user("next"))] == [("content", 2, "text")]


def test_a_text_that_a_notice_would_not_shorten_stays():
    lines = "\n".join(f"name_{number}" for number in range(9))
    step = replace(STEP, over_chars=50)
    assert list(step(kept_of([user(lines), ANSWER, user("next")]), GOAL)) == []


def run(count, size=60):
    history = [system(), user("one task")]
    for number in range(count):
        history += exchange([f"line {number:04}\n" * size], first_call=number)
    return history


def gone(made):
    return [edit.message for edit in made.edits if edit.reason is Reason.OLD_EXCHANGE]


@pytest.mark.parametrize(("room", "exchanges", "first", "share"), [(4_000, 60, 15, 0.8), (8_000, 130, 40, 1)])
def test_a_cut_goes_down_to_the_low_mark_and_not_further(room, exchanges, first, share):
    """The note about what went before has a room of its own: no later cut pays for it a second time."""
    budget = Budget(room)
    every = turn_by_turn(conversation(run(exchanges)), pipeline(budget))
    sizes = [made.after.tokens for made in every[2 + 2 * first :: 2]]
    assert max(sizes) <= room
    assert min(sizes) > room * (budget.low_mark - NOTE_SHARE) * share
    cuts = sum(after < before for before, after in pairwise(sizes))
    assert cuts <= len(sizes) / 5


def test_a_large_result_on_the_edge_of_a_cut_is_cut_and_stays():
    history = [*run(3, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]]
    kept = kept_of(history)
    for change in replace(STEPS[3], task_tokens=700, dialogue_tokens=0)(kept, Budget(3_500).ceiling):
        kept.apply(change)
    assert [edit.reason for edit in kept.edits()] == [Reason.OLD_EXCHANGE] * 6 + [Reason.OLD_RESULT]
    (cut,) = [edit for edit in kept.edits() if edit.reason is Reason.OLD_RESULT]
    assert cut.message == 9
    assert len(cut.artifact.content) == 27 * 900
    assert 2_000 < kept.total.tokens <= 3_500


def test_a_message_that_holds_all_files_is_cut_as_far_as_needed_and_stays():
    """Messages as aider sends them: with room for half, half is worth more than none."""
    files = "".join(f"def function_{number}(): return {number}\n" for number in range(4_000))
    history = [system(), user(files), {"role": "assistant", "content": "Ok."}, user("Change function_7.")]
    budget = Budget(30_000)
    made = planned(history, pipeline(budget))
    assert gone(made) == []
    assert {edit.reason for edit in made.edits} <= {Reason.LONG_OLD_TEXT, Reason.NEWEST_TEXT}
    assert 0.85 < made.after.tokens / budget.room_tokens <= 1
    reported = ChatMessage.read(made.messages[1]).content()
    assert reported.startswith("def function_0()")
    assert reported.endswith("return 3999\n")
    assert reported.count(MARK) == 1
    assert {artifact.content for artifact in made.artifacts} >= {files.encode()}


def test_over_in_characters_or_bytes_whole_exchanges_go():
    for budget in (Budget(10**9, 9_000), Budget(10**9, None, 9_000)):
        made = planned(run(40), pipeline(budget))
        assert {edit.reason for edit in made.edits} == {Reason.OLD_EXCHANGE, Reason.OMISSION_NOTE}
        assert budget.admits(made.after)


def test_over_in_characters_too_a_large_result_goes_whole():
    kept = kept_of([*run(1, 4), *exchange(["a very long line of output\n" * 900], first_call=90), *run(2, 20)[2:]])
    for change in replace(STEPS[3], task_tokens=400, dialogue_tokens=0)(kept, Budget(3_600, 14_400).ceiling):
        assert change.edits == ()
        kept.apply(change)
    assert [edit.message for edit in kept.edits()] == [2, 3, 4, 5]


def test_the_first_user_message_stays_and_a_later_turn_goes_with_its_question():
    done = {"role": "assistant", "content": "done " * 100}
    history = [
        user("the task"),
        *exchange(["x" * 2_000]),
        done,
        user("second"),
        *exchange(["y" * 2_000], first_call=5),
        done,
    ]
    made = planned([*history, *run(30)[1:]], pipeline(Budget(3_000)))
    assert {1, 2, 4, 5, 6, 7} <= set(gone(made))
    assert [ChatMessage.read(raw).text() for raw in made.messages[:3]] == ["the task", done["content"], "one task"]


def test_a_short_request_and_its_answer_stay_in_their_place_and_go_when_there_is_no_other_way():
    history = [*run(3), {"role": "assistant", "content": "Shall I?"}, user("yes")]
    history += [*run(3, 20)[2:], {"role": "assistant", "content": "It is done."}, user("Next."), *run(40, 40)[2:]]
    request, answered = history.index(user("yes")), history.index({"role": "assistant", "content": "It is done."})
    left_out = gone(planned(history, pipeline(Budget(3_000))))
    assert set(range(2, request - 1)) | set(range(request + 1, answered)) <= set(left_out)
    assert not {request - 1, request, answered} & set(left_out)
    kept = kept_of(history)
    for change in replace(STEPS[3], task_tokens=100, dialogue_tokens=500)(kept, Budget(0).ceiling):
        kept.apply(change)
    assert {request, answered} <= {edit.message for edit in kept.edits()}


@pytest.mark.parametrize(("newest", "stays"), [(0.6, True), (0.85, True), (0.93, False)])
def test_a_large_result_takes_short_requests_with_it_only_if_nearly_all_of_the_room_is_in_use(newest, stays):
    """Cut to the low mark, they went with the first result of more than a third of the room, and never came back."""
    answered = {"role": "assistant", "content": "It is done."}
    history = [
        *run(2),
        {"role": "assistant", "content": "Shall I?"},
        user("yes"),
        *run(20)[2:],
        answered,
        user("Next."),
    ]
    result = "word " * int(newest * 6_000 * 1_000 / ByteClassCounter().count("word " * 1_000))
    made = planned([*history, *exchange([result], first_call=50)], pipeline(Budget(6_000), limits=UNCUT))
    short = {history.index(user("yes")), history.index(answered)}
    assert set(gone(made)) & short == (set() if stays else short)
    assert set(range(2, 6)) | set(range(8, 48)) <= set(gone(made))


@pytest.mark.parametrize("words", [200, 900, 5_000])
def test_of_a_long_first_user_message_beginning_and_end_stay_up_to_a_tenth_of_the_room(words):
    task = "BEGIN " + "a word " * words + "END"
    history = [system(), user(task), {"role": "assistant", "content": "done"}, user("second"), *run(60)[2:]]
    budget = Budget(6_000)
    made = planned(history, pipeline(budget))
    reported = ChatMessage.read(made.messages[1]).content()
    assert reported.startswith("BEGIN ")
    assert reported.endswith("END")
    assert (reported == task) == (words == 200)
    size = size_of(ChatMessage.read(made.messages[1]), ByteClassCounter()).tokens
    assert size <= budget.task_tokens
    assert reported == task or size > 0.7 * budget.task_tokens
    assert reported == task or {artifact.content for artifact in made.artifacts} >= {task.encode()}


def test_results_that_keep_two_user_messages_apart_are_cut_to_the_low_mark_and_not_anew_in_every_turn():
    reads = exchange([f"result {number} " * 4_000 for number in range(3)])
    history = [system(), user("task"), *reads, user("go on"), user("with this")]
    budget, sent = Budget(8_000), []
    for turn in range(20):
        history += exchange([f"def function_{turn}(): pass\n" * 40], first_call=100 + turn)
        sent.append(planned(history, pipeline(budget)).messages)
    stable = sum(after[: len(before)] == before for before, after in pairwise(sent))
    assert stable >= 17


def test_a_long_last_message_does_not_make_more_go_than_it_needs():
    history = [system(), user("task")]
    for number in range(30):
        history += [{"role": "assistant", "content": f"answer {number} " * 60}, user(f"question {number} " * 30)]
    history += [{"role": "assistant", "content": "the previous answer " * 60}, user("a long question " * 1_200)]
    budget = Budget(14_000)
    made = planned(history, pipeline(budget))
    assert made.after.tokens > 0.6 * budget.room_tokens
    assert "the previous answer" in ChatMessage.read(made.messages[-2]).text()


def test_a_large_system_text_does_not_make_every_turn_a_cut():
    budget, sizes = Budget(10_000), []
    for count in range(1, 40):
        history = run(count, 20)
        history[0] = system("a rule of the house " * 1_300)
        sizes.append(planned(history, pipeline(budget)).after.tokens)
    cuts = sum(after < before for before, after in pairwise(sizes))
    assert sizes[0] > 0.65 * budget.room_tokens
    assert 2 <= cuts < len(sizes) / 4


def windowed(messages):
    return plan(conversation(messages), Size(), pipeline(Budget(10**6), limits=UNCUT))[1].window.copy()


def test_arguments_are_cut_in_no_more_messages_than_needed():
    calls = [one for number in range(2) for one in exchange(["ok"], arguments=json.dumps({"a": f"{number}" + LOG}))]
    window = windowed([user("u"), *calls])
    goal = Budget(window.total.tokens - 1_000).ceiling
    step = replace(
        last_resorts(notices(), Budget(0), showing, ByteClassCounter())[3],
        messages=lambda window: [one for one in window.all() if one.message.calls],
    )
    for change in step(window, goal):
        window.apply(change)
    assert window.over(goal) is None
    assert [bool(one.edits) for one in window.all() if one.message.calls] == [True, False]


def test_of_several_first_questions_no_more_are_cut_than_needed():
    questions = [user(f"{number} " + LOG) for number in range(3)]
    window = windowed([*questions, *exchange(["ok"]), user("And now?")])
    goal = Budget(window.total.tokens - 1_000).ceiling
    for change in replace(STEPS[3], task_tokens=100, dialogue_tokens=0)(window, goal):
        window.apply(change)
    assert window.over(goal) is None
    assert len([one for one in window.all() if one.edits]) == 1


@pytest.mark.parametrize(("room", "tried"), [(100, [0]), (2_000, [0, 8, 4])])
def test_a_message_with_many_images_is_prepared_once_where_its_texts_alone_are_too_much(room, tried):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(PNG)}"}}
    window, goal, seen = kept_of([user([picture] * 16)]), Budget(room).ceiling, []

    def recorded(images):
        seen.append(images)
        return showing(images)

    for change in last_resorts(notices(), Budget(room), recorded, ByteClassCounter())[5](window, goal):
        window.apply(change)
        if window.over(goal) is None:
            break
    assert seen == tried
