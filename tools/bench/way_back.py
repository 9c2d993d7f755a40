"""Cost of retrieving omitted content: `python -m tools.bench.way_back [--window 8000] [--data FILE ...]`.

For each block that the true next step replaces and that is not whole in what is sent, an agent does what the notices
say: it searches the stored messages or results for a name of the block, follows `earlier` to those of a previous cut,
and reads around the match, in the arguments of calls too. It can only search for a name that it sees: one in
the text sent. Its calls, and the tokens of calls and pages with their headers, are counted until all of the block was
shown. Conversations are made up (`recall.py`), or recorded: one JSON object with `messages` a line, optionally
gzipped, and a `source` of which the part before the first colon is the project.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading import LostMessages, Query, Search, part_at, read
from proxy.core.compaction import Pipeline, Progress, plan
from proxy.core.conversation import Conversation, Size
from proxy.core.text import LineIndex, jsontext, names_in
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage
from tools.bench.fidelity import Chat, History, lines_of
from tools.bench.recall import CONVERSATIONS, Turn, pipeline_for, turns

MAX_CALLS = 12
"""Limit for one block; an agent that has searched this often gives up."""
_AROUND = 20
"""Lines on each side of a match that it asks for."""
_HITS = 20
_NAMED = re.compile(ARTIFACT_NAME)
_COUNTER = ByteClassCounter()


@dataclass
class Fetch:
    """One block being retrieved."""

    missing: set[str]
    known: frozenset[str] = frozenset()
    """Names of the block that are in what is sent: what the agent can search for."""
    calls: int = 0
    tokens: int = 0

    @property
    def done(self) -> bool:
        """Whether all of it was shown, or too many calls were made."""
        return not self.missing or self.calls >= MAX_CALLS

    def show(self, query: Query, text: str) -> None:
        """One more call and its result are in the context."""
        self.calls += 1
        self.tokens += _COUNTER.count(f"{query.search and query.search.pattern} {query.pointer}") + _COUNTER.count(text)
        self.missing -= set(lines_of({"role": "tool", "content": text}))


@dataclass
class Journeys:
    """Everything retrieved at one window."""

    blocks: int = 0
    lost: int = 0
    found: list[Fetch] = field(default_factory=list)

    def add(self, other: Journeys) -> None:
        """Those of another project."""
        self.blocks, self.lost = self.blocks + other.blocks, self.lost + other.lost
        self.found += other.found

    def shares(self) -> dict[str, float]:
        """How many blocks were needed, lost, and found again, with calls and tokens for the latter: the median, and the
        limit that nine in ten stay within."""
        calls, tokens = sorted(one.calls for one in self.found), sorted(one.tokens for one in self.found)
        figures: dict[str, float] = {"blocks": self.blocks, "lost": self.lost, "found": len(self.found)}
        for name, values in (("calls", calls), ("tokens", tokens)):
            figures[f"{name}_p50"] = statistics.median(values) if values else 0
            figures[f"{name}_p90"] = values[int(0.9 * (len(values) - 1))] if values else 0
        return figures


def fetched(block: frozenset[str], standing: frozenset[str], sent: Sequence[str], store: Mapping[str, bytes]) -> Fetch:
    """A block that is not whole in what is sent, retrieved through the artifacts that the notices name."""
    seen = set().union(*map(names_in, sent)) if sent else set[str]()
    fetch = Fetch(set(block - standing), frozenset(name for line in block for name in names_in(line) if name in seen))
    # The last notice names the newest artifact; a note names the messages of the last cut, and these list all that left
    # before.
    named = list(dict.fromkeys(name for text in reversed(sent) for name in _NAMED.findall(text) if name in store))
    searched = set[str]()
    while named and fetch.known and not fetch.done:
        name = named.pop(0)
        searched.add(name)
        content = store[name]
        if not name.endswith(".json"):
            _searched(fetch, name, content)
        else:
            earlier = _search_messages(fetch, name, content)
            named[:0] = [one for one in earlier if one in store and one not in searched and one not in named]
    return fetch


def _search_messages(fetch: Fetch, artifact: str, content: bytes) -> tuple[str, ...]:
    """Search stored messages, and read around the newest matches; the artifacts of all cuts before."""
    lost = LostMessages.read(content)
    if lost is None:
        _searched(fetch, artifact, content)
        return ()
    messages = json.loads(content)["messages"]
    listed = _searched(fetch, artifact, content, context=0)
    for line in reversed(re.findall(r"^(\d+):", listed, re.MULTILINE)):
        number = int(line) - 2  # the first message is in the second line
        for pointer in _texts(messages[number]) if 0 <= number < len(messages) else ():
            if not fetch.done:
                _searched(fetch, artifact, content, f"/messages/{number}/{pointer}")
    return lost.earlier


def _texts(message: Chat) -> Iterator[str]:
    """The texts of a stored message: its content, and each text among the arguments of its calls."""
    if isinstance(message.get("content"), str) and message["content"]:
        yield "content"
    for position, call in enumerate(message.get("tool_calls") or []):
        arguments = f"tool_calls/{position}/function/arguments"
        opened = jsontext.opened((call["function"].get("arguments") or "").encode())
        texts = [name for name, value in opened.items() if isinstance(value, str)] if isinstance(opened, dict) else []
        yield from (f"{arguments}/{name.replace('~', '~0').replace('/', '~1')}" for name in texts)
        if not texts:
            yield arguments


def _searched(fetch: Fetch, artifact: str, content: bytes, pointer: str | None = None, context: int = _AROUND) -> str:
    """The page of a search for the longest name of the block that the agent sees, shown without line numbers if it has
    context."""
    query = Query(None, Search(re.escape(max(sorted(fetch.known), key=len)), context, _HITS), pointer)
    text = content if pointer is None else part_at(content, pointer)
    reading = read(LineIndex.of_text(text), query, artifact, "en") if text else None
    try:
        begin, end = next(reading) if reading is not None else (0, 0)
        while reading is not None:
            begin, end = reading.send(text[begin:end])
        page = ""
    except StopIteration as stopped:
        page = stopped.value.decode()
    fetch.show(query, re.sub(r"^\d+[-:]", "", page, flags=re.MULTILINE) if context else page)
    return page


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
                    fetch = fetched(block, standing, [*map(_shown, sent)], store)
                    if not fetch.missing:
                        journeys.found.append(fetch)
    return journeys


def _shown(message: Chat) -> str:
    return json.dumps(message, ensure_ascii=False)


def recorded(path: Path, max_turns: int) -> Iterator[tuple[str, Iterable[Turn]]]:
    """The last turns of each conversation of a file, each with its project."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            found = json.loads(line)
            yield str(found.get("source") or path.stem).partition(":")[0], _turns_of(found["messages"], max_turns)


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
        made_up = (("made up", turns(options.seed * 1_000 + n)) for n in range(CONVERSATIONS))
        conversations: Iterable[tuple[str, Iterable[Turn]]] = made_up
        if options.data:
            conversations = (found for path in options.data for found in recorded(path, options.turns))
        projects: defaultdict[str, Journeys] = defaultdict(Journeys)
        count = 0
        for count, (project, conversation) in enumerate(conversations, 1):  # noqa: B007 - used after the loop
            projects[project].add(measure([conversation], pipeline_for(window)))
        every = Journeys()
        for journeys in projects.values():
            every.add(journeys)
        print(window, f"n={count}", every.shares())
        for project, journeys in sorted(projects.items()):
            print(window, project, journeys.shares())


if __name__ == "__main__":
    main()
