"""A model's message in a reply of the Responses API: the items of its output. Also which of them are calls of the
proxy's own tool, what its counts are called, and the end of a stream that has to tell an error.

Rule: a call with anything odd about it is the client's; every item keeps its bytes. A stream ends with both events,
because some clients read only `response.failed` (Codex, codex-rs/codex-api/src/sse/responses.rs), and others raise on
`error` (openai-python, src/openai/_streaming.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.protocol import error_in_body
from proxy.wire.replies import (
    MAX_KEPT_BYTES,
    Changes,
    Reply,
    RoundsUsage,
    StreamedReply,
    WholeReply,
    calls_apart,
    content_of,
)
from proxy.wire.responses.items import Kind, head_of, texts_at
from proxy.wire.streams import data_of

# Counts


class ResponseUsage(RoundsUsage):
    totals_of: ClassVar[Mapping[str, str]] = {
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "total_tokens": "total_tokens",
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(r"input_tokens(?:_details)?")


# Errors

_UNANSWERED: Final = re.compile(r"No tool output found for function call ([\w\-.]{1,200}?)\.?(?![\w\-.])")
"""github.com/openai/codex/issues/620"""
_SERVER_ERROR: Final = "server_error"


def error_in_stream(status: int, body: bytes) -> bytes:
    """A response that is no stream as the end of a stream of which the client has received nothing.

    >>> error_in_stream(400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}').splitlines()[0]
    b'event: error'
    """
    members = jsontext.opened(error_in_body(status, body))
    error = members.get("error") if isinstance(members, dict) else None
    error = error if isinstance(error, dict) else {"message": str(error)}
    code, message = _text(error.get("code")) or str(status), _text(error.get("message")) or f"HTTP {status}"
    error_event = {"type": "error", "code": code, "message": message, "param": error.get("param"), "sequence_number": 0}
    failed = {
        "id": "resp_of_the_proxy",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "error": {"code": code if not code.isdigit() else _SERVER_ERROR, "message": message},
        "incomplete_details": None,
        "model": "",
        "output": [],
        "usage": None,
    }
    return written(error_event) + written({"type": "response.failed", "sequence_number": 1, "response": failed})


def unanswered_in(refusal: str) -> str:
    """The id of the call of a function that has no output, by the words of a refusal.

    >>> unanswered_in("No tool output found for function call call_1.")
    'call_1'
    """
    found = _UNANSWERED.search(refusal)
    return found[1] if found else ""


def written(event: dict[str, Any]) -> bytes:
    """An event with its name, from its content."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), jsontext.dump(event))


def _text(found: Any) -> str:
    return found if isinstance(found, str) else str(found) if isinstance(found, int) else ""


# The model's message

CONTENT: Final = "content"
"""The name of the text for people, among the texts of a message."""


def is_own_call(item: Any) -> bool:
    """Whether an item, opened, calls the proxy's own tool.

    >>> is_own_call({"type": "function_call", "name": "read_artifact", "call_id": "c"}), is_own_call(None)
    (True, False)
    """
    return isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") == RETRIEVAL_TOOL


def reply_in(output: Sequence[Raw]) -> AssistantMessage:
    """Read the output of a response."""
    sent_back: list[bytes] = []
    calls: list[bytes] = []
    texts: list[str] = []
    for raw in map(bytes, output):
        kind, item = head_of(raw).kind, jsontext.opened(raw)
        # A server that keeps nothing does not find reasoning by its id alone: "Item with id 'rs_…' not found. Items are
        # not persisted when `store` is set to false." (openai/openai-agents-python#919)
        if kind is Kind.REASONING and not (item.get("encrypted_content") or item.get("content")):
            continue
        sent_back.append(raw)
        if kind is Kind.CALL:
            calls.append(raw)
        elif kind is Kind.MESSAGE:
            texts += [text for _, text in texts_at(item, ())]
    own, others = calls_apart(calls, _own_in)
    spoken = {CONTENT: "\n\n".join(texts)} if any(texts) else {}
    return AssistantMessage(b",".join(sent_back), own, others, spoken)


def _own_in(item: Any) -> tuple[object, object] | None:
    return (item.get("call_id") or item.get("id"), item.get("arguments")) if is_own_call(item) else None


def result_of(call_id: str, text: str) -> bytes:
    """The item that answers a call."""
    return jsontext.dump({"type": "function_call_output", "call_id": call_id, "output": text})


