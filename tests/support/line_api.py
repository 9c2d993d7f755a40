"""The rest of the made-up API of `line_wire`, a whole wire: what is sent to it, what it answers, and how it refuses.
Only the arguments that a model writes for a call are JSON.

    model: m
    whole: yes
    limits: most=500 window=8000
    offers: fetch look

    user
    > Look at it.

A request is blocks of lines, each with a blank line behind it: a head, and the messages. A reply is lines, too:

    assistant
    > I look.
    + fetch
    = {"path": "a.py"}
    ended: calls
    counted: 1000 20

As a stream it is the same lines, one by one; nothing else may come between them. An error is `refused:` with a code,
and `>` its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

from proxy.core.conversation import Conversation, Message, ToolCall
from proxy.core.overflow import Counted, Sent, Verdict, judge
from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage, OwnCall, RetrievalPolicy, is_offered
from proxy.core.text import Raw
from proxy.errors import MalformedRequest, ProxyError
from proxy.wire import Framing, OwnTool, Reply, Request, RequestOptions, RequestShape, Splitter, Wire, report_of
from support.line_wire import LineMessage, assistant, paired

_BLANK: Final = b"\n\n"
_COUNTED: Final = re.compile(rb"^counted: (\d{1,9}) (\d{1,9})$", re.MULTILINE)
_ENDED: Final = re.compile(rb"^(?:ended|refused): [^\n]*\n", re.MULTILINE)


def _read(items: Sequence[Raw]) -> list[tuple[Message, int]]:
    """Each block is a message."""
    return [(message, count) for count, message in enumerate(paired(LineMessage(bytes(raw)) for raw in items), start=1)]


def _joined(messages: Sequence[Message]) -> Sequence[Message]:
    return paired(cast(Sequence[LineMessage], messages))


def _may_hold_images(raw: bytes) -> bool:
    return b"\n! " in raw


SHAPE: Final = RequestShape("messages", (), _read, _may_hold_images, joined=_joined, tools="offers")


class LineSplitter(Splitter):
    """Lines, each with its end."""

    def feed(self, piece: bytes) -> list[bytes]:
        self._kept += piece
        *lines, rest = self.rest.split(b"\n")
        self._kept[:] = rest
        return [line + b"\n" for line in lines]


class LineFraming(Framing):
    """A stream of lines."""

    content_type = b"text/x-lines"
    sign = b"x-lines"
    splitter = LineSplitter

    @staticmethod
    def data_of(event: bytes) -> bytes:
        return event.removesuffix(b"\n")


class Lines(Wire):
    """`/api/lines`; the base class describes each member."""

    name = "lines"
    api = "lines"
    path = "/api/lines"
    end = b"/api/lines"
    is_on_host = True
    results_hold_media = False
    content_type = b"text/plain; charset=utf-8"
    own_tool = OwnTool(RETRIEVAL_TOOL.encode(), lambda tools: tools.decode().split())
    framing = LineFraming()

    def trial(self, words: str) -> tuple[Mapping[str, object], str]:
        return {"messages": words}, "assistant"

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        if not body.endswith(_BLANK):
            raise MalformedRequest("a request ends with a blank line")
        head, _, _ = body.partition(_BLANK)
        members: Mapping[str, Raw] = _lines_of(head)
        start = known.ends[shared - 1] if known is not None and shared else len(head) + len(_BLANK)
        blocks = body[start:].split(_BLANK)[:-1]
        messages = [message for message, _ in _read(blocks)]
        ends: list[int] = []
        for block in blocks:
            ends.append((ends[-1] if ends else start) + len(block) + len(_BLANK))
        if known is not None and shared:
            return known.followed(shared, body, members, messages, tuple(ends), _options(members))
        conversation, has_images = Conversation(tuple(messages)), _may_hold_images(body)
        return Request(body, members, conversation, SHAPE, *_options(members), tuple(ends), has_images=has_images)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        head = _lines_of(request.body[: request.body.index(_BLANK)])
        head |= {name: bytes(raw) for name, raw in members.items()}
        blocks = [b"\n".join(b"%b: %b" % (name.encode(), value) for name, value in head.items())]
        return b"".join(block + _BLANK for block in (*blocks, *(message.raw for message in messages)))

    def model_in(self, body: bytes) -> str:
        return _options(_lines_of(body.partition(_BLANK)[0])).model

    def limiting(self, request: Request, tokens: int) -> Mapping[str, Raw]:
        limits = _limits(request.members) | {"most": tokens}
        return {"limits": " ".join(f"{name}={limit}" for name, limit in limits.items()).encode()}

    def message(self, raw: bytes) -> Message:
        return LineMessage(raw)

    def long_members(self, _: Request) -> Mapping[str, bytes]:
        return {}

    def adds_to_prompt(self, _: Request, *, by_tools: bool = True) -> bool:
        return False

    def may_hold_images(self, raw: bytes) -> bool:
        return _may_hold_images(raw)

    def may_name_images(self, raw: bytes) -> bool:
        return _may_hold_images(raw)

    def tool_names(self, tools: bytes) -> Sequence[str]:
        return tools.decode().split()

    def tools(self, request: Request) -> bytes:
        return bytes(request.members.get("offers", b""))

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        names = self.tool_names(self.tools(request))
        return " ".join([*names, RETRIEVAL_TOOL]).encode() if is_offered(names, policy) else None

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        return "must call" in members

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        return "\n".join([f"tool {call.name}", *_spoken(text)]).encode()

    def result(self, _: OwnCall, text: str) -> bytes:
        return "\n".join(["tool", *_spoken(text)]).encode()

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        return evidence.startswith(b"assistant\n") and b"refused: " not in evidence

    def says_something(self, data: bytes) -> bool:
        return data not in (b"", b"assistant") and not data.startswith(b"refused: ")  # its words are the next line

    def counted(self, end: bytes) -> Counted | None:
        found = _COUNTED.findall(end)
        return Counted(*map(int, found[-1])) if found else None

    def is_complete(self, ending: bytes) -> bool:
        return _ENDED.search(ending) is not None

    def reply(self, *, stream: bool) -> Reply:
        return StreamedLines() if stream else WholeLines()

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        return judge(report_of(status, headers, body), sent, partial(_holds, request))

    def error(self, error: ProxyError, _: str = "") -> bytes:
        return "\n".join([f"refused: {error.code}", *_spoken(error.message)]).encode()

    def error_in_body(self, status: int, body: bytes) -> bytes:
        if body.startswith(b"refused: "):
            return body
        return "\n".join([f"refused: {status}", *_spoken(body.decode("utf-8", "replace"))]).encode()

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        return ended(self.error_in_body(status, body).decode().split("\n"))


LINES: Final = Lines()


def _holds(request: bytes, text: str) -> bool:
    return "\n> ".join(text.split("\n")).encode() in request


class _Rounds:
    """The lines of a reply's rounds, one after the other: which of them the client gets, and when."""

    def __init__(self) -> None:
        self._counts: list[Counted] = []
        """Usage of the finished rounds."""
        self._rounds = 0
        self.spoke = False
        """In the rounds that are over."""
        self._begin()

    def _begin(self) -> None:
        self._calls: list[list[str]] = []
        self._words: list[str] = []
        self._ended = ""
        self._count = Counted(0)
        self.held: list[str] = []
        """What ends the reply, from the first call of ours on."""

    def passed(self, line: str) -> list[str]:
        """What the client gets of a line now."""
        sign, text = line[:2], line[2:]
        if sign == "+ ":
            self._calls.append([text])
        if sign == "= ":
            self._calls[-1].append(line)
        if sign in ("+ ", "= "):
            return [] if _is_own(self._calls[-1]) else [line]
        if sign == "> ":
            is_paragraph = self.spoke and not self._words
            self._words.append(text)
            return ["> ", line] if is_paragraph else [line]
        if line == "assistant":
            return [] if self._rounds else [line]
        name, _, value = line.partition(": ")
        if name == "ended":
            self._ended = value
        if name == "counted":
            self._count = Counted(*map(int, value.split()))
            counts = [*self._counts, self._count]
            line = f"counted: {counts[0].prompt} {sum(count.reply for count in counts)}"
        if any(map(_is_own, self._calls)):
            self.held.append(line)
            return []
        return [line]

    def end(self) -> AssistantMessage | None:
        """What the model said in this round, if it called us and is to have an answer."""
        calls = ["\n".join(call).encode() for call in self._calls]
        own = tuple(OwnCall("", call[1][2:]) for call in self._calls if _is_own(call))
        if not own or self._ended != "calls":
            return None
        others = tuple(calls[position] for position, call in enumerate(self._calls) if not _is_own(call))
        words = "\n".join(self._words)
        message = assistant(calls, _spoken(words) if self._words else [])
        return AssistantMessage(message, own, others, {"words": words})

    def plain_end(self, sentence: str) -> list[str]:
        """The end if the model would call us again."""
        words = [] if self.spoke or self._words else _spoken(sentence)
        return [*words, *("ended: done" if line.startswith("ended: ") else line for line in self.held)]

    @property
    def usage(self) -> dict[str, int]:
        counts = [*self._counts, self._count]
        prompt, reply = sum(count.prompt for count in counts), sum(count.reply for count in counts)
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}

    def next_round(self) -> None:
        self._rounds += 1
        self._counts.append(self._count)
        self.spoke |= bool(self._words)
        self._begin()


