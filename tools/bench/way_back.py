"""Cost of retrieving omitted content: `python -m tools.bench.way_back [--window 8000] [--data FILE ...]`.

For each block that the true next step replaces and that is not whole in what is sent, an agent does what the notices
say: it searches everything that was left out for a name of the block, and reads around the matches on the page, in the
arguments of calls too. It can only search for a name that it sees: one in the text sent. Its calls, and the tokens of
calls and pages with their headers, are counted until all of the block was shown. Conversations are made up
(`recall.py`), or recorded: one JSON object with `messages` a line, optionally gzipped, and a `source` of which the part
before the first colon is the project.
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
from proxy.core.artifact_reading import (
    LostMessages,
    Match,
    Query,
    Search,
    Searched,
    hits_of,
    matches_in,
    page_of_matches,
    part_at,
    read,
)
from proxy.core.compaction import Pipeline, Progress, plan
from proxy.core.conversation import Conversation, Size
from proxy.core.text import BytesOf, LineIndex, LineRange, jsontext, names_in
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage
from tools.bench.fidelity import Chat, History, lines_of
from tools.bench.recall import CONVERSATIONS, Turn, pipeline_for, turns

MAX_CALLS = 12
"""Limit for one block; an agent that has searched this often gives up."""
_AROUND = 20
"""Lines on each side of a match that it asks for."""
_HITS = 20
_SEARCHES = 3
"""Names that it searches for, the longest first."""
_PAGE_BYTES = 5_400
"""A page in a window of 8 000 tokens."""
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
    asked: set[tuple[str, Query]] = field(default_factory=set)
    """Calls made, each with its artifact: no agent makes one again whose page it has."""

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
    """A block that is not whole in what is sent, retrieved with searches through all that the conversation has lost."""
    seen = set().union(*map(names_in, sent)) if sent else set[str]()
    fetch = Fetch(set(block - standing), frozenset(name for line in block for name in names_in(line) if name in seen))
    # The last notice names the newest artifact; a note names the messages of the last cut, and these list all that left
    # before.
    named = dict.fromkeys(name for text in reversed(sent) for name in _NAMED.findall(text) if name in store)
    chain: dict[str, None] = {}
    for name in named:
        lost = LostMessages.read(store[name])
        chain |= dict.fromkeys([name, *(earlier for earlier in (lost.earlier if lost else ()) if earlier in store)])
    for name in sorted(fetch.known, key=lambda one: (-len(one), one))[:_SEARCHES] if chain else ():
        if not fetch.done:
            for match in _search(fetch, name, [*chain], store):
                if not fetch.done:
                    _read_around(fetch, name, match, store[match.artifact])
    return fetch


def _search(fetch: Fetch, name: str, chain: Sequence[str], store: Mapping[str, bytes]) -> list[Match]:
    """Search all of these artifacts for a name, in one call; the matches on its page, those that show most of the names
    first."""
    matches: list[Match] = []
    search = Search(re.escape(name), 0)
    for artifact in chain:
        content, lost = store[artifact], LostMessages.read(store[artifact])
        lines = LineRange(2 if lost else 1)
        hits = hits_of(LineIndex.of_text(content), lines, search, _bytes_in(content), _PAGE_BYTES)
        matches += matches_in(artifact, hits.text.decode(), "a tool", lost)
    _, page = page_of_matches(Searched(matches, chain[0], len(chain)), search, "en", _PAGE_BYTES)
    fetch.show(Query(search=search), page)
    shown = [match for match in matches if match.header(0, "en") in page]
    return sorted(shown, key=lambda match: -sum(known in match.text for known in fetch.known))


def _read_around(fetch: Fetch, name: str, match: Match, content: bytes) -> None:
    """Read on around a match: in each text of a message, or in the result."""
    if LostMessages.read(content) is None:
        line = int(re.split(r"[:-]", match.lines)[0])
        _show(fetch, match.artifact, content, Query(LineRange(max(1, line - _AROUND), line + _AROUND)))
        return
    number = int(match.lines.partition("-")[2]) - 2  # the first message is in the second line
    for pointer, text in _texts(json.loads(content)["messages"][number]):
        if not fetch.done and name in text:  # the match shows in which text it is
            found = Query(None, Search(re.escape(name), _AROUND, _HITS), f"/messages/{number}/{pointer}")
            _show(fetch, match.artifact, content, found)


def _texts(message: Chat) -> Iterator[tuple[str, str]]:
    """The texts of a stored message, each with its pointer: its content, and each text among the arguments of its
    calls."""
    if isinstance(message.get("content"), str) and message["content"]:
        yield "content", message["content"]
    for position, call in enumerate(message.get("tool_calls") or []):
        arguments = f"tool_calls/{position}/function/arguments"
        opened = jsontext.opened((call["function"].get("arguments") or "").encode())
        given = opened.items() if isinstance(opened, dict) else ()
        texts = [(name, value) for name, value in given if isinstance(value, str)]
        yield from ((f"{arguments}/{name.replace('~', '~0').replace('/', '~1')}", value) for name, value in texts)
        if not texts:
            yield arguments, call["function"].get("arguments") or ""


def _show(fetch: Fetch, artifact: str, content: bytes, query: Query) -> None:
    """A page, shown without line numbers; nothing if it was shown before."""
    if (artifact, query) in fetch.asked:
        return
    fetch.asked.add((artifact, query))
    text = content if query.pointer is None else part_at(content, query.pointer)
    page = read(LineIndex.of_text(text), query, _bytes_in(text), artifact, "en") if text else b""
    shown = page.decode()
    fetch.show(query, shown if query.search is None else re.sub(r"^\d+[-:]", "", shown, flags=re.MULTILINE))


def _bytes_in(text: bytes) -> BytesOf:
    return lambda span: text[span[0] : span[1]]


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
