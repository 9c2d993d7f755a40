"""Histories with reasoning that the upstream cannot verify, because another model wrote it: healed unseen."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import pytest
from support import valid_responses
from support.journey import World
from support.messages_rounds import END, START, block
from support.upstream import Answer, Rule, Sent, as_json

SEAL = "gAAAAABsealed"


class Case(NamedTuple):
    """The same conversation in one API."""

    path: str
    history: str
    """The member with the messages."""
    thought: dict[str, Any]
    output: dict[str, Any]
    """The assistant's text beside its thinking; the next user message follows."""
    refusal: dict[str, Any]
    reply: dict[str, Any]


TASK = {"role": "user", "content": "Look at the log."}
NEXT = {"role": "user", "content": "And now?"}
RESPONSES = Case(
    "/responses",
    "input",
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEAL},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    {
        "error": {
            "message": "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_encrypted_content",
        }
    },
    {"object": "response", "status": "completed", "output": [{"type": "message", "role": "assistant", "content": []}]},
)
MESSAGES = Case(
    "/messages",
    "messages",
    {"type": "thinking", "thinking": "Hm.", "signature": SEAL},
    {"type": "text", "text": "Done."},
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
        },
    },
    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"},
)
CHAT = Case(
    "/chat/completions",
    "messages",
    {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": SEAL}]},
    {"role": "assistant", "content": "Done."},
    {"error": {"message": "messages.1.content.0: Invalid `signature` in `thinking` block", "code": 400}},
    {"choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]},
)
CASES = pytest.mark.parametrize("case", [RESPONSES, MESSAGES, CHAT], ids=lambda case: case.path[1:])


def history(case: Case, *, sealed: bool) -> list[dict[str, Any]]:
    if case is RESPONSES:
        return [TASK, *([case.thought] if sealed else []), case.output, NEXT]
    if case is MESSAGES:
        blocks = [case.thought, case.output] if sealed else [case.output]
        return [TASK, {"role": "assistant", "content": blocks}, NEXT]
    return [TASK, case.output | (case.thought if sealed else {}), NEXT]


def body_of(case: Case, *, sealed: bool = True) -> dict[str, Any]:
    limit = {"max_tokens": 100} if case is MESSAGES else {}
    return {"model": "m", case.history: history(case, sealed=sealed), **limit}


def plain(found: dict[str, Any]) -> Answer:
    """It as an answer, or as a refusal if it has an error."""
    return as_json(found, 400 if "error" in found else 200)


def verifying(case: Case, *, accepts: bool = True) -> Rule:
    """Refuse what cannot be verified, or everything."""

    def rule(request: Sent) -> Answer:
        if SEAL.encode() in request.body:
            return plain(case.refusal)
        if accepts:
            return plain(case.reply)
        return plain({"error": {"message": "thinking is required here", "type": "invalid_request_error"}})

    return rule


def sent(world: World) -> list[Any]:
    return [json.loads(one.body) for one in world.upstream.sent]


@CASES
def test_reasoning_that_cannot_be_verified_is_left_out_after_the_refusal(build: Any, case: Case) -> None:
    world = build(128_000, verifying(case))
    answer = world.ask(body_of(case), path=case.path)
    assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "2")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=1"
    assert sent(world) == [body_of(case), body_of(case, sealed=False)]
    assert [line["cure"] for line in world.logged("history_healed")] == ["repaired"]
    assert SEAL not in json.dumps(world.logged("history_healed"))


@pytest.mark.parametrize("part", ["text", "thinking"])
@pytest.mark.parametrize("words", ["The error is in line 3.", "maximum context length exceeded"])
def test_a_reply_after_the_repair_is_one_whatever_its_first_words_are(build: Any, part: str, words: str) -> None:
    delta = {"type": f"{part}_delta", part: words}
    stream = START + block(0, {"type": part, part: ""}, delta) + END
    refusing = verifying(MESSAGES)

    def rule(request: Sent) -> Any:
        return refusing(request) if SEAL.encode() in request.body else Answer(200, stream, "text/event-stream")

    got = build(128_000, rule).ask(body_of(MESSAGES) | {"stream": True}, path=MESSAGES.path)
    assert (got.status_code, got.headers["x-context-proxy-attempts"], got.content) == (200, "2", stream)


@CASES
def test_the_first_refusal_is_returned_if_the_repair_is_refused_too(build: Any, case: Case) -> None:
    world = build(128_000, verifying(case, accepts=False))
    for _ in range(2):  # what was of no use is not done at once
        answer = world.ask(body_of(case), path=case.path)
        assert (answer.status_code, answer.json()) == (400, case.refusal)
    assert sent(world) == [body_of(case), body_of(case, sealed=False)] * 2


@CASES
@pytest.mark.parametrize("settings", [{"history": "off"}, {"overflow": {"retry": False}}])
def test_the_refusal_passes_where_nothing_is_to_be_healed(build: Any, case: Case, settings: dict[str, Any]) -> None:
    world = build(128_000, verifying(case), **settings)
    answer = world.ask(body_of(case), path=case.path)
    assert (answer.status_code, answer.json(), len(sent(world))) == (400, case.refusal, 1)


@CASES
def test_the_refusal_passes_where_nothing_sealed_is_in_the_history(build: Any, case: Case) -> None:
    world = build(128_000, verifying(case))
    body = body_of(case, sealed=False)
    body[case.history][0] = {"role": "user", "content": SEAL}
    answer = world.ask(body, path=case.path)
    assert (answer.status_code, sent(world)) == (400, [body])


def test_what_the_repair_leaves_is_valid(build: Any) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.log"}
    alone = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": SEAL}]}
    turns = [TASK, {"role": "assistant", "content": [MESSAGES.thought, call]}, {"role": "user", "content": [result]}]
    world = build(128_000, verifying(MESSAGES))
    answer = world.ask({"model": "m", "max_tokens": 9, "messages": [*turns, alone, NEXT]}, path="/messages")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=2"
    assert world.upstream.sent[1].complaints == []
    assert sent(world)[1]["messages"] == [TASK, {"role": "assistant", "content": [call]}, turns[2], NEXT]

    call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "a.log"}
    plain = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    items = [TASK, RESPONSES.thought, call, output, RESPONSES.thought, RESPONSES.output, plain, RESPONSES.output, NEXT]
    world = build(128_000, verifying(RESPONSES))
    answer = world.ask({"model": "m", "input": items}, path="/responses")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=2"
    assert valid_responses.complaints(sent(world)[1]) == []
    assert sent(world)[1]["input"] == [item for item in items if item is not RESPONSES.thought]


