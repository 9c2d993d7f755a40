"""Growing conversations whose history an upstream refuses for one or more reasons, as after a switch of the model in
mid-session; and that upstream, which names one reason at a time.

Rule: what it refuses, the public APIs refuse in these words; it reads nothing but the bytes that reached it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from support.spellings import SEAL, SPELLINGS, Items, Json
from support.upstream.model import ScriptedModel
from support.upstream.replies import Answer
from support.upstream.script import Has, Over, Rule, Sent, well_formed, words

LIMIT_TOKENS: Final = 8_000
REASONS: Final = ("image", "seal", "pairing", "length", "unnumbered", "tool")
"""Ordered as chosen: an upstream checks them in the order of a conversation's own."""
SYSTEM: Final = "You help with the logs. " * 20
SAID: Final = {
    "image": "This model does not support image input.",
    "file": "This model does not support file input.",
    "seal": "messages.1.content.0: Invalid `signature` in `thinking` block",
    "length": "This model's maximum context length is {limit} tokens. However, your messages resulted in {prompt} "
    "tokens.",
    "unnumbered": "Input is too long for requested model.",
    "tool": "tools: the function read_artifact is not allowed here",
}
MARKS: Final = {
    "image": ('"type": "image"', '"type": "image_url"', '"type": "input_image"', '"images": ["'),
    "file": ('"type": "document"', '"type": "file"', '"type": "input_file"'),
    "seal": (f'"signature": "{SEAL}"', f'"encrypted_content": "{SEAL}"'),
    "tool": ('"name": "read_artifact"',),
}
"""Each of these marks something to refuse; in a text, such as a page of an old message, quotes are escaped."""


def strict() -> ScriptedModel:
    """Refuses for the reasons of each model: its name is theirs, joined by dots, after that of the API."""
    return ScriptedModel([_named], words("Fine."), counts=lambda _, body: len(body) // 4)


def _named(sent: Sent) -> Answer | None:
    _, *reasons = sent.json["model"].split("/")[-1].split(".")
    return next((found for reason in reasons if (found := RULES[reason](sent)) is not None), None)


RULES: Final[Mapping[str, Rule]] = {
    **{reason: Has(marks, SAID[reason]) for reason, marks in MARKS.items()},
    "pairing": well_formed,
    "length": Over("prompt", LIMIT_TOKENS, SAID["length"]),
    "unnumbered": Over("prompt", LIMIT_TOKENS, SAID["unnumbered"]),
    "count": Over("images", 1, "Too many images: {seen} > {limit}"),
    "items": Over("messages", 24, "Too many messages: {seen} exceeds limit of {limit}"),
    "text": Over("string", 9_000, "String should have at most {limit} characters"),
    "blocks": Over("parts", 4, "Too many content parts: {seen}. Maximum is {limit}"),
}


@dataclass
class Session:
    """One agent's conversation. Its first turn is another model's: it holds what this one refuses."""

    api: str
    reasons: Sequence[str]
    name: str = "s"
    messages: Items = field(default_factory=list)
    _calls: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.spelling = SPELLINGS[self.api]
        self.path = self.spelling.path.removeprefix("/v1")
        media = ["image"] if "image" in self.reasons else []
        self.messages += self.spelling.user(f"The task of {self.name}: find why the build fails.", media)
        self._exchange()
        if "pairing" in self.reasons:
            self._call()
        if "length" in self.reasons or "unnumbered" in self.reasons:
            for _ in range(12):
                self._exchange()

    def body(self) -> bytes:
        """The body of the next turn."""
        for _ in range(2):
            self._exchange()
        self.words = f"The newest words of {self.name}, after {len(self.messages)} messages."
        self.messages += self.spelling.user(self.words)
        tools = ["read_log" if "tool" in self.reasons else "bash"]  # who has a shell is not offered our tool
        body: Json = self.spelling.request(SYSTEM, self.messages, tools, None)
        return json.dumps({"model": ".".join((self.api, *self.reasons)), **body}).encode()

    def answered(self) -> None:
        """The reply, which the client keeps."""
        self.messages += self.spelling.called([], "Fine.")

    def _call(self, seal: str = "") -> str:
        name = f"call_{next(self._calls)}"
        self.messages += self.spelling.called([(name, {"name": name})], "", seal)
        return name

    def _exchange(self) -> None:
        name = self._call(SEAL if "seal" in self.reasons and len(self.messages) == 1 else "")
        lines = (f"{self.name} result {name} line {line}: step {line * 7} of the build has run" for line in range(40))
        self.messages += self.spelling.results([(name, "\n".join(lines))])
