"""Streams of chat completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fuzz.streams import StreamRules, damaged_cases
from support.answer_shapes import messages, streams

from proxy.core.text.jsontext import listed, object_in
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.chat_completions.replies import called, choice_of

_ODD_EVENTS: Final = (
    b'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}\n\n',
    b'data: {"id": "1",\ndata: "choices": []}\n\n',
)
_USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 2}


def _calls(data: Any) -> Iterable[str]:
    return map(called, listed(object_in(choice_of(data), "delta").get("tool_calls")))


CASES: Final = damaged_cases(messages().flatmap(lambda message: streams(message, usage=_USAGE)), _ODD_EVENTS)
RULES: Final = StreamRules(CHAT_COMPLETIONS, _calls, b'"tool_calls"')
