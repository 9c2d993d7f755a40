"""A model's message in a reply of chat completions, whole or assembled from a stream, and what its counts are called.

Rule: a call with anything odd about it is the client's; every call keeps its bytes. A delta belongs to the call at its
index; another id at the same index is another call, because Ollama used to number every parallel call 0
(https://github.com/ollama/ollama/issues/15457), or none (…/7881).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, Raw, spliced
from proxy.wire.chat_completions.message import meant_by
from proxy.wire.rounds_usage import RoundsUsage

# Counts


class AnswerUsage(RoundsUsage):
    """The usage of one response, round by round. The record has the names of this API."""

    totals_of: ClassVar[Mapping[str, str]] = {
        name: name for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(r"(?:prompt|input|cached?)_\w*tokens(?:_details)?")
    """`prompt_tokens` and `prompt_tokens_details` of OpenAI, `prompt_cache_hit_tokens` of DeepSeek, `cached_tokens` of
    Kimi, `cache_read_input_tokens` of Anthropic behind LiteLLM.
    https://api-docs.deepseek.com/api/create-chat-completion"""


# The model's message

_SENT_BACK: Final = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")
"""The members of a model's message that are sent back upstream: those that a client sends, and reasoning, which
DeepSeek, Kimi and OpenRouter want back inside a turn. https://api-docs.deepseek.com/guides/thinking_mode"""


def said_in(message: Mapping[str, Raw]) -> AssistantMessage:
    """Read the members of an assistant message; a call with anything odd about it is the client's."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    calls = _listed(message.get("tool_calls"))
    for position, raw in enumerate(calls):
        found = jsontext.opened(raw)
        if called(found) == RETRIEVAL_TOOL:
            own.append(OwnCall(position, str(found.get("id") or ""), _arguments(found), bytes(raw)))
        else:
            others.append(bytes(raw))
    sent_back = {"role": b'"assistant"', "content": b"null"}
    sent_back |= {name: bytes(message[name]) for name in _SENT_BACK if _is_said(message.get(name))}
    texts = {name: text for name in TEXT_MEMBERS if isinstance(text := jsontext.opened(message.get(name)), str)}
    return AssistantMessage(jsontext.join_object(sent_back), tuple(own), tuple(others), meant_by(others), texts)


TEXT_MEMBERS: Final = ("content", "reasoning_content", "reasoning")
"""Of a message or a delta."""


def called(call: Any) -> str:
    """The name of the function in a call; empty if there is none.

    >>> called({"function": {"name": "ls"}}), called({"type": "custom"}), called(None)
    ('ls', '', '')
    """
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _arguments(call: Mapping[str, Any]) -> str:
    """The arguments of a call that names a function; a few servers send them as an object."""
    found = call["function"].get("arguments")
    return found if isinstance(found, str) else jsontext.dump(found).decode("utf-8", "replace")


def _listed(raw: Raw | None) -> list[Raw]:
    try:
        return list(jsontext.items(raw)) if raw is not None else []
    except jsontext.NotJson:
        return []


def _is_said(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) != b"null"


def result_of(call_id: str, text: str) -> bytes:
    """The message that answers a call."""
    return jsontext.dump({"role": "tool", "tool_call_id": call_id, "content": text})


# Deltas

_FIRST_STANDS: Final = frozenset({"id", "type", "index", "role", "name"})
"""Strings that servers repeat whole; other strings arrive in pieces."""


class CallOrder:
    """Numbers the calls of one response in the order in which they begin."""

    def __init__(self) -> None:
        self._standing: dict[int, tuple[int, str]] = {}
        """Index in the stream → number and id of the newest call there."""
        self.count = 0

    def number_of(self, item: Mapping[str, Any], index: int) -> int:
        """The number of the call that an item of `tool_calls` belongs to; a new one if the item begins a call."""
        name, call_id = called(item), item.get("id")
        standing = self._standing.get(index)
        begins = standing is None or (name and isinstance(call_id, str) and call_id and call_id != standing[1])
        if standing is None or begins:
            standing = (self.count, call_id if isinstance(call_id, str) else "")
            self._standing[index] = standing
            self.count += 1
        return standing[0]


def index_of(item: Mapping[str, Any], position: int) -> int:
    """The index of a call according to its delta; an item without an index counts by its position."""
    index = item.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else position


def choice_of(chunk: Any) -> Mapping[str, Any] | None:
    """The one choice of a chunk; None if it has none or several, or is something else."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    found = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return found if isinstance(found, dict) else None


def delta_of(choice: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The delta of a choice; empty if there is none."""
    found = choice.get("delta") if choice is not None else None
    return found if isinstance(found, dict) else {}


def listed_calls(delta: Mapping[str, Any]) -> list[Any]:
    """The `tool_calls` of a delta."""
    found = delta.get("tool_calls")
    return found if isinstance(found, list) else []


def assembled(chunks: Iterable[Any]) -> dict[str, Raw]:
    """The members of the message that these chunks' deltas form, as a response without streaming contains them."""
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    order = CallOrder()
    for chunk in chunks:
        delta = delta_of(choice_of(chunk))
        _merge(message, {name: found for name, found in delta.items() if name != "tool_calls"})
        for position, item in enumerate(listed_calls(delta)):
            if isinstance(item, dict):
                number = order.number_of(item, index_of(item, position))
                if number == len(calls):
                    calls.append({})
                _merge(calls[number], {name: found for name, found in item.items() if name != "index"})
    if calls:
        message["tool_calls"] = calls
    return {name: jsontext.dump(found) for name, found in message.items()}


def _merge(whole: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, found in delta.items():
        before = whole.get(name)
        if before is None:
            whole[name] = dict(found) if isinstance(found, dict) else found
        elif isinstance(before, str) and isinstance(found, str):
            whole[name] = (before or found) if name in _FIRST_STANDS else before + found
        elif isinstance(before, dict) and isinstance(found, dict):
            _merge(before, found)
        elif isinstance(before, list) and isinstance(found, list):
            whole[name] = before + found
        elif found is not None and not isinstance(before, (str, dict)):  # those are merged, never replaced
            whole[name] = found


# A reply that is no stream

BROKEN_OFF: Final = ("length", "content_filter")
"""Finish reasons that leave a call incomplete, or unwanted: the response as received is final."""
BETWEEN_TEXTS: Final = "\n\n"
"""The model's texts in one round and the next are two paragraphs."""

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
