from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.retrieval_tool.continuation import Continuation, mark_of_name
from proxy.core.retrieval_tool.hidden_calls import HiddenToolCalls, beginning, mark_of

NAMES = st.text(max_size=60)
MESSAGES = st.one_of(st.dictionaries(NAMES, NAMES).map(json.dumps), st.text()).map(str.encode)
RESULTS = st.lists(MESSAGES, max_size=4)


@given(NAMES, NAMES, RESULTS)
def test_what_is_kept_is_read_as_it_was(told, name, results):
    kept = Continuation.of("me", told, name, results)
    assert Continuation.read(kept.artifact().content, kept.mark) == kept
    assert (kept.name, list(kept.results)) == (name, results)
    assert kept.artifact().id == HiddenToolCalls.name_of(kept.mark)
    assert kept.held_bytes == len(name) + sum(map(len, results))


def test_a_name_is_one_tenants_and_no_call():
    marks = {mark_of_name(tenant, name) for tenant in ("me", "you") for name in ("resp_1", "resp_2")}
    assert len(marks) == 4
    assert mark_of(beginning("me"), [["resp_1"]]) not in marks


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"visible":"m","name":"r"}', b'{"visible":"m","name":7,"results":[]}', b"\xff"],
)
def test_other_content_is_no_record(content):
    assert Continuation.read(content, "m") is None


def test_a_record_under_another_mark_and_hidden_calls_are_no_record():
    kept = Continuation.of("me", "resp_1", "resp_2", [b"{}"])
    assert Continuation.read(kept.artifact().content, mark_of_name("me", "resp_2")) is None
    assert HiddenToolCalls.read(kept.artifact().content, kept.mark) is None
    hidden = HiddenToolCalls(kept.mark, (0,), (b"{}",), (b"{}",))
    assert Continuation.read(hidden.artifact().content, kept.mark) is None
    assert "{}" not in repr(kept)
