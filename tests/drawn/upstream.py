"""The upstream of a case: it finds what is invalid, counts, refuses, fails and answers as drawn.

Rule: it reads nothing but the bytes that reached it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from support.upstream import (
    FACES,
    Answer,
    Call,
    Over,
    Reply,
    Rule,
    Scene,
    ScriptedModel,
    Sent,
    breaking_off,
    once,
    resetting,
    well_formed,
)
from support.upstream.strict import RULES, SAID

from drawn.case import Case, Turn
from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.retrieval_tool import RETRIEVAL_TOOL

ARTIFACT: Final = re.compile(rf"\b{ARTIFACT_NAME}")
_RATE: Final = "Request too large for m on tokens per min (TPM): Limit {limit}, Requested {seen}."


class DrawnUpstream(ScriptedModel):
    """The script of a case."""

    def __init__(self, case: Case) -> None:
        self._case, self._face = case, FACES[case.api]
        self.begin(Turn([]))
        self._named: list[str] = []
        stated = {"max_model_len": case.window} if case.states_window else {}
        super().__init__(
            [self._fails, well_formed, *self._reasons(), *self._length(), self._empty],
            self._reply,
            [self._face],
            counts=lambda _, body: int(len(body) / 4 * case.counts),
            reports=case.usage,
            cuts_at=case.window if case.words == "silent cut" else None,
            lists=[{"id": "m", "object": "model", **stated}],
            delivers=self._deliver,
        )

    def begin(self, turn: Turn) -> None:
        """A turn of the client."""
        self.sent, self._named = [], []
        self._fault, self._turn, self._reads = turn.fault, turn, turn.reads

    @property
    def answers(self) -> list[bytes]:
        """Of this turn, as they went out."""
        return [one.answer.body for one in self.sent if one.answer is not None]

    @property
    def refused(self) -> list[str]:
        """The reasons that were named in this turn."""
        return self._named

    @property
    def named(self) -> set[str]:
        """The artifacts that the requests of this turn name; the description of our tool has an example."""
        conversations = (json.dumps(sent.messages) for sent in self.sent)
        return {name for conversation in conversations for name in ARTIFACT.findall(conversation)}

    def _fails(self, sent: Sent) -> Answer | Scene | None:
        fault = self._now = self._fault
        self._fault = ""
        if fault in ("500", "429"):
            return sent.face.error("The server is overloaded, try again later.", int(fault))
        return resetting if fault == "reset" else None

    def _reasons(self) -> Iterator[Rule]:
        for reason in self._case.reasons:
            rule = once(RULES[reason]) if self._case.once else RULES[reason]
            yield self._noted(reason, rule)

    def _noted(self, reason: str, rule: Rule) -> Rule:
        def noted(sent: Sent) -> Answer | Scene | None:
            found = rule(sent)
            if found is not None:
                self._named.append(reason)
            return found

        return noted

    def _length(self) -> Iterator[Rule]:
        words, limit = self._case.words, self._case.window
        if words == "rate":
            yield Over("prompt", limit, _RATE, 429)
        elif words != "silent cut":
            yield Over("prompt", limit, SAID.get(words, words))

    def _empty(self, sent: Sent) -> Answer | None:
        is_empty = self._now == "empty"
        return Answer(200, b"" if sent.is_stream else b"{}", refuses=True) if is_empty else None

    def _deliver(self, _: Sent, answer: Answer) -> Answer | Scene:
        return breaking_off(answer) if self._now == "broken" else answer

    def _reply(self, sent: Sent) -> Reply:
        tools = [name for name, _ in sent.face.tools(sent.json)]
        artifacts = sorted(set(ARTIFACT.findall(json.dumps(sent.messages))))
        thought = "Hm." if self._case.thinks else ""
        if RETRIEVAL_TOOL in tools and artifacts and self._reads:
            self._reads -= 1
            return Reply("", [Call(RETRIEVAL_TOOL, {"id": artifacts[self._reads % len(artifacts)]})], thought)
        if self._turn.calls and "bash" in tools:
            return Reply("I look.", [Call("bash", {"command": "make"})], thought)
        return Reply(f"Fine, {len(self._issued) + 1}.", thought="Hm.")
