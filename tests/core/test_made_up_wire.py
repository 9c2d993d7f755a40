"""The core on a made-up API whose messages are not JSON: nothing in it depends on chat completions."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.line_wire import LineMessage, paired
from support.media_samples import PNG, data_url
from support.strategies import notices, pipeline

from proxy.core.compaction import Budget, plan
from proxy.core.conversation import Conversation, Reason, Size, size_of, unpaired
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.core.tokens import ByteClassCounter
from proxy.core.truncation import TruncateToolOutput

LONG = "\n".join(f"src/module_{number}.py:{number}: def handler_{number}(request)" for number in range(4_000))


def run(exchanges: int, result: str = "handler(request) in src/app.py\n" * 20) -> list[LineMessage]:
    """A system text, a task, and exchanges of two parallel calls each."""
    found = [LineMessage(b"system\n> Be careful."), LineMessage(b"user\n> Find the bug in src/app.py.")]
    for number in range(exchanges):
        asks = f'= {{"path": "a{number}.py"}}\n= {{"path": "b.py"}}'
        found.append(LineMessage(f"assistant read_file read_file\n{asks}\n> Reading.".encode()))
        found += [LineMessage("\n".join(["tool", *(f"> {line}" for line in result.split("\n"))]).encode())] * 2
    return paired(found)


def sent(messages: list[LineMessage], budget: Budget) -> tuple[list[LineMessage], object]:
    made, _ = plan(Conversation(tuple(messages)), Size(), pipeline(budget))
    return paired(map(LineMessage, made.messages)), made


def test_what_fits_keeps_its_bytes():
    messages = run(3)
    found, made = sent(messages, Budget(100_000))
    assert [message.raw for message in found] == [message.raw for message in messages]
    assert made.edits == ()


def test_a_long_result_becomes_an_excerpt_with_a_notice_and_is_kept_whole():
    (edit,) = TruncateToolOutput(pipeline(Budget(9)).local[0].limits)(3, run(1, LONG)[3], "read_file", notices())
    assert edit.artifact.content == LONG.encode()
    shown = run(1, LONG)[3].changed({edit.at: edit.becomes})
    assert "[context-proxy: " in shown.text()
    assert (shown.role, shown.answers) == ("tool", "1")
    assert len(shown.raw) < 10_000


def test_calls_and_results_are_left_out_together_and_a_note_says_so():
    found, made = sent(run(60), Budget(4_000))
    assert made.after.tokens <= 4_000
    calls = [call.id for message in found for call in message.calls]
    assert calls == [message.answers for message in found if message.answers]
    assert 2 < len(calls) < 120
    assert [message.text() for message in found[:2]] == ["Be careful.", "Find the bug in src/app.py."]
    assert sum("earlier messages" in message.text() for message in found) == 1
    assert made.after == sum((size_of(message, ByteClassCounter()) for message in found), Size())


def test_what_is_left_out_is_kept_message_by_message_each_on_a_line():
    messages = run(60)
    found, made = sent(messages, Budget(4_000))
    cuts = [json.loads(artifact.content) for artifact in made.artifacts if artifact.suffix == "json"]
    kept = [one.encode() for cut in cuts for one in cut["messages"]]
    assert kept == [message.raw for message in messages[2 : 2 + len(kept)]]
    assert len(kept) >= len(messages) - len(found)
    assert made.artifacts[0].content.count(b"\n") == len(cuts[0]["messages"]) + 1


def test_between_two_cuts_the_prefix_stays():
    messages, cuts = run(40), 0
    before: list[bytes] = []
    for stop in range(5, len(messages) + 1, 3):
        found = [message.raw for message in sent(messages[:stop], Budget(4_000))[0]]
        cuts += found[: len(before)] != before
        before = found
    assert 0 < cuts < 10


def test_what_has_to_stay_is_cut_where_nothing_else_is_left_to_give():
    found, made = sent([*run(1)[:2], *run(1, LONG)[2:]], Budget(3_000))
    assert made.after.tokens <= 3_000
    assert [message.role for message in found] == ["system", "user", "assistant", "tool", "tool"]
    assert {edit.reason for edit in made.edits} <= {Reason.TRUNCATE_TOOL_OUTPUT, Reason.NEWEST_RESULT}


@pytest.mark.parametrize("target", [ToolImages.USER_AFTER_BATCH, ToolImages.KEEP])
@pytest.mark.parametrize("reads", [frozenset({Modality.TEXT}), frozenset({Modality.TEXT, Modality.VISION})])
def test_an_image_goes_where_the_model_reads_it(reads, target):
    picture = LineMessage(f"tool\n> a screenshot\n! {data_url(PNG, 'image/png')}".encode())
    messages = paired([*run(1)[:3], picture, LineMessage(b"tool\n> x")])
    every = pipeline(Budget(100_000))
    routing = replace(every, local=(RouteMedia(Routes(reads), target), *every.local))
    made, _ = plan(Conversation(tuple(messages)), Size(), routing)
    found = [LineMessage(raw) for raw in made.messages]
    shown = [message.role for message in found if message.images]
    if Modality.VISION not in reads:
        assert shown == []
        assert "[cannot read]" in found[3].text()
        assert made.artifacts[0].content == PNG
    else:
        assert shown == (["tool"] if target is ToolImages.KEEP else ["user"])


CALLS = st.lists(st.sampled_from(["read_file", "grep"]), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(CALLS, st.booleans()), min_size=1, max_size=30), st.integers(300, 6_000), st.booleans())
def test_leaving_out_never_separates_results_from_calls_that_have_no_ids(exchanges, room, asks_again):
    """Parallel calls of the same tools; results name their tool, in another order, or nothing."""
    messages = [LineMessage(b"user\n> Find the bug.")]
    for number, (tools, are_named) in enumerate(exchanges):
        marks = [f"mark{number}x{place}" for place in range(len(tools))]
        head = " ".join(["assistant", *tools])
        messages.append(LineMessage("\n".join([head, *(f'= {{"path": "{mark}"}}' for mark in marks)]).encode()))
        answers = sorted(zip(tools, marks, strict=True)) if are_named else zip(tools, marks, strict=True)
        for tool, mark in answers:
            text = f"> {mark}\n" + "> handler(request) in src/app.py\n" * 9 + f"> {mark}"
            messages.append(LineMessage(f"tool{f' {tool}' if are_named else ''}\n{text}".encode()))
        if asks_again and number % 3 == 2:
            messages += [LineMessage(b"assistant\n> Here."), LineMessage(b"user\n> Go on.")]
    found, _ = sent(paired(messages), Budget(room))
    whole = {message.raw for message in messages}
    assert not unpaired(found)
    marks_by_call: dict[str, str] = {}
    for message in found:
        marks_by_call |= {argument.call_id: mark_in(argument.text) for argument in message.arguments()}
        if message.role == "tool" and message.raw in whole:
            assert mark_in(message.text()) == marks_by_call[message.answers]


def mark_in(text: str) -> str:
    found = re.search(r"mark\d+x\d+", text)
    return found[0] if found else ""
