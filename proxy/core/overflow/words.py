"""The vocabulary of refusals, as one compiled alternation per word class. It is English and Chinese, and says what
machine codes and finish reasons prove.

Rule: no pattern contains a repeated gap (`.*`), so a sentence costs one pass per class; `sentences.py` decides which
classes must occur in the same sentence. A code is read as words (`ContextWindowExceededError` is
`context_window_exceeded_error`); one that providers also send for other faults (`invalid_request_error`,
`InvalidParameter`, 400) proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.models import Modality
from proxy.core.overflow.report import ErrorCode, VerdictKind, as_words


def _any(*phrases: str) -> re.Pattern[str]:
    """One of these: Latin ones as whole words (`tps` is not in `https`); Chinese ones and signs anywhere."""
    return re.compile("|".join(_bounded(phrase) for phrase in phrases))


def _bounded(phrase: str) -> str:
    if not phrase.isascii() or phrase[0] in "<>=\\":
        return phrase
    return rf"(?<![a-z0-9])(?:{phrase})(?![a-z0-9])"


CONTEXT: Final = _any(
    "(?<!additional )(?<!for )(?<!in )(?<!in the )(?<!security )(?<!execution )(?<!more )contexts?(?! ?(?:deadline|"
    "cancel|of (?!the model|[0-9])|manager|errors?|switch|:))",
    "context[ _]?(?:length|window|size|limit|len|budget)s?", "contextlength", "contextwindow", "(?:n|num)_ctx",
    "ctx(?:[ _](?:size|len|length))?", "max_?model_?len", "model[ _]len(?:gth)?", "maximum model length",
    "(?:max_|maximum |max )?seq(?:uence)?[ _]?len(?:gth)?", "session[ _]len(?:gth)?", "max_position_embeddings",
    "position embeddings", "kv[ -]?cache", "kv memory", "max_num_tokens", "max_total_tokens", "上下文", "窗口",
)  # fmt: skip
"""Names of the window."""

PROMPT: Final = _any(
    "prompts?", "inputs?(?! should be (?:an? |one of|(?:less|greater) than or equal to [0-9]+(?! ?tok)))", "messages",
    "conversations?", "chat history", "history", "chat", "dialogue?", "transcript",
    "input_?(?:ids|tokens|length|len)", "prompt_?(?:tokens|length|len)", "输入", "提示", "消息", "对话", "会话",
    "历史", "讯息",
)  # fmt: skip
"""The parts that a shorter request shortens."""

REQUEST: Final = _any(
    "requests?", "requested", "text", "contents?", "documents?", "quer(?:y|ies)", "message", "question", "payload",
    "请求", "内容", "文本", "问题", "文字",
)  # fmt: skip
"""Words that may mean the prompt: they need another word beside them."""

TOKEN: Final = _any(
    "tokens?", "token[ _]?(?:count|length|limit|ids?)s?", "tokens?数", "词元", "权杖", "トークン", "토큰", "токен"
)
"""Also in languages of which no sentence is read: their numbers may be our own count."""
LENGTH: Final = _any(
    "length", "len", "size", "long", "longer", "lengthy", "长度", "字数", "超长", "过长", "太长", "大小",
)  # fmt: skip

EXCEED: Final = _any(
    "exceed(?:s|ed|ing|ance)?", "surpass(?:es|ed)?", "overflow(?:s|ed|ing)?",
    "(?:longer|larger|greater|bigger|higher|more) than",
    "(?:over|above|beyond)(?= (?:the |its |your |our |this )?(?:model|max|limit|context|allowed|token|"
    "budget|permitted|window|[0-9]))",
    "too (?:long|large|big|many|much|lengthy)", "(?:not|cannot|[a-z]{2,6}n't) fit", "unable to fit",
    "(?:run|ran|running|runs) out of (?:context|tokens|room|space)", "out of (?:context|range)",
    "outside (?:of )?(?:the )?(?:(?:allowed|valid) )?range", "exhausted",
    "(?:is|was|window|length|size|context) full", "(?:reach(?:es|ed)?|hit) (?:the |its )?(?:max(?:imum)?|limit)", ">=?",
    "≥", "cannot truncate", "(?<=context )shift is disabled", "find (?:a kv cache slot|free space)",
    "supports? only (?:[a-z0-9.-]{1,40} up to )?[0-9]{1,4} ?[km] (?:tokens? )?(?:of )?context",
    "超过", "超出", "超长", "过长", "太长", "超限", "溢出", "过多", "过大", "大于", "超越", "太大",
    "太多", "已达",
)  # fmt: skip

OUT_OF_RANGE: Final = _any("out of range", "outside (?:of )?(?:the )?(?:(?:allowed|valid) )?range")

BARE_LIMIT: Final = re.compile(
    r"\A(?:\W*(?:error: ?)?(?:the )?(?:(?:max(?:imum)?|length|limit|exceeds?|exceeded|is|was|has been|allowed)\W*){3,8}"
    r"|\W*(?:请求|已经?){0,2}(?:超过|超出)了?(?:模型|系统)?的?最大长度(?:限制|上限)?\W*)\Z"
)
"""A whole sentence that says, without a subject, that something is too long: `length limit exceeded`, or
`超过最大长度`, which hermes-agent knows from Chinese providers (github.com/NousResearch/hermes-agent,
`agent/error_classifier.py`)."""

TOO_LONG: Final = _any("too long", "too lengthy", "cannot truncate", "超长", "过长", "太长")
TOO_LARGE: Final = _any("too (?:large|big|much)", "过大", "太大")
TOO_MANY_TOKENS: Final = _any("too many (?:[a-z]{1,12} )?tokens?", "tokens?(?:数量?|数目)?(?:过多|太多|过大)")

BOUND: Final = _any(
    "limit(?:s|ed|ation|ations)?", "max", "maximum", "allowed", "allowable", "permitted", "capacity", "supported",
    "threshold", "max_[a-z_]{2,40}", "budget", "上限", "限制", "最大", "最多", "允许", "限额", "阈值", "范围",
)  # fmt: skip

MUST: Final = _any(
    "(?:must|should|shall|may|can|could|cannot|can ?not|can't|must not|should not|shouldn't) (?:be|have|"
    "not|exceed|contain|only)",
    "cannot exceed", "can't exceed", "not exceed", "at most", "no more than", "up to", "limited to", "less than",
    "fewer than", "shorter than", "smaller than", "no longer than", "<=?", "≤", "supports?", "only", "within",
    "range of", "between", "不能", "不得", "不可", "不应", "应", "需", "最多", "最大", "仅支持", "支持", "范围",
    "以内", "小于", "少于",
)  # fmt: skip
"""A rule, stated instead of its violation."""

REDUCE: Final = _any(
    "reduce", "shorten", "shorter", "decrease", "truncate", "trim", "compress", "compact", "summari[sz]e", "cut",
    "lower", "split", "remove", "clear", "减少", "缩短", "压缩", "精简", "截断", "删减", "裁剪", "简化", "清理",
)  # fmt: skip

REPLY: Final = _any(
    "max_?(?:completion_?|new_?|output_?|gen_?|response_?)?tokens", r"(?<!\.)max_length", "num_predict", "n_predict",
    "max(?:imum)? (?:number of )?tokens? (?:you requested|requested|value|parameter|setting|field|"
    "argument|must|should|cannot|can|has to|is too|too|needs?|to generate|to sample)",
    "(?:output|completion|generated|new|response|generation|reply) tokens?",
    "(?:output|generation|response|completion) (?:length|limit)", "completions?", "predictions?",
    "(?:thinking|reasoning)(?:[ ._](?:budget|tokens?|budget_tokens|length|effort))?", "budget_tokens",
    "max(?:imum)? output", "generate (?:at most|up to|(?:a )?max(?:imum)?)", "输出", "生成", "回复", "补全",
)  # fmt: skip
"""The reply and the parameters that limit it."""

REPLY_PARAMETER: Final = _any("max_?(?:completion_?|new_?|output_?|gen_?)?tokens", "num_predict", "n_predict")
NO_ROOM_LEFT: Final = re.compile(r"tokens must be at least 1, got -[0-9]")
"""vLLM without a reply limit in the request, which then is what the window leaves: `max_tokens must be at least 1, got
-160` (github.com/vllm-project/vllm/issues/5700)."""
SUM: Final = _any("plus", "sum", "total", "combined", "together", r"\+", "and", "or", "及", "和", "与", "加", "总")

RESOURCE: Final = _any(
    "context deadline", "context cancell?ed", "time[- ]?outs?", "deadline exceeded", "time limit",
    "exceeded (?:the )?(?:time ?out|deadline|maximum time)", "(?:retries|attempts|redirects) exceeded",
    "out of memory", "memory (?:allocation|limit|usage|error)", "oom", "recursion", "disk", "timed out", "超时",
    "显存", "内存",
)  # fmt: skip
"""Time, memory and attempts also run out: Go says "context deadline exceeded"."""
NO_TOOLS: Final = re.compile(
    r"enable-auto-tool-choice|--jinja|no endpoints found that support (?:tool|the provided 'tool)"
    r"|(?:not|n't) support (?:tool|function)|不支持 ?(?:tool|function|工具|函数)|unsupported parameter: '?tools"
    r"|(?:tool|function)s?(?:[ _-](?:us(?:e|age)|choice|call(?:s|ing)?))?(?: parser)?\W{1,2}(?:is|are)"
    r" (?:(?:not|un)[ -]?(?:supported|enabled|available|configured)|disabled)"
)
"""Whatever the status: vLLM without a parser (`"auto" tool choice requires --enable-auto-tool-choice and
--tool-call-parser to be set`), llama.cpp with a 500 (`tools param requires --jinja flag`), Ollama (`… does not support
tools`), OpenRouter with a 404 (`No endpoints found that support tool use`)."""
POINTS_BACK: Final = _any("(?:exceeds?|exceeded|exceeding|over|above|than) (?:it|this|that|these|those)")
"""Exceeds a limit that the sentence before has named."""
MINIMUM: Final = _any("at least", "minimum", "min", "too (?:small|short|low)", "至少", "最小", "最少", "过短", "太短")

LEFT: Final = _any("remaining", "left", "available", "剩余")
BATCH: Final = _any("physical batch", "(?:embedding )?batch[ _](?:size|limit)", "ubatch")
"""llama.cpp's limit for an embedding input, which is no window."""

