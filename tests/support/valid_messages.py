"""What a body of `/v1/messages` must be, and how Anthropic says that it is not: body → complaints, none if it is valid.

Rule: each complaint has the API's own words where they are known; where only the rule is documented, the words are ours
and are marked so. Turns are what the API merges: neighbours of one role. Nothing here knows of a proxy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]
MOST_BREAKPOINTS = 4
RESULT_PARTS = ("text", "image", "document", "search_result", "tool_reference", "browser_state")
THOUGHTS = ("thinking", "redacted_thinking")
WITHOUT_PREFILL = re.compile(r"claude-(?:(?:opus|sonnet)-(?:4-[6-9]|[5-9])|fable|mythos)")
"""Claude 4.6 and later: platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-6."""


@dataclass(frozen=True)
class Turn:
    """Messages of one role, which the API reads as one."""

    role: str
    blocks: Sequence[tuple[str, Block]]
    """With the place of each, as the API names it: `messages.3.content.0`."""
    at: str
    """`messages.3`, of its first message."""

    def of(self, *types: str) -> list[tuple[str, Block]]:
        return [(place, block) for place, block in self.blocks if block.get("type") in types]


def complaints(body: Mapping[str, Any], issued: Sequence[Sequence[Block]] = ()) -> list[str]:
    """What is wrong with a body. `issued`: the contents that this upstream has answered with; thinking is then compared
    with what was said."""
    found = list(_members(body))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages: at least one message is required"]
    roles = [message.get("role") for message in messages]
    if wrong := [role for role in roles if role not in ("user", "assistant", "system")]:
        return [*found, *(f'messages: Unexpected role "{r}". Allowed roles are "user" or "assistant"' for r in wrong)]
    turns = turns_of(messages)
    continues = (body.get("thread") or {}).get("type") == "continue"
    found += _order(body, messages, continues=continues)
    found += _contents(messages)
    found += _pairs(turns, continues=continues)
    found += _server_tools(messages)
    found += _thinking(body, turns, issued)
    found += _cache(body, messages)
    return [*found, *_references(body, messages)]


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Neighbours of one role as one turn; system messages between them are no turn and separate none."""
    turns: list[tuple[str, str, list[tuple[str, Block]]]] = []
    for number, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], f"messages.{number}", []))
        turns[-1][2].extend(_placed(number, message))
    return [Turn(role, blocks, at) for role, at, blocks in turns]


def _placed(number: int, message: Mapping[str, Any]) -> list[tuple[str, Block]]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [(f"messages.{number}.content.{index}", block) for index, block in enumerate(blocks)]


def _members(body: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name}: Field required" for name in ("model", "max_tokens") if body.get(name) is None)
    budget = (body.get("thinking") or {}).get("budget_tokens", 0)
    if body.get("max_tokens") is not None and budget >= body["max_tokens"]:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation"


def _order(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], *, continues: bool) -> Iterator[str]:
    """build-with-claude/mid-conversation-system-messages.md; the text for what follows: claude-code#73821, for the
    first message: LangBot#867. What a system message must follow is documented, the words are ours."""
    roles = [message["role"] for message in messages]
    if roles[0] == "assistant" and not continues:
        yield 'messages: first message must use the "user" role'
    for number, role in enumerate(roles):
        if role != "system":
            continue
        before = number - 1
        while before >= 0 and roles[before] == "system":
            before -= 1
        after = next((other for other in roles[number:] if other != "system"), "end")
        if before < 0 or (roles[before] == "assistant" and not _ends_with_server_result(messages[before])):
            yield f"messages.{number}: role 'system' must follow a 'user' message or a server tool result"
        if after == "user":
            yield f"messages.{number}: role 'system' must precede an 'assistant' message or end the array"
    if roles[-1] == "assistant" and WITHOUT_PREFILL.match(str(body.get("model"))):
        yield "This model does not support assistant message prefill. The conversation must end with a user message."


def _ends_with_server_result(message: Mapping[str, Any]) -> bool:
    blocks = _placed(0, message)
    return bool(blocks) and _is_server_result(blocks[-1][1])


def _is_server_result(block: Block) -> bool:
    kind = str(block.get("type"))
    return kind.endswith("_tool_result") and kind != "tool_result"


