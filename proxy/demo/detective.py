"""The model of the demo: it solves the incident with only the messages that it is sent.

Rule: it knows neither the incident nor the proxy. It restates its notes in each turn and follows the newest it can see;
it looks up a fact that it needs and does not see, first where a hint in the result points, then with its own tools, and
if both fail it says that it lost the trail. So a request that was cut too hard shows as a longer way, or a wrong end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.demo.chat import Call, ChatMessage, Reply, last_user_text, newest_note, newest_results, text_of

NOTES: Final = "Notes: "
_TASK: Final = re.compile(r"trace=(\w+) failed .*?from logs/(\w+)\.log", re.DOTALL)
_HINT: Final = re.compile(r"(?<![\w:/.])/[\w.~%@+-]+(?:/[\w.~%@+=-]+)+\w")
"""An absolute path: no tool here prints one of its own, so whatever shortened the result put it there."""
_DEPLOY: Final = re.compile(r"([\d:.]+) deploy=(\S+) service=(\S+) ")


@dataclass(frozen=True, slots=True)
class Notes:
    """Its knowledge, as written at the end of each of its messages."""

    asking: str = "start"
    """The current question: start, hop, source, tests, deploy."""
    looked: str = "whole"
    """How it looked last: at the whole, where a hint pointed (hint), or with its own grep (narrow)."""
    service: str = ""
    hops: str = "0"
    failed_at: str = ""
    where: str = ""
    """Line and file that gave up, as `212@src/ledger/limits.py`."""
    setting: str = ""
    value: str = ""

    def line(self) -> str:
        """The notes as written."""
        return NOTES + "; ".join(f"{name}={getattr(self, name)}" for name in self.__slots__ if getattr(self, name))

    @classmethod
    def read(cls, written: str) -> Notes:
        """What `line` wrote; unknown entries are skipped."""
        entries = (entry.partition("=") for entry in written.split("; "))
        return cls(**{name: value for name, _, value in entries if name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to find out: where to look, and the pattern of the line that contains it."""

    look: Call
    wanted: re.Pattern[str]
    learn: Callable[[Notes, re.Match[str]], Notes]
    """The notes with what the line says, and the next question."""
    narrow: Call | None = field(default=None)
    """The same with its own grep, if there is a file to search."""
    pattern: str = ""
    """What to search for where a hint points."""


def detective(messages: Sequence[ChatMessage]) -> Reply:
    """The next turn of the investigation."""
    task = _TASK.search(last_user_text(messages))
    if task is None:
        return Reply("I see no task: which trace failed, and where does it start?")
    trace, entry = task.groups()
    written = newest_note(messages, NOTES)
    if not written:
        reading = Call("read_file", {"path": "logs/deploys.log"})
        return _turn(
            "I start with what there is and what was deployed today.", Notes(), Call("list_files", {}), reading
        )
    notes = Notes.read(written)
    if notes.asking == "start":
        return _ask(Notes("hop", service=entry), trace)
    if notes.asking == "deploy":
        return _name_the_deploy(notes, messages)
    question = _question(notes, trace)
    seen = newest_results(messages)
    found = question.wanted.search(seen)
    if found is None:
        return _look_closer(notes, question, seen)
    learned = question.learn(notes, found)
    return _name_the_deploy(learned, messages) if learned.asking == "deploy" else _ask(learned, trace)


def _question(notes: Notes, trace: str) -> Question:
    if notes.asking == "hop":
        log = f"logs/{notes.service}.log"
        return Question(
            Call("read_file", {"path": log}),
            # Of this service only: facts about others may be those that it has already followed.
            re.compile(
                rf"([\d:.]+) \S+ +\[{re.escape(notes.service)}-\S+\] trace={trace} "
                r"(?:handed on to=(\w+)|gave up .* in (\S+) line (\d+))"
            ),
            _next_hop,
            Call("grep", {"pattern": f"trace={trace}", "path": log}),
            f"trace={trace}",
        )
    line, _, path = notes.where.partition("@")
    if notes.asking == "source":
        return Question(
            Call("read_file", {"path": path}),
            re.compile(rf'^ *{line} .*settings\["([\w.]+)"\]', re.MULTILINE),
            lambda known, found: replace(known, asking="tests", looked="whole", setting=found[1]),
            Call("grep", {"pattern": f"{line} ", "path": path}),
            f"{line} ",
        )
    return Question(
        Call("run_tests", {"service": notes.service}),
        re.compile(rf"{re.escape(notes.setting)} is (-?\d+)"),
        lambda known, found: replace(known, asking="deploy", looked="whole", value=found[1]),
        pattern=f"{notes.setting} is",
    )


def _next_hop(notes: Notes, found: re.Match[str]) -> Notes:
    when, handed_to, path, line = found.groups()
    hops = str(int(notes.hops) + 1)
    if handed_to:
        return replace(notes, service=handed_to, hops=hops, looked="whole")
    return replace(notes, asking="source", hops=hops, looked="whole", failed_at=when, where=f"{line}@{path}")


def _ask(notes: Notes, trace: str) -> Reply:
    look = _question(notes, trace).look
    return _turn(f"Next: {look.name} {' '.join(map(str, look.arguments.values()))}.", notes, look)


def _look_closer(notes: Notes, question: Question, seen: str) -> Reply:
    hint = _HINT.search(seen)
    if hint and notes.looked == "whole":
        search = Call("grep", {"pattern": question.pattern, "path": hint[0]})
        return _turn("What I need is not in the part I see; the whole was kept.", replace(notes, looked="hint"), search)
    if question.narrow and notes.looked != "narrow":
        return _turn("What I need is not there; I search for it.", replace(notes, looked="narrow"), question.narrow)
    return Reply(f"I lost the trail at {notes.service}: the {notes.asking} result does not hold what I need.")


def _name_the_deploy(notes: Notes, messages: Sequence[ChatMessage]) -> Reply:
    """The list was read in the first turn; by now it may be shortened or gone."""
    listed = next(_complete_deploys(messages, notes.service), None)
    if listed is not None:
        before = [name for when, name in listed if when < notes.failed_at]
        if not before:
            return Reply(f"I found no deploy of {notes.service} before {notes.failed_at}.")
        return Reply(
            f"After {notes.hops} services: service={notes.service} setting={notes.setting} value={notes.value} "
            f"deploy={before[-1]}"
        )
    if notes.asking == "deploy" and notes.looked == "narrow":
        return Reply(f"I lost the trail at {notes.service}: the list of deploys cannot be seen.")
    search = Call("grep", {"pattern": f"service={notes.service} ", "path": "logs/deploys.log"})
    return _turn("I no longer see the whole list of deploys; I search it.", replace(notes, looked="narrow"), search)


def _complete_deploys(messages: Sequence[ChatMessage], service: str) -> Iterator[list[tuple[str, str]]]:
    """The service's deploys, (time, name), from every result that has all the lines its head promises."""
    for message in messages:
        head, _, rest = text_of(message).partition("\n")
        promised = re.fullmatch(r"# .*logs/deploys\.log: (\d+) lines", head)
        rows = _DEPLOY.findall(rest)
        if message.get("role") == "tool" and promised and len(rows) == int(promised[1]):
            yield [(when, name) for when, name, of in rows if of == service]


def _turn(said: str, notes: Notes, *calls: Call) -> Reply:
    return Reply(f"{said}\n{notes.line()}", calls)