WITHOUT_MEANING: Final = re.compile(
    r"[0-9]+|v[0-9]+|bad|requests?|invalid|errors?|exceptions?|https?|status|codes?|body|arguments?|param(?:eter)?s?|"
    r"data|incorrect|response|the|an?|is|was|has|have|been|not|no|with|by|in|of|for|to|from|this|your?|you|that|could|understand|contains?|sent|"
    r"api|client|browser|servers?|upstream|backend|provider|gateway|returned|received|failed|failure|occurred|unknown|"
    r"unexpected|something|went|wrong|none|null|nginx|openresty|tengine|caddy|apache|ubuntu|debian|litellm|open|ai|"
    r"(?:请求|参数|错误|无效|非法|异常|失败|上游|返回|服务|的|了)+"
)
"""A word of refusals that name no cause: reason phrases, the pages of gateways, the `400 status code (no body)` of
OpenAI's client (github.com/QwenLM/qwen-code/issues/646), OpenRouter's `Provider returned error`
(github.com/diegosouzapw/OmniRoute/issues/3044), Google's `Request contains an invalid argument.`, which it says "when
the input is too long", too (github.com/google-gemini/gemini-cli/issues/15366)."""

ENGLISH: Final = _any(
    "the", "is", "are", "was", "of", "to", "for", "and", "not", "with", "must", "should", "this", "by"
)
"""Words of nearly every English sentence, and of no other language."""

