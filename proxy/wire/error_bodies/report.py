"""Status, headers and body → `ErrorReport`: the names of an error's members, and their contents.

Rule: the name of a member decides its purpose here; its content is left to the core.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.core.overflow import ErrorCode, ErrorReport, Place, Scope, Stated
from proxy.wire.error_bodies.body import opened
from proxy.wire.error_bodies.nested import FoundCode

_WINDOW: Final = ("n_ctx", "max_context_length", "context_length", "context_window", "max_model_len")
_INPUT: Final = ("max_input_tokens", "max_prompt_tokens")
_PROMPT: Final = ("n_prompt_tokens", "prompt_tokens", "input_tokens", "num_prompt_tokens", "prompt_token_count")
_REQUESTED: Final = ("requested_tokens", "total_tokens")

_PLACE: Final = "param"
"""OpenAI's member for the path of the refused part of the request."""
_OF_TEXT: Final = re.compile(r"(?:messages|input|prompt|contents?)(?:\W{0,2}\d{1,6}\W?|\.content|\.text|\.parts){0,6}")
"""`messages[3].content` is prompt, `messages[3].name` is not."""
_ELSEWHERE: Final = re.compile(
    r"(?:messages|input)\W{0,2}\d{1,6}\W?\.(?!content|text|parts).*"
    r"|(?:model|tools?|tool_choice|functions?|function_call|response_format|stop|user|metadata)\b.*"
)
"""`messages[0].role`, `tools[3].function.name`."""


def report_of(status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> ErrorReport:
    """What a response, or its beginning, says about itself."""
    found = opened(body, is_success=200 <= status < 300)
    return ErrorReport(
        status=status,
        asks_to_wait=any(name.lower() == b"retry-after" for name, _ in headers),
        texts=tuple(found.texts),
        codes=tuple(_code(code) for code in found.codes if not code.name.endswith("id")),  # names no cause
        stated=_stated(found.numbers),
        endings=tuple(found.endings),
        counted_prompt=found.counted_prompt,
        counted_reply=found.counted_reply,
        body_bytes=len(body),
        is_bare_text=found.is_bare_text,
        is_silent=found.is_silent and not found.endings,
        has_output=found.has_output,
    )


def _code(found: FoundCode) -> ErrorCode:
    return ErrorCode(found.path, found.text, _place(found.text) if found.name == _PLACE else None)


def _place(path: str) -> Place:
    if _OF_TEXT.fullmatch(path):
        return Place.TEXT
    return Place.ELSEWHERE if _ELSEWHERE.fullmatch(path) else Place.UNCLEAR


def _stated(numbers: Mapping[str, tuple[int, str]]) -> Stated:
    """Sizes from members: llama.cpp says `n_ctx` and `n_prompt_tokens`."""
    limit, limit_path, name = _first(numbers, _WINDOW + _INPUT)
    scope = Scope.UNKNOWN if limit is None else Scope.INPUT if name in _INPUT else Scope.WINDOW
    prompt, requested = _first(numbers, _PROMPT)[0], _first(numbers, _REQUESTED)[0]
    return Stated(limit, scope, limit_path, prompt, requested)


def _first(numbers: Mapping[str, tuple[int, str]], names: tuple[str, ...]) -> tuple[int | None, str, str]:
    """Size, path and name of the first of these members with a size; servers put 0 or -1 into those that they do not
    know."""
    sizes = ((*numbers.get(name, (0, "")), name) for name in names)
    return next((found for found in sizes if found[0] > 0), (None, "", ""))
