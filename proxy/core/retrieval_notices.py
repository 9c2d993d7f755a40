"""What the proxy's own tool says besides the pages that it reads, in English and Chinese.

Rule: whatever went wrong, the result says what is allowed and what to do next; a model that gets no answer calls again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.notices import MARK, Language

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


def unnamed(language: Language) -> str:
    """The result of a call that names no artifact."""
    return _framed(_WORDS[language]["unnamed"].format())


def failed(name: str, problem: str, language: Language) -> str:
    """The result of a call whose artifact cannot be read, or not so."""
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
