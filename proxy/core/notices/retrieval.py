"""What the proxy's own tool says besides the pages that it reads, in English and Chinese.

Rule: whatever went wrong, the result says what is allowed and what to do next; a model that gets no answer calls again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.artifact_reading.patterns import MAX_CONTEXT, MAX_PATTERN_CHARACTERS
from proxy.core.notices.catalogue import MARK, Language
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactQuery, ProxyError, RangeOutside

_WORDS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "unnamed": 'read_artifact needs the id of an artifact as a notice names it, and perhaps lines or grep: {{"id": '
        '"tool_bash_0123456789abcdef.txt", "lines": "400-480"}}',
        "failed": "{name} was not read: {problem}",
        "last": "This was the last of {rounds} readings in one answer: go on with what you have.",
        "many": "Not read: at most {calls} artifacts are read at once. Call again for this one.",
        "stopped": "(The answer ends here: the model has read its {rounds} pages, and asked for more.)",
        "withheld": "(The answer ends here: the model asked for a page of what was cut, and could not be given it.)",
    },
    "zh": {
        "unnamed": 'read_artifact 需要通知中给出的工件 id，可另加 lines 或 grep：{{"id": '
        '"tool_bash_0123456789abcdef.txt", "lines": "400-480"}}',
        "failed": "未能读取 {name}：{problem}",
        "last": "一次回答最多读取 {rounds} 次，这是最后一次：请根据已有内容继续。",
        "many": "未读取：一次最多读取 {calls} 个工件。请再次调用以读取此工件。",
        "stopped": "（回答到此为止：模型已读取 {rounds} 页，并要求继续读取。）",
        "withheld": "（回答到此为止：模型要求读取被截去内容中的一页，但无法提供。）",
    },
}
_QUERIES: Final[Mapping[str, str]] = {
    "lines": '`lines` 应写作 "400-480"、"400-" 或 "-80"，从 1 起计，末行不得在首行之前',
    "grep": f"`grep` 须为 1 至 {MAX_PATTERN_CHARACTERS} 个字符的 RE2 正则表达式，不得含环视或反向引用",
    "context": f"`context` 须为 0 至 {MAX_CONTEXT} 的整数，且只能与 `grep` 同用",
}
_PROBLEMS: Final[Mapping[type[ProxyError], str]] = {
    ArtifactNotFound: "没有此工件，或它属于另一个密钥，或已过保存期",
    ArtifactStoreUnavailable: "工件存储暂时不可用，请稍后再试，或根据已有内容继续",
    RangeOutside: '工件中没有所要的行或字节；不带 lines 可从头读取，lines="-80" 可读取末尾',
    BadArtifactQuery: "`lines` 和 `grep` 只能读取文本，此工件不是文本",
}
"""In Chinese, what the messages of these errors say in English."""


def unnamed(language: Language) -> str:
    """The result of a call that names no artifact."""
    return _framed(_WORDS[language]["unnamed"].format())


def failed(name: str, error: ProxyError, language: Language) -> str:
    """The result of a call whose artifact cannot be read, or not so."""
    problem = error.message
    if language == "zh":
        kinds = (said for kind, said in _PROBLEMS.items() if isinstance(error, kind))
        in_chinese = _QUERIES.get(error.param or "") if isinstance(error, BadArtifactQuery) else None
        problem = in_chinese or next(kinds, error.code or "")
    return _framed(_WORDS[language]["failed"].format(name=name, problem=problem))


def too_many(calls: int, language: Language) -> str:
    """The result of a call beyond those that are answered in one round."""
    return _framed(_WORDS[language]["many"].format(calls=calls))


def last_reading(rounds: int, language: Language) -> str:
    """Behind the result in the last round."""
    return "\n" + _framed(_WORDS[language]["last"].format(rounds=rounds))


def stopped(rounds: int, language: Language) -> str:
    """What the client reads when the model has not said a word and would go on reading for ever."""
    return _WORDS[language]["stopped"].format(rounds=rounds)


def withheld(language: Language) -> str:
    """What the client reads when the model has not said a word and cannot have its page: there is no room for it."""
    return _WORDS[language]["withheld"]


def _framed(said: str) -> str:
    return f"{MARK}{said}]\n"
