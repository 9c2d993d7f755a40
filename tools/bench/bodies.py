"""The requests of the bench: a small one, an agent's conversation of a given size, and growing conversations.

The same seed gives the same bytes on every machine; another seed gives a new conversation.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tools.bench.apis import CHAT, MESSAGES, RESPONSES, Api

WIDE_MODEL = "gpt-4.1"
"""A window of 1 047 576 tokens: a conversation of 2 MB (half a million tokens) fits and has to pass untouched."""

NARROW_MODEL = "gpt-4o"
"""A window of 128 000 tokens: 200 KB fit into it, 2 MB do not and have to be cut."""

WINDOWS = {WIDE_MODEL: 1_047_576, NARROW_MODEL: 128_000}
"""Tokens, as stated to clients that ask for them."""

_TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": purpose,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, purpose, argument in (
        ("bash", "Run a command in the project's folder and return what it printed.", "command"),
        ("read_file", "Return the text of a file, with numbered lines.", "path"),
        ("grep", "Search the project for a regular expression.", "pattern"),
    )
]

_SYSTEM = (
    "You are a careful software engineer working in a repository. Read before you write, run the tests after each "
    "change, and say what you did in plain words.\n"
) * 12

_WORDS = (  # noqa: SIM905 - reads better than forty literals
    "the request of a handler returns when its buffer was read and every token in that message is counted once more "
    "because parser state index value config route error retry client stream budget window cache prefix token limit"
).split()


def chat(
    content_bytes: int, *, model: str, events: int, seed: int, more: Mapping[str, object] | None = None
) -> Iterator[bytes]:
    """Endless single-question requests, each with its own number and the members of `more`; `events` over 0 asks for a
    stream of that many."""
    question = _prose(random.Random(seed), content_bytes)
    for number in itertools.count():
        body: dict[str, object] = {
            "messages": [
                {"role": "system", "content": "Answer in one sentence."},
                {"role": "user", "content": f"[{seed:04d}-{number:08d}] {question}"},
            ],
            "model": model,
        }
        if events:
            body |= {"max_tokens": events, "stream": True}  # the upstream of this bench sends as many events
        yield _encode(body | dict(more or {}))


class Conversation:
    """An agent's run: one system and one user message, then exchanges of a tool call and its output."""

    def __init__(self, model: str, seed: int, exchange_bytes: int) -> None:
        self._random = random.Random(seed)
        self._exchange_bytes = exchange_bytes
        self._calls = 0
        # The order of members is that of openai-python: messages first, tools last.
        self._tail = b"]," + _encode({"model": model, "tools": _TOOLS})[1:]
        task = f"Task {seed:06d}. The nightly build fails: find out why and repair it. " + _prose(self._random, 900)
        self._messages = _encode({"role": "system", "content": _SYSTEM})
        self._messages += b"," + _encode({"role": "user", "content": task})

    def grow(self) -> None:
        """Add one exchange of about `exchange_bytes`."""
        self._calls += 1
        name, arguments, output = self._call()
        call_id = f"call_{self._calls:06d}"
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        thought = _prose(self._random, 160)
        call_message = {"role": "assistant", "content": thought, "tool_calls": [call]}
        answered = {"role": "tool", "tool_call_id": call_id, "content": output}
        self._messages += b"," + _encode(call_message) + b"," + _encode(answered)

    def grow_to(self, size_bytes: int) -> None:
        while self.size_bytes < size_bytes:
            self.grow()

    @property
    def size_bytes(self) -> int:
        return len(self._messages) + len(self._tail) + len(b'{"messages":[')

    def body(self) -> bytes:
        return b'{"messages":[' + self._messages + self._tail

    def _call(self) -> tuple[str, dict[str, str], str]:
        size = int(self._exchange_bytes * self._random.uniform(0.7, 1.3)) - 400  # 400: the JSON around the output
        path = f"src/{self._random.choice(_WORDS)}/{self._random.choice(_WORDS)}_{self._random.randrange(1000)}.py"
        kind = self._random.randrange(3)
        if kind == 0:
            return "read_file", {"path": path}, _source(self._random, size)
        if kind == 1:
            return "bash", {"command": f"python -m pytest -x {path}"}, _log(self._random, size)
        return "grep", {"pattern": self._random.choice(_WORDS)}, _matches(self._random, size)


def new_conversations(size_bytes: int, *, model: str, seed: int, exchange_bytes: int = 4_000) -> Iterator[bytes]:
    """Endless conversations of one size, no two of which begin alike: remembering one does not help with another."""
    for number in itertools.count():
        conversation = Conversation(model, seed * 10_000 + number, exchange_bytes)
        conversation.grow_to(size_bytes)
        yield conversation.body()


