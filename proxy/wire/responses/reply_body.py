"""Merges the responses of one request's rounds, if they are no streams, into one response for the client, without the
calls of the proxy's own tool.

Rule: a first response that has nothing to do with those calls keeps its bytes. The merged response has the id of the
last round, because its server can continue from that response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, Raw, spliced
from proxy.wire.responses.items import Kind, head_of
from proxy.wire.responses.reading import read_items
from proxy.wire.responses.replies import CONTENT, ResponseUsage, is_linked, is_own_call, said_in

COMPLETED: Final = "completed"
_OUTPUT: Final[Path] = ("output",)


def shown_of(output: Sequence[Raw], *, is_last: bool, is_linked: bool = False) -> list[bytes]:
    """The items of a round that the client gets, without our calls. If another round follows, the reasoning is left out
    too, because it belongs to a hidden call; if it is linked to what follows it, only where that is such a call."""
    shown: list[bytes] = []
    thoughts: list[bytes] = []
    for raw in map(bytes, output):
        if head_of(raw).kind is Kind.REASONING and not is_last:
            thoughts.append(raw)
        elif not is_own_call(jsontext.opened(raw)):
            shown += [*thoughts, raw] if is_linked else [raw]
            thoughts = []
    return shown


def messages_before_calls(shown: Sequence[bytes]) -> tuple[bytes, ...]:
    """What the client sends back of these items in messages of its own, before the one with its calls."""
    messages = [message for message, _ in read_items(shown)]
    called = next((index for index, message in enumerate(messages) if message.calls), 0)
    return tuple(message.raw for message in messages[:called])


def said_by_us(sentence: str, number: int) -> dict[str, Any]:
    """The message of a response in which the model did not say a word."""
    part = {"type": "output_text", "text": sentence, "annotations": [], "logprobs": []}
    name = f"msg_of_the_proxy_{number}"
    return {"type": "message", "id": name, "status": COMPLETED, "role": "assistant", "content": [part]}


class ReplyBody:
    """Takes the body of each round's response in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._before: list[bytes] = []
        """The client's items of the finished rounds."""
        self._has_spoken = False
        self._usage = ResponseUsage()
        self._body = b""
        self._response: Mapping[str, Any] = {}
        self._output: Sequence[Raw] = ()
        self._said: AssistantMessage | None = None

    def read(self, body: bytes) -> AssistantMessage | None:
        """The response of a round: returns the model's message if it called us and needs a result."""
        self._body, self._response, self._output, self._said = body, {}, (), None
        if not self._rounds and RETRIEVAL_TOOL.encode() not in body:
            return None
        found = jsontext.opened(body)
        if not isinstance(found, dict) or not isinstance(found.get("output"), list):
            return None
        self._response = found
        self._output = jsontext.items(jsontext.members(body)["output"])
        self._said = said_in(self._output, is_stored=found.get("store") is not False)
        if self._said.is_mixed:
            shown = [*self._before, *shown_of(self._output, is_last=True)]
            self._said = replace(self._said, before=messages_before_calls(shown))
        return self._said if self._said.own and found.get("status", COMPLETED) == COMPLETED else None

    def told(self) -> bytes:
        """The last round's response as the client gets it, if no round follows."""
        changes = self._changes()
        return spliced(self._body, changes) if changes else self._body

    def stopped(self, sentence: str) -> bytes:
        """The last round's response if the model would call us again: the model's words, or `sentence` if it has not
        said any."""
        shown = [*self._before, *self._shown]
        if not self._has_spoken and not (self._said and self._said.texts.get(CONTENT)):
            shown.append(jsontext.dump(said_by_us(sentence, self._rounds)))
        return spliced(self._body, {**self._changes(), _OUTPUT: jsontext.join_array(shown)})

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(_usage_of(self._response))

    def next_round(self) -> None:
        """The next response is that of another round."""
        self._rounds += 1
        self._before += self._shown
        self._has_spoken = self._has_spoken or bool(self._said and self._said.texts.get(CONTENT))
        self._usage.add(_usage_of(self._response))

    @property
    def _shown(self) -> list[bytes]:
        """The items of this round that the client gets, if it is not the one that ends the response."""
        return shown_of(self._output, is_last=False, is_linked=is_linked(self._response))

    def _changes(self) -> dict[Path, bytes | None]:
        changes: dict[Path, bytes | None] = {}
        if self._said is not None and (self._said.own or self._before):
            changes[_OUTPUT] = jsontext.join_array([*self._before, *shown_of(self._output, is_last=True)])
        if self._rounds and (usage := _usage_of(self._response)):
            changes[("usage",)] = jsontext.dump(self._usage.told(usage))
        return changes


def _usage_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    found = response.get("usage")
    return found if isinstance(found, dict) else {}
