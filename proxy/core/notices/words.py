"""The phrases of notices, in English and Chinese; `notices.py` says which are put together, and when.

Rule: both languages have the same phrases, with the same places for what is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "shown": "{kept_lines:,} of {lines:,} lines, {kept_bytes:,} of {bytes:,} bytes of this text are shown: "
        "{parts}.",
        "shown_brief": "{kept_lines:,} of {lines:,} lines, {kept_bytes:,} of {bytes:,} bytes shown.",
        "more": " More: {place}",
        "more_from": " More: {place}, from line {line} on",
        "head": "its beginning",
        "rescued": "{rescued:,} lines that tell of failures",
        "tail": "its end",
        "none": "nothing",
        "and": ", ",
        "whole": " The whole is kept in {place}.",
        "unkept": " The rest could not be kept.",
        "subagent": " Give that file to a sub-agent and ask it for what you need.",
        "page": " Read or search that file in parts, from line {line} on.",
        "shell": " To go on reading: {command}",
        "call_whole": " To get the whole: {call}",
        "call": " The whole is kept; to go on reading: {call}",
        "names": " Names in what is left out: {names}",
        "omitted": "{messages:,} earlier messages ({chars:,} characters) are left out here to fit the model's window.",
        "arguments": "The middle is left out here to fit the model's window.",
        "reasoning": "Reasoning of {chars:,} characters is left out here to fit the model's window.",
        "kept_messages": " They are kept as JSON in {place}.",
        "call_messages": " They are kept as JSON; to search them: {call}",
        "asked": " The user asked earlier: {asked}",
        "told": "\nLines of them, under the file or command that they come from, as last seen; … stands for more:",
        "response": "An excerpt; the whole is kept in {place}.",
        "call_response": "An excerpt; for the whole: {call}",
        "replaced": "characters shown as \ufffd here, as the upstream does not take them: {count:,}",
    },
    "zh": {
        "shown": "此文本共 {lines:,} 行、{bytes:,} 字节，此处显示 {kept_lines:,} 行、{kept_bytes:,} 字节：{parts}。",
        "shown_brief": "此处显示 {lines:,} 行中的 {kept_lines:,} 行、{bytes:,} 字节中的 {kept_bytes:,} 字节。",
        "more": " 更多：{place}",
        "more_from": " 更多：{place}，从第 {line} 行起",
        "head": "开头",
        "rescued": "{rescued:,} 行报错",
        "tail": "结尾",
        "none": "无",
        "and": "、",
        "whole": " 完整内容保存在 {place}。",
        "unkept": " 其余内容未能保存。",
        "subagent": " 可让子代理处理该文件并返回所需信息。",
        "page": " 可从第 {line} 行起分段读取或搜索该文件。",
        "shell": " 继续阅读：{command}",
        "call_whole": " 获取完整内容：{call}",
        "call": " 完整内容已保存，继续阅读：{call}",
        "names": " 省略部分中的名称：{names}",
        "omitted": "为适应模型的上下文窗口，此处省略了之前的 {messages:,} 条消息（{chars:,} 个字符）。",
        "arguments": "为适应模型的上下文窗口，此处省略了中间部分。",
        "reasoning": "为适应模型的上下文窗口，此处省略了 {chars:,} 个字符的推理内容。",
        "kept_messages": " 它们以 JSON 格式保存在 {place}。",
        "call_messages": " 它们以 JSON 格式保存，搜索：{call}",
        "asked": " 用户此前的要求：{asked}",
        "told": "\n其中部分行如下，列在其来源文件或命令之下，为最近一次所见；… 表示略去：",
        "response": "此处为节选，完整内容保存在 {place}。",
        "call_response": "此处为节选，完整内容：{call}",
        "replaced": "上游不接受的字符在此显示为 \ufffd，共 {count:,} 个",
    },
}
