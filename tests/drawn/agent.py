"""An agent whose conversation grows as a case says, and what of its requests must arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from support import messages_journey
from support.spellings import SEAL, Items, ParsedReply, Spelling

from drawn.case import Case, Turn

OPENING: Final = "Use the following context to answer."
OWN_SEAL: Final = "EuYBb3du"
"""Signature of this model's thinking."""
CLEARED: Final = "[Old tool result content cleared]"


@dataclass
class Agent:
    """One conversation."""

    case: Case
    spelling: Spelling
    items: Items = field(default_factory=list)
    task: str = ""
    words: list[str] = field(default_factory=list)
    """Lines of the newest message of the user that must arrive: its first and its last."""
    newest: str = ""
    """How every line of the newest result begins; empty: the user has spoken since."""
    is_other: bool = False
    """Whether another key is used."""
    asks_again: bool = False
    _open: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))
    _starts: list[tuple[int, str, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rules = (f"Rule {line}: look at the log {line} times." for line in range(self.case.system_lines))
        self.system = "\n".join(["It is 0 o'clock.", *rules])
        self._begin("The task: find why the build fails.")

    @property
    def _chars(self) -> int:
        """Of a whole window."""
        return int(self.case.window * 4 / self.case.counts)

    def _begin(self, task: str) -> None:
        self.task, self.words, self.newest = task, [task], ""
        self.items = self.spelling.user(task)

    def grow(self, turn: Turn) -> None:
        """What happens before the next request. A message of the system that was not answered goes with its turn:
        nothing but an answer may follow one on `/v1/messages`."""
        self.items = self.items[: len(self.items) - (self.items[-1].get("role") == "system")]
        self._starts.append((len(self.items), self.newest, self.words))
        if self.case.tells_time:
            self.system = f"It is {next(self._numbers)} o'clock.\n" + self.system.partition("o'clock.\n")[2]
        self.asks_again = False
        if self._open and "aborted" not in turn.actions:
            self._answer(self._open, 30)
        self._open = []
        for action in sorted(turn.actions, key=lambda action: action == "system"):  # the API has it after all others
            ACTIONS[action](self)
        if "summary" in turn.actions and "system" not in turn.actions:
            self._say("Your task is to write a detailed summary of the conversation. Respond with TEXT ONLY.")
        elif not self._ends_well():
            self._say("Go on.")

    def _ends_well(self) -> bool:
        """Whether the model has something to answer."""
        last = self.items[-1]
        return last.get("role") in ("user", "tool", "system", "developer") or "output" in last

    def request(self, turn: Turn) -> bytes:
        tools = () if "summary" in turn.actions else self.case.tools
        items = messages_journey.marked(self.items) if self.case.marked and self.case.api == "messages" else self.items
        body = self.spelling.request(self.system, items, tools, self.case.reply_tokens)
        body |= {"model": "m"} | ({"stream": True} if turn.streamed else {})
        if self.case.states_window and self.case.api == "ollama":
            body["options"] |= {"num_ctx": self.case.window}
        body |= self.spelling.formatted() if self.case.formatted else {}
        body |= self.spelling.thinking(self.case.reply_tokens) if self.case.thinks else {}
        return json.dumps(body).encode()

    def replied(self, turn: Turn, reply: ParsedReply) -> None:
        """The reply, which the client keeps."""
        if "summary" in turn.actions:
            self._begin(f"The task: find why the build fails. So far: {reply.text}")
            return
        self.items = [*self.items, *reply.items]
        self._open = list(reply.calls)

    def _say(self, text: str, media: tuple[str, ...] = ()) -> None:
        number = next(self._numbers)
        first, last = f"Words {number} begin.", f"Words {number} end."
        self.words, self.newest = [first, last], ""
        self.items = [*self.items, *self.spelling.user(f"{first}\n{text}\n{last}", media)]

    def _lines(self, what: str, chars: int) -> str:
        """Lines of which none is like another."""
        number, found, size = next(self._numbers), [], 0
        while size < chars:
            found.append(f"{what} {number} line {len(found)}: step {len(found) * number} of the build has run")
            size += len(found[-1])
        return "\n".join(found)

    def _answer(self, calls: list[str], lines: int, media: tuple[str, ...] = (), words: str = "") -> None:
        texts = [self._lines("result", lines * 60) for _ in calls]
        self.newest = texts[-1].partition(" line ")[0] + " line"
        if words and self.spelling.name != "messages":  # there it is beside the results
            self.words, self.newest = [words], ""
        self.items = [*self.items, *self.spelling.results(list(zip(calls, texts, strict=True)), media, words)]

    def _call(self, calls: int = 1, *, text: str = "", seal: str = "", argument: str = "make") -> list[str]:
        names = [f"call_{next(self._numbers)}" for _ in range(calls)]
        given = [(name, {"command": f"{argument} {name}"}) for name in names]
        seal = seal or (OWN_SEAL if self.case.thinks else "")
        self.items = [*self.items, *self.spelling.called(given, text, seal)]
        return names

    def _exchange(self, lines: int = 40, times: int = 1) -> None:
        for _ in range(times):
            self._answer(self._call(), lines)

    def _one_line(self) -> None:
        names = self._call()
        number = next(self._numbers)
        self.newest = f"result {number} line"
        text = json.dumps([{"of": f"{self.newest} {step}", "took": step * number} for step in range(600)])
        self.items = [*self.items, *self.spelling.results([(names[0], text)])]

    def _twice(self) -> None:
        """Read the same file again."""
        number = next(self._numbers)
        self.newest = f"result {number} line"
        text = "\n".join(f"{self.newest} {line}: the same" for line in range(80))
        for _ in range(2):
            names = self._call()
            self.items = [*self.items, *self.spelling.results([(names[0], text)])]

    def _abort(self) -> None:
        self._call()
        self._say("No, stop that.")

    def _branch(self) -> None:
        """The user takes back the turn before this one."""
        if len(self._starts) > 1:
            start, self.newest, self.words = self._starts[-2]
            self.items = self.items[:start] or self.items[:1]
        self._say("Once more, from here.")

    def _edit(self) -> None:
        """The client clears its oldest result that is left."""
        for index, item in enumerate(self.items):
            written = json.dumps(item)
            if "result " in written and CLEARED not in written and not (self.newest and self.newest in written):
                self.items = [*self.items[:index], _cleared(item), *self.items[index + 1 :]]
                return

    def _other_key(self) -> None:
        self.is_other = not self.is_other

    def _again(self) -> None:
        self.asks_again = True

    def _remind(self) -> None:
        reminder = f"<system-reminder>Mind plan {next(self._numbers)}.</system-reminder>"
        self._answer(self._call(), 20, words=reminder)

    def _search(self) -> None:
        """A call of a server tool. Thinking before it belongs to a call that may follow."""
        thought = self.spelling.called([], seal=OWN_SEAL) if self.case.thinks and self.case.api == "messages" else []
        self.items = [*self.items, *thought, *self.spelling.searched(next(self._numbers))]

    def _mid_system(self) -> None:
        if not self._ends_well():
            self._say("Go on.")
        self.items = [*self.items, *self.spelling.system(f"Mode {next(self._numbers)} is on.")]


def _cleared(value: Any) -> Any:
    match value:
        case str():
            return CLEARED if value.startswith("result ") else value
        case list():
            return [_cleared(inner) for inner in value]
        case dict():
            return {name: _cleared(inner) for name, inner in value.items()}
    return value


ACTIONS: Final[Mapping[str, Callable[[Agent], None]]] = {
    "words": lambda agent: agent._say("And now?"),
    "long words": lambda agent: agent._say(agent._lines("pasted", agent._chars // 4)),
    "same opening": lambda agent: agent._say(f"{OPENING}\n" + agent._lines("document", agent._chars * 3 // 5)),
    "image": lambda agent: agent._say("Look at it.", ("image",)),
    "file": lambda agent: agent._say("Read it.", ("file",)),
    "emoji": lambda agent: agent._say("Well 🙂 done, 做得好。"),
    "exchange": Agent._exchange,
    "exchanges": lambda agent: agent._exchange(agent._chars // 600, 6),
    "parallel": lambda agent: agent._answer(agent._call(3), 30),
    "long result": lambda agent: agent._exchange(agent._chars // 40),
    "one line": Agent._one_line,
    "image result": lambda agent: agent._answer(agent._call(), 10, ("image",)),
    "long arguments": lambda agent: agent._answer(agent._call(argument=agent._lines("patch", agent._chars // 8)), 20),
    "twice": Agent._twice,
    "aborted": Agent._abort,
    "foreign thinking": lambda agent: agent._answer(agent._call(seal=SEAL), 20),
    "speech": lambda agent: agent._answer(agent._call(text=agent._lines("speech", agent._chars // 10)), 20),
    "search": Agent._search,
    "system": Agent._mid_system,
    "reminder": Agent._remind,
    "retry": Agent._again,
    "branch": Agent._branch,
    "edit": Agent._edit,
    "other key": Agent._other_key,
    "summary": lambda _: None,
}
