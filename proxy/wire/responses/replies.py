"""A model's message in a reply of the Responses API: the items of its output, which of them are calls of the proxy's
own tool, what its counts are called, and the end of a stream that has to tell an error.

Rule: a call with anything odd about it is the client's; every item keeps its bytes. A stream ends with both events,
because some clients read only `response.failed` (Codex, codex-rs/codex-api/src/sse/responses.rs), and others raise on
`error` (openai-python, src/openai/_streaming.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, Raw, spliced
from proxy.wire.json_wire import error_in_body
from proxy.wire.responses.items import Kind, head_of, meant_by, texts_at
from proxy.wire.responses.reading import read_items
from proxy.wire.rounds_usage import RoundsUsage

# Counts


class ResponseUsage(RoundsUsage):
    """The usage of one response, round by round."""

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
    said = jsontext.opened(error_in_body(status, body))
    error = said.get("error") if isinstance(said, dict) else None
    error = error if isinstance(error, dict) else {"message": str(error)}
    code, message = _text(error.get("code")) or str(status), _text(error.get("message")) or f"HTTP {status}"
    told = {"type": "error", "code": code, "message": message, "param": error.get("param"), "sequence_number": 0}
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
    return event(told) + event({"type": "response.failed", "sequence_number": 1, "response": failed})


def unanswered_in(refusal: str) -> str:
    """The id of the call of a function that has no output, by the words of a refusal.

    >>> unanswered_in("No tool output found for function call call_1.")
    'call_1'
    """
    found = _UNANSWERED.search(refusal)
    return found[1] if found else ""


def event(said: dict[str, Any]) -> bytes:
    """An event with its name."""
    return b"event: %b\ndata: %b\n\n" % (said["type"].encode(), jsontext.dump(said))


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


def is_linked(response: Mapping[str, Any]) -> bool:
    """Whether the server keeps the items of a response and refuses one without the other, reasoning and what follows
    it, in whatever form they come back: "Item 'rs_…' of type 'reasoning' was provided without its required following
    item." and "Item 'msg_…' of type 'message' was provided without its required 'reasoning' item: 'rs_…'."
    (vercel/ai#10829, openai/openai-agents-python#3207). OpenAI's says that it keeps them."""
    return response.get("store") is True


def said_in(output: Sequence[Raw], *, is_stored: bool) -> AssistantMessage:
    """Read the output of a response. `is_stored`: whether its server keeps it, so that reasoning needs only its id."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    sent_back: list[bytes] = []
    texts: list[str] = []
    position = 0
    for raw in map(bytes, output):
        head, item = head_of(raw), jsontext.opened(raw)
        if head.kind is Kind.REASONING and not is_stored and not _can_come_back(item):
            continue
        sent_back.append(raw)
        if head.kind is Kind.CALL:
            if is_own_call(item):
                own.append(OwnCall(position, head.id, _arguments(item), raw))
            else:
                others.append(raw)
            position += 1
        elif head.kind is Kind.MESSAGE:
            texts += [text for _, text in texts_at(item, ())]
    meant = [meant_by(jsontext.opened(raw)) for raw in others]
    spoken = {CONTENT: "\n\n".join(texts)} if any(texts) else {}
    return AssistantMessage(b",".join(sent_back), tuple(own), tuple(others), meant, spoken)


def _can_come_back(item: Any) -> bool:
    """Whether reasoning may be sent again: a server that keeps nothing does not find it by its id alone ("Item with id
    'rs_…' not found. Items are not persisted when `store` is set to false.", openai/openai-agents-python#919)."""
    return isinstance(item, dict) and bool(item.get("encrypted_content") or item.get("content"))


def _arguments(call: Any) -> str:
    found = call.get("arguments")
    return found if isinstance(found, str) else jsontext.dump(found).decode("utf-8", "replace")


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
