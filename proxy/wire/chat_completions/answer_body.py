"""Merges the responses of one request's rounds, if they are no streams, into one response for the client, without the
calls of the proxy's own tool.

Rule: a first response that has nothing to do with those calls keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, Raw, spliced
from proxy.wire.chat_completions.answer_stream import BETWEEN_TEXTS, BROKEN_OFF
from proxy.wire.chat_completions.replies import TEXT_MEMBERS, AnswerUsage, said_in

_MESSAGE: Final[Path] = ("choices", 0, "message")
_FINISH: Final[Path] = ("choices", 0, "finish_reason")


class AnswerBody:
    """Takes the body of each round's response in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._texts: dict[str, list[str]] = {}
        """The model's texts in the finished rounds, by the member that contains them."""
        self._usage = AnswerUsage()
        self._body = b""
        self._answer: Mapping[str, Any] = {}
        self._said: AssistantMessage | None = None

    def read(self, body: bytes) -> AssistantMessage | None:
        """The response of a round: returns the model's message if it called us and needs a result."""
        self._body, self._answer, self._said = body, {}, None
        if not self._rounds and RETRIEVAL_TOOL.encode() not in body:
            return None
        self._answer = _answer_of(body)
        choice = _choice_of(self._answer)
        if choice is None:
            return None
        self._said = said_in(jsontext.members(_at(body, _MESSAGE)))
        return self._said if self._said.own and choice.get("finish_reason") not in BROKEN_OFF else None

    def told(self) -> bytes:
        """The last round's response as the client gets it, if no round follows."""
        changes = self._changes()
        return spliced(self._body, changes) if changes else self._body

    def stopped(self, sentence: str) -> bytes:
        """The last round's response if the model would call us again: a normal end, with `sentence` if the model has
        not said a word."""
        changes: dict[Path, bytes | None] = {**self._changes(), _FINISH: b'"stop"'}
        if not any(self._all_texts("content")):
            changes[(*_MESSAGE, "content")] = jsontext.dump(sentence)
        return spliced(self._body, changes)

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far, with OpenAI's names; empty if this is the first round and none of its calls
        is ours."""
        return self._usage.totals(_usage_of(self._answer))

    def next_round(self) -> None:
        """The next response is that of another round."""
        self._rounds += 1
        for name in TEXT_MEMBERS:
            self._texts[name] = self._all_texts(name)
        self._usage.add(_usage_of(self._answer))

    def _changes(self) -> dict[Path, bytes | None]:
        changes: dict[Path, bytes | None] = {}
        if self._said is not None and self._said.own:
            others = self._said.others
            changes[(*_MESSAGE, "tool_calls")] = jsontext.join_array(others) if others else None
        if self._rounds and self._said is not None:
            for name in TEXT_MEMBERS:
                if self._texts[name]:
                    changes[(*_MESSAGE, name)] = jsontext.dump(BETWEEN_TEXTS.join(self._all_texts(name)))
            if usage := _usage_of(self._answer):
                changes[("usage",)] = jsontext.dump(self._usage.told(usage))
        return changes

    def _all_texts(self, name: str) -> list[str]:
        text = self._said.texts.get(name) if self._said is not None else None
        return [*self._texts.get(name, []), *([text] if text else [])]


def _answer_of(body: bytes) -> Mapping[str, Any]:
    try:
        found = jsontext.value(body)
    except jsontext.NotJson:
        return {}
    return found if isinstance(found, dict) else {}


def _at(raw: Raw, path: Path) -> Raw:
    """The JSON at a path that exists."""
    for step in path:
        raw = jsontext.items(raw)[step] if isinstance(step, int) else jsontext.members(raw)[step]
    return raw


def _choice_of(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one choice of a response that contains a message."""
    choices = answer.get("choices")
    found = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return found if isinstance(found, dict) and isinstance(found.get("message"), dict) else None


def _usage_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    found = answer.get("usage")
    return found if isinstance(found, dict) else {}