def turns_of(case: Case, *seals: str, words: str = "Look at the log.") -> list[list[dict[str, Any]]]:
    """Each turn of one conversation: the history until then and, as far as `seals` name them, its sealed reasoning."""
    output = case.output if case is not MESSAGES else {"role": "assistant", "content": [case.output]}
    turns = [[{"role": "user", "content": words}]]
    for number, seal in enumerate(seals):
        thought = json.loads(json.dumps(case.thought).replace(SEAL, seal))
        if not seal:
            found = [output]
        elif case is RESPONSES:
            found = [thought, output]
        else:
            found = [output | thought] if case is CHAT else [output | {"content": [thought, case.output]}]
        turns.append([*turns[-1], *found, {"role": "user", "content": f"And now, {number}?"}])
    return turns


def sent_turn(world: World, case: Case, history: list[dict[str, Any]]) -> tuple[str, str, Any]:
    """The sends and the edits of a turn, and the history that the upstream accepted."""
    body = {"model": "m", "max_tokens": 100, case.history: history}
    answer = world.ask(json.dumps(body, separators=(",", ":")).encode(), path=case.path)
    assert answer.status_code == 200
    reported = [answer.headers.get(f"x-context-proxy-{name}", "") for name in ("attempts", "edits")]
    return reported[0], reported[1], sent(world)[-1][case.history]


@CASES
@pytest.mark.parametrize("words", ["Look at the log.", "Look at the log. " * 500], ids=["short", "long"])
def test_refused_reasoning_is_left_out_of_later_turns_at_once_and_newer_reasoning_stays(
    build: Any, case: Case, words: str
) -> None:
    world = build(128_000, verifying(case))
    sealed = turns_of(case, SEAL, "new", "newer", words=words)
    healed = turns_of(case, "", "new", "newer", words=words)
    for number, attempts in enumerate(["1", "2", "1", "1"]):
        edits = "history_healed=1" if number else ""
        assert sent_turn(world, case, sealed[number]) == (attempts, edits, healed[number])
    assert [line["edits"] for line in world.logged("request_done", 4)[1:]] == [{"history_healed": 1}] * 3
    assert len(world.logged("history_healed")) == 1
    if len(words) > 4_096:  # a shorter request is not compared with the next one
        assert [line.get("prefix_kept") for line in world.logged("request_done", 4)[2:]] == [1.0, 1.0]


