"""Requests of chat completions, with whatever clients put into them."""

from __future__ import annotations

from typing import Any, Final

from fuzz.mutations import damaged, mutated, spelled
from fuzz.requests import RequestRules
from hypothesis import strategies as st
from support.strategies import ODD_MESSAGES, any_histories, pairing_faults, valid_histories

from proxy.wire.chat_completions import CHAT_COMPLETIONS

_PICTURE: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_FILE: Final = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}
_PARTS: Final[list[dict[str, Any]]] = [
    {"type": "image_url", "image_url": {"url": _PICTURE, "detail": "high"}},
    {"type": "image_url", "image_url": {"url": "https://pictures.invalid/a.png"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRgAAAABXQVZF", "format": "wav"}},
    {"type": "file", "file": _FILE},
    {"type": "text", "text": f"see {_PICTURE} there", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
]
_RESPONSE: Final = (
    '{"status": "success", "data": {"rows": [1, 2]}, "text": "two rows", "stats": {"time_ms": 3}, "context": '
    '{"truncation_skip": true}, "error": null}'
)
_MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "gpt-4o", ""]),
        "stream": st.booleans(),
        "max_tokens": st.sampled_from([1, 500, 6_000]),
        "max_completion_tokens": st.sampled_from([1, 500, 6_000]),
        "tools": st.just([{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]),
        "tool_choice": st.sampled_from(["auto", "required", {"type": "function", "function": {"name": "read_file"}}]),
        "n": st.sampled_from([1, 2]),
        "metadata": st.just({"messages": [{"role": "user", "content": "not this one"}]}),
    },
)


@st.composite
def _requests(draw: Any) -> dict[str, Any]:
    messages = list(draw(st.one_of(valid_histories(2), any_histories())))
    for _ in range(draw(st.integers(0, 2))):
        parts = draw(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3))
        content = draw(st.sampled_from([parts, _RESPONSE, _RESPONSE.replace("true", "false")]))
        message = {"role": draw(st.sampled_from(["user", "tool"])), "tool_call_id": "call_0", "content": content}
        messages.insert(draw(st.integers(0, len(messages))), draw(st.one_of(st.just(message), ODD_MESSAGES)))
    members = {"model": "m", **draw(_MEMBERS)}
    return {**members, "messages": messages} if draw(st.booleans()) else {"messages": messages, **members}


CASES: Final = damaged(spelled(mutated(_requests())))


def _is_paired(body: bytes) -> bool:
    return not pairing_faults([message.raw for message in CHAT_COMPLETIONS.parse(body).conversation.messages])


RULES: Final = RequestRules(CHAT_COMPLETIONS, "messages", _is_paired)