NO_USER_MESSAGE: Final = re.compile(
    r"\b(?:no|at least one|without a|requires an?|missing) user (?:query|message|turn|prompt|input)s?\b|没有用户消息"
)
"""Ollama, when its own cut has left no message of a user: `no user query found in messages`
(github.com/ollama/ollama/issues/18107)."""

QUOTES_A_VALUE: Final = re.compile(r"invalid (?:value|type)s?: '")
"""OpenAI repeats a role or an option that it does not know: `Invalid value: 'robot'. Supported values are: …`."""

RATE: Final = _any(
    "(?:per|each|every|a|/)[ _-]?(?:min(?:ute)?|day|hour|sec(?:ond)?|month|week)s?", "tokens?/(?:min|m|day|s)",
    "[iot]?tp[mdhs]", "rp[mdhs]", "qp[smd]", "rate[ _-]?limit(?:s|ed|er|ing)?", "ratelimit(?:ed|ing|error)?",
    "throttl(?:e|ed|es|ing)", "throttlingexception", "too many requests", "requests? too (?:fast|frequent(?:ly)?)",
    "(?:please )?wait(?:ing)?", "slow down", "(?:try|retry)(?: again)? (?:in|after)(?= [0-9])", "concurren(?:t|cy)",
    "minutely", "daily", "hourly", "频繁", "限流", "速率", "每分钟", "每天", "每日", "每秒", "每小时", "并发", "频率",
    "used [0-9][0-9,]*,? requested", "今日", "当日",
)  # fmt: skip

QUOTA: Final = _any(
    "quotas?", "credits?", "afford", "billing", "balance", "insufficient[ _]funds", "payment", "spend(?:ing)?",
    "hard limit", "usage limit", "subscription", "monthly", "(?:your|current) (?:[a-z]+ )?plan",
    "(?:token|api|monthly|your|current) usage", "max budget",
    "cost", "余额", "欠费", "额度", "配额", "充值", "付费", "资源包", "账户", "用量", "用完", "用尽", "本月", "当月",
)  # fmt: skip

PAIRING: Final = _any(
    "tool[ _]?calls?", "tool_?use(?:_id)?s?", "tool[ _]?results?", "tool[ _]?call[ _]?ids?", "role '?tool'?",
    "tool messages?", "tool role", "function[ _]?calls?", "function[ _]?responses?", "preceding message",
    "no tool (?:call|output) found", "工具调用",
)  # fmt: skip
PAIRED: Final = _any(
    "must", "follow(?:s|ed|ing)?", "preced(?:e|ing|ed)", "corresponding", "missing", "without", "unexpected",
    "not found", "respon(?:se|d|ded)", "same turn", "after", "before", "match(?:ing)?", "equal", "orphan(?:ed)?",
    "immediately", "no tool", "no previous", "previous turn", "same number", "不匹配", "缺少", "必须", "对应",
)  # fmt: skip

