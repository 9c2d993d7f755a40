"""Two reasons for which an upstream refuses one conversation, in every order: `python -m support.pairs [API…]` plays
all of them and prints those that cost more than they may.

Rule: an upstream names its reasons one at a time, in the order of the pair, each as a public API does.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from support.faults import FAULTS, TASK, exchange, refusing
from support.journey import World, world
from support.spellings import SEAL, SPELLINGS, Items, Json, Spelling
from support.upstream import FACES, Has, Over, Rule, ScriptedModel, well_formed, words
from support.upstream.strict import MARKS, SAID

TURNS: Final = 4
MAX_SENDS: Final = 3
ALL: Final = tuple(SPELLINGS)
SEEING: Final = ("chat", "messages", "responses")


@dataclass(frozen=True)
class Reason:
    """What a history has, and the rule that refuses it."""

    rule: Callable[[], Rule]
    planted: Callable[[Spelling], Items] = lambda _: []
    apis: tuple[str, ...] = ALL
    reply_tokens: int = 100
    tools: tuple[str, ...] = ("bash",)
    settings: Mapping[str, Any] = field(default_factory=dict)


def over(what: str, limit: int, says: str, status: int = 400, **members: Any) -> Callable[[], Rule]:
    return lambda: Over(what, limit, says, status, members=members)


def has(name: str) -> Callable[[], Rule]:
    return lambda: Has(MARKS[name], SAID[name])


def steps(count: int, text: str = "total 8", media: tuple[str, ...] = ()) -> Callable[[Spelling], Items]:
    def planted(spelling: Spelling) -> Items:
        items: Items = []
        for number in range(count):
            name = f"call_{len(text)}_{number}"
            items += spelling.called([(name, {"cmd": "ls"})], "I look.")
            items += spelling.results([(name, text)], media)
        return items

    return planted


def many_calls(spelling: Spelling) -> Items:
    names = [f"call_of_many_{number}" for number in range(20)]
    answers = spelling.results([(name, "ok") for name in names])
    return [*spelling.called([(name, {"cmd": "ls"}) for name in names], "I look."), *answers]


def many_parts(spelling: Spelling) -> Items:
    kind = "input_text" if spelling.name == "responses" else "text"
    content = [{"type": kind, "text": f"Part {number}."} for number in range(20)]
    return [*exchange(spelling, "call_of_parts"), *spelling.called([], "Yes?"), {"role": "user", "content": content}]


def sealed(spelling: Spelling) -> Items:
    return [*spelling.called([("call_sealed", {"cmd": "ls"})], "", SEAL), *spelling.results([("call_sealed", "ok")])]


def unpaired(spelling: Spelling) -> Items:
    return spelling.called([("call_without_result", {"cmd": "ls"})], "I look.")


def pictures(spelling: Spelling) -> Items:
    return [
        one
        for number in range(4)
        for one in [*spelling.user(f"Look, {number}.", ["image"]), *spelling.called([], "I see.")]
    ]


def files(spelling: Spelling) -> Items:
    return [*spelling.user("Read it.", ["file"]), *spelling.called([], "I have.")]


LONG: Final = "the step ran well and nothing was wrong\n" * 250
ENDPOINT: Final = (
    "This model's maximum context length is {limit} tokens. However, you requested {total} tokens ({prompt} in the "
    "messages, {reply} in the completion). Please reduce the length of the messages or completion."
)
REASONS: Final[Mapping[str, Reason]] = {
    "image count": Reason(over("images", 2, "Too many images: {seen} > {limit}"), pictures),
    "no images": Reason(has("image"), pictures),
    "no files": Reason(has("file"), files, SEEING),
    "messages": Reason(over("messages", 30, "Too many messages: {seen} exceeds limit of {limit}"), steps(20, "done")),
    "calls": Reason(over("calls", 16, "Too many tool calls in one message: {seen} > {limit}"), many_calls, SEEING),
    "parts": Reason(over("parts", 16, "Too many content parts: {seen}. Maximum is {limit}"), many_parts, SEEING),
    "string": Reason(over("string", 6_000, "String should have at most {limit} characters", 422), steps(1, LONG)),
    "reply": Reason(over("reply", 8_192, "max_tokens is too large: {seen}. This model supports at most {limit} "
                         "completion tokens"), reply_tokens=32_000),
    "total": Reason(over("total", 24_000, ENDPOINT), reply_tokens=30_000),
    "length": Reason(over("prompt", 7_000, SAID["length"]), steps(8, LONG[:4_000])),
    "unnumbered": Reason(over("prompt", 7_000, SAID["unnumbered"]), steps(8, LONG[:4_000])),
    "other words": Reason(over("prompt", 7_000, "コンテキスト長の上限を超えました。"), steps(8, LONG[:4_000])),
    "characters": Reason(over("characters", 24_000, "text length is {seen}, which is outside the range (0, {limit}]"),
                         steps(8, LONG[:4_000])),
    "rate": Reason(over("prompt", 7_000, "Request too large on tokens per minute (TPM): Limit {limit}, Requested "
                        "{seen}", 413), steps(8, LONG[:4_000])),
    "bytes": Reason(over("bytes", 70_000, "Request Entity Too Large: the limit is {limit} bytes", 413), steps(8, LONG)),
    "seal": Reason(has("seal"), sealed, ("chat", "messages", "responses")),
    "pairing": Reason(lambda: well_formed, unpaired, SEEING),
    "our tool": Reason(has("tool"), tools=("read_log",), settings={"artifacts": {"retrieval_tool": "always"}}),
    "tools": Reason(over("tools", 1, "Too many tools: {seen}. The maximum is {limit}."), tools=("read_log",),
                    settings={"artifacts": {"retrieval_tool": "always"}}),
    **{
        name: Reason(partial(refusing, fault, fault.refusals[0]), fault.planted, tuple(fault.apis))
        for name, fault in FAULTS.items()
    },
}  # fmt: skip
SAME: Final = (
    {"length", "unnumbered", "other words", "characters", "rate"},
    {"image count", "no images"},
    {name for name in FAULTS if "ids" in name},
    {"server tools", "pairing"},
)
"""Of these a conversation has one: they are one limit, or refuse what the other's repair leaves."""


