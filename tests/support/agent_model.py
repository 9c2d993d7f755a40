"""A model behind `/v1/messages` and `/v1/responses` that works with real agents: it calls their tools step by step, has
a window that is counted and a refusal in any form that is known, and keeps what came with what is wrong with it.

Rule: a request that is not valid is refused in the API's words, before anything else; nothing depends on time. It is
the script of a `ScriptedUpstream`. Alone, for a client at hand: `PYTHONPATH=.:tests python -m support.agent_model`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from support import messages_answers, responses_answers, valid_messages, valid_responses
from support.model_turns import Answer, Refusal, Reply, Usage, as_json, next_reply, steps_done
from support.model_turns import tokens as tokens_of
from support.scripted_upstream import CHUNKED, LAST_CHUNK, Connection, Request, ScriptedUpstream, chunk


class Answers(Protocol):
    """Interface of a module of answers."""

    PATH: str
    REFUSALS: dict[str, Refusal]
    IN_STREAM: tuple[str, ...]

    def items_of(self, body: Mapping[str, Any], /) -> list[Any]: ...
    def counted(self, body: Mapping[str, Any], /) -> int: ...
    def counted_answer(self, body: Mapping[str, Any], /) -> Answer: ...
    def tools_of(self, body: Mapping[str, Any], /) -> list[tuple[str, str | None]]: ...
    def last_user(self, body: Mapping[str, Any], /) -> str: ...
    def invalid(self, complaint: str, /) -> Answer: ...
    def answered(
        self, body: Mapping[str, Any], reply: Reply, usage: Usage, number: int, /
    ) -> tuple[Answer, list[dict[str, Any]]]: ...


class Validity(Protocol):
    """Interface of a validator."""

    def complaints(self, body: Mapping[str, Any], issued: Sequence[Sequence[Mapping[str, Any]]], /) -> list[str]: ...


@dataclass(frozen=True)
class Wire:
    """An API: how it answers, and what it finds wrong."""

    answers: Answers
    validity: Validity
    own_words: str
    """The refusal of its vendor, which a whole answer falls back to where a form exists in a stream only."""


WIRES = {
    "/v1/messages": Wire(messages_answers, valid_messages, "anthropic"),
    "/v1/responses": Wire(responses_answers, valid_responses, "openai"),
}
COUNTS = {"/v1/messages/count_tokens": "/v1/messages", "/v1/responses/input_tokens": "/v1/responses"}


@dataclass(frozen=True)
class Refuses:
    """When a request is too long, and what is said then."""

    form: str = "anthropic"
    turn: int = 4
    """Of the work, from 1: what comes before it fits."""
    once: bool = False
    """This one request, and whatever comes after it fits; else from then on all that is over the limit."""
    limit: int | None = None
    """Tokens, from the beginning; without it the limit lies between the turn and the one before it."""


@dataclass(frozen=True)
class Seen:
    """A request that asked for an answer, and how it went."""

    path: str
    headers: Sequence[tuple[bytes, bytes]]
    raw: bytes
    body: Mapping[str, Any]
    tokens: int
    """Of all that the model would read, with what the server holds."""
    step: int
    """How much of the work was done; turn `step` + 1 is asked for."""
    works: bool
    """Whether it is a turn of the work: it offers a tool that the model wants. Titles and summaries do not."""
    complaints: Sequence[str]
    refused: bool


@dataclass
class AgentModel:
    """One model, one piece of work."""

    steps: int = 8
    refuses: Refuses | None = None
    truncates: bool = False
    """Whether `truncation: "auto"` is obeyed: the API leaves out items from the beginning, and never refuses."""
    limit: int | None = None
    """What it takes, once that is known."""
    seen: list[Seen] = field(default_factory=list)
    counted: list[Mapping[str, Any]] = field(default_factory=list)
    """Bodies that were only to be counted."""
    others: list[str] = field(default_factory=list)
    """Method and path of what else was asked; all of that is answered with 404."""
    _issued: list[list[dict[str, Any]]] = field(default_factory=list)
    _held: dict[str, list[Any]] = field(default_factory=dict)
    """Response → the items that lead to it, and its own."""
    _cached: int = 0
    _has_refused: bool = False

    def __post_init__(self) -> None:
        self.limit = self.refuses.limit if self.refuses else None

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            method, target, _ = request.line.decode().split(" ")
            answer = await asyncio.to_thread(self.answer, method, target.partition("?")[0], request)
            await send_answer(connection, method, answer)

    @property
    def refusals(self) -> int:
        return sum(seen.refused for seen in self.seen)

    @property
    def complaints(self) -> list[str]:
        return [complaint for seen in self.seen for complaint in seen.complaints]

    def answer(self, method: str, path: str, request: Request) -> Answer:
        """What a request is answered with."""
        wire = WIRES.get(path) if method == "POST" else None
        if method == "POST" and path in COUNTS:
            self.counted.append(json.loads(request.body))
            return WIRES[COUNTS[path]].answers.counted_answer(self.counted[-1])
        if wire is None:
            self.others.append(f"{method} {path}")
            return as_json({"error": {"message": f"no {path} here", "type": "not_found_error"}}, 404)
        body = json.loads(request.body)
        return self._asked(wire, path, request, body)

    def _asked(self, wire: Wire, path: str, request: Request, body: Mapping[str, Any]) -> Answer:
        before = self._held.get(str(body.get("previous_response_id")))
        if body.get("previous_response_id") and before is None:
            text = f"Previous response with id '{body['previous_response_id']}' not found."
            return responses_answers.error(text, code="previous_response_not_found", param="previous_response_id")
        whole = {**body, "input": [*before, *wire.answers.items_of(body)]} if before else body
        text = json.dumps(whole)
        reply = next_reply(text, wire.answers.last_user(whole), wire.answers.tools_of(whole), self.steps)
        complaints = wire.validity.complaints(body, () if before else self._issued)
        tokens, step = wire.answers.counted(whole), steps_done(text)
        works = bool(reply.calls) or reply.text.startswith("Done")
        is_cut = self.truncates and body.get("truncation") == "auto" and self.limit is not None and tokens > self.limit
        refused = not complaints and not is_cut and self._is_too_long(tokens, step if works else 0)
        self.seen.append(Seen(path, request.headers, request.body, body, tokens, step, works, complaints, refused))
        if complaints:
            return wire.answers.invalid(complaints[0])
        if refused and self.refuses:
            form = self.refuses.form
            own = wire.own_words if form in wire.answers.IN_STREAM and not body.get("stream") else form
            return wire.answers.REFUSALS[own](body, tokens, self.limit or tokens - 1)
        shown = self.limit if is_cut and self.limit else tokens
        usage = Usage(shown, min(self._cached, shown), tokens_of([reply.text, reply.thought]))
        self._cached = shown
        number = len(self.seen)
        answer, issued = wire.answers.answered(body, reply, usage, number)
        self._issued.append(issued)
        if path == responses_answers.PATH and body.get("store") is not False:
            self._held[f"resp_{number:024d}"] = [*wire.answers.items_of(whole), *issued]
        return answer

    def _is_too_long(self, tokens: int, step: int) -> bool:
        """Whether it is refused; its turn sets the limit, halfway between this request and the largest that fitted."""
        if self.refuses is None:
            return False
        fitted = max((seen.tokens for seen in self.seen if not seen.refused), default=0)
        if self.limit is None and step + 1 >= self.refuses.turn and not self._has_refused:
            self.limit = fitted + max(0, tokens - fitted) // 2 if fitted < tokens else tokens - 1
        is_over = self.limit is not None and tokens > self.limit
        if is_over and self.refuses.once:
            is_over, self._has_refused = not self._has_refused, True
        return is_over


async def send_answer(connection: Connection, method: str, answer: Answer) -> None:
    """A stream in chunks of one event; the body of an answer to HEAD is left out."""
    if answer.content_type.startswith("text/event-stream"):
        await connection.send(CHUNKED)
        for event in answer.body.split(b"\n\n")[:-1]:
            await connection.send(chunk(event + b"\n\n"))
        await connection.send(LAST_CHUNK)
        return
    lines = [f"HTTP/1.1 {answer.status} As Said", f"content-type: {answer.content_type}"]
    lines += [f"content-length: {len(answer.body)}", *(f"{name}: {text}" for name, text in answer.headers.items())]
    await connection.send("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else answer.body))


async def _serve(port: int, model: AgentModel) -> None:
    async with ScriptedUpstream(model, port) as upstream:
        print(upstream.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m support.agent_model")
    parser.add_argument("--port", type=int, default=9_100)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--form", default=None, help="of the refusal; without it nothing is refused")
    parser.add_argument("--turn", type=int, default=4)
    parser.add_argument("--once", action="store_true")
    chosen = parser.parse_args()
    refuses = Refuses(chosen.form, chosen.turn, chosen.once) if chosen.form else None
    asyncio.run(_serve(chosen.port, AgentModel(chosen.steps, refuses)))


if __name__ == "__main__":
    main()