SEALED: Final = _any(
    "encrypted[ _]content",
    "compaction(?: item)?s?",
    "(?:redacted_)?thinking",
    "of type '?reasoning'?",
    "(?:thought|reasoning)[ _]signatures?",
)
"""Reasoning that only its upstream can read or verify: another model, key or account may not."""
BROKEN_SEAL: Final = _any(
    "(?:could|can)(?: ?not|n't) be (?:verified|decrypted|decoded|parsed|validated)",
    "invalid ['\"]?(?:signature|data|encrypted[ _]content|(?:thought|reasoning)[ _]signature)",
    "signature['\"]?(?: in the thinking block)?(?: is|:)? (?:invalid|not valid|expired|field required)",
    "corrupted (?:thought|reasoning)", "encrypted[ _]content['\"]? is invalid", "base64 decoding failed",
    "(?:unable|failed) to verify", "verification failed", "without its required following item",
    "(?:cannot|can ?not|can't|must not|may not|should not) be (?:modified|changed|altered|edited|removed)",
    "must (?:remain|stay|be (?:returned|passed back|preserved|kept|sent back) (?:unmodified|unchanged|exactly|as))",
    "ha(?:s|ve) been (?:modified|changed|altered|tampered)", "must contain thinking", "do(?:es)? not match",
    "input should be a valid string",
)  # fmt: skip
"""OpenAI: "The encrypted content gAAA… could not be verified. Reason: Encrypted content could not be decrypted or
parsed." (github.com/openai/codex/issues/8145). Anthropic: "messages.1.content.0: Invalid `signature` in `thinking`
block" (github.com/anthropics/claude-code/issues/10627). Google: "Thought signature is not valid"
(github.com/bobrware/bobrchat/issues/120), "Corrupted thought signature." (github.com/anomalyco/opencode/issues/4832),
"Invalid thought signature." (github.com/lbjlaq/Antigravity-Manager/pull/3342)."""