def missing_result(calls: bytes, call_id: str, text: str) -> bytes:
    """The item that answers one of these calls, in the form that the call's type requires. `calls`: items with commas
    between them."""
    for raw in jsontext.items(b"[" + calls + b"]"):
        call = jsontext.opened(raw)
        if not isinstance(call, dict) or call_id not in (call.get("call_id"), call.get("id")):
            continue
        match call.get("type"):
            case "custom_tool_call" | "apply_patch_call" as kind:
                status = {"status": "failed"} if kind == "apply_patch_call" else {}
                return jsontext.dump({"type": f"{kind}_output", "call_id": call_id, **status, "output": text})
            case "shell_call":
                piece = {"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}
                return jsontext.dump({"type": "shell_call_output", "call_id": call_id, "output": [piece]})
            case "local_shell_call" if call.get("call_id") != call_id:
                return jsontext.dump({"type": "local_shell_call_output", "id": call_id, "output": text})
            case _:
                break
    return jsontext.dump({"type": "function_call_output", "call_id": call_id, "output": text})


# A reply that is no stream

COMPLETED: Final = "completed"


def shown_of(output: Sequence[Raw], *, is_last: bool) -> list[bytes]:
    """The items of a round that the client gets, without our calls, and without the reasoning that led to them if
    another round follows. Reasoning that led to words stays with them: OpenAI refuses a message without it."""
    shown: list[bytes] = []
    waiting: list[bytes] = []
    for raw in map(bytes, output):
        if head_of(raw).kind is Kind.REASONING and not is_last:
            waiting.append(raw)
            continue
        if not is_own_call(jsontext.opened(raw)):
            shown += [*waiting, raw]
        waiting = []
    return shown


def said_by_us(sentence: str, number: int) -> dict[str, Any]:
    """The message of a response in which the model did not say a word."""
    part = {"type": "output_text", "text": sentence, "annotations": [], "logprobs": []}
    name = f"msg_of_the_proxy_{number}"
    return {"type": "message", "id": name, "status": COMPLETED, "role": "assistant", "content": [part]}


class _Response(Reply):
    counts = ResponseUsage
    texts = (CONTENT,)


class ReplyBody(_Response, WholeReply):
    """A response, with the id of the last round's."""

    def _begin(self) -> None:
        super()._begin()
        self._output: Sequence[Raw] = ()

    def _read(self, reply: Mapping[str, Any]) -> AssistantMessage | None:
        if not isinstance(reply.get("output"), list):
            return None
        self._output = jsontext.items(jsontext.members(self._body)["output"])
        return reply_in(self._output)

    def _is_final(self, reply: Mapping[str, Any]) -> bool:
        return bool(reply.get("status", COMPLETED) != COMPLETED)

    def _shown(self) -> Sequence[bytes]:
        return shown_of(self._output, is_last=False)

    def _merged(self, stopped_with: str | None = None) -> Changes:
        if stopped_with is None and not self._calls_us and not self._before:
            return {}
        words = [jsontext.dump(said_by_us(stopped_with, self._rounds))] if stopped_with else []
        shown = shown_of(self._output, is_last=True) if stopped_with is None else self._shown()
        return {("output",): jsontext.join_array([*self._before, *shown, *words])}


# Streams

_ITEM: Final = b"response.output_item."
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_BEGINNINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_COMPLETED: Final = "response.completed"


class ReplyStream(_Response, StreamedReply):
    """Events, which are renumbered from the first call of ours on. The end has the id of the first round, as the
    beginning has: openai-python accepts no other (src/openai/lib/streaming/responses/_responses.py).
    https://platform.openai.com/docs/api-reference/responses-streaming"""

    keeps_plain = False

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        """The number of the next event, once events are renumbered."""
        self._id = ""
        """Id of the first round's response."""
        self._has_begun = False
        """Whether an event has come."""

    def _begin(self) -> None:
        super()._begin()
        self._indexes: set[int] = set()
        """Indexes of the items whose beginning has come."""
        self._final: Mapping[str, Any] = {}
        """The content of the last event that ends this round."""

    def _is_plain(self, piece: bytes) -> bool:
        return _ITEM not in piece and piece.endswith(b"\n\n") and self._has_begun

    def _passed(self, event: bytes) -> bytes:
        found = jsontext.opened(data_of(event))
        if not isinstance(found, dict):
            return event  # perhaps a comment, which keeps the connection alive
        name = jsontext.string_in(found, "type")
        if not self._has_begun:
            self._id, self._has_begun = jsontext.string_in(jsontext.object_in(found, "response"), "id"), True
        if name in _BEGINNINGS and self._rounds:
            return b""
        if event.find(_ITEM) >= 0:
            self._keep(event)
        if self._is_of_ours(found):
            return b""
        if name in _ENDS:
            self._final, self._round_usage = found, jsontext.object_in(found.get("response"), "usage")
        if self._is_changed and (name in _ENDS or self._held):
            return self._hold(event)
        return self._renumbered(event) if self._is_changed else event

    def _is_of_ours(self, found: Mapping[str, Any]) -> bool:
        """Whether an event belongs to a call of ours, or begins one, whatever the event is called."""
        index = found.get("output_index")
        if not isinstance(index, int):
            return is_own_call(found.get("item"))
        if is_own_call(found.get("item")) and index not in self._indexes:
            if not self._is_changed:
                number = found.get("sequence_number")
                self._number = number if isinstance(number, int) else 0
            self._own.add(index)
        if "item" in found:
            self._indexes.add(index)
        return index in self._own

    def _renumbered(self, event: bytes, output: bytes | None = None) -> bytes:
        """An event with the number and the index that it has for the client, and with all rounds in its response if it
        lists an output."""
        found, made = content_of(event), dict[Path, bytes | None]()
        if "sequence_number" in found:
            made["sequence_number",] = jsontext.dump(self._number)
        self._number += 1
        if isinstance(index := found.get("output_index"), int):
            hidden = sum(own < index for own in self._own)
            made["output_index",] = jsontext.dump(len(self._before) + index - hidden)
        response = jsontext.object_in(found, "response")
        if output is not None and isinstance(response.get("output"), list):  # what the client has seen
            made["response", "output"] = output
        if self._rounds and self._id and "id" in response:
            made["response", "id"] = jsontext.dump(self._id)
        if self._rounds and isinstance(usage := response.get("usage"), dict):
            made["response", "usage"] = jsontext.dump(self._usage.for_client(usage))
        named = [line for line in event.splitlines() if line.startswith((b"event:", b"id:"))]
        return b"\n".join([*named, b"data: " + jsontext.spliced(data_of(event), made), b"", b""])

    def _too_long(self) -> bytes:
        if self._kept_bytes <= MAX_KEPT_BYTES and self._events.held_bytes <= MAX_KEPT_BYTES:
            return b""
        self._is_passing = self._failed = True
        forwarded = b"".join([*self._held, self._events.rest])
        self._held = []
        return forwarded

    def _items(self) -> dict[int, bytes]:
        """The complete items of this round, by their index in its stream."""
        items: dict[int, bytes] = {}
        for data in map(data_of, self._kept_events()):
            found = jsontext.opened(data)
            if jsontext.string_in(found, "type") != _DONE or not isinstance(found.get("item"), dict):
                continue
            if isinstance(index := found.get("output_index"), int):
                items[index] = bytes(jsontext.members(data)["item"])
        return dict(sorted(items.items()))

    def _message(self) -> AssistantMessage | None:
        if self._final.get("type") != _COMPLETED:
            return None
        items = self._items()
        reply = reply_in([*items.values()])
        return reply if len(reply.own) == len(self._own) else None

    def _shown(self) -> Sequence[bytes]:
        return [raw for index, raw in self._items().items() if index not in self._own]

    def last_words(self) -> bytes:
        """The last words, with all rounds in the response."""
        return self._ended()

    def stopped(self, sentence: str) -> bytes:
        """A message before the end."""
        message = said_by_us(sentence, self._rounds)
        part = message["content"][0]
        index = len(self._before) + len(self._shown())
        here = {"output_index": index, "item_id": message["id"], "content_index": 0}
        forwarded = b""
        for one in (
            {"type": _ADDED, "output_index": index, "item": {**message, "status": "in_progress", "content": []}},
            {"type": "response.content_part.added", **here, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **here, "delta": sentence, "logprobs": []},
            {"type": "response.output_text.done", **here, "text": sentence, "logprobs": []},
            {"type": "response.content_part.done", **here, "part": part},
            {"type": _DONE, "output_index": index, "item": message},
        ):
            forwarded += written({**one, "sequence_number": self._number})
            self._number += 1
        return forwarded + self._ended([jsontext.dump(message)])

    def _ended(self, words: Sequence[bytes] = ()) -> bytes:
        output = jsontext.join_array([*self._before, *self._shown(), *words])
        return b"".join([*(self._renumbered(event, output) for event in self._held), self._rest])
