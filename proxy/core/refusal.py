"""The words for a request that cannot be made to fit: what was measured, what takes the room, what can be done.

Rule: sizes, roles, tools and indexes only; never content.
"""

from __future__ import annotations

from typing import Final

from proxy.core.notices import Language
from proxy.core.plan import Plan

_WORDS: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "size": "This request needs about {after:,} tokens even with everything left out that may be left out; the "
        "room for a prompt to {model} is {room:,} of its {window:,} tokens.",
        "chars": " It has {chars:,} characters; at most {limit:,} are allowed.",
        "bytes": " It has {bytes:,} bytes; at most {limit:,} are allowed.",
        "largest": " The largest messages that have to stay: {largest}.",
        "message": "messages[{index}] ({role}{tool}, {tokens:,} tokens)",
        "advice": " Shorten the system text, the last user message or the tool list, or take a model with a larger "
        "window.",
    },
    "zh": {
        "size": "在省略所有可省略的内容之后，此请求仍约需 {after:,} 个 token；"
        "模型 {model} 的窗口为 {window:,} 个 token，其中可用于提示的有 {room:,} 个。",
        "chars": "共 {chars:,} 个字符，上限为 {limit:,} 个。",
        "bytes": "共 {bytes:,} 字节，上限为 {limit:,} 字节。",
        "largest": "必须保留的最大消息：{largest}。",
        "message": "messages[{index}]（{role}{tool}，{tokens:,} 个 token）",
        "advice": "请缩短系统提示、最后一条用户消息或工具列表，或改用窗口更大的模型。",
    },
}


_REFUSED_TWICE: Final[dict[Language, str]] = {
    "en": "The upstream refused this request as too long, and once more after its prompt or its reply limit had been "
    "lowered; the prompt then had about {tokens:,} tokens. What has to stay are the system text, the last user "
    "message, the tool list and the newest results: shorten these, ask for a shorter reply, or take a model with a "
    "larger window.",
    "zh": "上游认为此请求过长；压缩提示或降低回复上限后再次被拒绝，当时提示约有 {tokens:,} 个 token。"
    "必须保留的是系统提示、最后一条用户消息、工具列表和最新的工具结果：请缩短它们、请求更短的回复，或改用窗口更大的模型。",
}


_EMPTY_TWICE: Final[dict[Language, str]] = {
    "en": "The upstream answered this request with a success that holds nothing, and so it did once more after the "
    "prompt had been shortened to about {tokens:,} tokens. Some servers refuse like this what is longer than their "
    "context window: look into the server's own log, and at the window that it was started with.",
    "zh": "上游对此请求返回了成功状态，但内容为空；将提示压缩到约 {tokens:,} 个 token 后再次发送，返回仍为空。"
    "有些服务器以这种方式拒绝超出其上下文窗口的请求：请查看该服务器的日志及其启动时设置的窗口大小。",
}


def empty_twice(tokens: int, language: Language) -> str:
    """The message for a client whose request got an empty answer once more after a harsher cut."""
    return _EMPTY_TWICE[language].format(tokens=tokens)


def refused_twice(tokens: int, language: Language) -> str:
    """The message for a client whose request was refused once more after a harsher cut. `tokens`: the model's."""
    return _REFUSED_TWICE[language].format(tokens=tokens)


def does_not_fit(plan: Plan, model: str, window_tokens: int, language: Language) -> str:
    """The message of a `context_length_exceeded` error of the proxy's own; sizes in the model's tokens."""
    words, size, budget = _WORDS[language], plan.after, plan.budget
    told = budget.model_tokens
    after, room = told(size.tokens), told(budget.room_tokens)
    text = words["size"].format(after=after, model=model, room=room, window=window_tokens)
    if budget.room_chars is not None and size.chars > budget.room_chars:
        text += words["chars"].format(chars=size.chars, limit=budget.room_chars)
    if budget.room_bytes is not None and size.bytes > budget.room_bytes:
        text += words["bytes"].format(bytes=size.bytes, limit=budget.room_bytes)
    largest = [
        words["message"].format(
            index=entry.index,
            role=entry.message.role or "?",
            tool=f" {entry.tool}" if entry.tool else "",
            tokens=told(entry.size.tokens),
        )
        for entry in plan.largest
    ]
    if largest:
        text += words["largest"].format(largest=", ".join(largest))
    return text + words["advice"]