class WholeLines(_Rounds):
    """A reply that is no stream: what a client gets of its rounds, together."""

    def __init__(self) -> None:
        super().__init__()
        self._sent_lines: list[str] = []

    def feed(self, piece: bytes) -> bytes:
        for line in piece.decode().split("\n"):
            self._sent_lines += self.passed(line)
        return b""

    def last_words(self) -> bytes:
        return "\n".join([*self._sent_lines, *self.held]).encode()

    def stopped(self, sentence: str) -> bytes:
        return "\n".join([*self._sent_lines, *self.plain_end(sentence)]).encode()


class StreamedLines(_Rounds):
    """A reply that is a stream."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = LineSplitter()

    def feed(self, piece: bytes) -> bytes:
        lines = (line.decode().removesuffix("\n") for line in self._lines.feed(piece))
        return b"".join(ended(self.passed(line)) for line in lines)

    def last_words(self) -> bytes:
        return ended(self.held)

    def stopped(self, sentence: str) -> bytes:
        return ended(self.plain_end(sentence))

    def next_round(self) -> None:
        super().next_round()
        self._lines = LineSplitter()


def ended(lines: Sequence[str]) -> bytes:
    """Lines of a stream."""
    return b"".join(f"{line}\n".encode() for line in lines)


def _is_own(call: Sequence[str]) -> bool:
    return call[0] == RETRIEVAL_TOOL


def _spoken(text: str) -> list[str]:
    return [f"> {line}" for line in text.split("\n")]


def _lines_of(head: bytes) -> dict[str, bytes]:
    """The lines of a head, by their names."""
    named = (line.partition(b": ") for line in head.split(b"\n"))
    return {name.decode(): value for name, _, value in named}


def _limits(members: Mapping[str, Raw]) -> dict[str, int]:
    """What the line `limits` states, by name."""
    stated = (limit.split("=") for limit in bytes(members.get("limits", b"")).decode().split())
    return {name: int(tokens) for name, tokens in stated}


def _options(members: Mapping[str, Raw]) -> RequestOptions:
    """What a head states; an answer is a stream unless it says otherwise."""
    limits = _limits(members)
    model = bytes(members.get("model", b"")).decode()
    return RequestOptions(model, "whole" not in members, limits.get("most"), limits.get("window"))
