"""Faults that a history may have, the words that refuse them, and what an upstream sees of them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.spellings import Items, Spelling
from support.upstream import Answer, Rule, Sent

PLANTED = "call_of_the_first_step"
TASK = "Find out why the build fails."


@dataclass(frozen=True)
class Fault:
    """A fault, the APIs where it can exist, the words that refuse it, and what remains of it."""

    apis: Sequence[str]
    refusals: Sequence[str]
    planted: Callable[[Spelling], Items]
    is_in: Callable[[Sent], bool]
    """Whether a request has it, as its upstream judges."""
    remains: Callable[[Sent], bool] = lambda _: True
    """Whether a request still has what it must have."""
    status: int = 400


def exchange(spelling: Spelling, name: str = PLANTED, text: str = "total 8") -> Items:
    return [*spelling.called([(name, {"cmd": "ls"})], "I look."), *spelling.results([(name, text)])]


def with_ids(name: str) -> Callable[[Spelling], Items]:
    return lambda spelling: exchange(spelling, name)


NAME = "bash<|channel|>commentary"
LONG_NAME = "mcp__" + "a_server_of_many_tools__" * 3 + "bash"


def named(name: str) -> Callable[[Spelling], Items]:
    """A step with a tool of another name; the client of Ollama's API repeats it in the result."""

    def planted(spelling: Spelling) -> Items:
        return json.loads(json.dumps(exchange(spelling)).replace('"bash"', json.dumps(name)))

    return planted


def names_in(sent: Sent) -> list[str]:
    """The names of tools in the history."""
    return re.findall(r'"(?:tool_)?name": "([^"]*)"', json.dumps(sent.messages))


def with_member(name: str, value: Any) -> Callable[[Spelling], Items]:
    """A step whose call has one more member, and results and words that have it, too, where the API has items."""

    def planted(spelling: Spelling) -> Items:
        items = exchange(spelling)
        if spelling.name == "responses":
            return [one | {name: value} for one in items]
        items[0]["content"][-1][name] = value
        return items

    return planted


def with_written_ids(*names: str) -> Callable[[Spelling], Items]:
    """Steps on Ollama's API, whose clients may write ids."""

    def planted(_: Spelling) -> Items:
        items: Items = []
        for number, name in enumerate(names):
            made = {"id": name, "function": {"name": "bash", "arguments": {"cmd": "ls"}}}
            items.append({"role": "assistant", "content": "I look.", "tool_calls": [made]})
            items.append({"role": "tool", "content": f"total {8 + number}", "tool_name": "bash", "tool_call_id": name})
        return items

    return planted


def again(spelling: Spelling) -> Items:
    return [*exchange(spelling), *exchange(spelling, text="total 9")]


def broken_arguments(spelling: Spelling) -> Items:
    items = exchange(spelling)
    text = (
        json.dumps(items).replace('"{\\"cmd\\": \\"ls\\"}"', '"{\\"cmd\\": \\"l"').replace('{"cmd": "ls"}', '"{cmd: l"')
    )
    return json.loads(text)


def empty(spelling: Spelling) -> Items:
    content: Any = [] if spelling.name in ("messages", "responses") else ""
    return [*exchange(spelling), {"role": "assistant", "content": content}]


def marked(spelling: Spelling) -> Items:
    items: Items = []
    for number in range(5):
        items += exchange(spelling, f"call_{number}")
        mark = {"type": "text", "text": f"Go on, {number}.", "cache_control": {"type": "ephemeral"}}
        items += [*spelling.called([], "Yes."), {"role": "user", "content": [mark]}, *spelling.called([], "Well.")]
    return items


def halved(spelling: Spelling) -> Items:
    return exchange(spelling, text="broken \ud83d here")


def unanswered_by_the_model(spelling: Spelling) -> Items:
    return [*exchange(spelling), *spelling.user("Stop. Look at the log instead.")]


def ids_in(sent: Sent) -> list[str]:
    """The ids of all calls."""
    calling = [one for one in sent.messages if one.get("role") == "assistant" or one.get("type") == "function_call"]
    return re.findall(r'"(?:id|call_id)": "([^"]+)"', json.dumps(calling))


