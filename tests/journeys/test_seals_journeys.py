"""Histories with reasoning that the upstream cannot verify, because another model wrote it: healed unseen."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from starlette.types import Send
from support import valid_messages, valid_responses
from support.journey import Received, World

SEAL = "gAAAAABsealed"


class Case(NamedTuple):
    """The same conversation in one API."""

    path: str
    history: str
    """The member with the messages."""
    thought: dict[str, Any]
    said: dict[str, Any]
    """What the assistant says besides its thought; the next user message follows."""
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
        return [TASK, *([case.thought] if sealed else []), case.said, NEXT]
    if case is MESSAGES:
        blocks = [case.thought, case.said] if sealed else [case.said]
        return [TASK, {"role": "assistant", "content": blocks}, NEXT]
    return [TASK, case.said | (case.thought if sealed else {}), NEXT]


def body_of(case: Case, *, sealed: bool = True) -> dict[str, Any]:
    limit = {"max_tokens": 100} if case is MESSAGES else {}
    return {"model": "m", case.history: history(case, sealed=sealed), **limit}


class Verifies:
    """An upstream that refuses what it cannot verify, or everything."""

    def __init__(self, case: Case, *, accepts: bool = True) -> None:
        self._case = case
        self._accepts = accepts

    async def __call__(self, request: Received, send: Send) -> bool:
        is_broken = SEAL.encode() in request.body
        found: dict[str, Any] = self._case.refusal if is_broken else self._case.reply
        if not is_broken and not self._accepts:
            found = {"error": {"message": "thinking is required here", "type": "invalid_request_error"}}
        headers = [(b"content-type", b"application/json")]
        status = 400 if "error" in found else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(found).encode()})
        return True


def sent(world: World) -> list[Any]:
    return [json.loads(one.body) for one in world.upstream.received]


@CASES
def test_reasoning_that_cannot_be_verified_is_left_out_after_the_refusal(build: Any, case: Case) -> None:
    world = build(answer=Verifies(case))
    answer = world.ask(body_of(case), path=case.path)
    assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "2")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=1"
    assert sent(world) == [body_of(case), body_of(case, sealed=False)]
    assert [line["rung"] for line in world.logged("history_healed")] == ["repaired"]
    assert SEAL not in json.dumps(world.logged("history_healed"))


@CASES
def test_the_first_refusal_is_told_where_the_repair_is_refused_too(build: Any, case: Case) -> None:
    world = build(answer=Verifies(case, accepts=False))
    answer = world.ask(body_of(case), path=case.path)
    assert (answer.status_code, answer.json(), len(sent(world))) == (400, case.refusal, 2)


@CASES
@pytest.mark.parametrize("settings", [{"history": "off"}, {"overflow": {"retry": False}}])
def test_the_refusal_passes_where_nothing_is_to_be_healed(build: Any, case: Case, settings: dict[str, Any]) -> None:
    world = build(answer=Verifies(case), **settings)
    answer = world.ask(body_of(case), path=case.path)
    assert (answer.status_code, answer.json(), len(sent(world))) == (400, case.refusal, 1)


@CASES
def test_the_refusal_passes_where_nothing_sealed_is_in_the_history(build: Any, case: Case) -> None:
    world = build(answer=Verifies(case))
    body = body_of(case, sealed=False)
    body[case.history][0] = {"role": "user", "content": SEAL}
    answer = world.ask(body, path=case.path)
    assert (answer.status_code, sent(world)) == (400, [body])


def test_what_the_repair_leaves_is_valid(build: Any) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.log"}
    alone = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": SEAL}]}
    turns = [TASK, {"role": "assistant", "content": [MESSAGES.thought, call]}, {"role": "user", "content": [result]}]
    world = build(answer=Verifies(MESSAGES))
    answer = world.ask({"model": "m", "max_tokens": 9, "messages": [*turns, alone, NEXT]}, path="/messages")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=2"
    assert valid_messages.complaints(sent(world)[1]) == []
    assert sent(world)[1]["messages"] == [TASK, {"role": "assistant", "content": [call]}, turns[2], NEXT]

    call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "a.log"}
    plain = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    items = [TASK, RESPONSES.thought, call, output, RESPONSES.thought, RESPONSES.said, plain, RESPONSES.said, NEXT]
    world = build(answer=Verifies(RESPONSES))
    answer = world.ask({"model": "m", "input": items}, path="/responses")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=2"
    assert valid_responses.complaints(sent(world)[1]) == []
    assert sent(world)[1]["input"] == [item for item in items if item is not RESPONSES.thought]
