"""The message for a request that cannot be made to fit. It names measured sizes, the largest parts, and what to do.

Rule: sizes, roles, tools and indexes only; never content.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Final

from msgspec import Struct

from proxy.core.compaction import Plan
from proxy.core.conversation import REPLY_PRIMING_TOKENS, SYSTEM_ROLES, TrackedMessage
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


class OversizedPlan(Struct, frozen=True):
    """A plan that may not be sent because it cannot be made to fit, and what is known of its request."""

    plan: Plan
    model: str
    window_tokens: int
    put_in: Collection[int] = ()
    """Indexes of the messages that the client did not send."""
    members: Mapping[str, int] = _NO_MEMBERS
    """Tokens, by our estimate, of other members that count."""
    system_tokens: int = 0
    """Tokens of system text that is none of the messages."""
    reply_tokens: int | None = None
    """The request's own reply limit."""
    window_is_stated: bool = False
    """Whether the upstream has just stated the window, by its own count, of which nothing else is known yet."""
    is_unnamed: bool = False
    """Whether the window is unknown."""
    sizes: tuple[int, int] | None = None
    """`sizes_of` it, reported if the upstream has refused the plan although it fits by our count."""

    def message(self, language: Language, *, says_sizes: bool = True) -> str:
        """The message of the proxy's own `context_length_exceeded` error; sizes in the model's tokens, positions the
        client's. `says_sizes`: whether it begins with the sizes, in OpenAI's words; wires with words of their own state
        `sizes`."""
        words, budget, (after, room, window) = _WORDS[language], self.plan.budget, self._tokens()
        sizes = [_OPENAI_UNNAMED] if self.is_unnamed else []
        if self._is_bound and after > room:
            reserved = window - room
            sizes.append(
                _OPENAI_TOKENS.format(window=window, requested=after + reserved, prompt=after, reserved=reserved)
            )
        in_size = [
            _OPENAI_OTHER.format(limit=limit, found=found, unit=unit)
            for limit, found, unit in (
                (budget.room_chars, self.plan.after.chars, "characters"),
                (budget.room_bytes, self.plan.after.bytes, "bytes"),
            )
            if limit is not None and found > limit
        ]
        sizes += in_size
        whole = after if self.sizes is None or (sizes and says_sizes) else min(after, self.sizes[0])
        if not sizes and self.sizes is not None:
            sizes.append(_OPENAI_OTHER.format(limit=self.sizes[1], found=self.sizes[0], unit="tokens"))
        text = (" ".join(sizes) if says_sizes else "") + words["size"].format(model=self.model)
        text += (words["room"].format(room=room) if self._is_bound else "") + words["stop"]
        if largest := self._largest(language, whole):
            text += words["largest"].format(largest=", ".join(largest))
        most = window if self.window_is_stated else room + budget.reserved_reply_tokens
        may_help = self._is_bound and not in_size
        if self.reply_tokens and budget.max_reply_tokens is None and may_help and room < after <= most:
            text += words["reply"].format(reply=self.reply_tokens)
        text += words["advice_in_size" if in_size else "advice"]
        fixed = budget.model_tokens(fixed_tokens(self.plan))
        if may_help and self._tools_tokens > REPLY_PRIMING_TOKENS and fixed > room:
            text += words["alone"].format(fixed=fixed, window=max(window, room))
        return text

    @property
    def _is_bound(self) -> bool:
        return not self.plan.budget.room_is_guessed and not self.is_unnamed

    @property
    def _tools_tokens(self) -> int:
        return self.plan.base.tokens - self.system_tokens - sum(self.members.values())

    def _tokens(self) -> tuple[int, int, int]:
        """The prompt, the room for it, and the window."""
        budget, window = self.plan.budget, self.window_tokens
        after, room = budget.model_tokens(self.plan.after.tokens), budget.model_tokens(budget.ceiling_tokens)
        if self.window_is_stated and room > window:
            after, room = after * window // room, window
        if self._is_bound and self.plan.after.tokens > budget.ceiling_tokens:  # or a refusal showed a guess to be small
            after, window = max(after, room + 1), max(window, room)
        return after, room, window

    def _largest(self, language: Language, whole: int) -> list[str]:
        """The largest parts, in words; positions are the client's. `whole`: the size that is stated for all of them
        together, by which ours is scaled down if it is larger."""
        words, budget, tools = _WORDS[language], self.plan.budget, self._tools_tokens
        has_tools = self.plan.base.bytes and tools > REPLY_PRIMING_TOKENS
        parts: list[tuple[int, str, Mapping[str, object]]] = [
            *((entry.size.tokens, *self._described(entry)) for entry in self.plan.largest),
            *((tokens, "member", {"name": name[:_MAX_NAME_CHARS]}) for name, tokens in self.members.items()),
            (tools if has_tools else 0, "tools", {}),
            (self.system_tokens, "system", {}),
        ]
        largest = sorted(filter(itemgetter(0), parts), key=itemgetter(0), reverse=True)[:_MAX_TOLD]
        ours = max(whole, budget.model_tokens(self.plan.after.tokens), 1)
        sizes = [budget.model_tokens(tokens) * whole // ours for tokens, _, _ in largest]
        return [words[kind].format(tokens=size, **named) for size, (_, kind, named) in zip(sizes, largest, strict=True)]

    def _described(self, entry: TrackedMessage) -> tuple[str, Mapping[str, object]]:
        """The words for a message, and what they name."""
        index, role = entry.index - sum(one <= entry.index for one in self.put_in), entry.message.role
        if entry.index in self.put_in:
            return "put_in", {"index": index, "tool": entry.tool}
        tool = f" {entry.tool}" if entry.tool not in ("", role) else ""
        return "message", {"index": index, "role": role or "?", "tool": tool}


def fixed_tokens(plan: Plan) -> int:
    """Tokens, by our count, of what each request of an agent has before anything was said: system text and tools."""
    first = takewhile(lambda block: block.role in SYSTEM_ROLES, plan.blocks)
    return plan.base.tokens + sum(block.tokens_before for block in first)
