"""Merges the responses of one request's rounds, if they are no streams, into one response for the client, without the
calls of the proxy's own tool.

Rule: a first response that has nothing to do with those calls keeps its bytes; in any other response, every block that
the client gets keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.messages.blocks import text_in
from proxy.wire.messages.replies import RoundsUsage, is_own, said_in

BROKEN_OFF: Final = frozenset({"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "compaction"})
"""Stop reasons that leave a call incomplete, or unwanted: the response as received is final.
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
PLAIN_END: Final = b'"end_turn"'
_TAKEN_OVER: Final = "id"


class AnswerBody:
    """Takes the body of each round's response in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._visible: list[bytes] = []
        """The client's blocks of the finished rounds."""
        self._id: bytes | None = None
        """The id of the first round's message."""
        self._usage = RoundsUsage()
        self._body = b""
        self._answer: Mapping[str, Any] = {}
        self._blocks: list[bytes] | None = None
        """The blocks of this round; None if its response is no message, or if the blocks are not needed."""

    def read(self, body: bytes) -> AssistantMessage | None:
        """The response of a round: returns the model's message if it called us and needs a result."""
        self._body, self._answer, self._blocks = body, {}, None
        if not self._rounds and RETRIEVAL_TOOL.encode() not in body:
            return None
        found = jsontext.opened(body)
        if not isinstance(found, dict) or not isinstance(found.get("content"), list):
            return None
        self._answer = found
        self._blocks = list(map(bytes, jsontext.items(jsontext.members(body)["content"])))
        said = said_in(self._blocks)
        return said if said.own and found.get("stop_reason") not in BROKEN_OFF else None

    def told(self) -> bytes:
        """The last round's response as the client gets it, if no round follows."""
        changes = self._changes([])
        return spliced(self._body, changes) if changes else self._body

    def stopped(self, sentence: str) -> bytes:
        """The last round's response if the model would call us again: a normal end, with `sentence` if the model has
        not said a word."""
        said = any(text_in(jsontext.opened(raw)) for raw in (*self._visible, *(self._blocks or ())))
        words = [] if said else [jsontext.dump({"type": "text", "text": sentence})]
        return spliced(self._body, {**self._changes(words), ("stop_reason",): PLAIN_END})

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(self._own_usage)

    def next_round(self) -> None:
        """The next response is that of another round."""
        self._rounds += 1
        self._visible += self._visible_blocks()
        self._id = self._id or jsontext.dump(self._answer.get(_TAKEN_OVER))
        self._usage.add(self._own_usage)

    @property
    def _own_usage(self) -> Mapping[str, Any]:
        found = self._answer.get("usage")
        return found if isinstance(found, dict) else {}

    def _visible_blocks(self) -> list[bytes]:
        return [raw for raw in self._blocks or () if not is_own(jsontext.opened(raw))]

    def _changes(self, words: list[bytes]) -> dict[Path, bytes | None]:
        if self._blocks is None:
            return {}
        changes: dict[Path, bytes | None] = {}
        visible = [*self._visible, *self._visible_blocks(), *words]
        if visible != self._blocks:
            changes[("content",)] = jsontext.join_array(visible)
        if self._rounds:
            changes[(_TAKEN_OVER,)] = self._id
            if self._own_usage:
                changes[("usage",)] = jsontext.dump(self._usage.told(self._own_usage))
        return changes
