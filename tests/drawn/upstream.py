"""The upstream of a case: it finds what is invalid, counts, refuses, fails and answers as drawn.

Rule: it reads nothing but the bytes that reached it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from support.agent_model import send_answer
from support.model_turns import Answer, Call, Refusal, Reply, Usage, as_json
from support.scripted_upstream import CHUNKED, Connection, chunk
from support.spellings import Json, Spelling
from support.strict_upstream import MARKS, SAID

from drawn.case import Case, Turn
from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.retrieval_tool import RETRIEVAL_TOOL

ARTIFACT: Final = re.compile(rf"\b{ARTIFACT_NAME}")
_COUNTS: Final = ("usage", "prompt_eval_count", "eval_count")
_RATE: Final = "Request too large for m on tokens per min (TPM): Limit {limit}, Requested {sent}."


@dataclass
class DrawnUpstream:
    """The script of a `ScriptedUpstream`."""

    case: Case
    spelling: Spelling
    sent: list[bytes] = field(default_factory=list)
    """In this turn."""
    accepted: list[bytes] = field(default_factory=list)
    """Of these."""
    answers: list[bytes] = field(default_factory=list)
    """Of this turn, as they went out."""
    refused: list[str] = field(default_factory=list)
    """The reasons that were named in this turn."""
    fault: str = ""
    _turn: Turn = field(default_factory=lambda: Turn([]))
    _reads: int = 0
    _refused_once: set[str] = field(default_factory=set)
    _number: int = 0

    def begin(self, turn: Turn) -> None:
        """A turn of the client."""
        self.sent, self.accepted, self.answers, self.refused = [], [], [], []
        self.fault, self._turn, self._reads = turn.fault, turn, turn.reads

    @property
    def named(self) -> set[str]:
        """The artifacts that the requests of this turn name; the description of our tool has an example."""
        conversations = (json.dumps(json.loads(sent)[self.spelling.member]) for sent in self.sent)
        return {name for conversation in conversations for name in ARTIFACT.findall(conversation)}

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            method, path, _ = request.line.decode().split(" ")
            if path != self.spelling.path:
                await send_answer(connection, method, self._models() if path == "/v1/models" else as_json({}, 404))
                continue
            self.sent.append(request.body)
            fault, self.fault = self.fault, ""
            if fault == "reset":
                connection.reset()
                return
            answer = self._answer(request.body, fault)
            self.answers.append(answer.body)
            if fault == "broken":
                await connection.send(CHUNKED.replace(b"text/event-stream", answer.content_type.encode()))
                await connection.send(chunk(answer.body[: len(answer.body) // 2]))
                connection.reset()
                return
            await send_answer(connection, method, answer)

    def _models(self) -> Answer:
        listed = {"id": "m", "object": "model"} | (
            {"max_model_len": self.case.window} if self.case.states_window else {}
        )
        return as_json({"object": "list", "data": [listed]})

    def counted(self, body: bytes) -> int:
        """Tokens of a prompt."""
        return int(len(body) / 4 * self.case.counts)

    def _answer(self, raw: bytes, fault: str) -> Answer:
        body, tokens = json.loads(raw), self.counted(raw)
        if fault in ("500", "429"):
            return self.spelling.error("The server is overloaded, try again later.", int(fault))
        refusal = self._refusal(body, tokens)
        if refusal is not None:
            return refusal
        if fault == "empty":
            return Answer(200, b"" if body.get("stream") else b"{}")
        self.accepted.append(raw)
        self._number += 1
        share = self.case.usage
        cut = min(tokens, self.case.window) if self.case.words == "silent cut" else tokens
        usage = Usage(int(cut * (share or 0)), 0, 10)
        answer = self.spelling.answer(body, self._reply(body), usage, self._number)
        return answer if share is not None else _without_usage(answer)

    def _refusal(self, body: Json, tokens: int) -> Answer | None:
        text = json.dumps(body)
        if complaints := self.spelling.invalid(body):
            return self.spelling.error(complaints[0], 400)
        for reason in self.case.reasons:
            if any(mark in text for mark in MARKS[reason]) and not (self.case.once and reason in self._refused_once):
                self._refused_once.add(reason)
                self.refused.append(reason)
                return self.spelling.error(SAID[reason], 400)
        words, limit = self.case.words, self.case.window
        if tokens <= limit or words == "silent cut":
            return None
        if words == "rate":
            return self.spelling.error(_RATE.format(limit=limit, sent=tokens), 429)
        if words == "unnumbered":
            return self.spelling.error(SAID["unnumbered"], 400)
        return self._in_words(words, body)(body, tokens, limit)

    def _in_words(self, words: str, body: Json) -> Refusal:
        own, *in_stream = self.spelling.in_streams
        return self.spelling.refusals[own if words in in_stream and not body.get("stream") else words]

    def _reply(self, body: Json) -> Reply:
        tools = self._names(body)
        artifacts = sorted(set(ARTIFACT.findall(json.dumps(body[self.spelling.member]))))
        if RETRIEVAL_TOOL in tools and artifacts and self._reads:
            self._reads -= 1
            return Reply("", [Call(RETRIEVAL_TOOL, {"id": artifacts[self._reads % len(artifacts)]})], self._thought)
        if self._turn.calls and "bash" in tools:
            return Reply("I look.", [Call("bash", {"command": "make"})], self._thought)
        return Reply(f"Fine, {self._number}.", thought="Hm.")

    @property
    def _thought(self) -> str:
        """Before a call."""
        return "Hm." if self.case.thinks else ""

    def _names(self, body: Json) -> list[str]:
        return [(tool.get("function") or tool).get("name", "") for tool in body.get("tools") or ()]


def _without_usage(answer: Answer) -> Answer:
    """An answer of a server that counts nothing."""
    if answer.content_type != "application/json":
        return answer
    members = json.loads(answer.body).items()
    return as_json({name: found for name, found in members if name not in _COUNTS}, answer.status)
