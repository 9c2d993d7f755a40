"""Streams of the Messages API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fuzz.streams import StreamRules, damaged_cases, events_of
from hypothesis import strategies as st
from support.upstream.messages import answered
from support.upstream.replies import Call, Reply, Usage

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.core.text.jsontext import string_in
from proxy.wire.messages import MESSAGES

_ODD_EVENTS: Final = (
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"type": '
    b'"citations_delta", "citation": {"cited_text": "x"}}}\n\n',
    b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": {"type": '
    b'"hologram", "light": [1]}}\n\n',
)
CALLS: Final = st.builds(
    Call, st.sampled_from([RETRIEVAL_TOOL, "Read", ""]), st.fixed_dictionaries({"artifact": st.just("sha256-0")})
)
REPLIES: Final = st.builds(Reply, st.text(max_size=60), st.lists(CALLS, max_size=3), st.sampled_from(["", "hm"]))
"""What a model says, with calls of ours among the client's."""
USAGE: Final = Usage(prompt=70, cached=20, reply=2)


def _streamed(reply: Reply) -> list[bytes]:
    body = {"model": "m", "stream": True, "thinking": {"type": "enabled"}}
    return events_of(answered(body, reply, USAGE, 1)[0].body)


def _calls(data: Any) -> Iterable[str]:
    block = data.get("content_block") if isinstance(data, dict) else None
    return [string_in(block, "name")] if string_in(block, "type") == "tool_use" else []


CASES: Final = damaged_cases(REPLIES.map(_streamed), _ODD_EVENTS)
RULES: Final = StreamRules(MESSAGES, _calls, b'"tool_use"')
