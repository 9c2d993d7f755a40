"""The message for a request that cannot be made to fit: measured sizes, the largest parts, and what to do.

Rule: sizes, roles, tools and indexes only; never content.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Final

from proxy.core.compaction import Plan
from proxy.core.conversation import REPLY_PRIMING_TOKENS, SYSTEM_ROLES
from proxy.core.notices import Language
from proxy.core.overflow.report import Scope, Unit, Verdict, VerdictKind

_OPENAI_TOKENS: Final = (
    "This model's maximum context length is {window} tokens. However, you requested {requested} tokens "
    "({prompt} in the messages, {reserved} in the completion)."
)
"""In OpenAI's words, whatever the language of the rest: litellm, DSPy, opencode, LangChain and CrewAI recognise an
overflow by this text. https://community.openai.com/t/error-this-models-maximum-context-length-is-x-tokens/105071"""
_OPENAI_OTHER: Final = (
    "This model's maximum context length is {limit} {unit}. However, your messages resulted in {found} {unit}."
)
_OPENAI_UNNAMED: Final = "Your input exceeds the context window of this model."
"""The Responses API's message for an unknown limit."""
_WORDS: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "size": " That is the request for {model} with everything optional already left out",
        "room": "; the room for a prompt is {room:,} tokens",
        "stop": ".",
        "largest": " The largest parts that have to stay: {largest}.",
        "message": "messages[{index}] ({role}{tool}, {tokens:,} tokens)",
        "put_in": "a page of {tool} after messages[{index}] ({tokens:,} tokens)",
        "tools": "the tool list ({tokens:,} tokens)",
        "system": "the system text beside the messages ({tokens:,} tokens)",
        "reply": " Lower the reply limit of {reply:,} tokens first.",
        "member": "the member {name} ({tokens:,} tokens)",
        "advice": " Shorten the largest of these, or use a model with a larger window.",
        "advice_in_size": " Shorten the largest of these.",
        "alone": " System text and tools alone have {fixed:,} tokens, and the window has {window:,}, so this agent "
        "cannot work with it: give the server or the model a larger window, offer fewer tools (each MCP server adds "
        "all of its own), or have the agent load them when it needs them (Claude Code: ENABLE_TOOL_SEARCH=true).",
        "refused": "The upstream refused this request as too long{again} after {done}; the prompt then had about "
        "{tokens:,} tokens.",
        "shorten": " The system text, the last user message, the tool list and the newest results have to stay: "
        "shorten these, begin a new conversation, or use a model with a larger window.",
        "again": ", and once more",
        "and": " and ",
        "empty": "The upstream answered this request with an empty success, and did so again after the prompt had been "
        "shortened to about {tokens:,} tokens. Some servers refuse requests that are longer than their context window "
        "in this way: check the server's own log, and the window that it was started with.",
        "unkept": " Nothing could be kept, as the proxy's artifact store does not work (see /readyz), so only what had "
        "to be cut was cut.",
    },
    "zh": {
        "size": " 这是在省略所有可省略的内容之后发给 {model} 的大小",
        "room": "；其中可用于提示的有 {room:,} 个 token",
        "stop": "。",
        "largest": "必须保留的最大部分：{largest}。",
        "message": "messages[{index}]（{role}{tool}，{tokens:,} 个 token）",
        "put_in": "messages[{index}] 之后的一页 {tool}（{tokens:,} 个 token）",
        "tools": "工具列表（{tokens:,} 个 token）",
        "system": "消息之外的系统提示（{tokens:,} 个 token）",
        "reply": "请先降低 {reply:,} 个 token 的回复上限。",
        "member": "成员 {name}（{tokens:,} 个 token）",
        "advice": "请缩短其中最大的部分，或改用窗口更大的模型。",
        "advice_in_size": "请缩短其中最大的部分。",
        "alone": "仅系统提示和工具列表就有 {fixed:,} 个 token，而窗口只有 {window:,}，因此此智能体无法使用该模型："
        "请改用更大的窗口、减少工具（每个 MCP 服务器都会加入它的全部工具），或让智能体在需要时才加载工具（Claude Code："
        "ENABLE_TOOL_SEARCH=true）。",
        "refused": "上游认为此请求过长：{done}后{again}被拒绝，当时提示约有 {tokens:,} 个 token。",
        "shorten": "必须保留的是系统提示、最后一条用户消息、工具列表和最新的工具结果：请缩短它们、开始新的对话，"
        "或改用窗口更大的模型。",
        "again": "再次",
        "and": "、",
        "empty": "上游对此请求返回了成功状态，但内容为空；将提示压缩到约 {tokens:,} 个 token 后再次发送，返回仍为空。"
        "有些服务器以这种方式拒绝超出其上下文窗口的请求：请查看该服务器的日志及其启动时设置的窗口大小。",
        "unkept": "由于代理的存储不可用（见 /readyz），任何内容都无法保存，因此只做了必要的删减。",
    },
}
_MAX_TOLD: Final = 5
_MAX_NAME_CHARS: Final = 64
_NO_MEMBERS: Final[Mapping[str, int]] = {}
_DONE: Final[dict[Language, dict[VerdictKind, str]]] = {
    "en": {
        VerdictKind.PROMPT: "its prompt or its reply limit had been lowered",
        VerdictKind.BYTES: "its body had been made smaller",
        VerdictKind.MEDIA: "its media had been replaced by text",
        VerdictKind.PAIRING: "its calls and results had been made to pair up",
        VerdictKind.SEAL: "reasoning that it could not verify had been left out",
        VerdictKind.COUNT: "a limit that it had named was kept",
        VerdictKind.UNKNOWN: "an edit by the proxy had been undone",
    },
    "zh": {
        VerdictKind.PROMPT: "压缩提示或降低回复上限",
        VerdictKind.BYTES: "缩小请求体",
        VerdictKind.MEDIA: "用文字替换媒体内容",
        VerdictKind.PAIRING: "补全工具调用与结果的配对",
        VerdictKind.SEAL: "去除无法验证的推理内容",
        VerdictKind.COUNT: "遵守其指出的限制",
        VerdictKind.UNKNOWN: "撤销代理所做的一处修改",
    },
}
"""Description of each cure."""


