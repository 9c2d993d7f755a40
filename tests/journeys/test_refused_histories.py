"""Histories that an upstream refuses for a fault of an old message: healed once, and never sent with it again."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.faults import (
    FAULTS,
    NAME,
    PLANTED,
    TASK,
    Fault,
    answered_twice,
    exchange,
    refusing,
    unanswered_by_the_model,
)
from support.journey import World, world
from support.spellings import SPELLINGS, Items, Spelling
from support.upstream import Answer, Over, ScriptedModel, Sent, listening, words


def thought(spelling: Spelling) -> Items:
    items = exchange(spelling)
    items[0]["content"].insert(0, {"type": "thinking", "thinking": "", "signature": "EuYBsealed"})
    return items


def compacted(spelling: Spelling) -> Items:
    return [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAsealed"}, *exchange(spelling)]


SEALS = {
    "two results": Fault(
        ("chat",),
        (
            "Duplicate value for 'tool_call_id' of 'call_1' in message[7]",
            "The toolResult blocks at messages.6.content contain duplicate Ids: call_1",
            "each tool_use must have a single result. Found multiple `tool_result` blocks with id: call_1",
        ),
        answered_twice,
        lambda sent: sum(one.get("tool_call_id") == PLANTED for one in sent.messages) > 1,
        lambda sent: "total 8" in sent.text,
    ),
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
ROWS = [
    pytest.param(api, name, refusal, stream, id=f"{api}-{name}-{number}-{'streamed' if stream else 'whole'}")
    for name, fault in (FAULTS | SEALS).items()
    for api in fault.apis
    for number, refusal in enumerate(fault.refusals)
    for stream in (False, True)
]


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
    fault = (FAULTS | SEALS)[name]
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


LOOK_ALIKES = [
    (api, refusal)
    for refusal, apis in {
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'": ("messages",),
        "Invalid 'tools[0].function.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'.": ("chat",),
        "Invalid 'tools[0].name': string too long. Expected a string with maximum length 64.": ("responses",),
        "Unknown parameter: 'tools[0].caller'.": ("responses", "chat"),
        "tools.0.custom.caller: Extra inputs are not permitted": ("messages",),
        "messages.2.content.0.text.cache_control: Extra inputs are not permitted": ("messages",),
        "messages.1.content.1.tool_use.id: Extra inputs are not permitted": ("messages",),
        "messages.1.content.1.tool_use.cache_control.ttl: Extra inputs are not permitted": ("messages",),
        "messages.1.content.1.tool_use.input.cmd: Extra inputs are not permitted": ("messages",),
        "Unknown parameter: 'input[2].call_id'.": ("responses",),
        "Unknown parameter: 'input[2].role'.": ("responses",),
        "Unknown parameter: 'status'.": ("responses",),
    }.items()
    for api in apis
]


@pytest.mark.parametrize(("api", "refusal"), LOOK_ALIKES)
def test_words_about_the_client_s_own_members_and_tools_repair_nothing(build: Any, api: str, refusal: str) -> None:
    spelling = SPELLINGS[api]
    step = json.dumps(exchange(spelling)).replace('"name": "bash"', '"name": "ba sh", "caller": "x", "status": "y"')
    items = [*spelling.user(TASK), *json.loads(step), *spelling.called([], "Done."), *spelling.user("Go on.")]
    items[-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    upstream = ScriptedModel([lambda sent: sent.face.error(refusal)], words("Fine."))
    body = {"model": "m", **spelling.request("Be brief.", items, ["ba sh"], 100)}
    answer = build(128_000, behind=upstream).ask(json.dumps(body).encode(), path=spelling.path.removeprefix("/v1"))
    assert answer.status_code == 400
    assert len(upstream.sent) == 1


@pytest.mark.parametrize("api", ["chat", "messages", "responses", "ollama"])
def test_only_names_in_calls_are_made_to_fit(build: Any, api: str) -> None:
    fault, spelling = FAULTS["other names"], SPELLINGS[api]
    person = {"role": "user", "name": "Ann Bo", "content": TASK}
    items = [person, *fault.planted(spelling), *spelling.called([], "Done."), *spelling.user("Go on.")]
    written = json.loads(json.dumps(items).replace('"cmd": "ls"', '"name": "a b"').replace("cmd", "name"))
    upstream = ScriptedModel(
        [lambda sent: sent.face.error(fault.refusals[0]) if NAME in sent.text else None], words("!")
    )
    body = {"model": "m", **spelling.request("Be brief.", written, ["ba sh"], 100)}
    answer = build(128_000, behind=upstream).ask(json.dumps(body).encode(), path=spelling.path.removeprefix("/v1"))
    assert answer.status_code == 200
    assert len(upstream.sent) == 2
    first, last = upstream.sent
    assert last.json["tools"] == first.json["tools"]
    assert last.messages == json.loads(json.dumps(first.messages).replace(NAME, "bash__channel__commentary"))


def test_members_that_are_refused_one_by_one_stay_left_out_together(build: Any) -> None:
    spelling = SPELLINGS["responses"]

    def refuses(member: str) -> Any:
        words_of_it = f"Unknown parameter: 'input[2].{member}'."
        return lambda sent: sent.face.error(words_of_it) if any(member in one for one in sent.messages) else None

    fault = Fault(
        ("responses",),
        (),
        lambda _: [one | {"status": "s", "phase": "p"} for one in exchange(spelling)],
        lambda _: True,
    )
    upstream = ScriptedModel([refuses("status"), refuses("phase")], words("Fine."))
    turns = Turns(build(128_000, behind=upstream), "responses", fault, stream=False)
    assert [turns.turn() for _ in range(4)] == [(200, 3), (200, 1), (200, 1), (200, 1)]


def test_the_note_in_place_of_a_compaction_is_in_the_language_of_all_notes(build: Any) -> None:
    fault = SEALS["compaction"]
    upstream = ScriptedModel([refusing(fault, fault.refusals[0])], words("Fine."))
    chinese = replace(fault, remains=lambda sent: "压缩" in json.dumps(sent.messages, ensure_ascii=False))
    turns = Turns(build(128_000, behind=upstream, language="zh"), "responses", chinese, stream=False)
    assert [turns.turn() for _ in range(2)] == [(200, 2), (200, 1)]


@pytest.mark.parametrize("api", ["chat", "ollama"])
@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "registry.ollama.ai/library/gemma:latest does not support tools"),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
        (400, "当前模型不支持工具调用"),
        (400, "Tool calling is disabled for this deployment"),
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