@CASES
def test_reasoning_that_is_refused_later_is_left_out_with_the_earlier(build: Any, case: Case) -> None:
    world = build(128_000, verifying(case))
    broken = turns_of(case, SEAL, f"{SEAL}2", "new", words="Look at the log. " * 500)
    healed = turns_of(case, "", "", "new", words="Look at the log. " * 500)
    assert sent_turn(world, case, broken[1]) == ("2", "history_healed=1", healed[1])
    assert sent_turn(world, case, broken[2]) == ("2", "history_healed=2", healed[2])
    assert sent_turn(world, case, broken[3]) == ("1", "history_healed=2", healed[3])


@CASES
def test_refused_reasoning_is_known_again_in_a_body_that_begins_otherwise(build: Any, case: Case) -> None:
    world = build(128_000, verifying(case))
    words = "Look at the log. " * 500
    sent_turn(world, case, turns_of(case, SEAL, words=words)[1])
    sealed, healed = (turns_of(case, seal, "new", words=f"12:31. {words}")[2] for seal in (SEAL, ""))
    assert sent_turn(world, case, sealed) == ("1", "history_healed=1", healed)


def test_refused_reasoning_is_known_again_when_the_cache_mark_has_moved(build: Any) -> None:
    world = build(128_000, verifying(MESSAGES))
    sealed, healed = (turns_of(MESSAGES, seal, "new") for seal in (SEAL, ""))
    marked = json.loads(json.dumps(sealed[1]))
    marked[1]["content"][1]["cache_control"] = {"type": "ephemeral"}
    assert sent_turn(world, MESSAGES, marked)[0] == "2"
    assert sent_turn(world, MESSAGES, sealed[2]) == ("1", "history_healed=1", healed[2])


@CASES
def test_what_one_model_or_the_upstream_of_one_client_refuses_goes_to_the_others(build: Any, case: Case) -> None:
    def picky(request: Sent) -> Any:
        is_picky = request.json["model"] == "picky"
        return (verifying(case) if is_picky else verifying(case._replace(refusal=case.reply)))(request)

    world = build(128_000, picky)
    history = turns_of(case, SEAL, words="Look at the log. " * 500)[1]
    body = {case.history: history, "max_tokens": 100}
    assert world.ask(body | {"model": "picky"}, path=case.path).headers["x-context-proxy-attempts"] == "2"
    assert world.ask(body | {"model": "m"}, path=case.path).status_code == 200
    assert sent(world)[-1][case.history] == history
    again = world.ask(body | {"model": "picky"}, path=case.path, key="another")
    assert (again.status_code, again.headers["x-context-proxy-attempts"]) == (200, "2")


class Binds:
    """An upstream that refuses thinking unless everything before it is what it was when the thinking was written.
    https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks"""

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self, request: Sent) -> Answer:
        before: list[Any] = []
        mistake = None
        for index, message in enumerate(request.messages):
            first = message["content"][0] if isinstance(message["content"], list) else {}
            if first.get("type") == "thinking" and first["signature"] != self._sign(before):
                mistake = mistake or (
                    f"messages.{index}.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
                    "different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". The `system` prompt differs '
                    "from the one this block was created with."
                )
            before.append(message)
        thought = {"type": "thinking", "thinking": "Hm.", "signature": self._sign(before)}
        reply = MESSAGES.reply | {"content": [thought, MESSAGES.output]}
        if mistake:
            self.refused += 1
            reply = {"type": "error", "error": {"type": "invalid_request_error", "message": mistake}}
        return plain(reply)

    @staticmethod
    def _sign(before: list[Any]) -> str:
        return f"{SEAL}{hashlib.sha256(json.dumps(before).encode()).hexdigest()}"