def has_bad_arguments(sent: Sent) -> bool:
    def walk(value: Any) -> bool:
        if isinstance(value, dict):
            if "arguments" in value and isinstance(value["arguments"], str):
                try:
                    return not isinstance(json.loads(value["arguments"]), dict)
                except ValueError:
                    return True
            if value.get("type") == "tool_use" and not isinstance(value["input"], dict):
                return True
            return any(map(walk, value.values()))
        return isinstance(value, list) and any(map(walk, value))

    return walk(sent.messages)


def is_empty_somewhere(sent: Sent) -> bool:
    spoken = [one for one in sent.messages if one.get("role") == "assistant" and not one.get("tool_calls")]
    return any(one.get("content") in ("", []) for one in spoken)


def follows_a_tool(sent: Sent) -> bool:
    roles = [one.get("role") for one in sent.messages]
    return ("tool", "user") in itertools.pairwise(roles)


def lacks(member: str) -> Callable[[Sent], bool]:
    return lambda sent: any(one.get("role") == "assistant" and member not in json.dumps(one) for one in sent.messages)


def calls_lack(member: str) -> Callable[[Sent], bool]:
    return lambda sent: any(one.get("tool_calls") and member not in json.dumps(one) for one in sent.messages)


def server_tools(spelling: Spelling) -> Items:
    use = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "x"}}
    return [{"role": "assistant", "content": [{"type": "text", "text": "I search."}, use]}, *spelling.user("And?")]


def parted(_: Spelling) -> Items:
    parts = [{"type": "text", "text": "Look at this."}, {"type": "text", "text": "And say what it is."}]
    return [{"role": "user", "content": parts}, {"role": "assistant", "content": "I look."}]


def said_twice(spelling: Spelling) -> Items:
    return [*exchange(spelling), *spelling.called([], "First."), *spelling.called([], "Second.")]


def instructed(spelling: Spelling) -> Items:
    return [*exchange(spelling), *spelling.called([], "Yes."), *spelling.system("The date has changed.")]


def carrying(*names: str) -> Callable[[Spelling], Items]:
    def planted(spelling: Spelling) -> Items:
        items = exchange(spelling)
        items[0] |= dict.fromkeys(names, "Hm.")
        return items

    return planted


def answered_twice(spelling: Spelling) -> Items:
    items = exchange(spelling)
    return [*items, *spelling.results([(PLANTED, "total 9")])]


def roles_of(sent: Sent) -> list[str]:
    return [str(one.get("role")) for one in sent.messages]


