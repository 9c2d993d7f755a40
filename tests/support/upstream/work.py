"""A model that works with an agent step by step, and a limit that is met at a step of that work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.demo import MODEL, Policy
from support.upstream.chat_answers import CREATED, LISTED
from support.upstream.mind import scripted
from support.upstream.model import ScriptedModel
from support.upstream.replies import Answer, Call, Reply, calls_of, next_reply, steps_done
from support.upstream.script import Over, Rule, Says, Sent, valid


def working(steps: int = 8) -> Says:
    """Call the client's tools, one step after the other, then say that it is done."""

    def says(sent: Sent) -> Reply:
        face = sent.face
        return next_reply(sent.text, face.last_user(sent.json), face.tools(sent.json), steps)

    return says


def works_in(sent: Sent) -> bool:
    """Whether it is a turn of the work: it offers a tool that the model wants. Titles and summaries do not."""
    return bool(calls_of(sent.face.tools(sent.json), 0))


def worker(*rules: Rule, steps: int = 1_000) -> ScriptedModel:
    """A model that demands what its API demands, and works."""
    return ScriptedModel([valid, *rules], working(steps))


@dataclass
class OverAtStep:
    """Refuse for length from a step of the work on, as if the limit lay between this step and the one before it."""

    words: str = "anthropic"
    step: int = 4
    """From 1; what comes before it fits."""
    once: bool = False
    """This one request, and whatever comes after it fits."""
    is_cut_by: str = ""
    """A member that is `"auto"` where the server leaves out the beginning instead."""
    limit: int | None = None
    """Once it is known."""
    fitted: int = 0
    """The largest that fitted."""
    refused: int = 0

    def __call__(self, sent: Sent) -> Answer | None:
        if self.limit is None and works_in(sent) and steps_done(sent.text) + 1 >= self.step and not self.refused:
            self.limit = self.fitted + max(0, sent.tokens - self.fitted) // 2
        is_over = self.limit is not None and sent.tokens > self.limit
        if is_over and sent.json.get(self.is_cut_by) == "auto":
            sent.tokens = self.limit or 0
            return None
        if not is_over or (self.once and self.refused):
            self.fitted = max(self.fitted, sent.tokens)
            return None
        self.refused += 1
        limit = self.limit or 0
        return replace(Over("prompt", limit, self.words).refusal(sent, sent.tokens), refuses=True)


def following(policy: Policy) -> Says:
    """A model with the mind of a demo's model."""

    def says(sent: Sent) -> Reply:
        reply = policy(sent.messages)
        return Reply(reply.text, [Call(call.name, call.arguments) for call in reply.calls])

    return says


def model_server(window_tokens: int, flavour: str = "openai") -> ScriptedModel:
    """A model with a window that plays the script in its newest user message."""
    listed = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "context-proxy"}
    lists = [listed | dict(LISTED[flavour](window_tokens) if flavour in LISTED else {})]
    return ScriptedModel([valid, Over("total", window_tokens, flavour)], following(scripted), lists=lists)