def test_thinking_that_is_tied_to_all_before_it_is_refused_once_after_each_cut(build: Any) -> None:
    upstream = Binds()
    world = build(128_000, upstream, models=[{"match": "*", "context_window": 6_000}])
    history: list[Any] = []
    cuts = set()
    for number in range(40):
        history.append({"role": "user", "content": f"{number}: " + "what happened then? " * 60})
        answer = world.ask({"model": "m", "max_tokens": 100, "messages": history}, path="/messages")
        assert answer.status_code == 200
        history.append({"role": "assistant", "content": answer.json()["content"]})
        cuts |= {edit for edit in answer.headers.get("x-context-proxy-edits", "").split(";") if "old_exchange" in edit}
    assert (upstream.refused, len(sent(world))) == (len(cuts), 40 + len(cuts))
    assert len(cuts) > 3


def own_thinking(request: Sent) -> Answer:
    """Be as strict as the Messages API with thinking enabled: name the first block whose signature is another's, and
    want thinking at the beginning of the last message with calls."""
    places = [
        f"messages.{number}.content.{at}: Invalid `signature` in `thinking` block"
        for number, message in enumerate(request.messages)
        if isinstance(message["content"], list)
        for at, block in enumerate(message["content"])
        if block["type"] == "thinking" and not block["signature"].startswith("own")
    ]
    found = places[:1] or request.face.complaints(request.json)
    return request.face.error(found[0]) if found else plain(MESSAGES.reply)


def looped(number: int, seal: str | None) -> list[dict[str, Any]]:
    """One step of a tool loop."""
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": seal}] if seal else []
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "good"}
    return [{"role": "assistant", "content": [*thought, use]}, {"role": "user", "content": [answer]}]


def thinks(world: World, history: list[dict[str, Any]], kind: str = "enabled") -> tuple[int, str, dict[str, Any]]:
    """Status and number of sends of a request with thinking, and what was sent last."""
    thinking = {"type": kind} | ({"budget_tokens": 1_024} if kind == "enabled" else {})
    body = {"model": "m", "max_tokens": 2_000, "thinking": thinking, "messages": history}
    answer = world.ask(body, path="/messages")
    return answer.status_code, answer.headers["x-context-proxy-attempts"], sent(world)[-1]


FINISHED = [TASK, *looped(1, "foreign"), {"role": "assistant", "content": "Done."}, NEXT]


def test_a_running_loop_keeps_its_thinking_where_that_of_finished_turns_is_refused(build: Any) -> None:
    world = build(128_000, own_thinking)
    history = [*FINISHED, *looped(2, "own")]
    for number, attempts in ((3, "2"), (4, "1"), (5, "1")):
        status, count, body = thinks(world, history)
        assert (status, count, body["thinking"]["type"]) == (200, attempts, "enabled")
        assert json.dumps(body).count('"own"') == number - 2
        assert "foreign" not in json.dumps(body)
        history += looped(number, "own")


def test_thinking_is_disabled_while_the_loop_runs_whose_own_is_refused(build: Any) -> None:
    world = build(128_000, own_thinking)
    history = [TASK, *looped(1, "foreign")]
    for number, attempts in ((2, "2"), (3, "1"), (4, "1")):
        status, count, body = thinks(world, history)
        assert (status, count, body["thinking"]) == (200, attempts, {"type": "disabled"})
        history += looped(number, None)
    history += [{"role": "assistant", "content": "Done."}, NEXT]
    status, count, body = thinks(world, [*history, *looped(9, "own")])
    assert (status, count, body["thinking"]["type"]) == (200, "1", "enabled")


def test_a_loop_that_lacks_its_thinking_is_refused_once_and_continues_without(build: Any) -> None:
    world = build(128_000, own_thinking)
    history = [{"role": "user", "content": "Look at the log. " * 500}, *looped(1, "own"), *looped(2, None)]
    for number, attempts in ((3, "2"), (4, "1"), (5, "1")):
        status, count, body = thinks(world, history)
        assert (status, count, body["messages"], body["thinking"]) == (200, attempts, history, {"type": "disabled"})
        history = [*history, *looped(number, None)]
    history += [{"role": "assistant", "content": "Done."}, NEXT]
    status, count, body = thinks(world, [*history, *looped(9, "own")])
    assert (status, count, body["thinking"]["type"]) == (200, "1", "enabled")


def test_where_both_are_refused_one_turn_is_lost_at_the_most(build: Any) -> None:
    world = build(128_000, own_thinking)
    history = [*FINISHED, *looped(2, "foreign")]
    assert thinks(world, history)[:2] == (400, "2")
    assert [thinks(world, history)[:2] for _ in range(2)] == [(200, "2"), (200, "1")]