def same_conversation(size_bytes: int, *, model: str, seed: int, exchange_bytes: int = 4_000) -> Iterator[bytes]:
    """One conversation, sent again and again."""
    return itertools.repeat(next(new_conversations(size_bytes, model=model, seed=seed, exchange_bytes=exchange_bytes)))


def growing_conversations(
    size_bytes: int, *, model: str, seed: int, conversations: int = 4, exchange_bytes: int = 4_000
) -> Iterator[bytes]:
    """Several conversations of `size_bytes` in turn, each an exchange longer whenever its turn comes round."""
    grown = [Conversation(model, seed * 10_000 + number, exchange_bytes) for number in range(conversations)]
    for conversation in grown:
        conversation.grow_to(size_bytes)
    for conversation in itertools.cycle(grown):
        yield conversation.body()
        conversation.grow()


def marked_conversations(size_bytes: int, *, model: str, seed: int, exchange_bytes: int = 4_000) -> Iterator[bytes]:
    """Endless conversations of about one size, made a hundred times faster than new ones: copies of one, in which each
    text and each line of it begins with the number of the copy, so that no text and no line is in two of them."""
    made = next(new_conversations(int(size_bytes * 0.92), model=model, seed=seed, exchange_bytes=exchange_bytes))
    for number in itertools.count():
        mark = b"%07d " % number
        yield made.replace(b'"content":"', b'"content":"' + mark).replace(rb"\n", rb"\n" + mark)


