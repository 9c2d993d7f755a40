"""Streams of the Responses API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fuzz.messages_streams import REPLIES, USAGE
from fuzz.streams import StreamRules, damaged_cases, events_of
from support.upstream.replies import Reply
from support.upstream.responses import answered

from proxy.core.text.jsontext import string_in
from proxy.wire.responses import RESPONSES

_ODD_EVENTS: Final = (
    b'event: response.output_item.added\ndata: {"type": "response.output_item.added", "output_index": 0, "item": '
    b'{"type": "hologram"}}\n\n',
    b'event: response.incomplete\ndata: {"type": "response.incomplete", "response": {"output": []}}\n\n',
    b'event: response.failed\ndata: {"type": "response.failed", "response": {"error": {"code": "server_error"}}}\n\n',
)


def _streamed(reply: Reply) -> list[bytes]:
    body = {"model": "m", "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}
    return events_of(answered(body, reply, USAGE, 1)[0].body)


def _calls(data: Any) -> Iterable[str]:
    item = data.get("item") if isinstance(data, dict) else None
    return [string_in(item, "name")] if string_in(item, "type") == "function_call" else []


CASES: Final = damaged_cases(REPLIES.map(_streamed), _ODD_EVENTS)
RULES: Final = StreamRules(RESPONSES, _calls, b'"function_call"')
