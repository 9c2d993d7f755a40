"""A model's message in a reply of Ollama's API, whole or in lines.

Rule: a call with anything odd about it is the client's; every call keeps its bytes. Calls come whole, several in a line
or one by one, and the last line has `"done": true`: the client gets exactly one.

https://docs.ollama.com/api/streaming, and `ChatResponse` in https://github.com/ollama/ollama/blob/main/api/types.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.replies import Changes, MessageReply, Reply, RoundsUsage, StreamedReply, calls_apart
from proxy.wire.streams import Framing, Splitter

# Lines


class LineSplitter(Splitter):
    """Takes pieces of a stream and returns the lines that are complete, each with its end.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b'{"done":false}\\n{"do'), splitter.rest
    ([b'{"done":false}\\n'], b'{"do')
    """

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        self._kept += piece
        end = self._kept.rfind(b"\n", len(self._kept) - len(piece)) + 1
        if not end:
            return []
        lines = bytes(self._kept[: end - 1]).split(b"\n")
        del self._kept[:end]
        return [line + b"\n" for line in lines]


class JsonLines(Framing):
    """One JSON object a line. Clients read every line, so none may be added to keep a connection alive, and every line
    counts; a whole reply begins like the line of a stream."""

    content_type = b"application/x-ndjson"
    sign = b"ndjson"
    splitter = LineSplitter
    data_of = staticmethod(bytes.strip)


LINES: Final[Framing] = JsonLines()


def object_of(line: bytes) -> Mapping[str, Any]:
    """The object that a line is; empty for anything else."""
    return jsontext.opened_object(line)


# Counts

_PROMPT: Final = "prompt_eval_count"
_REPLY: Final = "eval_count"
_BOTH: Final = "both"
"""The sum for the record; not a member of the API."""
_COUNTS: Final = re.compile(r"\w+_(?:count|duration)")


def counts_in(reply: Mapping[str, Any]) -> Mapping[str, int]:
    """Tokens and nanoseconds at the end of a reply; the server leaves out a number that is 0."""
    counts = {name: found for name, found in reply.items() if _COUNTS.fullmatch(name) and type(found) is int}
    return counts | {_BOTH: counts.get(_PROMPT, 0) + counts.get(_REPLY, 0)} if counts else {}


class LineUsage(RoundsUsage):
    """The counts of one response, round by round."""

    totals_of: ClassVar[Mapping[str, str]] = {
        _PROMPT: "prompt_tokens",
        _REPLY: "completion_tokens",
        _BOTH: "total_tokens",
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(_PROMPT)


# The model's message

_TEXTS: Final = ("content", "thinking")
_SENT_BACK: Final = (*_TEXTS, "tool_calls")
_MESSAGE: Final = "message"
_CALLS: Final[Path] = (_MESSAGE, "tool_calls")
_BROKEN_OFF: Final = "length"


def reply_in(message: Mapping[str, Raw]) -> AssistantMessage:
    """Read the members of a model's message."""
    own, others = calls_apart(jsontext.items_if_any(message.get("tool_calls")), _own_in)
    sent_back = {name: bytes(message[name]) for name in _SENT_BACK if bytes(message.get(name, b"null")) != b"null"}
    texts = {name: text for name in _TEXTS if isinstance(text := jsontext.opened(message.get(name)), str)}
    raw = jsontext.join_object({"role": b'"assistant"', **sent_back})
    return AssistantMessage(raw, own, others, texts)


def _own_in(call: Any) -> tuple[object, object] | None:
    return (call.get("id"), call["function"].get("arguments")) if is_own(call) else None


def is_own(call: Any) -> bool:
    """Whether a call is one of the proxy's own tool."""
    return isinstance(call, dict) and jsontext.string_in(call.get("function"), "name") == RETRIEVAL_TOOL


def result_of(call_id: str, text: str, name: str = RETRIEVAL_TOOL) -> bytes:
    """The message that answers a call; it names the tool, because not every call has an id."""
    cited = {"tool_call_id": call_id} if call_id else {}
    return jsontext.dump({"role": "tool", "tool_name": name, **cited, "content": text})


def _calls_in(line: Mapping[str, Any]) -> list[Any]:
    return jsontext.listed(jsontext.object_in(line, _MESSAGE).get("tool_calls"))


# Replies


class _Answer(Reply):
    counts = LineUsage
    texts = _TEXTS

    def _counted(self) -> Changes:
        """The counts of all rounds in the end of a later one."""
        forwarded = self._usage.for_client(self._round_usage)
        return {(name,): jsontext.dump(found) for name, found in forwarded.items() if name != _BOTH}


