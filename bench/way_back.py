"""What it takes to retrieve what was left out: `python -m bench.way_back [--window 8000] [--data FILE ...]`.

For each block that the true next step replaces and that is not whole in what is sent, an agent does what the notices
say: it searches the stored messages or results for a name of a missing line, follows `earlier` to those of a previous
cut, and reads around the match. Its calls, and the tokens of their output, are counted until all of the block was
shown. Conversations are made up (`bench/recall.py`), or recorded: one JSON object with `messages` a line, optionally
gzipped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.fidelity import Chat, History, lines_of
from bench.recall import CONVERSATIONS, Turn, pipeline_for, turns
from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading.grep import hits_of
from proxy.core.artifact_reading.patterns import Search
from proxy.core.artifact_reading.pointer import part_at
from proxy.core.compaction.plan import Pipeline, Progress, plan
from proxy.core.conversation.message import Conversation
from proxy.core.conversation.size import Size
from proxy.core.text.identifiers import names_in
from proxy.core.text.lines import LineIndex, LineRange
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage

MAX_CALLS = 12
"""For one block; an agent that has asked this often gives up."""
_AROUND = 20
"""Lines on each side of a match that it asks for."""
_HITS = 20
_NAMED = re.compile(ARTIFACT_NAME)
_COUNTER = ByteClassCounter()


@dataclass
class Fetch:
    """One block being retrieved."""

    missing: set[str]
    calls: int = 0
    tokens: int = 0

    @property
    def done(self) -> bool:
        """Whether all of it was shown, or too much was asked."""
        return not self.missing or self.calls >= MAX_CALLS

    def show(self, text: str) -> None:
        """One more result is in the context."""
        self.calls += 1
        self.tokens += _COUNTER.count(text)
        self.missing -= set(lines_of({"role": "tool", "content": text}))


@dataclass
class Journeys:
    """Everything retrieved at one window."""

    blocks: int = 0
    lost: int = 0
    found: list[Fetch] = field(default_factory=list)

    def shares(self) -> dict[str, float]:
        """How many blocks were needed, lost, and found again, with calls and tokens for the latter: the median, and the
        limit that nine in ten stay within."""
        calls, tokens = sorted(one.calls for one in self.found), sorted(one.tokens for one in self.found)
        figures: dict[str, float] = {"blocks": self.blocks, "lost": self.lost, "found": len(self.found)}
        for name, values in (("calls", calls), ("tokens", tokens)):
            figures[f"{name}_p50"] = statistics.median(values) if values else 0
            figures[f"{name}_p90"] = values[int(0.9 * (len(values) - 1))] if values else 0
        return figures


def fetched(block: frozenset[str], standing: frozenset[str], sent: Iterable[str], store: Mapping[str, bytes]) -> Fetch:
    """A block that is not whole in what is sent, retrieved through the artifacts that the notices name."""
    fetch = Fetch(set(block - standing))
    # The last notice names the newest artifact; a note names the messages of the last cut, and these name the ones
    # before.
    named = list(dict.fromkeys(name for text in reversed(list(sent)) for name in _NAMED.findall(text) if name in store))
    while named and not fetch.done:
        name = named.pop(0)
        content = store[name]
        if not name.endswith(".json"):
            fetch.show(_searched(content, fetch.missing))
        elif earlier := _search_messages(content, fetch):
            named.insert(0, earlier)
    return fetch


def _search_messages(content: bytes, fetch: Fetch) -> str | None:
    """Search stored messages, and read around the newest matches; the artifact of the cut before, if more is
    missing."""
    kept = json.loads(content)
    if not isinstance(kept, dict) or "messages" not in kept:
        fetch.show(_searched(content, fetch.missing))
        return None
    listed = _searched(content, fetch.missing, context=0)
    fetch.show(listed)
    for line in reversed(re.findall(r"^(\d+):", listed, re.MULTILINE)):
        number = int(line) - 2  # the first message is in the second line
        for pointer in _texts(kept["messages"][number]) if 0 <= number < len(kept["messages"]) else ():
            if not fetch.done:
                fetch.show(_searched(part_at(content, f"/messages/{number}/{pointer}"), fetch.missing))
    return kept.get("earlier") if not fetch.done else None


def _texts(message: Chat) -> Iterator[str]:
    """The texts of a stored message."""
    if isinstance(message.get("content"), str) and message["content"]:
        yield "content"
    for position, _ in enumerate(message.get("tool_calls") or []):
        yield f"tool_calls/{position}/function/arguments"


def _searched(content: bytes, missing: Iterable[str], context: int = _AROUND) -> str:
    """The output of a search for the longest missing name."""
    names = sorted((name for line in sorted(missing) for name in names_in(line)), key=len)
    pattern = re.escape(names[-1] if names else min(missing)[:40])
    index = LineIndex.of_text(content)
    if not index.total_lines:
        return ""
    reading = hits_of(index, LineRange(1), Search(pattern, context, _HITS))
    try:
        begin, end = next(reading)
        while True:
            begin, end = reading.send(content[begin:end])
    except StopIteration as stopped:
        printed: bytes = stopped.value.text
        return re.sub(r"^\d+[-:]", "", printed.decode(), flags=re.MULTILINE) if context else printed.decode()


def measure(conversations: Iterable[Iterable[Turn]], pipeline: Pipeline) -> Journeys:
    """Retrieve what is lost in each request over the room."""
    journeys = Journeys()
    for conversation in conversations:
        progress: Progress | None = None
        history, seen, store = History(), 0, dict[str, bytes]()
        for turn in conversation:
            planned, progress = plan(Conversation(turn.messages), Size(), pipeline, progress)
            store |= {artifact.id: artifact.content for artifact in planned.artifacts}
            history.add(turn.chat[seen:])
            seen = len(turn.chat)
            if pipeline.budget.admits(planned.before):
                continue
            sent = [json.loads(message) for message in planned.messages]
            _, standing = history.standing(sent)
            for block in history.needs(turn.step).blocks:
                journeys.blocks += 1
                if not block <= standing:
                    journeys.lost += 1
                    fetch = fetched(block, standing, map(_shown, sent), store)
                    if not fetch.missing:
                        journeys.found.append(fetch)
    return journeys


def _shown(message: Chat) -> str:
    return json.dumps(message, ensure_ascii=False)


def recorded(path: Path, max_turns: int) -> Iterator[Iterable[Turn]]:
    """The last turns of each conversation of a file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield _turns_of(json.loads(line)["messages"], max_turns)


def _turns_of(chat: Sequence[Chat], max_turns: int) -> Iterator[Turn]:
    messages = tuple(ChatMessage.read(json.dumps(message, ensure_ascii=False).encode()) for message in chat)
    steps = [
        number
        for number, message in enumerate(chat)
        if number and message["role"] == "assistant" and chat[number - 1]["role"] in ("user", "tool")
    ]
    for number in steps[-max_turns:]:
        yield Turn(messages[:number], chat[:number], chat[number])


def main() -> None:
    """Print the figures for one window, or for two usual ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, action="append", help="tokens; may be repeated (default 32000 and 8000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, nargs="+", help="recorded conversations instead of made-up ones")
    parser.add_argument("--turns", type=int, default=40, help="of a recorded conversation, its last ones at most")
    options = parser.parse_args()
    for window in options.window or (32_000, 8_000):
        conversations: Iterable[Iterable[Turn]] = (turns(options.seed * 1_000 + n) for n in range(CONVERSATIONS))
        if options.data:
            conversations = (found for path in options.data for found in recorded(path, options.turns))
        print(window, measure(conversations, pipeline_for(window)).shares())


if __name__ == "__main__":
    main()
