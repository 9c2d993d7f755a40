"""Machine codes → what they prove.

Rule: a code is read as words (`ContextWindowExceededError` is `context_window_exceeded_error`); one that providers also
send for other faults (`invalid_request_error`, `InvalidParameter`, 400) proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

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
"""`input_token_limit_exceeded_per_day` is no window."""

_OTHERS: Final = (
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
    r"(?:invalid|unsupported)_(?:value|type|role|parameter|base64|image|function|tool)\w*"
    r"|(?:unknown|missing_required)_parameter|model_not_found"
)
"""OpenAI's codes for a member that it does not take, whatever the text beside them repeats of it."""
_ANOTHER_PARAM: Final = re.compile(
    r"(?:messages|input)\W{0,2}\d{1,6}\W?\.(?!content|text|parts).*"
    r"|(?:model|tools?|tool_choice|functions?|function_call|response_format|stop|user|metadata)\b.*"
)
"""`messages[0].role`, `tools[3].function.name`."""

NEEDING_TEXT: Final = frozenset({"1261", "336103", "336007", "1039"})
"""What Zhipu (1261), Baidu (336103, 336007) and MiniMax (1039) use for a prompt that is too long. Elsewhere these
numbers mean nothing, so they only lift a text that fits."""


def as_words(code: str) -> str:
    """The code in snake case.

    >>> as_words("ContextWindowExceededError")
    'context_window_exceeded_error'
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code[:120])
    return re.sub(r"[\s.\-:/#]+", "_", spaced).lower().strip("_")


def meaning(code: str) -> VerdictKind:
    """What the code proves: `prompt`, another kind, or `unknown` when nothing."""
    word = as_words(code)
    if _TOO_LONG.search(word) and not _FALSE_FRIENDS.search(word):
        return VerdictKind.PROMPT
    return next((kind for kind, pattern in _OTHER_PATTERNS if pattern.search(word)), VerdictKind.UNKNOWN)


def names_another_fault(name: str, text: str) -> bool:
    """Whether a code, or the `param` beside it, is about a member that has nothing to do with length.

    >>> names_another_fault("code", "invalid_value"), names_another_fault("param", "messages[0].role")
    (True, True)
    >>> names_another_fault("code", "invalid_parameter_error"), names_another_fault("param", "messages[0].content")
    (False, False)
    """
    if name == "param":
        return _ANOTHER_PARAM.fullmatch(text) is not None
    word = as_words(text)
    return word != "invalid_parameter_error" and _ANOTHER_FIELD.fullmatch(word) is not None