_AN_ID: Final = (
    r"(?:\btool[ _]?(?:call|use)s?(?:\[\d+\]|\.\d+)?[ _.]?ids?\b|\btool_use ids?\b|\bcall[_ ]ids?\b|tooluseid"
    r"|\b(?:tool_calls?|input|tool_use)\W{0,2}\d*\W{1,3}id\b)"
)
_MISSHAPEN: Final = (
    r"too long|maximum length|length (?:of|less|must)|string should match|regular expression|\bpattern\b"
    r"|at most \d+ char|longer than|a-z|alphanumeric|only letters|that begins with"
    r"|invalid (?:format|characters?)"
)
FAULTS: Final = tuple(
    (kind, tuple(map(re.compile, patterns)))
    for kind, *patterns in (
        (VerdictKind.ITEM_IDS, r"\bitem\b", r"\bid '?[a-z]{2,4}_\w+'? not found|without its required 'reasoning' item"),
        (
            VerdictKind.SAME_IDS,
            _AN_ID + r"|\bids?\b.{0,60}tool|toolresult blocks?|duplicate item",
            r"\bunique|duplicate|already (?:used|exists)|same id|重复",
        ),
        (VerdictKind.CALL_IDS, _AN_ID + r"|expected an id that", _MISSHAPEN),
        (
            VerdictKind.CALL_NAMES,
            r"\b(?:tool_calls|tool_?use|function_?call|input\W\d+)[\w.\[\]]*\.name\b|\bfunction name was\b",
            _MISSHAPEN,
        ),
        (
            VerdictKind.ARGUMENTS,
            r"arguments?\b|tool_use\W{1,3}input|tooluse\W{1,3}input|(?:function|tool)[ _]?call\W{1,3}args|调用参数",
            r"(?<![a-z])json(?![a-z])|\bpars(?:e|ed|ing)\b|dict(?:ionary)?\b|\bobject\b|unmarshal|decod|malformed"
            r"|format of the value"
            r"|invalid function arg|invalid tool|protobuf\.struct",
        ),
        (
            VerdictKind.ARGUMENTS,
            r"unterminated string starting at|expecting (?:value|property name|'.' delimiter)|extra data"
            r"|looks like object|only get item pairs|unexpected end of json",
            r"\bline \d+ column \d+ \(char \d+\)|closing|mapping|json input",
        ),
        (
            VerdictKind.CACHE_MARKS,
            r"cache_control|cache[ _]?points?\b|cache[ _](?:breakpoints?|markers?|blocks?|controls?)",
            r"maximum|at most|too many|exceed|more than|up to|limit",
        ),
        (
            VerdictKind.SURROGATES,
            r"surrogate|invalid (?:unicode|utf-?(?:8|16))|not (?:valid )?utf-?8|invalid \\?u?escape|hex escape"
            r"|unicode (?:code ?point|escape|character)|(?:in|not |mal)(?:valid |formed )json"
            r"|pars(?:e|ing) (?:the )?(?:request |json )?body|\\u?x{4}|as a unicode string"
            r"|json decode error|textencodeinput",
        ),
        (VerdictKind.ARGUMENTS, r"syntax error while parsing", r"\bline \d+, column \d+"),
        (
            VerdictKind.SERVER_TOOLS,
            r"srvtoolu_|server_tool_use|mcp_tool_(?:use|result)|(?:web_search|web_fetch|code_execution|bash|tool_search)"
            r"\w{0,20}_tool_result",
            r"without|corresponding|missing|unexpected|not found|must (?:be|have)|no ",
        ),
        (
            VerdictKind.ROLE_ORDER,
            r"(?:unexpected|invalid|wrong) role ?'?user'? after (?:role )?'?(?:tool|user)"
            r"|\b(?:must|should) (?:be )?alternat|[必需]须?要?交替"
            r"|(?:consecutive|successive) (?:(?:user|assistant|or) ){0,3}messages?"
            r"|role of message with even index|function call turn comes immediately after"
            r"|'?user'? messages? (?:is|are) not allowed "
            r"(?:directly |immediately )?(?:after|following)"
            r"|'?user'? (?:role |message )?(?:cannot|can ?not|must not|may not|can't) (?:directly )?"
            r"(?:follow|come after)"
            r" (?:a |the )?(?:role )?'?tool|(?:after|follow).{0,30}\btool\b.{0,30}\bassistant\b"
            r".{0,20}expected"
            r"|expected (?:last )?(?:role )?'?assistant'? (?:role )?(?:after|following) (?:role )?'?tool",
        ),
        (
            VerdictKind.SIGNATURE,
            r"thought[ _]?signature",
            r"missing|without|required|lacks?\b|must (?:be|have|include)|not (?:found|provided|present)",
        ),
        (
            VerdictKind.OTHER_MEMBERS,
            r"\b(?:messages?|input)\b",
            r"\bproperty '[\w.]+' is unsupported|extra (?:inputs|fields) (?:are )?not permitted"
            r"|is not allowed in the input|additional propert\w+ .{0,60}not allowed|unrecognized key"
            r"|unknown (?:field|name)\b|unknown parameter: '(?:messages|input)\W\d"
            r"|#/messages/\d\S* extraneous key",
        ),
        (
            VerdictKind.EMPTY_REASONING,
            r"reasoning_content|reasoning content",
            r"(?:cannot|can not|must not|can't|not) be (?:empty|blank)|non-?empty|不能为空",
        ),
        (
            VerdictKind.REASONING,
            r"reasoning_content|reasoning content",
            r"passed back|missing|must (?:be|have|include|contain)|required|not (?:found|provided|present)|lacks?\b"
            r"|回传|传回",
        ),
        (
            VerdictKind.FIRST_ROLE,
            r"(?:conversation|dialog|messages?|requests?|multiturn)\b",
            r"(?:must|should|ha(?:s|ve) to) (?:start|begin) with (?:an? )?(?:role )?'?user(?! agent)"
            r"|begin with user role"
            r"|first message (?:must|should|has to) (?:use the |be |have )?(?:an? |the )?(?:role )?\W{0,2}user",
        ),
        (
            VerdictKind.LAST_ROLE,
            r"expected last role|assistant (?:message |response )?prefill|(?:must|should|has to) end with (?:an? )?user"
            r"|last message (?:[\w-]+ ){0,3}(?:must|should|has to) (?:be|have)"
            r"|when the last message is from the assistant|assistant messages at the end",
        ),
        (
            VerdictKind.SYSTEM_PLACE,
            r"\bsystem\W? (?:messages?|role|prompt|after|as an)\b|role \W?system",
            r"(?:must|should|can only|may only) (?:be|come|appear) (?:at the (?:beginning|start)|(?:the )?first)"
            r"|unexpected role \W?system|role \W?system\W? after|not \W?system\W? as an input message role",
        ),
        (
            VerdictKind.TEXT_CONTENT,
            r"\bcontents?\b",
            r"(?:must|should) be (?:of type )?(?:a )?(?:valid )?string(?! (?:or|with|of|in))"
            r"|expected (?:a )?str(?:ing)?\b(?! (?:or|with|of|to))|not a valid str\b"
            r"|of type string|not in 'string'|got null|<nil>|invalid type: (?:null|sequence|map)|unsupported content\W",
        ),
        (
            VerdictKind.EMPTY_CONTENT,
            r"\b(?:contents?|texts?|messages?|parts|blocks?)\b|内容|消息|prompt参数",
            r"non-?empty|is not empty|must (?:have|contain) (?:either|a message)|length must be greater than 0"
            r"|minlength: 1|required oneof field|content\W.{0,20}field required|required field|未正常接收"
            r"|(?:not|never|cannot|can't) be (?:empty|blank|null)|(?:is|are|was|were) (?:empty|blank)"
            r"|empty (?:\w+ )?(?:content|text|message)|non-?whitespace|content: field required|^content is required"
            r"|at least (?:1|one) (?:character|part|item|content|block|token)"
            r"|(?:must|should) be set|either content or|ha(?:s|ve) no content|must have (?:a |some )?text"
            r"|不能为空|为空",
        ),
    )
)
"""Faults of a history, by words that must all occur in one sentence. Anthropic, OpenAI, Bedrock, Mistral (`Unexpected
role 'user' after role 'tool'`), DeepSeek (`The reasoning_content in the thinking mode must be passed back to the API`),
Google (`Function call is missing a thought_signature in functionCall parts`), Groq (`property 'reasoning_content' is
unsupported`, `messages[0].content must be a string`), Qwen's template (`System message must be at the beginning.`),
MiniMax (`invalid params, invalid function arguments json string`), vLLM and others that parse arguments for a template
in Python (`Unterminated string starting at: line 1 column 13 (char 12)`). What they say is true of the request or
nothing is repaired."""