def _contents(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, message in enumerate(messages):
        blocks = _placed(number, message)
        is_last = number == len(messages) - 1
        if not message.get("content") and not (is_last and message["role"] == "assistant"):
            yield (
                f"messages.{number}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
            continue
        for place, block in blocks:
            kind = block.get("type")
            if kind == "text" and not block["text"]:
                yield "messages: text content blocks must be non-empty"
            if kind == "tool_use" and message["role"] != "assistant":
                yield f"messages.{number}: `tool_use` blocks can only be in `assistant` messages"
            if kind == "tool_result" and message["role"] != "user":
                yield f"messages.{number}: `tool_result` blocks can only be in `user` messages"
            parts = block.get("content") if kind == "tool_result" else None
            for index, part in enumerate(parts if isinstance(parts, list) else ()):
                if part.get("type") not in RESULT_PARTS:
                    yield (
                        f"{place}.tool_result.content.{index}: Input tag '{part.get('type')}' found using 'type' does "
                        f"not match any of the expected tags: {', '.join(map(repr, RESULT_PARTS))}"
                    )


def _pairs(turns: Sequence[Turn], *, continues: bool) -> Iterator[str]:
    """claude-code#1237 and #14416. A result behind another block is as good as none; the first
    results of a continued thread answer calls that the server holds."""
    seen: set[str] = set()
    for index, turn in enumerate(turns):
        calls = [block["id"] for _, block in turn.of("tool_use")]
        for place, block in turn.of("tool_use"):
            if block["id"] in seen:
                yield f"{place}: `tool_use` ids must be unique"
            seen.add(block["id"])
        results = _leading_results(turns[index + 1]) if index + 1 < len(turns) else []
        if without := [call for call in calls if call not in results]:
            yield (
                f"{turn.at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(without)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        if turn.role == "assistant" or (continues and index == 0):
            continue
        called = [block["id"] for _, block in turns[index - 1].of("tool_use")] if index else []
        answered: set[str] = set()
        for place, block in turn.of("tool_result"):
            name = block.get("tool_use_id")
            if name not in called:
                yield (
                    f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each `tool_result` "
                    "block must have a corresponding `tool_use` block in the previous message."
                )
            elif name in answered:
                yield (
                    f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
                    f"{name}"
                )
            answered.add(str(name))


def _leading_results(turn: Turn) -> list[str]:
    results = []
    for _, block in turn.blocks:
        if block.get("type") != "tool_result":
            break
        results.append(block.get("tool_use_id", ""))
    return results


def _server_tools(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """claude-code#62577."""
    for number, message in enumerate(messages):
        calls: set[str] = set()
        for place, block in _placed(number, message):
            kind = str(block.get("type"))
            if kind in ("server_tool_use", "mcp_tool_use"):
                calls.add(block["id"])
            elif _is_server_result(block) and block.get("tool_use_id") not in calls:
                call = "mcp_tool_use" if kind == "mcp_tool_result" else "server_tool_use"
                yield (
                    f"{place}: unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}. Each "
                    f"`{kind}` block must have a corresponding `{call}` block before it."
                )


def _thinking(body: Mapping[str, Any], turns: Sequence[Turn], issued: Sequence[Sequence[Block]]) -> Iterator[str]:
    """The latest turn is all since the last user message that is more than results: in an agent's loop, the loop. There
    the thinking of each turn is what was said with its calls; elsewhere a block may be gone, but not another one."""
    issued_thoughts = [block for content in issued for block in content if block.get("type") in THOUGHTS]
    by_call = {block["id"]: content for content in issued for block in content if block.get("type") == "tool_use"}
    begun = max((i for i, t in enumerate(turns) if t.role == "user" and not t.of("tool_result")), default=-1)
    for index, turn in enumerate(turns):
        thoughts = turn.of(*THOUGHTS)
        if turn.role == "user":
            yield from (f"{place}: `thinking` blocks can only be in `assistant` messages" for place, _ in thoughts)
            continue
        if issued:
            for place, block in thoughts:
                if _bare(block) not in issued_thoughts:
                    yield f"{place}: Invalid `signature` in `thinking` block"
        if index < begun:
            continue
        contents = []
        for _, call in turn.of("tool_use"):
            content = by_call.get(call["id"], ())
            if content and content not in contents:
                contents.append(content)
        expected = [block for content in contents for block in content if block.get("type") in THOUGHTS]
        if contents and [_bare(block) for _, block in thoughts] != expected:
            yield (
                f"{turn.at}.content: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot "
                "be modified. These blocks must remain as they were in the original response."
            )
    last = next((turn for turn in reversed(turns) if turn.role == "assistant"), None)
    is_manual = (body.get("thinking") or {}).get("type") == "enabled"
    if is_manual and last and last.of("tool_use") and last.blocks[0][1].get("type") not in THOUGHTS:
        yield (
            f"{last.at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{last.blocks[0][1].get('type')}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
        )


def _bare(block: Block) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _cache(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """build-with-claude/prompt-caching.md; the order of lifetimes: headroom#2939."""
    tools = body.get("tools") or []
    system = body.get("system")
    places = [(f"tools.{index}", tool) for index, tool in enumerate(tools)]
    places += [(f"system.{index}", block) for index, block in enumerate(system if isinstance(system, list) else ())]
    places += [placed for number, message in enumerate(messages) for placed in _placed(number, message)]
    marked = [(place, block) for place, block in places if block.get("cache_control")]
    if body.get("cache_control"):
        marked.append(("cache_control", body))
    if len(marked) > MOST_BREAKPOINTS:
        yield f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marked)}."
    is_short = False
    for place, block in marked:
        lifetime = block["cache_control"].get("ttl", "5m")
        if lifetime == "1h" and is_short:
            yield (
                f"{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        is_short = is_short or lifetime == "5m"
        kind = block.get("type")
        if kind in THOUGHTS:
            yield f"{place}.{kind}.cache_control: Extra inputs are not permitted"
        if kind == "text" and not block.get("text"):
            yield f"{place}.text: cache_control cannot be set for empty text blocks"
        if block.get("defer_loading"):
            yield (
                f"{place}: Tool '{block.get('name')}' cannot have both defer_loading=true and cache_control set. Tools "
                "with defer_loading cannot use prompt caching."
            )


def _references(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A tool that a search has found must be among the tools: agents-and-tools/tool-use/tool-search-tool.md."""
    names = {tool.get("name") for tool in body.get("tools") or []}
    for number, message in enumerate(messages):
        for _, block in _placed(number, message):
            parts = block.get("content") if block.get("type") == "tool_result" else None
            for part in parts if isinstance(parts, list) else ():
                if part.get("type") == "tool_reference" and part.get("tool_name") not in names:
                    yield f"Tool reference '{part.get('tool_name')}' not found in available tools"
