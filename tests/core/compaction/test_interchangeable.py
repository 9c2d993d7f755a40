from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from proxy.core.compaction.interchangeable import are_interchangeable
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage


def tracked(role: str = "user", content: object = "It is 16:10.", **members: object) -> TrackedMessage:
    raw = json.dumps({"role": role, "content": content, **members}).encode()
    return TrackedMessage.of(0, ChatMessage.read(raw), "", ByteClassCounter())


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_a_clock_in_a_message_that_stays_changes_nothing_for_others(role):
    assert are_interchangeable(tracked(role), tracked(role, "It is 16:11."), 1_000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tracked("assistant"), tracked("assistant", "It is 16:11.")),
        (tracked("tool", tool_call_id="a"), tracked("tool", "It is 16:11.", tool_call_id="a")),
        (tracked("system"), tracked()),
        (tracked("system"), tracked("developer")),
        (tracked(), tracked(content="It is noon.")),
        (tracked(content="see a/b.c"), tracked(content="see a/b.d")),
        (tracked(content="Output: 16:10"), tracked(content="Stdout: 16:10")),
    ],
)
def test_what_may_bear_on_others_or_be_cut_itself_is_not_interchangeable(one, other):
    assert not are_interchangeable(one, other, 1_000)


@pytest.mark.parametrize(
    ("words", "task_tokens", "expected"), [(400, 2_000, True), (400, 500, False), (2_000, 20_000, False)]
)
def test_a_task_that_may_have_been_shortened_is_itself(words, task_tokens, expected):
    one, other = (f"It is {time}." + " and so on" * words for time in ("16:10", "16:11"))
    assert are_interchangeable(tracked(content=one), tracked(content=other), task_tokens) is expected
    assert are_interchangeable(tracked("system", one), tracked("system", other), task_tokens)


def test_a_message_that_was_edited_stands_for_none_but_itself():
    entry, edit = tracked(), Edit(0, ("content",), "other", Reason.SANITISE)
    edited = replace(entry, edits=(edit,))
    assert not are_interchangeable(edited, entry, 1_000)
    assert not are_interchangeable(entry, edited, 1_000)
    followed = replace(entry, following=(entry.message,))
    assert not are_interchangeable(followed, entry, 1_000)