POLICY: Final = _any(
    "content[ _-]?(?:filter(?:ed|ing)?|policy|management|moderation)", "moderat(?:ion|ed)", "inappropriate", "safety",
    "harmful", "violat(?:e|es|ed|ion|ing)", "flagged", "responsible ?ai", "sensitive", "data_inspection_failed",
    "prohibited", "blocked", "敏感", "违规", "违反", "不当", "审核", "安全",
)  # fmt: skip

AUTH: Final = _any(
    "api[ _-]?keys?", "authenticat(?:ion|e|ed)", "unauthori[sz]ed", "authori[sz]ation", "credentials?", "permission",
    "forbidden", "access denied", "not authori[sz]ed", "invalid_api_key", "鉴权", "认证", "无权", "未授权", "密钥",
    "无效的令牌", "令牌无效",
)  # fmt: skip

COUNT: Final = _any(
    "(?:number of|too many|at most [0-9]+|max(?:imum)?(?: of)? [0-9]+|"
    r"more than [0-9]+|limit(?: is| of|:)? [0-9]+) (?:[a-z]{1,12} )?(?:images?|image\(s\)|tools?|"
    "functions?(?! responses?)(?! calls? (?:parts|and))|messages|files?|videos?|"
    "audios?|attachments?|choices|stop sequences?|documents?|parts|content blocks|items|elements|entries|rows|pages|"
    "turns|properties|enum|logprobs|candidates|schemas?)",
    "array too (?:long|large)", "array_above_max_length", "max(?:imum)? (?:size|length) of [0-9]+ (?:entries|items)",
    "(?:image|tool|message|file|video|document|function) counts?", "limit for (?:images|tools|files|videos)",
    "(?:图片|图像|工具|文件|视频|音频|函数|消息|对话|会话|tools?|images?|messages?) ?(?:的)?(?:数|个数|张数|条数|轮)",
    "images? per (?:request|prompt)", "[0-9]+ (?:images|tools|files|pages|document pages)", "页数",
)  # fmt: skip

FIELD: Final = _any(
    "(?:image|video|audio|file|pdf|recording|clip|string|url|uri|header|headers|name|names|id|ids|field|"
    "value|key|title|description|filename|path|argument|arguments|stop|user|metadata|seed|suffix|"
    "instruction|tag|label) (?:is |was |are )?too (?:long|large|big)",
    "string_above_max_length", "string(?: value)? length",
    "maxlength", "header fields?", "encrypted_content", "pixels?", "dimensions?",
    "resolution", "像素", "分辨率", "string with maximum length", "名称(?:过长|超长)", "字段", "request[- ]uri",
)  # fmt: skip

TRUNCATION: Final = _any("truncate_prompt_tokens")
"""vLLM's parameter that cuts a prompt to that many tokens. It is refused if it exceeds the window, however short the
prompt: `truncate_prompt_tokens value (40000) is greater than max_model_len (32768).` vllm/entrypoints/utils.py"""

FIELD_NOUN: Final = _any(
    "names?", "descriptions?", "titles?", "urls?", "headers?", "keys?", "labels?", "metadata", "schemas?",
    "patterns?", "suffix", "instructions?", "arguments?", "passwords?", "usernames?", "stop", "名称", "描述", "标题",
)  # fmt: skip
"""Small fields with limits of their own, which are printed in characters."""
FOREIGN_TOKEN: Final = _any("(?:access|auth|authentication|bearer|api|id|refresh|jwt|csrf|session|security) tokens?")
"""Tokens that are keys."""

BYTES: Final = _any(
    "bytes?", "[0-9.]{0,12} ?[kmg]i?b", "megabytes?", "kilobytes?", "payload", "entity too large", "upload",
    "(?:request |http )?body", "file size", "content-length", "content length limit", "maximum size", "size limit",
    "(?:message|payload) size", "received message larger than max", "字节", "请求体", "请求体过大",
    "文件(?:大小|过大)", "兆",
)  # fmt: skip
REQUEST_TOO_LARGE: Final = _any("request (?:entity |size |is )?too large", "request_too_large", "请求过大")
"""Bytes, unless the sentence names a prompt: `request too large, please shorten the conversation`."""
STATED_BYTES: Final = re.compile(r"([0-9][0-9,_]{0,14}(?:\.[0-9]{1,3})?) ?(?:bytes?\b|([kmg])i?b\b)")
BODY_TOO_LARGE: Final = re.compile(
    r"\b(?:body|payload|request size)\b[^.]{0,40}(?:too large|exceed)|\bexceed\w*[^.]{0,30}\b(?:body|payload)\b"
)
"""Go's `http: request body too large` and Django's `Request body exceeded settings.DATA_UPLOAD_MAX_MEMORY_SIZE.`, with
a 400; Kong's `Request size limit exceeded`, with a 417."""
LARGE_NUMBER: Final = re.compile(r"(?<![0-9.,])([1-9][0-9]{5,10})(?![0-9])")
"""A size in bytes without the word: Kimi's `total message size 4394912 exceeds limit 2097152`, gRPC's `received message
larger than max (4718592 vs. 4194304)`."""
ABOUT_THE_PROMPT: Final = re.compile(rf"{TOKEN.pattern}|{PROMPT.pattern}|{CONTEXT.pattern}|\blength\b|长度")
"""With a 413, which otherwise limits bytes: Ollama's `continued conversation is too large; compact it or resend a
shorter history` (github.com/ollama/ollama, middleware/responses_history.go), Cerebras' `Please reduce the length of the
messages or completion. Current length is 50000 while limit is 40000`."""

