"""Histories that an upstream refuses for a fault of an old message: healed once, and never sent with it again."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.journey import World, world
from support.spellings import SPELLINGS, Items, Spelling
from support.upstream import Answer, Over, Rule, ScriptedModel, Sent, listening, words

Json = dict[str, Any]
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
    "same ids": Fault(
        ("chat", "messages", "responses"),
        ("messages.3.content.1: `tool_use` ids must be unique",
         "Duplicate value for 'tool_call_id' of 'call_1' in message 5"),
        again,
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
        ("A maximum of 4 blocks with cache_control may be provided. Found 5.", "Too many cache_control blocks: 5 > 4"),
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
ROWS = [
    pytest.param(api, name, refusal, stream, id=f"{api}-{name}-{number}-{'streamed' if stream else 'whole'}")
    for name, fault in FAULTS.items()
    for api in fault.apis
    for number, refusal in enumerate(fault.refusals)
    for stream in (False, True)
]


def refusing(fault: Fault, words: str) -> Rule:
    def rule(sent: Sent) -> Answer | None:
        return sent.face.error(words, fault.status) if fault.is_in(sent) else None

    return rule


@dataclass
class Turns:
    """A conversation that grows, turn by turn."""

    world: World
    api: str
    fault: Fault
    stream: bool

    def __post_init__(self) -> None:
        self.spelling = SPELLINGS[self.api]
        self.items = [*self.spelling.user(TASK), *self.fault.planted(self.spelling)]
        self.number = 0

    def turn(self, proxy: int = 0) -> tuple[int, int]:
        """The status of the next turn, and how often it went up."""
        self.number += 1
        newest = f"Newest words {self.number}."
        if self.number > 1:
            self.items += exchange(self.spelling, f"call_turn_{self.number}", "x" * 9_000)
            self.items += self.spelling.called([], "Done.")
        elif self.fault.planted is not unanswered_by_the_model:
            self.items += self.spelling.called([], "Done.")
        self.items += self.spelling.user(newest)
        body = {"model": "m", **self.spelling.request("Be brief.", self.items, ["bash"], 100), "stream": self.stream}
        before = len(self.world.upstream.sent)
        path = self.spelling.path.removeprefix("/v1")
        answer = self.world.ask(json.dumps(body).encode(), path=path, proxy=proxy)
        sent = self.world.upstream.sent[before:]
        last = sent[-1]
        assert TASK in last.text
        assert newest in last.text
        assert not last.complaints
        if answer.status_code == 200:
            assert self.fault.remains(last)
        return answer.status_code, len(sent)


@pytest.mark.parametrize(("api", "name", "refusal", "stream"), ROWS)
def test_a_fault_of_an_old_message_costs_one_refusal(
    build: Any, api: str, name: str, refusal: str, stream: bool
) -> None:
    fault = FAULTS[name]
    upstream = ScriptedModel([refusing(fault, refusal)], words("Fine."))
    turns = Turns(build(128_000, behind=upstream), api, fault, stream)
    assert [turns.turn() for _ in range(4)] == [(200, 2), (200, 1), (200, 1), (200, 1)]
    bodies = [one.messages for one in upstream.sent][1:]
    if name != "marks":  # of which the oldest go
        assert all(later[: len(one) - 1] == one[:-1] for one, later in itertools.pairwise(bodies))


@pytest.mark.parametrize("name", FAULTS)
def test_a_proxy_that_starts_anew_repairs_what_was_refused_before(tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    upstream = ScriptedModel([refusing(fault, fault.refusals[0])], words("Fine."))
    with listening(upstream) as url:
        setting = [{"upstream": {"base_url": url}}]
        with world(tmp_path, upstream, setting) as first:
            turns = Turns(first, fault.apis[0], fault, stream=False)
            assert [turns.turn(), turns.turn()] == [(200, 2), (200, 1)]
        with world(tmp_path, upstream, setting) as turns.world:
            assert turns.turn() == (200, 1)


@pytest.mark.parametrize("name", FAULTS)
def test_words_about_a_fault_that_a_history_does_not_have_repair_nothing(build: Any, name: str) -> None:
    fault = FAULTS[name]
    upstream = ScriptedModel([lambda sent: sent.face.error(fault.refusals[0])], words("Fine."))
    found = build(128_000, behind=upstream)
    spelling = SPELLINGS["ollama"]
    body = {"model": "m", **spelling.request("Be brief.", spelling.user(TASK), [], 100), "stream": False}
    assert found.ask(json.dumps(body).encode(), path="/api/chat").status_code == 400
    assert len(upstream.sent) == 1


def thought(spelling: Spelling) -> Items:
    items = exchange(spelling)
    items[0]["content"].insert(0, {"type": "thinking", "thinking": "", "signature": "EuYBsealed"})
    return items


def compacted(spelling: Spelling) -> Items:
    return [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAsealed"}, *exchange(spelling)]


SEALS = {
    "thinking": Fault(
        ("messages",),
        (
            "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response.",
            "messages.1.content.0: thinking blocks have been modified",
            "messages.1.content.0.thinking: each thinking block must contain thinking",
        ),
        thought,
        lambda sent: "EuYBsealed" in sent.text,
        lambda sent: "total 8" in sent.text,
    ),
    "compaction": Fault(
        ("responses",),
        (
            "The encrypted content for item cmp_1 could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed.",
        ),
        compacted,
        lambda sent: "gAAAAsealed" in sent.text,
        lambda sent: "was compacted by another" in sent.text,
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "refusal"), [(name, one) for name, fault in SEALS.items() for one in fault.refusals])
def test_what_another_key_has_sealed_costs_one_refusal(build: Any, name: str, refusal: str, stream: bool) -> None:
    fault = SEALS[name]
    upstream = ScriptedModel([refusing(fault, refusal)], words("Fine."))
    turns = Turns(build(128_000, behind=upstream), fault.apis[0], fault, stream)
    assert [turns.turn() for _ in range(4)] == [(200, 2), (200, 1), (200, 1), (200, 1)]
    bodies = [one.messages for one in upstream.sent][1:]
    assert all(later[: len(one) - 1] == one[:-1] for one, later in itertools.pairwise(bodies))


@pytest.mark.parametrize("api", ["chat", "ollama"])
@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "registry.ollama.ai/library/gemma:latest does not support tools"),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_the_same_cut_goes_up_without_our_tool(build: Any, api: str, status: int, refusal: str) -> None:
    def rule(sent: Sent) -> Answer | None:
        return sent.face.error(refusal, status) if "read_artifact" in json.dumps(sent.json.get("tools") or "") else None

    upstream = ScriptedModel([rule, Over("prompt", 9_000)], words("Fine."))
    proxy = build(9_000, behind=upstream, artifacts={"retrieval_tool": "always"})
    spelling = SPELLINGS[api]
    items, statuses = spelling.user(TASK), []
    for number in range(6):
        items += [*exchange(spelling, f"call_{number}", "the step ran well\n" * 1_500), *spelling.called([], "Done.")]
        items += spelling.user(f"Next {number}.")
        body = json.dumps({"model": "m", **spelling.request("Be brief.", items, [], 100)}).encode()
        statuses.append(proxy.ask(body, path=spelling.path.removeprefix("/v1")).status_code)
    assert statuses == [200] * 6
    assert len(upstream.sent) == 7
