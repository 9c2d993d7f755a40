"""Where a refusal prints its numbers: whole equations before words around a number.

Rule: an entry names the message that it was made for and its source; the first equation found in a text wins, and of
two words the one nearer to the number. A number is `#` here (`skeleton` in `numbers.py`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

NOISE: Final = re.compile(
    "|".join(
        (
            r"\b\d{4}-\d\d-\d\d\S{0,30}|\b\d{1,2}:\d\d(?::\d\d)?\b",
            r"\b\d[\d.,]{0,12} ?(?:ms|s|secs?|seconds?|mins?|minutes?|hours?|days?)(?![a-z0-9])|\b\d{1,4}m\d",
            r"\d[\d.]{0,12} ?(?:毫秒|秒|分钟|小时|天)",
            r"\(parameter=[^()]{0,120}\)",
            r"(?:request|session|trace|req|log|organi[sz]ation|project|task|tool_use|请求) ?[_-]?id ?[:=]? ?\S{1,80}",
            r"<\d{3}>",
            r"^[1-5]\d\d(?=\W)(?! ?tokens?)",
            r"\b(?:http|status|error|code|errno|status_?code)(?: code)?(?:[:= ]| is){0,4}"
            r"\[?(?:[1-5]\d\d|\d{4,6})(?=\W|$)(?! ?(?:tokens?|[,.]\d{3}))",
            r"[(\[](?:2013|1261|3051|1039|20015|336103)[)\]]",
            r"\[\d{1,6}\]|\.\d{1,6}\.",
        )
    )
)
"""Numbers that cannot be a size: ids, dates, durations, status and error codes, array indexes.
2013 and 1039 MiniMax, 1261 Zhipu, 3051 Mistral, 20015 SiliconFlow, 336103 Baidu: codes printed in texts."""


class Role(StrEnum):
    """The meaning of a number."""

    LIMIT = "limit"
    REQUESTED = "requested"
    PROMPT = "prompt"
    REPLY = "reply"
    EXCESS = "excess"
    NOTHING = "nothing"
    """A number that must not be taken for another: the limit of the reply, the lower end of a range."""


class Equation(Struct, frozen=True):
    """Numbers in a formula."""

    pattern: re.Pattern[str]
    """Its groups are named by `Role`."""
    scope: str
    """`Scope` of the limit when this matches; empty if the words around it decide."""
    message: str
    source: str


def _equation(pattern: str, scope: str, message: str, source: str) -> Equation:
    """`<role>` matches a number, `…` for up to 24 characters without one."""
    pattern = pattern.replace("…", "[^#]{0,24}")
    return Equation(re.compile(re.sub(r"<(\w+)>", r"(?P<\1>#)", pattern)), scope, message, source)


EQUATIONS: Final = (
    _equation(
        r"<reply> ?> ?<limit> ?- ?<prompt>", "window",
        "your request has 28000 input tokens (8192 > 32768 - 28000)", "vLLM 0.11",
    ),
    _equation(
        r"<prompt> ?\+ ?<reply> ?= ?<requested> ?>=? ?<limit>", "window",
        "a total of 66594 tokens (50210 + 16384 = 66594 > 65536)", "vLLM 0.19",
    ),
    _equation(
        r"<prompt> ?\+ ?(?:completion |output )?<reply> ?= ?<requested>", "",
        "must not exceed 8192, got 9000 + 512 = 9512", "the same without the limit",
    ),
    _equation(
        r"input and (?:maximum )?(?:output|completion) tokens \(<requested>\) exceed[^#]{0,48}<limit>", "window",
        "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit "
        "(7968)", "Cloudflare Workers AI",
    ),
    _equation(
        r"<prompt>…\+…<reply>…(?:[<>]=?|[≤≥]|exceeds?|over|than|must be|(?:must not|cannot) exceed)…<limit>", "window",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000", "Anthropic Messages API",
    ),
    _equation(
        r"=> ?<prompt> ?>=? ?<limit>", "",
        "After expanding len(req.origin_input_ids_unpadded)=2301 => 41234 >= 32762", "SGLang",
    ),
    _equation(
        r"prompt is too long: <prompt>(?: tokens?)? ?> ?<limit>", "window",
        "prompt is too long: 208732 tokens > 200000 maximum", "Anthropic Messages API; its window holds the reply",
    ),
    _equation(
        r"input length \(<prompt> tokens\) exceeds the maximum allowed length \(<limit> tokens\)", "window",
        "Input length (70210 tokens) exceeds the maximum allowed length (65531 tokens)", "SGLang: window or KV pool",
    ),
    _equation(
        r"<requested>\)?(?: tokens?)?\)? ?(?:>=?|≥) ?[a-z_ ]{0,24}[:=(]? ?<limit>", "",
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", "LM Studio",
    ),
    _equation(
        r"<requested>\)?(?: tokens?)? (?:must|should|cannot|can't|can not|may not|ha(?:s|ve) to|needs? to) (?:not )?"
        r"(?:be )?(?:exceed|less than|fewer than|at most|within|smaller than|under|<=?|≤)(?: or equal to)?…<limit>", "",
        "length of prompt_tokens (68957) must be less than max_seq_len (65536)", "SiliconFlow",
    ),
    _equation(
        r"<limit>(?: tokens?)? ?(?:<=?|≤) ?<requested>", "",
        "maximum context length 4096 < 5120 tokens", "the comparison turned round",
    ),
    _equation(
        r"(?<!/)<requested> ?(?:tokens? ?)?/ ?<limit>(?! ?/)", "",
        "Prompt token count exceeds max token count (5910 / 4095)", "LibreChat",
    ),
    _equation(
        r"\(<requested>(?: tokens?)?, ?(?:max(?:imum)?|limit)(?: of| is|:)? ?<limit>", "",
        "longer than what the model can handle (150000 tokens, max 131072)", "as some chat pages say it",
    ),
    _equation(
        r"<requested>(?: tokens?)? (?:out )?of (?:the |a )?(?:max(?:imum)? |limit )?<limit>", "",
        "Token limit exceeded: 99000 of 65536", "the same as a share",
    ),
    _equation(
        r"(?:limit|max(?:imum)?|allowed)…<limit>(?: tokens?)? ?\(<requested>(?: tokens?)?\)", "",
        "token count is larger than the allowed limit of 65536 (99000)", "the count behind the limit",
    ),
    _equation(
        r"truncate to <limit>, required <requested>", "input",
        "Cannot truncate to 89998, required 355220", "Google AI Studio",
    ),
    _equation(
        r"[\[(] ?<nothing> ?(?:,|-|~|to|至|到) ?<limit> ?[\])]", "input",
        "Range of input length should be [1, 204800]", "DashScope",
    ),
    _equation(
        r"<requested>\W{0,3}(?:which )?(?:is|was|must be)? ?(?:outside|out|not in|not within|in|within)(?: of)?"
        r"(?: the)?(?: allowed| valid)? (?:range|interval)…<nothing> ?(?:,|-|~|to|and) ?<limit>", "input",
        "text length is 45011, which is outside the range (0, 27000]", "YandexGPT",
    ),
    _equation(
        r"between <nothing> and <limit>", "input",
        "Input length must be between 1 and 30720", "DashScope, earlier",
    ),
)  # fmt: skip


class Cue(Struct, frozen=True):
    """Words that give the number beside them its meaning."""

    role: Role
    words: tuple[str, ...]
    """Latin, matched as whole words."""
    signs: tuple[str, ...]
    """Chinese words and mathematical signs, which are not separated from their neighbours."""
    message: str
    source: str

    @property
    def pattern(self) -> str:
        latin = rf"(?<![a-z0-9_])(?:{'|'.join(self.words)})(?![a-z0-9_])"
        return "|".join((latin, *self.signs))


EXCESS: Final = Cue(
    Role.EXCESS,
    (r"by(?: about| at least)?[\s:]{0,2}$",),
    (r"超出了?[\s:]{0,2}$", r"多出了?[\s:]{0,2}$"),
    "exceeded max context length by 4096 tokens", "Ollama",
)  # fmt: skip

HEADS: Final = (
    Cue(
        Role.LIMIT,
        (
            "max(?:imum)?", "limits?", "limit(?:ed)? to", "at most", "up to", "no more than", "allowed", "allows",
            "(?:longer|larger|greater|bigger|higher|more|less|fewer|shorter|smaller) than",
            "too (?:large|long|big) for", "exceed(?:s|ed|ing|ance)?", "surpass(?:es|ed)?", "over", "above", "beyond",
            "only", "accepts?", "supports?", "supported", "within", "capacity", "fit(?: in(?:to)?| within)?",
            "max_?model_?len", "max_num_tokens", "max_seq_len",
            "max_(?:input|prompt|context|total)_[a-z_]{1,20}", "n_ctx",
        ),
        (
            "<=?", "≤", ">=?", "≥", "上限", "最大", "最多", "限制", "超过了?", "超出了?", "大于", "支持",
            "允许", "小于", "少于", "阈值",
        ),
        "prompt token count of 93854 exceeds the limit of 90000", "GitHub Copilot, and nearly everybody",
    ),
    Cue(
        Role.REQUESTED,
        (
            "n_tokens", "num_tokens", "n_past", "total_tokens", "tokens?_count", "requested", "requests?", "got",
            "given", "received", "resulted in", "resolved to", "keep(?: the first)?", "contains?", "contained", "has",
            "have",
            "having", "had", "(?<!of )current(?:ly)?", "actual(?:ly)?", "sent", "used", "provided", "passed", "was",
            "found", "totals?", "totall?ing", "needs?", "requires?", "counted", "is too long", "sum",
        ),
        ("实际", "当前", "目前", "共", "收到", "请求", "传入", "达到", "已达", "已用", "总计", "合计", "您的"),
        "Your messages resulted in 289650 tokens; Given: 5000; Current length is 42328", "OpenAI, TGI, Cerebras",
    ),
    Cue(
        Role.NOTHING,
        (
            "(?:output|completion|reply|response|generation) (?:limit|maximum)", "minimum", "at position", "line",
            "column", "index", "chunk", "version", "port", "position", "upper bound",
        ),
        ("最小", "至少需"),
        "more than 507904 characters, which is the upper bound for 126976 input tokens", "vLLM",
    ),
)  # fmt: skip
"""The nearest one before a number decides; the nouns between it and the number say what is counted."""

NOUNS: Final = (
    Cue(
        Role.LIMIT,
        (
            "context[ _]?(?:length|window|size|limit|len|budget)?", "model[ _]len(?:gth)?",
            "seq(?:uence)?[ _]?len(?:gth)?", "window",
        ),
        ("上下文(?:长度|窗口|大小)?", "窗口"),
        "Prompt length 8192 reaches or exceeds context_length 8192", "Xinference",
    ),
    Cue(
        Role.REPLY,
        (
            "max_?(?:completion_?|new_?|output_?)?tokens", "output", "completion", "prediction", "generat(?:ion|ed)",
            "new tokens", "response", "reply",
        ),
        ("输出", "生成", "回复", "补全"),
        "'max_tokens' or 'max_completion_tokens' is too large: 64000", "vLLM, OpenAI",
    ),
    Cue(
        Role.PROMPT,
        (
            "(?:input|prompt|token) (?:sequence |context )?(?:length|len|size)", "prompts?", "inputs?", "messages?",
            "conversation", "history", "functions?", "tools?", "query", "question", "text",
            "(?:n_|num_)?(?:input|prompt)_(?:len|length|tokens)", "n_keep",
        ),
        ("输入", "提示词?", "消息", "对话", "会话", "历史", "内容", "文本"),
        "input length 145210 exceeds the maximum allowed input length", "Novita, and nearly everybody",
    ),
)  # fmt: skip

AFTER: Final = (
    Cue(
        Role.REPLY,
        (
            "(?:tokens? )?(?:(?:were |was )?(?:requested )?(?:in|for|from|of|as|reserved for) )?(?:the |your |its )?"
            "(?:output|completion|response|reply|generated|generation|new|max_?(?:new_?|completion_?|output_?)?tokens)",
        ),
        ("输出", "生成"),
        "8193 tokens for the completion; 1024 `max_new_tokens`; 16384 output tokens", "SGLang, TGI, vLLM",
    ),
    Cue(
        Role.PROMPT,
        (
            "(?:tokens? )?(?:(?:in|for|from|of|as) )?(?:the |your |its )?(?:text |tool |image |audio )?"
            "(?:inputs?|prompt|messages|functions|tools|tool definitions|history|conversation|context tokens)",
        ),
        ("输入", "提示"),
        "3545 in your prompt; 139000 of text input; 5000 `inputs` tokens", "OpenAI, OpenRouter, TGI",
    ),
    Cue(
        Role.LIMIT,
        ("(?:tokens? |token )?(?:max(?:imum)?|limit|allowed|or (?:less|fewer)|context)",),
        ("的?上限", "的?限制", "以内"),
        "too large for model with 131072 maximum context length; 226 or less", "Mistral, ComfyUI",
    ),
)  # fmt: skip

WINDOW: Final = re.compile(
    r"context|window|model[ _]len|maximum model length|seq(?:uence)?[ _]?len|n_ctx|max_(?:num|total)_tokens|上下文|窗口"
)
"""Beside a limit: it applies to prompt and reply."""
INPUT: Final = re.compile(r"input|prompt|输入|提示")
"""Beside a limit: it applies to the prompt alone."""

ALLOWED_AND_REQUESTED: Final = re.compile(
    r"\blimit:? ([0-9][0-9,]{0,12}),? (?:used:? [0-9][0-9,]{0,12},? )?requested:? ([0-9][0-9,]{0,12})"
    r"(?! ?(?:[kmg]i?)?b)"
)
RATE: Final = re.compile(rf"tokens?\b.{{0,60}}{ALLOWED_AND_REQUESTED.pattern}")
"""Groq with a 413, OpenAI with a 429: `on tokens per minute (TPM): Limit 6000, Requested 14810`.
github.com/continuedev/continue/issues/10218, github.com/vanna-ai/vanna-flask/issues/11"""
WINDOW_AS_REPLY_BOUND: Final = re.compile(r"(?:cannot|must not|can not) (?:be greater than|exceed) max_model_len")
"""vLLM, `max_tokens=200000 cannot be greater than max_model_len=131072`: it refuses the reply and names the window."""