MEDIA: Final = _any(
    "images?", "image_urls?", "image input", "audio", "input_audio", "videos?", "video_url", "vision", "visual",
    "multi-?modal(?:ity)?", "aspect ratio", "files?", "pdfs?", "documents?", "attachments?", "modalit(?:y|ies)",
    "mmproj", "图片", "图像", "音频", "视频", "文件", "多模态", "视觉",
)  # fmt: skip
UNSUPPORTED: Final = _any(
    "(?:not|[a-z]{2,6}n't) (?:a |an |yet |currently )?(?:support(?:ed|s)?|multi-?modal|accept(?:ed)?|"
    "allowed|enabled|available|a vision|handle|process)",
    "unsupported", "cannot (?:process|handle|accept|read|take|identify)", "no endpoints? found",
    "(?:unable|failed) to (?:process|decode|load|read|open|parse|identify)", "(?:not|n't) (?:represent )?(?:a )?valid",
    "invalid (?:image|audio|video|pdf|document)s?", "do(?:es)? not meet", "media type, but", "password[- ]protected",
    "aspect ratio must", "encoder cache",
    "only (?:supports?|accepts?) (?:text|string)", "only supported by", "unknown variant", "not a multi-?modal",
    "text[- ]only", "unrecogni[sz]ed", "does not have vision", "lacks?", "no support",
    "must be (?:a |')?(?:text|string)",
    "only '?text'? is (?:allowed|supported|accepted)", "only allowed for",
    "no (?:vision|image|multi-?modal) (?:capabilit(?:y|ies)|support)", "not a vlm",
    "missing data required", "invalid value:",
    "不支持", "无法识别", "无法处理", "仅支持文本", "不具备",
)  # fmt: skip

NONE_ALLOWED: Final = _any("at most 0", "最多 ?0")
"""vLLM, for a model that reads only text: `At most 0 image(s) may be provided in one prompt.`"""

TEXT_ONLY: Final = re.compile(r"\btext[- ]only\b|only (?:supports?|accepts?) text inputs?|\.type'? must be 'text'")
"""Of a model, without a word for what it does not read."""

KINDS_OF_MEDIA: Final = {
    Modality.VISION: re.compile(r"image|vision|visual|图片|图像|视觉"),
    Modality.AUDIO: re.compile(r"audio|音频"),
    Modality.VIDEO: re.compile(r"video|视频"),
    Modality.FILE: re.compile(r"\bfiles?\b|\bpdfs?\b|\bdocuments?\b|attachment|\bfile_data\b|文件|文档"),
}
ALLOWED_MEDIA: Final = re.compile(
    r"(?:expected|supported (?:values|types|formats|content types)|allowed (?:values|types)|must be|only (?:supports?|"
    r"accepts?)|仅支持|只支持).*",
    re.DOTALL,
)
"""Including everything after it: `unknown variant image_url, expected text` (DeepSeek); `Invalid value: 'file'.
Supported values are: 'text', …`. It is searched once per text, and only if a sentence refuses media."""
ONE_CONTENT: Final = re.compile(
    r"\bformats?\b|\bmime\b|media type|\bvalid\b|identify|decod|download|corrupt|"
    r"pars(?:e|ing)\b|base64|fetch|\bpixels?\b|\bresolution\b|(?:could not|unable to) process\b|"
    r"(?:unable|failed) to (?:load|open|process (?:the )?(?:image|audio|video|file))\b|"
    r"\binvalid (?:image|audio|video|pdf|document)|\baspect\b|restriction|encoder cache|"
    r"\bprotected\b|格式|下载|解码"
)
"""Pillow's `cannot identify image file`, OpenAI's `one of the following formats: ['png', 'jpeg', 'gif', 'webp']`."""
CONDITION: Final = re.compile(
    r"\b(?:when|while|whenever|unless|combined|in (?:combination|conjunction)|together|alongside|at the same time)\b|"
    r"\b(?:supported|allowed|available|enabled|accepted|used|compatible|support|accept) (?:[a-z_]+ )?with "
    r"(?!(?:this|the|your|any) (?:[a-z]+ )?(?:model|deployment|engine|endpoint|provider))|"
    r"\b(?:certain|some|selected|specific) models\b|\bif (?!this is unexpected|you )|时|同时|部分模型"
)
"""`not supported when using predicted outputs`, `with n > 1`, `only supported by certain models` behind a router; but
not llama.cpp's `hint: if this is unexpected, you may need to provide the mmproj`."""
TOOL_MESSAGE: Final = re.compile(r"role:? ?'?tool|tool ?messages?|toolmessage|tool results?")
MESSAGE_OF_A_ROLE: Final = re.compile(r"role|tool ?messages?|toolmessage|system ?messages?|assistant ?messages?")
"""`Image URLs are only allowed for messages with role 'user', but this message with role 'tool' contains an image`."""

