"""Generators of conversations for the deciding core: long texts, many exchanges, parallel calls, broken histories."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from proxy.core.compaction import Budget, Pipeline, Plan, Progress, compaction_steps, last_resorts, plan
from proxy.core.compaction.window import ContextWindow
from proxy.core.conversation import Conversation, Size, TrackedMessage
from proxy.core.models import AgentFileAccess
from proxy.core.notices import ArtifactAccess, Language, Notices
from proxy.core.text import ExcerptLimits
from proxy.core.tokens import ByteClassCounter, Counter
from proxy.core.truncation import TruncateToolOutput
from proxy.wire.chat_completions import ChatMessage

UNITS = st.sampled_from(
    [
        "def parse_line(text):\n    return text.split()\n",
        "2024-05-17T10:11:12 INFO  request 48151 served in 12 ms\n",
        "src/module_a/file_12.py:345: error: failed to connect\n",
        "读取文件时发生错误，请检查路径。\n",
        "plain words without a line end ",
        "x",
        '{"key": "value \\" quoted", "n": [1, 2, 3]}\n',
        "🙂 emoji and é accents\n",
        "\ud800 half of a pair\n",
        "\x1b[31mred\x1b[0m\t\x00\n",
        "        ",
        "\n",
    ]
)
SHORT_TEXTS = st.one_of(st.text(st.characters(categories=None), max_size=30), UNITS)
TIMES = st.one_of(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.integers(1, 700))
LONG_TEXTS = st.builds(
    lambda parts: "".join(unit * times for unit, times in parts),
    st.lists(st.tuples(UNITS, TIMES), min_size=1, max_size=4),
)
TEXTS = st.one_of(SHORT_TEXTS, SHORT_TEXTS, LONG_TEXTS)
"""Up to about 150 000 characters, mostly some thousand: work grows with them, and what is found hardly does."""

_ENOUGH_CHARS = 40_000


def is_enough(messages: list[Any]) -> bool:
    """Whether a history is past every limit that is tried, save the widest: what follows would add work, and hardly
    anything new."""
    return len(repr(messages)) > _ENOUGH_CHARS


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
CONTENTS = st.one_of(TEXTS, TEXTS, st.lists(st.one_of(TEXTS.map(part), st.just(IMAGE)), max_size=3))
"""A string or a list of parts."""
TOOL_NAMES = st.sampled_from(["read_file", "run_command", "Read", "search/../x", "", "名前"])


def user(content: Any = "go on") -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: Any = "You are an agent.") -> dict[str, Any]:
    return {"role": "system", "content": content}


def exchange(
    results: list[Any], *, first_call: int = 0, tool: str = "read_file", words: str | None = None, arguments: Any = "{}"
) -> list[dict[str, Any]]:
    """An assistant's parallel calls, and the result of each."""
    ids = [f"call_{first_call + number}" for number in range(len(results))]
    calls = [{"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}} for name in ids]
    answers = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in zip(ids, results, strict=True)]
    return [{"role": "assistant", "content": words, "tool_calls": calls}, *answers]


RESULTS = {most: st.lists(CONTENTS, min_size=1, max_size=most) for most in (1, 3, 8)}
WORDS = st.one_of(st.none(), TEXTS)
"""Made once, as a strategy that is made for each draw costs more than the draw."""


def _exchanges(draw: Any, first_call: int) -> list[dict[str, Any]]:
    results = draw(RESULTS[draw(st.sampled_from([1, 1, 1, 3, 8]))])
    made = exchange(
        results,
        first_call=first_call,
        tool=draw(TOOL_NAMES),
        words=draw(WORDS),
        arguments=json.dumps({"path": draw(SHORT_TEXTS)}),
    )
    if draw(st.integers(0, 5)) == 0:
        made[0]["reasoning_content"] = draw(TEXTS)
    return made


SYSTEM_MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "developer"]), CONTENTS
)
FIRST_MESSAGES = st.lists(SYSTEM_MESSAGES, max_size=2)


@st.composite
def valid_histories(draw: Any, max_turns: int = 3) -> list[dict[str, Any]]:
    """A history as agents send it: every call is answered, the last message is not the model's."""
    found: list[dict[str, Any]] = draw(FIRST_MESSAGES)
    turns = draw(st.integers(1, max_turns))
    for turn in range(turns):
        found.append({"role": "user", "content": draw(CONTENTS)})
        for _ in range(draw(st.integers(0, 3))):
            if not is_enough(found):
                found += _exchanges(draw, len(found) * 100)
        if draw(st.integers(0, 2)) == 0 and len(found) < 20:  # long runs of one kind
            unit = draw(UNITS)
            for number in range(draw(st.integers(5, 40))):
                found += exchange([unit * 20 + f"result_{number:05}"], first_call=len(found) * 100)
        if turn < turns - 1:
            found.append({"role": "assistant", "content": draw(TEXTS)})
            if draw(st.integers(0, 5)) == 0:
                found.append(system("A reminder in the middle."))
    return found


