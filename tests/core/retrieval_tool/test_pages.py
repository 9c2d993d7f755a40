from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import exchange, pipeline, planned, user

from proxy.core.compaction.budget import Budget
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.pages import is_page
from proxy.core.text.excerpt import ExcerptLimits
from proxy.wire.chat_completions.message import ChatMessage

HEADER = "[context-proxy: lines 1-80 of 5000 of tool_sh_0123456789abcdef.txt, 1,000 of 90,000 bytes]\n"
PAGE = HEADER + "a line of the page\n" * 60


@pytest.mark.parametrize(
    ("tool", "message", "is_one"),
    [
        (RETRIEVAL_TOOL, {"role": "tool", "content": PAGE}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": [{"type": "text", "text": PAGE}]}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": "a tool of the same name"}, False),
        (RETRIEVAL_TOOL, {"role": "user", "content": PAGE}, False),
        ("cat", {"role": "tool", "content": PAGE}, False),
        (RETRIEVAL_TOOL, {"role": "tool", "content": None}, False),
    ],
)
def test_what_is_a_page(tool, message, is_one):
    assert is_page(ChatMessage.read(json.dumps(message).encode()), tool) == is_one


@given(st.integers(300, 6_000), st.integers(1, 4))
def test_a_page_is_sent_whole_or_goes_with_its_exchange(room, others):
    messages = [user("task"), *exchange([PAGE], tool=RETRIEVAL_TOOL)]
    for number in range(others):
        messages += exchange(["another result\n" * 300], first_call=10 + number)
    made = planned(messages, pipeline(Budget(room), limits=ExcerptLimits(20, 300)))
    told = [json.loads(raw) for raw in made.messages]
    pages = [message["content"] for message in told if message.get("tool_call_id") == "call_0"]
    assert pages == [] or PAGE in pages[0]


def test_a_page_in_the_newest_exchange_is_not_what_gives_way():
    messages = [user("task"), *exchange([PAGE, "another result\n" * 3_000], tool=RETRIEVAL_TOOL)]
    made = planned(messages, pipeline(Budget(2_000), limits=ExcerptLimits(4_000, 80_000)))
    contents = [json.loads(raw).get("content") or "" for raw in made.messages]
    assert any(PAGE in content for content in contents)
    assert made.fits


@pytest.mark.parametrize("later", [0, 1, 3])
def test_a_page_that_was_put_back_beside_results_of_the_client_gives_way_like_them(later):
    called = exchange([PAGE * 20, "small"], tool=RETRIEVAL_TOOL)
    calls = called[0]["tool_calls"]
    calls[1]["function"]["name"] = "fetch"
    messages = [user("task"), *called]
    plans = []
    for number in range(later + 1):
        plans.append(planned(messages, pipeline(Budget(1_000), limits=ExcerptLimits(20, 300))))
        messages += [{"role": "assistant", "content": "So."}, user(f"next {number}")]
    for made in plans:
        assert made.fits
        (page,) = [raw.decode() for raw in made.messages if b"call_0" in raw and b'"tool"' in raw]
        assert HEADER.strip() in page
        assert len(page) < len(PAGE * 20) / 4
    assert all(made.messages[:3] == plans[0].messages[:3] for made in plans)