def conversation_from_the_start(size_bytes: int, *, model: str, seed: int, turns: int) -> Iterator[bytes]:
    """One conversation from its first exchange to about `size_bytes`, sent whole after each of its exchanges."""
    conversation = Conversation(model, seed, exchange_bytes=size_bytes // turns)
    for _ in range(turns):
        conversation.grow()
        yield conversation.body()


def _with_a_clock(messages: list[dict[str, str]], clock: str) -> dict[str, object]:
    messages[0]["content"] += f"It is {clock}."
    return {"messages": messages}


def _with_the_state_in_the_task(messages: list[dict[str, str]], clock: str) -> dict[str, object]:
    messages[1]["content"] += f" As of {clock}."
    return {"messages": messages}


def _with_metadata_first(messages: list[dict[str, str]], clock: str) -> dict[str, object]:
    return {"metadata": {"sent": clock}, "messages": messages}


def _with_a_reminder_at_the_end(messages: list[dict[str, str]], clock: str) -> dict[str, object]:
    messages[-1]["content"] += f"\n\nIt is {clock}; say what you did."
    return {"messages": messages}


WRITTEN_ANEW = {
    "clock": _with_a_clock,
    "task": _with_the_state_in_the_task,
    "metadata": _with_metadata_first,
    "last": _with_a_reminder_at_the_end,
}
"""Parts that agents rewrite in each turn, so that the body begins or ends differently from the one before."""


def written_anew(bodies: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The requests from an agent that writes a part of them anew in each turn."""
    for turn, body in enumerate(bodies):
        request = json.loads(body)
        clock = f"2026-02-03 {10 + turn // 60}:{turn % 60:02}:07"
        yield _encode({**WRITTEN_ANEW[name](request.pop("messages"), clock), **request})


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests, their expected responses, and whether an editing proxy may edit them."""

    bodies: Callable[[int], Iterator[bytes]]
    """From a seed to request bodies."""
    events: int = 0
    """SSE events of each response; 0 for a JSON response."""
    fits: bool | None = True
    """Whether it fits the window, so that the same bytes have to reach the upstream; None: only at first."""
    api: Api = CHAT
    """The API that carries it."""


def translated(workload: Workload, api: Api) -> Workload:
    """The requests in another API."""

    def bodies(seed: int) -> Iterator[bytes]:
        before, made = b"", b""
        for body in workload.bodies(seed):
            if body != before:  # one conversation that is sent again is translated once
                before, made = body, _encode(api.request(json.loads(body)))
            yield made

    return replace(workload, bodies=bodies, api=api)


def streams_together(count: int, *, pace_ms: int, events: int) -> Workload:
    """Streams that wait for one another after their first event; `upstream.py` knows the two members."""
    more = {"pace_ms": pace_ms, "together": count}
    return Workload(lambda seed: chat(1_850, model=NARROW_MODEL, events=events, seed=seed, more=more), events=events)


GROWTH_TURNS = 100
STREAM_EVENTS = 400
STREAMS_AT_ONCE = 500
EVENTS_A_SECOND = 50
"""Rate of each stream."""
_EVENTS_OF_EACH = 100
ANEW_TURNS = 58
"""Turns of a conversation that is written anew: to 730 KB, as in a measured run of an agent."""


def _of_an_agent(seed: int) -> Iterator[bytes]:
    return conversation_from_the_start(730_000, model=NARROW_MODEL, seed=seed, turns=ANEW_TURNS)


def _anew(name: str) -> Workload:
    return Workload(lambda seed: written_anew(_of_an_agent(seed), name), fits=None)


WORKLOADS: dict[str, Workload] = {
    "chat_2kb": Workload(lambda seed: chat(1_850, model=NARROW_MODEL, events=0, seed=seed)),
    "stream": Workload(
        lambda seed: chat(1_850, model=NARROW_MODEL, events=STREAM_EVENTS, seed=seed), events=STREAM_EVENTS
    ),
    "streams": streams_together(STREAMS_AT_ONCE, pace_ms=1_000 // EVENTS_A_SECOND, events=_EVENTS_OF_EACH),
    "first_token": Workload(lambda seed: chat(1_850, model=NARROW_MODEL, events=3, seed=seed), events=3),
    "conversation_200kb": Workload(lambda seed: new_conversations(200_000, model=NARROW_MODEL, seed=seed)),
    "conversation_200kb_again": Workload(lambda seed: same_conversation(200_000, model=NARROW_MODEL, seed=seed)),
    "growing_2mb": Workload(lambda seed: growing_conversations(2_000_000, model=WIDE_MODEL, seed=seed)),
    "new_2mb": Workload(lambda seed: new_conversations(2_000_000, model=WIDE_MODEL, seed=seed)),
    "marked_2mb": Workload(lambda seed: marked_conversations(2_000_000, model=WIDE_MODEL, seed=seed)),
    "growing_2mb_cut": Workload(
        lambda seed: growing_conversations(2_000_000, model=NARROW_MODEL, seed=seed), fits=False
    ),
    "from_start": Workload(
        lambda seed: conversation_from_the_start(2_000_000, model=WIDE_MODEL, seed=seed, turns=GROWTH_TURNS)
    ),
    "from_start_cut": Workload(
        lambda seed: conversation_from_the_start(2_000_000, model=NARROW_MODEL, seed=seed, turns=GROWTH_TURNS),
        fits=None,
    ),
    "of_an_agent": Workload(_of_an_agent, fits=None),
    **{f"of_an_agent_{name}": _anew(name) for name in WRITTEN_ANEW},
}


for _name in ("chat_2kb", "conversation_200kb_again", "growing_2mb", "stream"):
    for _api in (MESSAGES, RESPONSES):
        WORKLOADS[f"{_name}_{_api.name}"] = translated(WORKLOADS[_name], _api)


def _encode(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _prose(source: random.Random, size: int) -> str:
    return " ".join(source.choices(_WORDS, k=size // 6 + 1))[:size]


def _source(source: random.Random, size: int) -> str:
    def line(number: int) -> str:
        name, other = source.choice(_WORDS), source.choice(_WORDS)
        return (
            f'{number:>5}\t    {name}_{number % 17} = self.{other}[{source.randrange(99)}]["{name}"]  # {other} {name}'
        )

    return _lines(line, size)


def _log(source: random.Random, size: int) -> str:
    def line(number: int) -> str:
        level = source.choice(("INFO", "DEBUG", "INFO", "WARNING"))
        stamp = (
            f"2024-05-{number % 28 + 1:02d}T12:{number % 60:02d}:{source.randrange(60):02d}.{source.randrange(999):03d}"
        )
        return f"{stamp} {level:<7} worker-{source.randrange(8)} {_prose(source, 60)} id={source.getrandbits(64):016x}"

    return _lines(line, size)


def _matches(source: random.Random, size: int) -> str:
    def line(_: int) -> str:
        name = source.choice(_WORDS)
        return f"src/{name}/{source.choice(_WORDS)}.py:{source.randrange(2000)}:    return {name}({_prose(source, 40)})"

    return _lines(line, size)


def _lines(line: Callable[[int], str], size: int) -> str:
    """Lines until `size` characters are full, the last one whole."""
    kept: list[str] = []
    length = 0
    while length < size:
        kept.append(line(len(kept) + 1))
        length += len(kept[-1]) + 1
    return "\n".join(kept)