TRANSIENT: Final = _any(
    "overload(?:ed)?", "timed? ?out", "unavailable", "temporarily", "try again later", "internal (?:server )?error",
    "bad gateway", "capacity", "connection (?:reset|refused|error)", "no available", "负载", "稍后", "繁忙", "超时",
    "不可用", "system is busy", "server is busy", "server error", "upstream (?:connect )?error",
)  # fmt: skip

CHARACTERS: Final = _any("characters?", "chars?", "字符", "个字", "字数", "汉字")


_TOO_LONG_CODE: Final = re.compile(
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

_OTHER_CODES: Final = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        (VerdictKind.SEAL, r"invalid_encrypted_content"),
        (VerdictKind.QUOTA, r"insufficient_(?:\w+_)?(?:quota|balance|credit|funds)|billing|payment|credit|arrearage"),
        (VerdictKind.QUOTA, r"quota_exceeded$|quota_failed"),
        (
            VerdictKind.RATE,
            r"rate_?limit|throttl|too_many_(?:requests|tokens)|resource_exhausted|[tr]pm_|_[tr]pm|concurrency",
        ),
        (
            VerdictKind.POLICY,
            r"content_?(?:filter|policy)|policy_violation|moderation|safety|responsible_?ai|sensitive",
        ),
        (VerdictKind.POLICY, r"data_inspection"),
        (VerdictKind.AUTH, r"auth|api_key|permission|forbidden|access_denied|invalid_token"),
        (VerdictKind.NOT_FOUND, r"model_not_found|not_found_error$"),
        (VerdictKind.COUNT, r"array_above_max_length|too_many_(?:images|tools|messages|files)"),
        (VerdictKind.FIELD, r"string_above_max_length|string_too_long|oversized"),
        (VerdictKind.FIELD, r"(?:media|image|video|audio)_(?:budget|size|dimension)"),
        (VerdictKind.BYTES, r"(?:request|payload|entity|body)_too_large"),
        (VerdictKind.TRANSIENT, r"overloaded|unavailable|timeout|timed_out|server_busy|engine_busy"),
    )
]

_ANOTHER_FIELD: Final = re.compile(
    r"(?:invalid|unsupported)_(?:type|role|base64|image|function|tool)\w*"
    r"|(?:unsupported_(?:value|parameter)|unknown_parameter|missing_required_parameter|model_not_found)\w*"
)
"""OpenAI's codes for a member that it does not accept, whatever part of it the text repeats. `invalid_value` and
`InvalidParameter` are not among them: Volcengine Ark sends the latter with every 400."""
_FULL_ENDING: Final = re.compile(r"context_(?:\w{1,10}_)?(?:exceed|reach|full|overflow)")

NEEDING_TEXT: Final = frozenset({"1261", "336103", "336007", "1039"})
"""Codes of Zhipu (1261), Baidu (336103, 336007) and MiniMax (1039) for a prompt that is too long. Elsewhere these
numbers mean nothing, so they only support a text that says so."""


def meaning(code: str) -> VerdictKind:
    """The kind that a code proves; `unknown` if it proves nothing."""
    word = as_words(code)
    if _TOO_LONG_CODE.search(word) and not _FALSE_FRIENDS.search(word):
        return VerdictKind.PROMPT
    return next((kind for kind, pattern in _OTHER_CODES if pattern.search(word)), VerdictKind.UNKNOWN)


def means_full(ending: str) -> bool:
    """Whether a finish reason says that the window is full.

    >>> means_full("model_context_window_exceeded"), means_full("stop")
    (True, False)
    """
    return _FULL_ENDING.search(as_words(ending)) is not None


def names_another_fault(code: ErrorCode) -> bool:
    """Whether a code for the cause is about a member that has nothing to do with length.

    >>> [names_another_fault(ErrorCode("", text)) for text in ("invalid_type", "unknown_parameter", "InvalidParameter")]
    [True, True, False]
    """
    return code.place is None and _ANOTHER_FIELD.fullmatch(as_words(code.text)) is not None


AFFORDED: Final = re.compile(r"can only afford [0-9]")
"""OpenRouter, with a 402: `This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens,
but can only afford 8123.` A lower reply limit is the cure that it names."""
TIER: Final = re.compile(
    r"(?:extra usage|usage credits?) (?:is|are) required for (?:long[ -]context|1m context)"
    r"|(?:long[ -]context|1m context(?: window)?)(?: beta)? is (?:not|unavailable|incompatible)"
    r"|(?:not enabled for|not have access to) (?:the )?(?:long[ -]|1m )context"
    r"|long[ -]context requests?\b.{0,40}\brequires?\b"
)
"""Anthropic, with 429 and 400, where a plan or an organisation has no access to prompts of over 200 000 tokens
(github.com/NousResearch/hermes-agent/issues/4747)."""

NO_JSON: Final = re.compile(
    r"\b(?:pars|decod|deseriali[sz])\w*\b.{0,80}\bjson|\bjson\b.{0,80}\b(?:pars|decod)|\b(?:in|not (?:a )?)valid json"
    r"|jsondecodeerror|unexpected (?:token|character|end)\b.{0,40}\bjson"
)
"""`Failed to parse tool result as JSON`, `invalid JSON in function response`."""
