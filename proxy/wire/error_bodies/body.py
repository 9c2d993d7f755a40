"""Body → what it says: plain, JSON or server-sent events; for a success only errors, finish reasons and usage.

Rule: the assistant's words are never read, whatever they look like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from proxy.core.overflow import ErrorCode, codes
from proxy.core.text import jsontext
from proxy.wire.error_bodies.nested import Found, collect, collect_text, joined, json_or_none, snake

MAX_BODY_BYTES: Final = 65_536
"""An error is short; anything longer is an echo of the request."""
_MAX_CHOICES: Final = 16
_MAX_DEPTH: Final = 8
"""Of responses within events; two are seen. Python 3.12 and later parse JSON nested deeper than calls may be."""

_ERROR_MEMBERS: Final = ("error", "errors", "base_resp", "exception", "fault")
_ERROR_WITHOUT_ANSWER: Final = frozenset({"detail", "message", "msg", "error_msg", "error_message", "error_code"})
_ANSWER_MEMBERS: Final = ("choices", "output", "content", "candidates", "id")
_CACHED_APART: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance"""
_ENDINGS: Final = {"max_output_tokens": "max_tokens"}
"""Finish reasons of the Responses API, and their names on chat completions."""
_BEGINNINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_OUTPUT_MEMBERS: Final = ("output", "content", "item", "part", "content_block")
_NO_OUTPUT: Final = frozenset({"role", "stop_reason", "stop_sequence"})
"""Members of a message or a delta that hold nothing a model said."""
_OF_A_BEGINNING: Final = frozenset({"index", "delta"})
"""Members of a choice that may stand before anything is said; a finish reason may not, but for a cut."""
_SUCCESSES: Final = frozenset({"", "0", "200", "ok", "success", "none"})

_SSE_LINE: Final = re.compile(r"\s{0,8}(event|data|id|retry):[ \t]?(.*)|\s{0,8}:", re.IGNORECASE)
_ERROR_EVENT: Final = re.compile(r"error|exception|fail", re.IGNORECASE)


def opened(body: bytes, *, is_success: bool) -> Found:
    """What a response says, read from its first 64 KiB; `is_success`: a 2xx, of which only errors are read."""
    text = body[:MAX_BODY_BYTES].decode("utf-8", "replace").strip().lstrip("\ufeff").strip()
    found = Found()
    if _SSE_LINE.match(text):
        _add_events(found, text, is_success=is_success)
    elif not is_success:
        collect_text(found, "", "", text)
    elif (value := json_or_none(text)) is not None:
        found.is_silent = _holds_nothing(value)
        _add_success(found, "", value)
    else:
        found.is_silent, found.is_bare_text = not text, bool(text)
        collect_text(found, "", "", text)
    return found


def _add_events(found: Found, text: str, *, is_success: bool) -> None:
    found.is_silent = is_success
    for index, (name, payload) in enumerate(_events(text)):
        path = f"event[{index}]"
        if payload.strip() == "[DONE]":
            continue
        value = json_or_none(payload)
        found.is_silent &= _tells_no_part(value)
        if is_success and isinstance(value, dict) and isinstance(value.get("response"), dict):
            _add_success(found, path, value)  # for `response.failed`, which repeats the request
        elif not is_success or _ERROR_EVENT.search(name):
            collect_text(found, path, "", payload)
        else:
            _add_success(found, path, value)


def _events(text: str) -> Iterator[tuple[str, str]]:
    """(event name, data) of every event; a line without a field name continues the data (some servers do this)."""
    name, lines = "", list[str]()
    for line in [*text.splitlines(), ""]:
        field = _SSE_LINE.match(line)
        if not line.strip():
            if lines:
                yield name, "\n".join(lines)
            name, lines = "", []
        elif field is None:
            lines.append(line)
        elif (member := (field[1] or "").lower()) == "event":
            name = field[2].strip()
        elif member == "data":
            lines.append(field[2])


