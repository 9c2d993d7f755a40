"""Recall from a conversation that exceeds its room: `python -m tools.bench.recall [--window 8000] [--seed 1]`.

Made-up agents read files and edit them; each step uses content of earlier results only, mostly recent ones. Every
request is planned as the proxy would plan it, turn by turn. Recall: of the names that the next step uses, the share
still present in what is sent, anywhere; real, edits and lines: `fidelity.py`. Prefix: of the bytes sent, the
share that repeats the beginning of the previous request.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from proxy.config.settings import Settings
from proxy.core.compaction import BudgetRules, Pipeline, Progress, budget_for, plan
from proxy.core.conversation import Conversation, Message, Size
from proxy.core.models import AgentFileAccess, AgentTools, ModelProfile
from proxy.core.notices import ArtifactAccess
from proxy.core.overflow import Terms
from proxy.core.tokens import ByteClassCounter
from proxy.shell.planning.pipelines import Pipelines
from proxy.wire.chat_completions import ChatMessage
from tools.bench.fidelity import Chat, History, Tally

CONVERSATIONS = 12
TURNS = 80
_WORDS = [
    "parser",
    "state",
    "route",
    "client",
    "stream",
    "budget",
    "window",
    "cache",
    "token",
    "ledger",
    "invoice",
    "order",
    "session",
    "index",
]


@dataclass(frozen=True)
class Turn:
    """One request, and the step that the agent takes after it."""

    messages: tuple[Message, ...]
    chat: Sequence[Chat]
    step: Chat


def turns(seed: int) -> Iterator[Turn]:
    """One agent's run: it reads files, and edits what it has read, mostly a little earlier."""
    random = Random(seed)
    chat: list[Chat] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Fix it."},
    ]
    messages = [_message(message) for message in chat]
    files: dict[str, list[str]] = {}
    for number in range(TURNS):
        step = _edit(random, number, files) if files and number % 3 == 2 else _read(random, number, files)
        yield Turn(tuple(messages), tuple(chat), step)
        arguments = json.loads(step["tool_calls"][0]["function"]["arguments"])
        path, result = arguments["path"], "The file was edited."
        if "old_string" in arguments:
            text = "\n".join(files[path])
            files[path] = text.replace(arguments["old_string"], arguments["new_string"]).split("\n")
        else:
            files.setdefault(path, _source(random))
            result = "\n".join(f"{line:>4}\t{text}" for line, text in enumerate(files[path], 1))
        for message in (step, {"role": "tool", "tool_call_id": f"call_{number}", "content": result}):
            chat.append(message)
            messages.append(_message(message))


def _read(random: Random, number: int, files: Mapping[str, Sequence[str]]) -> Chat:
    """A call that reads a file whose path an earlier one may name."""
    words = f"I look at {random.choice(_recent(random, files)).strip()}" if files else "I begin."
    path = f"src/{random.choice(_WORDS)}/{random.choice(_WORDS)}_{number}.py"
    return _calling(number, words, "read_file", {"path": path})


def _edit(random: Random, number: int, files: Mapping[str, Sequence[str]]) -> Chat:
    """A call that replaces some lines of a file that was read: two times in three one of the last few files."""
    names = list(files)
    path = random.choice(names[-4:] if random.random() < 0.67 else names)
    lines = files[path]
    begin = random.randrange(max(1, len(lines) - 5))
    old = "\n".join(lines[begin : begin + random.randint(2, 5)])
    new = old.replace("(", f"({random.choice(_WORDS)}_{number}, ")
    return _calling(number, "", "edit_file", {"path": path, "old_string": old, "new_string": new})


def _recent(random: Random, files: Mapping[str, Sequence[str]]) -> Sequence[str]:
    return files[random.choice(list(files)[-4:] if random.random() < 0.67 else list(files))]


def _calling(number: int, words: str, tool: str, arguments: Mapping[str, str]) -> Chat:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": words, "tool_calls": [call]}


def _source(random: Random) -> list[str]:
    names = [f"{random.choice(_WORDS)}_{random.choice(_WORDS)}_{random.randrange(10_000)}" for _ in range(12)]
    return [
        f"    {random.choice(names)} = {random.choice(names)}({random.randrange(99)})  # {_prose(random)}"
        for _ in range(random.choice((10, 30, 60, 200)))
    ]


def pipeline_for(window_tokens: int) -> Pipeline:
    """The steps for a model about which nothing else is known."""
    budget = budget_for(ModelProfile("made-up", window_tokens), None, exact=False, rules=BudgetRules())
    tools, terms = AgentTools(AgentFileAccess.PAGE), Terms(ArtifactAccess("/kept"))
    return Pipelines(Settings()).pipeline(ModelProfile("made-up"), budget, ByteClassCounter(), tools, terms)


def measure(window_tokens: int, seed: int) -> dict[str, float]:
    """The figures over all conversations, in per cent; what a step needs counts only in requests over the room."""
    pipeline = pipeline_for(window_tokens)
    requests = fitting = over = recalled = sent = same = 0
    tally = Tally()
    for number in range(CONVERSATIONS):
        progress: Progress | None = None
        history, seen, before = History(), 0, b""
        for turn in turns(seed * 1_000 + number):
            planned, progress = plan(Conversation(turn.messages), Size(), pipeline, progress)
            requests, fitting = requests + 1, fitting + planned.fits
            body = b",".join(planned.messages)
            sent, same = sent + len(body), same + _shared(before, body)
            before = body
            history.add(turn.chat[seen:])
            seen = len(turn.chat)
            if not pipeline.budget.admits(planned.before):
                over += 1
                needs = history.needs(turn.step)
                tally.add(needs, *history.standing(json.loads(message) for message in planned.messages))
                recalled += sum(name.encode() in body for name in needs.names)
    percent = {"fitting": fitting / requests, "recall": recalled / max(1, tally.names), "prefix": same / sent}
    figures = {name: round(100 * share, 1) for name, share in percent.items()}
    return {"requests": requests, "over": over} | figures | tally.shares()


def _shared(one: bytes, other: bytes) -> int:
    """The length of their common prefix in bytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _message(chat: Chat) -> Message:
    return ChatMessage.read(json.dumps(chat).encode())


def _prose(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=6))


def main() -> None:
    """Print the figures for one window, or for two usual ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, action="append", help="tokens; may be repeated (default 32000 and 8000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for window in options.window or (32_000, 8_000):
        print(window, measure(window, options.seed))


if __name__ == "__main__":
    main()
