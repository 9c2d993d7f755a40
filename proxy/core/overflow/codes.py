"""Machine codes and finish reasons → what they prove.

Rule: a code is read as words (`ContextWindowExceededError` is `context_window_exceeded_error`); a code that providers
also send for other faults (`invalid_request_error`, `InvalidParameter`, 400) proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.overflow.report import ErrorCode
from proxy.core.overflow.verdict import VerdictKind

_TOO_LONG: Final = re.compile(
    "(?:^|_)(?:"
    + "|".join(
        (
            r"context_?(?:length|window|size|limit|tokens?|budget)?_?(?:limit_)?(?:is_)?"
            r"(?:exceed(?:s|ed)?|overflow(?:ed)?|too_(?:long|large)|reached)(?:_|$)",
            r"context_(?:length|window|size|limit)_error",
            r"out_?of_?context",
            r"exceed(?:s|ed)?_(?:max_|model_)?context",
            r"(?:prompt|inputs?|messages|conversation)_(?:tokens?_|length_|text_|size_|is_)*"
            r"(?:too_(?:long|large|many|big)|(?:limit_)?exceeded|overflow|limit$)",
            r"too_many_(?:prompt|input|context)_tokens",
            r"max_(?:prompt|input|context|model)_(?:tokens?|length|len)_(?:limit_)?(?:exceeded|reached)",
            r"(?:tokens?|characters)_too_(?:long|many)",
            r"tokens_limit_reached|token_quantity_exceeded",
        )
    )
    + ")"
)
"""`context_length_exceeded` (OpenAI and many), `exceed_context_size_error` (llama.cpp), `OutofContextError` (Ark),
`model_max_prompt_tokens_exceeded` (Copilot), `tokens_limit_reached` (GitHub Models), `tokens_too_long` (UCloud),
`characters_too_long` (Qianfan), `prompt_limit`, `input_too_long`, `token_quantity_exceeded`."""
_FALSE_FRIENDS: Final = re.compile(r"output|completion|per_(?:min|day)|rate_limit|quota|encrypted")
"""`input_token_limit_exceeded_per_day` is not about a window."""

_OTHERS: Final = (
    (VerdictKind.SEAL, r"invalid_encrypted_content"),
    (VerdictKind.QUOTA, r"insufficient_(?:\w+_)?(?:quota|balance|credit|funds)|billing|payment|credit|arrearage"),
    (VerdictKind.QUOTA, r"quota_exceeded$|quota_failed"),
    (
        VerdictKind.RATE,
        r"rate_?limit|throttl|too_many_(?:requests|tokens)|resource_exhausted|[tr]pm_|_[tr]pm|concurrency",
    ),
    (VerdictKind.POLICY, r"content_?(?:filter|policy)|policy_violation|moderation|safety|responsible_?ai|sensitive"),
    (VerdictKind.POLICY, r"data_inspection"),
    (VerdictKind.AUTH, r"auth|api_key|permission|forbidden|access_denied|invalid_token"),
    (VerdictKind.COUNT, r"array_above_max_length|too_many_(?:images|tools|messages|files)"),
    (VerdictKind.FIELD, r"string_above_max_length|string_too_long|oversized"),
    (VerdictKind.FIELD, r"(?:media|image|video|audio)_(?:budget|size|dimension)"),
    (VerdictKind.BYTES, r"(?:request|payload|entity|body)_too_large"),
    (VerdictKind.TRANSIENT, r"overloaded|unavailable|timeout|timed_out|server_busy|engine_busy"),
)
_OTHER_PATTERNS: Final = [(kind, re.compile(pattern)) for kind, pattern in _OTHERS]

_ANOTHER_FIELD: Final = re.compile(
    r"(?:invalid|unsupported)_(?:type|role|base64|image|function|tool)\w*"
    r"|(?:unsupported_(?:value|parameter)|unknown_parameter|missing_required_parameter|model_not_found)\w*"
)
"""OpenAI's codes for a member that it does not accept, whatever part of it the text repeats. `invalid_value` and
`InvalidParameter` are not among them: Volcengine Ark sends the latter with every 400."""
STRING_TOO_LONG: Final = "string_above_max_length"
"""OpenAI's, for any text of a request; another member of the error says which one."""
_CUT: Final = ("length", "max_tokens")
_FULL: Final = re.compile(r"context_(?:\w{1,10}_)?(?:exceed|reach|full|overflow)")

NEEDING_TEXT: Final = frozenset({"1261", "336103", "336007", "1039"})
"""Codes of Zhipu (1261), Baidu (336103, 336007) and MiniMax (1039) for a prompt that is too long. Elsewhere these
numbers mean nothing, so they only support a text that says so."""


def as_words(code: str) -> str:
    """The code in snake case.

    >>> as_words("ContextWindowExceededError")
    'context_window_exceeded_error'
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code[:120])
    return re.sub(r"[\s.\-:/#]+", "_", spaced).lower().strip("_")


def meaning(code: str) -> VerdictKind:
    """What the code proves: `prompt`, another kind, or `unknown` if it proves nothing."""
    word = as_words(code)
    if _TOO_LONG.search(word) and not _FALSE_FRIENDS.search(word):
        return VerdictKind.PROMPT
    return next((kind for kind, pattern in _OTHER_PATTERNS if pattern.search(word)), VerdictKind.UNKNOWN)


def means_cut(ending: str) -> bool:
    """Whether a finish reason says that the reply was cut, for whatever reason."""
    return ending.lower() in _CUT


def means_full(ending: str) -> bool:
    """Whether a finish reason says that the window is full.

    >>> means_full("model_context_window_exceeded"), means_full("stop")
    (True, False)
    """
    return _FULL.search(as_words(ending)) is not None


def names_another_fault(code: ErrorCode) -> bool:
    """Whether a code for the cause is about a member that has nothing to do with length.

    >>> [names_another_fault(ErrorCode("", text)) for text in ("invalid_type", "unknown_parameter", "InvalidParameter")]
    [True, True, False]
    """
    return code.place is None and _ANOTHER_FIELD.fullmatch(as_words(code.text)) is not None