def _add_success(found: Found, path: str, value: Any, depth: int = 0) -> None:
    """Errors, finish reasons and usage of a 2xx body or event."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return
    for name in _ERROR_MEMBERS:
        if (error := value.get(name)) and not _says_success(error):
            collect(found, joined(path, name), name, error)
    found.has_output |= _has_output(value)
    for name in ("response", "message"):  # Responses API: `response.failed`; Anthropic: `message_start`
        _add_success(found, joined(path, name), value.get(name), depth + 1)
    _add_finish(found, path, value)
    declares_error = str(value.get("type")).lower().endswith("error") or value.get("object") == "error"
    has_answer = any(value.get(name) for name in _ANSWER_MEMBERS)
    if declares_error or (not has_answer and any(snake(name) in _ERROR_WITHOUT_ANSWER for name in value)):
        collect(found, path, "", {name: inner for name, inner in value.items() if name not in _ERROR_MEMBERS})


def holds_nothing(data: bytes) -> bool:
    """Whether the data of a stream's event is an object without any part of a reply, usage or error: Azure's first one,
    `{"choices":[],"prompt_filter_results":[…]}` (learn.microsoft.com/azure/ai-foundry/openai/concepts/
    content-streaming), which some servers send alone; OpenAI's, which only says that the assistant will speak; one that
    only says that the reply was cut: whether it had begun, the usage in the next event says."""
    return _tells_no_part(json_or_none(data.decode("utf-8", "replace")))


def _tells_no_part(value: Any) -> bool:
    if _holds_nothing(value):
        return True
    if not isinstance(value, dict) or any(value.get(name) for name in ("usage", *_ERROR_MEMBERS)):
        return False
    choices = value.get("choices")
    if not isinstance(choices, list) or not 0 < len(choices) <= _MAX_CHOICES or _has_output(value):
        return False
    return all(
        isinstance(choice, dict)
        and isinstance(choice.get("delta"), dict)
        and not any(inner for name, inner in choice.items() if name not in _OF_A_BEGINNING and not _is_cut(name, inner))
        for choice in choices
    )


def _is_cut(name: str, value: Any) -> bool:
    return name == "finish_reason" and isinstance(value, str) and codes.means_cut(value)


def _holds_nothing(value: Any) -> bool:
    """Usage alone is the end of a response, and an empty message is a reply; an object of another kind may be one."""
    if not isinstance(value, dict) or any(value.get(name) for name in ("usage", *_ERROR_MEMBERS)):
        return False
    if jsontext.string_in(value, "type") in _BEGINNINGS:
        return True
    return not value or ("choices" in value and not value["choices"] and not value.keys() & _ERROR_WITHOUT_ANSWER)


def _has_output(value: dict[str, Any]) -> bool:
    """Whether a body or an event holds anything that a model said, on any API."""
    choices = value.get("choices")
    spoken = [value.get("delta")]
    for choice in islice(choices if isinstance(choices, list) else (), _MAX_CHOICES):
        if isinstance(choice, dict):
            spoken += [choice.get("message"), choice.get("delta"), choice.get("text")]
    return any(value.get(name) for name in _OUTPUT_MEMBERS) or any(
        any(inner for name, inner in one.items() if name not in _NO_OUTPUT) if isinstance(one, dict) else bool(one)
        for one in spoken
    )


def _says_success(value: Any) -> bool:
    """MiniMax's `base_resp` is in every response: `{"status_code": 0, "status_msg": "success"}`."""
    return isinstance(value, dict) and str(value.get("status_code", "-")).lower() in _SUCCESSES


def _add_finish(found: Found, path: str, value: dict[str, Any]) -> None:
    choices = value.get("choices")
    inner = [value.get("incomplete_details"), value.get("delta"), *(choices if isinstance(choices, list) else ())]
    for holder in islice((value, *inner), _MAX_CHOICES):
        if not isinstance(holder, dict):
            continue
        for name in ("finish_reason", "stop_reason", "reason", "native_finish_reason"):
            if isinstance(reason := holder.get(name), str):
                found.endings.append(ErrorCode(joined(path, name), _ENDINGS.get(reason, reason)))
        if holder is not value and (error := holder.get("error")):
            collect(found, joined(path, "choices.error"), "error", error)
    if isinstance(usage := value.get("usage"), dict):
        found.counted_prompt = _count(usage, "prompt_tokens", "input_tokens")
        if found.counted_prompt is not None:  # Anthropic counts cache writes and reads separately
            found.counted_prompt += sum(_count(usage, name) or 0 for name in _CACHED_APART)
        found.counted_reply = _count(usage, "completion_tokens", "output_tokens")


def _count(usage: dict[str, Any], *names: str) -> int | None:
    return next((usage[name] for name in names if type(usage.get(name)) is int), None)