def pairs(api: str) -> Iterator[tuple[str, str]]:
    """All ordered pairs of an API."""
    names = [name for name, reason in REASONS.items() if api in reason.apis]
    for pair in itertools.permutations(names, 2):
        if not any(set(pair) <= same for same in SAME):
            yield pair


def _count(_: Json, body: bytes) -> int:
    return len(body) // 4


def played(api: str, pair: tuple[str, str], folder: Path) -> tuple[list[tuple[int, int]], str]:
    """(status, sends) of each turn, and what the last request lacks."""
    reasons = [REASONS[name] for name in pair]
    model = ScriptedModel([reason.rule() for reason in reasons], words("Fine."), [FACES[api]], _count)
    settings = {name: one for reason in reasons for name, one in reason.settings.items()}
    with world(folder, model, [{"defaults": {}, **settings}]) as found:
        return _turns(found, api, reasons)


def _turns(found: World, api: str, reasons: list[Reason]) -> tuple[list[tuple[int, int]], str]:
    spelling, seen = SPELLINGS[api], list[tuple[int, int]]()
    items = [*spelling.user(TASK), *spelling.called([], "I begin.")]
    for reason in reasons:
        items += [*reason.planted(spelling)]
    tools = next((list(one.tools) for one in reasons if one.tools != ("bash",)), ["bash"])
    reply = max(one.reply_tokens for one in reasons)
    for number in range(TURNS):
        newest = f"Newest words {number}."
        items += [*exchange(spelling, f"call_turn_{number}"), *spelling.called([], "Done."), *spelling.user(newest)]
        body: Json = {"model": "m", **spelling.request("Be brief.", items, tools, reply), "stream": False}
        before = len(found.upstream.sent)
        answer = found.ask(json.dumps(body).encode(), path=spelling.path.removeprefix("/v1"))
        seen.append((answer.status_code, len(found.upstream.sent) - before))
        items += spelling.called([], "Fine.")
    lacks = [words for words in (TASK, newest) if words not in found.upstream.last.text]
    return seen, ", ".join(lacks)


def costs_too_much(seen: list[tuple[int, int]], lacks: str) -> bool:
    """Whether more than one turn is lost, a request is sent too often, or the last turn is not as any other."""
    lost = sum(status != 200 for status, _ in seen)
    return lost > 1 or max(sends for _, sends in seen) > MAX_SENDS or seen[-1] != (200, 1) or bool(lacks)


def main(*apis: str) -> int:
    failed = 0
    for api in apis or ALL:
        every, lost, bad = list(pairs(api)), 0, 0
        for pair in every:
            with tempfile.TemporaryDirectory() as folder:
                seen, lacks = played(api, pair, Path(folder))
            lost += any(status != 200 for status, _ in seen)
            if costs_too_much(seen, lacks):
                bad += 1
                print(api, *pair, seen, lacks, sep="; ", flush=True)
        print(f"{api}: {len(every)} pairs, {lost} lose a turn, {bad} cost too much", flush=True)
        failed += bad
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