VALID_HISTORIES = valid_histories()
ODD_MESSAGES = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["", "tool", "x"]), CONTENTS),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "call_nobody", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "function", "name": "old", "content": text}, TEXTS),
    st.just({"role": "assistant", "tool_calls": [{"id": "call_x", "function": {"name": "read_file"}}]}),
    st.just({"role": "assistant", "tool_calls": "none", "content": None}),
    st.just({"role": "assistant", "tool_calls": [None, {"id": 7}, {"function": "f"}], "content": 3.5}),
    st.sampled_from([{}, None, [], 7, "text", {"role": None}, {"content": [None, "a", {"text": 5}]}]),
)


@st.composite
def any_histories(draw: Any) -> list[Any]:
    """A history, or what a careless client made of one: cut, shuffled, with foreign things in it."""
    found: list[Any] = list(draw(VALID_HISTORIES))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(found)))
        match draw(st.sampled_from(["insert", "remove", "swap", "cut_front", "cut_end"])):
            case "insert":
                found.insert(at, draw(ODD_MESSAGES))
            case "remove":
                del found[at : at + 1]
            case "swap" if len(found) > 1:
                at = min(at, len(found) - 2)
                found[at], found[at + 1] = found[at + 1], found[at]
            case "cut_front":
                del found[: at // 2]
            case _:
                del found[at:]
    return found


def conversation(messages: list[Any]) -> Conversation:
    """As the wire would read it; every third message is spelled in ASCII only."""
    return Conversation(tuple(ChatMessage.read(spelled(m, ascii_only=n % 3 == 0)) for n, m in enumerate(messages)))


def spelled(message: Any, *, ascii_only: bool = False) -> bytes:
    if not ascii_only:
        try:
            return json.dumps(message, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            pass
    return json.dumps(message).encode()


WAY: Final = ArtifactAccess("/data/tool-output")


def notices(language: Language = "en", reach: AgentFileAccess = AgentFileAccess.SHELL, *, kept: bool = True) -> Notices:
    return Notices(language, WAY, reach, kept)


class CountingCounter:
    """Counts the estimate, and what it was asked."""

    name = "counting"
    exact = False

    def __init__(self) -> None:
        self.calls = 0
        self.chars = 0

    def count(self, text: str) -> int:
        self.calls += 1
        self.chars += len(text)
        return ByteClassCounter().count(text)


def pipeline(
    budget: Budget,
    *,
    limits: ExcerptLimits | None = None,
    language: Language = "en",
    counter: Counter | None = None,
    kept: bool = True,
) -> Pipeline:
    """The steps as the shell puts them together."""
    words = notices(language, kept=kept)
    local = (TruncateToolOutput(limits or ExcerptLimits(400, 8_000)),) if kept else ()
    return Pipeline(
        local=local,
        compaction_steps=compaction_steps(words, budget, lambda _: local, counter or ByteClassCounter()),
        last_resorts=last_resorts(words, budget, lambda _: local, counter or ByteClassCounter()),
        notices=words,
        counter=counter or ByteClassCounter(),
        budget=budget,
    )


@st.composite
def budgets(draw: Any) -> Budget:
    """Rooms from nothing to all, in one unit or in several; seldom one in which no last resort helps, as each plan then
    tries them all on every message."""
    tokens = draw(st.sampled_from([500, 1_500, 3_000, 8_000, 30_000] * 2 + [0, 50, 1_000_000]))
    chars = draw(st.sampled_from([None, None, None, 2_000, 20_000]))
    size = draw(st.sampled_from([None, None, None, 4_000, 40_000]))
    fill, low = draw(st.sampled_from([(1.0, 0.7), (1.0, 0.7), (0.85, 0.7), (1.0, 0.3), (1.0, 0.95), (0.3, 0.7)]))
    return Budget(tokens, chars, size, fill=fill, low_mark=low)


def planned(messages: list[Any] | Conversation, made: Pipeline, base: Size | None = None) -> Plan:
    """A plan from scratch."""
    found = messages if isinstance(messages, Conversation) else conversation(messages)
    return plan(found, base or Size(), made)[0]


def turn_by_turn(messages: Conversation, made: Pipeline, base: Size | None = None) -> list[Plan]:
    """The plans of a conversation that grows message by message, each from the progress of the one before."""
    earlier: Progress | None = None
    plans = []
    for stop in range(len(messages) + 1):
        found, earlier = plan(Conversation(messages.messages[:stop]), base or Size(), made, earlier)
        plans.append(found)
    return plans


def pairing_faults(messages: list[bytes]) -> list[str]:
    """What OpenAI would refuse in this history: calls without results, results without calls."""
    faults = []
    open_calls: set[str] = set()
    for message in map(ChatMessage.read, messages):
        if message.role == "tool":
            if message.answers not in open_calls:
                faults.append(f"no call {message.answers}")
            open_calls.discard(message.answers)
        else:
            faults += [f"unanswered {name}" for name in sorted(open_calls)]
            open_calls = {call.id for call in message.calls}
    return faults + [f"unanswered {name}" for name in sorted(open_calls)]


def kept_of(messages: list[Any], base: Size | None = None) -> ContextWindow:
    """All of a history, before anything is given up."""
    found = ContextWindow.of(base or Size(), ByteClassCounter())
    for index, message in enumerate(conversation(messages)):
        found.add(TrackedMessage.of(index, message, "", ByteClassCounter()))
    return found


def content_after(message, edit):
    """The content of a message after an edit, opened."""
    return message.changed({edit.at: edit.becomes}).content()