class AnswerBody(_Answer, MessageReply):
    """A reply that is one object."""

    place: ClassVar[Path] = (_MESSAGE,)

    def _counts_in(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        return counts_in(reply)

    def _read(self, reply: Mapping[str, Any]) -> AssistantMessage | None:
        if not isinstance(reply.get(_MESSAGE), dict):
            return None
        return reply_in(jsontext.members(jsontext.members(self._body)[_MESSAGE]))

    def _is_final(self, reply: Mapping[str, Any]) -> bool:
        return reply.get("done_reason") == _BROKEN_OFF


_SIGN_OF_CALLS: Final = b'"tool_calls"'


class AnswerStream(_Answer, StreamedReply):
    """A reply in lines."""

    framing: ClassVar[Framing] = LINES

    def _begin(self) -> None:
        super()._begin()
        self._finish: object = None
        self._count = 0
        """Calls of this round so far."""

    def _is_plain(self, piece: bytes) -> bool:
        return _SIGN_OF_CALLS not in piece and piece.endswith(b"\n")

    def _passed(self, event: bytes) -> bytes:
        self._keep(event)
        if not (self._is_changed or event.find(_SIGN_OF_CALLS) >= 0):
            return event
        line = object_of(event)
        forwarded = self._for_client(event, line)
        self._failed |= "error" in line
        if not line.get("done"):
            return forwarded
        self._finish = line.get("done_reason")
        if not self._own:
            return forwarded
        ahead, end = _parted(forwarded)
        return ahead + self._hold(end)

    def _for_client(self, event: bytes, line: Mapping[str, Any]) -> bytes:
        """A line without our calls, as one of the first round's."""
        changes = self._call_changes(line)
        is_shorter = bool(changes)
        if self._rounds:
            changes |= self._paragraphs(jsontext.object_in(line, _MESSAGE), (_MESSAGE,))
        if line.get("done"):
            self._round_usage = counts_in(line)
            changes |= self._counted() if self._rounds and self._round_usage else {}
        forwarded = jsontext.spliced(event.strip(), changes) + b"\n" if changes else event
        return b"" if is_shorter and not (line.get("done") or says_something(object_of(forwarded))) else forwarded

    def _call_changes(self, line: Mapping[str, Any]) -> dict[Path, bytes | None]:
        """Removes our calls; the client's are numbered from 0 without gaps."""
        calls, kept = _calls_in(line), list[Any]()
        for call in calls:
            if is_own(call):
                self._own.add(self._count)
            elif self._own and "index" in jsontext.object_in(call, "function"):
                kept.append({**call, "function": {**call["function"], "index": self._count - len(self._own)}})
            else:
                kept.append(call)
            self._count += 1
        return {} if kept == calls else {_CALLS: jsontext.dump(kept) if kept else None}

    def _message(self) -> AssistantMessage | None:
        """None if the reply broke off."""
        if self._finish in (None, _BROKEN_OFF):
            return None
        calls: list[Raw] = []
        texts = dict.fromkeys(_TEXTS, "")
        for line in self._kept_events():
            found = object_of(line)
            message = jsontext.object_in(found, _MESSAGE)
            texts = {name: text + jsontext.string_in(message, name) for name, text in texts.items()}
            if _calls_in(found):
                calls += jsontext.items(jsontext.members(jsontext.members(line)[_MESSAGE])["tool_calls"])
        forwarded = {name: jsontext.dump(text) for name, text in texts.items() if text or name == self.texts[0]}
        return reply_in(forwarded | {"tool_calls": jsontext.join_array(calls)})

    def stopped(self, sentence: str) -> bytes:
        """The last line contains the sentence."""
        changes: Changes = {(_MESSAGE, self.texts[0]): jsontext.dump(self._paragraph(sentence))}
        return b"".join([*(jsontext.spliced(line.strip(), changes) + b"\n" for line in self._held), self._rest])


def _parted(line: bytes) -> tuple[bytes, bytes]:
    """The last line as (the model's words in it, the end alone)."""
    found = object_of(line)
    if not says_something({_MESSAGE: found.get(_MESSAGE)}):
        return b"", line
    ends: Changes = {(name,): None for name in found.keys() - {"model", "created_at", _MESSAGE, "done"}}
    silent: Changes = {(_MESSAGE,): jsontext.dump({"role": "assistant", "content": ""})}
    return jsontext.spliced(line.strip(), {**ends, ("done",): b"false"}) + b"\n", jsontext.spliced(
        line.strip(), silent
    ) + b"\n"


def says_something(line: Mapping[str, Any]) -> bool:
    """Whether a line contributes to a reply: a part of it, an error, or its end."""
    message = jsontext.object_in(line, _MESSAGE)
    is_end = any(line.get(name) for name in ("done", "error", "response", "thinking"))
    return is_end or any(found for name, found in message.items() if name != "role")