FAULTS = {
    "long ids": Fault(
        ("chat", "messages", "responses"),
        (
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but "
            "got a string with length 72 instead.",
            "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 40, but got a string "
            "with length 72 instead.",
            "Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint: Member must "
            "have length less than or equal to 40",
            "tool_call_id must be at most 40 characters",
        ),
        with_ids("call_" + "x" * 67),
        lambda sent: any(len(one) > 40 for one in ids_in(sent)),
    ),
    "other ids": Fault(
        ("chat", "messages"),
        (
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
            "Value at 'toolUseId' failed to satisfy constraint: Member must satisfy regular expression "
            "pattern: [a-zA-Z0-9_-]+",
        ),
        with_ids("call:1|fc_2"),
        lambda sent: any(not re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids_in(sent)),
    ),
    "ids of nine": Fault(
        ("chat",),
        ("Tool call id was call_of_the_first_step but must be a-z, A-Z, 0-9, with a length of 9.",),
        exchange,
        lambda sent: any(not re.fullmatch(r"[a-zA-Z0-9]{9}", one) for one in ids_in(sent)),
    ),
    "other names": Fault(
        ("chat", "messages", "responses", "ollama"),
        (
            "messages.1.content.1.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
            "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern. Expected a string that "
            "matches the pattern '^[a-zA-Z0-9_-]+$'.",
            "Invalid 'input[2].name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            "Value at 'messages.2.member.content.2.member.toolUse.name' failed to satisfy constraint: Member must "
            "satisfy regular expression pattern: [a-zA-Z0-9_-]+",
            "Function name was bash<|channel|>commentary but must be a-z, A-Z, 0-9, or contain underscores and dashes, "
            "with a maximum length of 64.",
        ),
        named(NAME),
        lambda sent: any(not re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in names_in(sent)),
        lambda sent: "bash__channel__commentary" in names_in(sent),
    ),
    "long names": Fault(
        ("chat", "messages", "responses", "ollama"),
        (
            "Invalid 'messages[2].tool_calls[0].function.name': string too long. Expected a string with maximum length "
            "64, but got a string with length 81 instead.",
            "messages.1.content.1.tool_use.name: String should have at most 64 characters",
        ),
        named(LONG_NAME),
        lambda sent: any(len(one) > 64 for one in names_in(sent)),
        lambda sent: any(one.startswith("mcp__a_server") for one in names_in(sent)),
    ),
    "same ids": Fault(
        ("chat", "messages", "responses"),
        ("messages.3.content.1: `tool_use` ids must be unique",
         "Duplicate value for 'tool_call_id' of 'call_1' in message 5"),
        again,
        lambda sent: len(set(ids_in(sent))) < len(ids_in(sent)),
        lambda sent: "total 8" in sent.text and "total 9" in sent.text,
    ),
    "long ids, written": Fault(
        ("ollama",),
        ("tool call id is too long (max 40)",),
        with_written_ids("call_" + "x" * 67),
        lambda sent: any(len(one) > 40 for one in ids_in(sent)),
    ),
    "same ids, written": Fault(
        ("ollama",),
        ("Duplicate tool call id: call_1",),
        with_written_ids("call_1", "call_1"),
        lambda sent: len(set(ids_in(sent))) < len(ids_in(sent)),
        lambda sent: "total 8" in sent.text and "total 9" in sent.text,
    ),
    "arguments": Fault(
        ("chat", "messages", "responses", "ollama"),
        (
            "invalid params, invalid function arguments json string, tool_call_id: call_1 (2013)",
            'The "function.arguments" parameter of the code model must be in JSON format.',
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
            "Failed to parse tool call arguments as JSON",
            "Unterminated string starting at: line 1 column 13 (char 12)",
            "Expecting ',' delimiter: line 1 column 24 (char 23)",
        ),
        broken_arguments,
        has_bad_arguments,
        lambda sent: "total 8" in sent.text,
    ),
    "empty": Fault(
        ("chat", "messages", "responses", "ollama"),
        (
            "messages.4: all messages must have non-empty content except for the optional final assistant message",
            "messages: text content blocks must be non-empty",
            "Invalid assistant message: content or tool_calls must be set",
            "The content field in the Message object at messages.3 is empty.",
        ),
        empty,
        is_empty_somewhere,
    ),
    "marks": Fault(
        ("chat", "messages"),
        ("A maximum of 4 blocks with cache_control may be provided. Found 5.", "cache_control limit exceeded (5 > 4)"),
        marked,
        lambda sent: sent.text.count("cache_control") > 4,
        lambda sent: sent.text.count("cache_control") == 4,
    ),
    "surrogates": Fault(
        ("chat", "messages", "responses", "ollama"),
        (
            "The request body is not valid JSON: no low surrogate in string: line 1 column 347 (char 346)",
            "'utf-8' codec can't encode character '\\ud83d' in position 3: surrogates not allowed",
            "Failed to parse the request body as JSON: lone leading surrogate in hex escape at line 1 column 10",
        ),
        halved,
        lambda sent: b"\\ud83d here" in sent.body,
        lambda sent: "broken \\ufffd here" in sent.text,
    ),
    "user after tool": Fault(
        ("chat",),
        ("Unexpected role 'user' after role 'tool'",
         "After the optional system message, conversation roles must alternate"),
        unanswered_by_the_model,
        follows_a_tool,
    ),
    "model after model": Fault(
        ("chat",),
        ("Invalid consecutive assistant message at message index 6",
         "After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).",
         "deepseek-reasoner does not support successive user or assistant messages (messages[5] and messages[6])",
         "Please ensure that function call turn comes immediately after a user turn or after a function response "
         "turn."),
        said_twice,
        lambda sent: ("assistant", "assistant") in itertools.pairwise(roles_of(sent)),
        lambda sent: "First." in sent.text and "Second." in sent.text,
    ),
    "system behind": Fault(
        ("chat", "ollama"),
        ("System message must be at the beginning.", "Unexpected role 'system' after role 'assistant'",
         "Invalid params: system message must be the first message"),
        instructed,
        lambda sent: "system" in roles_of(sent)[1:],
        lambda sent: "The date has changed." in sent.text,
    ),
    "parts of text": Fault(
        ("chat",),
        ("messages[1].content must be a string",
         "'messages.1' : for 'role:user' the following must be satisfied[('messages.1.content' : value must be a "
         "string)]",
         "json: cannot unmarshal array into Go struct field ChatCompletionRequest.messages.content of type string",
         "AiError: Bad input: Error: Type mismatch of '/messages/1/content', 'array' not in 'string'"),
        parted,
        lambda sent: any(not isinstance(one.get("content"), str) for one in sent.messages),
        lambda sent: "Look at this.\\nAnd say what it is." in sent.text,
    ),
    "names of items": Fault(
        ("responses",),
        ("Item with id 'rs_abc' not found. Items are not persisted when `store` is set to false. Try again with "
         "`store` set to true, or remove this item from your input.",
         "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_abc'.",
         "Item 'rs_abc' of type 'reasoning' was provided without its required following item.",
         "Duplicate item found with id fc_1. Remove duplicate items from your input and try again."),
        lambda spelling: [
            {"type": "reasoning", "id": "rs_abc", "summary": []}, {**exchange(spelling)[-2], "id": "fc_1"},
            exchange(spelling)[-1],
        ],
        lambda sent: any(one.get("id") for one in sent.messages),
        lambda sent: "total 8" in sent.text,
    ),
    "null content": Fault(
        ("chat",),
        ("invalid message content type: <nil>",
         "Invalid type for 'messages[2].content': expected one of a string or array of objects, but got null instead."),
        lambda spelling: [{**exchange(spelling)[0], "content": None}, exchange(spelling)[1]],
        lambda sent: any(one.get("content", "") is None for one in sent.messages),
    ),
    "other members": Fault(
        ("chat",),
        ("'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property "
         "'reasoning_content' is unsupported)]",
         "messages.2.reasoning: Extra inputs are not permitted",
         "The reasoning_content field is not allowed in the input messages"),
        carrying("reasoning", "reasoning_content", "refusal"),
        lambda sent: any("Hm." in one.values() for one in sent.messages),
    ),
    "a member of items": Fault(
        ("responses",),
        ("Unknown parameter: 'input[2].status'.", "input.2.status: Extra inputs are not permitted"),
        with_member("status", "completed"),
        lambda sent: any("status" in one for one in sent.messages),
        lambda sent: "total 8" in sent.text,
    ),
    "a member of blocks": Fault(
        ("messages",),
        ("messages.1.content.1.tool_use.caller: Extra inputs are not permitted",
         "Malformed input request: #/messages/1/content/1: extraneous key [caller] is not permitted, please reformat "
         "your input and try again."),
        with_member("caller", {"type": "direct"}),
        lambda sent: any('"caller"' in json.dumps(one) for one in sent.messages),
        lambda sent: "total 8" in sent.text,
    ),
    "reasoning that is empty": Fault(
        ("chat",),
        ("reasoning_content cannot be empty in thinking mode",),
        carrying(),
        lambda sent: any(one.get("role") == "assistant" and not one.get("reasoning_content") for one in sent.messages),
    ),
    "reasoning": Fault(
        ("chat",),
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        ),
        exchange,
        lacks("reasoning_content"),
    ),
    "signature": Fault(
        ("chat",),
        ("Function call is missing a thought_signature in functionCall parts. This is required for tools to work.",),
        exchange,
        calls_lack("thought_signature"),
    ),
    "server tools": Fault(
        ("messages",),
        ("messages.1: `web_search` tool use with id `srvtoolu_01` was found without a corresponding "
         "`web_search_tool_result` block",),
        server_tools,
        lambda sent: "server_tool_use" in sent.text,
        lambda sent: "I search." in sent.text,
    ),
}  # fmt: skip


def refusing(fault: Fault, words: str) -> Rule:
    def rule(sent: Sent) -> Answer | None:
        return sent.face.error(words, fault.status) if fault.is_in(sent) else None

    return rule