def unkept(language: Language) -> str:
    """Appended to each of these messages when artifacts could not be kept."""
    return _WORDS[language]["unkept"]


def empty_twice(tokens: int, language: Language) -> str:
    """The message for a client whose request got an empty response again after a harsher cut."""
    return _WORDS[language]["empty"].format(tokens=tokens)


def refused_twice(
    tokens: int,
    language: Language,
    reply_tokens: int | None = None,
    cured: Sequence[VerdictKind] = (VerdictKind.PROMPT,),
) -> str:
    """The message for a client whose request was refused as too long after everything that was done. `tokens`: the
    model's; `reply_tokens`: the request's own reply limit; `cured`: the reasons of the refusals before."""
    words = _WORDS[language]
    done = words["and"].join(_DONE[language][kind] for kind in cured)
    again = words["again"] if VerdictKind.PROMPT in cured else ""
    reply = "" if reply_tokens is None else words["reply"].format(reply=reply_tokens)
    return words["refused"].format(tokens=tokens, again=again, done=done) + reply + words["shorten"]


def lower_reply_helps(plan: Plan, refused: Verdict) -> bool:
    """Whether a prompt that was refused would fit beside a smaller reply, by the figures of the refusal or else by
    ours."""
    budget, is_counted = plan.budget, refused.unit is Unit.TOKENS and not refused.may_be_echo
    prompt = (refused.prompt if is_counted else None) or budget.model_tokens(plan.after.tokens)
    limit = refused.limit if is_counted else None
    if limit is None and not budget.room_is_guessed:
        limit = budget.model_tokens(budget.ceiling_tokens) + budget.reserved_reply_tokens
    return limit is not None and prompt < limit and refused.limit_scope is not Scope.INPUT


def sizes_of(plan: Plan, window_tokens: int, refused: Verdict) -> tuple[int, int]:
    """Tokens of the original prompt, and their maximum, which is always less, because programs calculate with both. By
    the upstream's count if it stated one, otherwise by our own."""
    budget, before = plan.budget, plan.before
    counted = refused.unit is Unit.TOKENS and not refused.may_be_echo
    stated, known = refused.prompt if counted else None, budget.model_tokens(before.tokens)
    prompt = known if stated is None else stated if plan.after == before else max(stated, known)
    limits = [refused.limit if counted else None, window_tokens, budget.model_tokens(budget.ceiling_tokens)]
    for limit, found in ((budget.room_chars, before.chars), (budget.room_bytes, before.bytes)):
        if limit is not None and found > limit:
            limits.append(prompt * limit // found)
    return prompt, next((limit for limit in limits if limit is not None and 0 < limit < prompt), max(0, prompt - 1))


def does_not_fit(
    plan: Plan,
    model: str,
    window_tokens: int,
    language: Language,
    put_in: Collection[int] = (),
    members: Mapping[str, int] = _NO_MEMBERS,
    system_tokens: int = 0,
    *,
    window_is_stated: bool = False,
    is_unnamed: bool = False,
    says_sizes: bool = True,
    sizes: tuple[int, int] | None = None,
    reply_tokens: int | None = None,
) -> str:
    """The message of the proxy's own `context_length_exceeded` error; sizes in the model's tokens, positions the
    client's. `put_in`: indexes of the messages that the client did not send. `members`: tokens by our estimate of other
    members that count; `system_tokens`: of system text that is none of the messages. `window_is_stated`: whether the
    upstream has just stated the window, by its own count, of which nothing else is known yet; `is_unnamed`: whether the
    window is unknown. `says_sizes`: whether the message begins with the sizes, in OpenAI's words; wires with words of
    their own state `sizes_of`. `sizes`: those; for a plan that the upstream has refused although it fits by our count,
    they are reported. `reply_tokens`: the request's own reply limit."""
    words, size, budget = _WORDS[language], plan.after, plan.budget
    model_tokens = budget.model_tokens
    after, room = model_tokens(size.tokens), model_tokens(budget.ceiling_tokens)
    if window_is_stated and room > window_tokens:
        after, room = after * window_tokens // room, window_tokens
    is_bound = not budget.room_is_guessed and not is_unnamed
    text = [_OPENAI_UNNAMED] if is_unnamed else []
    if is_bound and size.tokens > budget.ceiling_tokens:
        window_tokens = max(window_tokens, room)  # after a refusal that showed a guess to be too small
        after, reserved = max(after, room + 1), window_tokens - room
        text.append(
            _OPENAI_TOKENS.format(window=window_tokens, requested=after + reserved, prompt=after, reserved=reserved)
        )
    in_size = [
        _OPENAI_OTHER.format(limit=limit, found=found, unit=unit)
        for limit, found, unit in (
            (budget.room_chars, size.chars, "characters"),
            (budget.room_bytes, size.bytes, "bytes"),
        )
        if limit is not None and found > limit
    ]
    text += in_size
    whole = after if sizes is None or (text and says_sizes) else min(after, sizes[0])
    if not text and sizes is not None:
        text.append(_OPENAI_OTHER.format(limit=sizes[1], found=sizes[0], unit="tokens"))
    sentence = (" ".join(text) if says_sizes else "") + words["size"].format(model=model)
    sentence += (words["room"].format(room=room) if is_bound else "") + words["stop"]
    if largest := _largest(plan, language, put_in, members, system_tokens, whole):
        sentence += words["largest"].format(largest=", ".join(largest))
    most = window_tokens if window_is_stated else room + budget.reserved_reply_tokens
    if reply_tokens and budget.max_reply_tokens is None and is_bound and not in_size and room < after <= most:
        sentence += words["reply"].format(reply=reply_tokens)
    sentence += words["advice_in_size" if in_size else "advice"]
    has_tools = plan.base.tokens - system_tokens - sum(members.values()) > REPLY_PRIMING_TOKENS
    if is_bound and not in_size and has_tools and (fixed := model_tokens(fixed_tokens(plan))) > room:
        sentence += words["alone"].format(fixed=fixed, window=max(window_tokens, room))
    return sentence


def fixed_tokens(plan: Plan) -> int:
    """Tokens, by our count, of what each request of an agent has before anything was said: system text and tools."""
    first = takewhile(lambda block: block.role in SYSTEM_ROLES, plan.blocks)
    return plan.base.tokens + sum(block.tokens_before for block in first)


def _largest(
    plan: Plan,
    language: Language,
    put_in: Collection[int],
    members: Mapping[str, int],
    system_tokens: int,
    whole: int,
) -> list[str]:
    """The largest parts of a plan, in words; positions are the client's. `whole`: the size that is stated for all of
    them together, by which ours is scaled down if it is larger."""
    words, found = _WORDS[language], list[tuple[int, str]]()
    ours = max(whole, plan.budget.model_tokens(plan.after.tokens), 1)

    def told(tokens: int) -> int:
        return plan.budget.model_tokens(tokens) * whole // ours

    for entry in plan.largest:
        is_put_in = entry.index in put_in
        index = entry.index - sum(one <= entry.index for one in put_in)
        tool = entry.tool if is_put_in else f" {entry.tool}" if entry.tool not in ("", entry.message.role) else ""
        role, tokens = entry.message.role or "?", told(entry.size.tokens)
        named = words["put_in" if is_put_in else "message"].format(index=index, role=role, tool=tool, tokens=tokens)
        found.append((entry.size.tokens, named))
    for name, tokens in members.items():
        found.append((tokens, words["member"].format(name=name[:_MAX_NAME_CHARS], tokens=told(tokens))))
    tools = plan.base.tokens - sum(members.values()) - system_tokens
    if plan.base.bytes and tools > REPLY_PRIMING_TOKENS:
        found.append((tools, words["tools"].format(tokens=told(tools))))
    if system_tokens:
        found.append((system_tokens, words["system"].format(tokens=told(system_tokens))))
    found.sort(key=lambda part: part[0], reverse=True)
    return [named for _, named in found[:_MAX_TOLD]]
