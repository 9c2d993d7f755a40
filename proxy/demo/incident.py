"""A made-up incident: a shop whose checkout fails behind its gateway.

Rule: everything follows from the seed and the number of services, so two runs read the same bytes. Each fact that the
answer needs is in one line among many similar ones. No line has an absolute path or an address, so one in a tool result
comes from whatever shortened it. The model knows neither the incident nor the proxy: it repeats its notes in each turn,
follows the newest it can see, looks up a fact that is missing (first where a hint in the result points, then with its
own tools), and gives up if both fail. A request that was cut too hard shows as a longer way or a wrong end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

ChatMessage = Mapping[str, Any]
"""One message of a chat request, as decoded from JSON."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's message in one turn; without calls the turn is its last."""

    text: str
    calls: tuple[Call, ...] = ()


Policy = Callable[[Sequence[ChatMessage]], Reply]
"""The model's mind: the messages that reached it → its reply. Pure, so the same messages get the same reply."""


def text_of(message: ChatMessage) -> str:
    """The text of a message: its string content, or the text parts of a list.

    >>> text_of({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]})
    'a\\nb'
    """
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def last_user_text(messages: Sequence[ChatMessage]) -> str:
    """The last question, or nothing."""
    return next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")


def newest_results(messages: Sequence[ChatMessage]) -> str:
    """The tool results since the model last spoke, joined."""
    newest = itertools.takewhile(lambda message: message.get("role") != "assistant", reversed(messages))
    return "\n".join(reversed([text_of(message) for message in newest if message.get("role") == "tool"]))


def newest_note(messages: Sequence[ChatMessage], mark: str) -> str:
    """The rest of the newest line by the model that starts with `mark`, or nothing."""
    said = (text_of(message) for message in reversed(messages) if message.get("role") == "assistant")
    lines = (line for text in said for line in text.splitlines())
    return next((line[len(mark) :].strip() for line in lines if line.startswith(mark)), "")


_DONE: Final = (
    "handed on to=batch",
    "served from cache, age {n} s, key order:{n}",
    "wrote 3 rows to table events_{n} in {n} ms",
    "read settings revision {n}, nothing changed",
    "queue depth {n}, oldest entry 12 ms, 4 consumers",
    "validated order {n}: 3 items, currency EUR, total 118.40",
)
_WRONG: Final = (
    "WARN  [{who}-{w}] trace={t} slow answer, {n} ms over the goal, kept",
    "ERROR [{who}-{w}] trace={t} gave up after 3 attempts, customer {n} told to try later",
)
_AUTHORS: Final = ("mira", "jonas", "wei", "ana", "tariq", "lotte")
_CHANGES: Final = (
    "raise batch size",
    "update base image",
    "tune retries",
    "add a metric",
    "fix a typo",
    "rename a flag",
)


def moment(second_of_day: float) -> str:
    """A time of day with milliseconds.

    >>> moment(50531.25)
    '14:02:11.250'
    """
    whole = int(second_of_day)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{int(second_of_day % 1 * 1000):03}"


def decoy_line(random: Random, service: str) -> str:
    """A service's line about another request; one in fifteen is a complaint that leads nowhere."""
    worker, number, trace = random.randint(1, 8), random.randint(100, 9999), f"{random.getrandbits(32):08x}"
    if random.random() < 1 / 15:
        return random.choice(_WRONG).format(who=service, w=worker, t=trace, n=number)
    return f"INFO  [{service}-{worker}] trace={trace} " + random.choice(_DONE).format(n=number)


def deploy_line(random: Random, second_of_day: int, service: str, name: str) -> str:
    commit, author, change = f"{random.getrandbits(28):07x}", random.choice(_AUTHORS), random.choice(_CHANGES)
    return f'{moment(second_of_day)} deploy={name} service={service} commit={commit} author={author} "{change}"'


def source_line(random: Random, service: str) -> str:
    """One line of a module that reads many settings."""
    name = random.choice(("window", "burst", "ceiling", "backoff", "deadline", "quota"))
    number = random.randint(2, 900)
    return random.choice(
        (
            f'    {name} = settings["{service}.{name}.{number}"]  # reviewed',
            f"    if order.{name} > {number}: return refuse(order, {name}={number})",
            f"def {name}_{number}(order: Order, settings: Settings) -> Decision:",
            f"    total = sum(line.{name} for line in order.lines if line.weight < {number})",
        )
    )


ENTRY: Final = "gateway"
_NAMES: Final = (
    "cart", "pricing", "stock", "coupons", "shipping", "tax", "orders", "wallet", "payments", "ledger",
    "fraud", "invoices", "mailer", "loyalty", "returns", "search", "catalog", "media", "reviews", "profile",
    "sessions", "consent", "audit", "lookup", "quota", "rates", "fx", "limits", "slots", "routes",
    "depots", "carriers", "labels", "customs", "weights", "bundles", "gifts", "vouchers", "alerts", "events",
)  # fmt: skip
_BUSY_EVERY: Final = 7
"""Every seventh service logs three times as much as the next one, up to 40 KB: more than a small window holds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Solution of an investigation."""

    service: str
    setting: str
    value: str
    deploy: str

    def __str__(self) -> str:
        return f"service={self.service} setting={self.setting} value={self.value} deploy={self.deploy}"


@dataclass(frozen=True, slots=True)
class Incident:
    """The world that the agent's tools see."""

    trace: str
    files: Mapping[str, str]
    """Path → text, for logs and sources."""
    test_output: Mapping[str, str]
    """Service → the output of its test run."""
    answer: Answer

    @property
    def task(self) -> str:
        """The user's message."""
        return (
            f"The checkout with trace={self.trace} failed today. Find out why. Read logs/deploys.log for what changed, "
            f"then follow the trace from logs/{ENTRY}.log from service to service to the one where it failed; find "
            "the setting behind it in the source, its value by running that service's tests, and the deploy behind "
            "it: the service's last one before the failure. Answer with: service=… setting=… value=… deploy=…"
        )


def make_incident(services: int, seed: int = 1) -> Incident:
    """An incident whose trace runs through `services` services, the gateway among them (2 to 41)."""
    random = Random(seed)  # noqa: S311 - a made-up world, not a secret
    trace = f"{random.getrandbits(32):08x}"
    trail = (ENTRY, *random.sample(_NAMES, services - 1))
    failing, failed_line = trail[-1], random.randint(180, 220)
    setting = f"{failing}.retry.attempts"
    deploys, deploy = _deploys(random, trail, failing)
    files = {"logs/deploys.log": deploys}
    for index, service in enumerate(trail):
        after = trail[index + 1] if index + 1 < services else None
        details = (
            f"handed on to={after}"
            if after
            else f"gave up after 0 attempts in src/{service}/limits.py line {failed_line}"
        )
        busy = index % _BUSY_EVERY == _BUSY_EVERY - 1
        lines = random.randint(380, 420) if busy else random.randint(60, 170)
        files[f"logs/{service}.log"] = _log(
            random, service, f"trace={trace} {details}", lines, "INFO " if after else "ERROR"
        )
    files[f"src/{failing}/limits.py"] = _source(random, failing, failed_line, setting)
    value = str(random.randint(-3, 0))
    return Incident(
        trace, files, {failing: _tests(random, failing, setting, value)}, Answer(failing, setting, value, deploy)
    )


_FAILURE_SECOND: Final = 14 * 3600 + 2 * 60 + 11
"""14:02:11, when the trace enters; deploys before and after it tell cause from coincidence."""


def _log(random: Random, service: str, fact: str, lines: int, level: str) -> str:
    """Lines in time order; the fact is in the middle half, which head and tail do not reach."""
    at = random.randint(lines // 4, 3 * lines // 4)
    said = [f"{level} [{service}-2] {fact}" if row == at else decoy_line(random, service) for row in range(lines)]
    times = [moment(_FAILURE_SECOND + (row - at) / 7) for row in range(lines)]
    return "\n".join(map("{} {}".format, times, said)) + "\n"


def _deploys(random: Random, trail: tuple[str, ...], failing: str) -> tuple[str, str]:
    """The day's deploys and the name of the guilty one: the failing service's last before the failure."""
    others = [name for name in (*trail, *_NAMES) if name != failing]
    rows = [(random.randint(6 * 3600, 18 * 3600), random.choice(others)) for _ in range(70)]
    guilty_at = _FAILURE_SECOND - random.randint(300, 1500)
    rows += [(guilty_at - 9000, failing), (guilty_at, failing), (_FAILURE_SECOND + 2400, failing)]
    rows.sort()
    lines = [deploy_line(random, at, service, f"d-{5500 + index}") for index, (at, service) in enumerate(rows)]
    return "\n".join(lines) + "\n", f"d-{5500 + rows.index((guilty_at, failing))}"


def _source(random: Random, service: str, line: int, setting: str) -> str:
    rows = [source_line(random, service) for _ in range(260)]
    rows[line - 1] = f'    attempts = settings["{setting}"]  # how often a call is tried again'
    return "\n".join(f"{number:4} {row}" for number, row in enumerate(rows, 1)) + "\n"


def _tests(random: Random, service: str, setting: str, value: str) -> str:
    """The output of 260 tests; the words of the failing one are no louder than a log line's."""
    rows = [
        f"tests/{service}/test_limits.py::test_order_{case:03} "
        + (
            f"FAILED\n    {setting} is {value}, at least 1 is needed"
            if case == 131
            else f"PASSED in {random.randint(2, 90)} ms (settings revision {random.randint(10, 99)})"
        )
        for case in range(1, 261)
    ]
    return "\n".join((*rows, "==== 1 failed, 259 passed ====")) + "\n"


NOTES: Final = "Notes: "
_TASK: Final = re.compile(r"trace=(\w+) failed .*?from logs/(\w+)\.log", re.DOTALL)
_HINT: Final = re.compile(r"(?<![\w:/.])/[\w.~%@+-]+(?:/[\w.~%@+=-]+)+\w")
"""An absolute path: no tool here prints one of its own, so whatever shortened the result put it there."""
_DEPLOY: Final = re.compile(r"([\d:.]+) deploy=(\S+) service=(\S+) ")


Notes: TypeAlias = Mapping[str, str]
_NO_NOTES: Final[Notes] = {
    "asking": "start",  # the current question: start, hop, source, tests, deploy
    "looked": "whole",  # its last look: at the whole, where a hint pointed (hint), or with its own grep (narrow)
    "service": "",
    "hops": "0",
    "failed_at": "",
    "where": "",  # line and file that gave up: 212@src/ledger/limits.py
    "setting": "",
    "value": "",
}
"""Its knowledge, as written at the end of each of its messages."""


class Question(NamedTuple):
    """One thing to find out; names in braces are filled in from what is known."""

    tool: str
    argument: str
    about: str
    """The value of the argument."""
    wanted: str
    """The pattern of the line that contains it. Its groups are noted by their names."""
    search: str
    """What to search for if the line cannot be seen."""
    then: str
    """The next question."""


_QUESTIONS: Final = {
    "hop": Question(
        "read_file",
        "path",
        "logs/{service}.log",
        # Of this service only: facts about others may be those that it has already followed.
        r"(?P<failed_at>[\d:.]+) \S+ +\[{service}-\S+\] trace={trace} "
        r"(?:handed on to=(?P<service>\w+)|gave up .* in (?P<path>\S+) line (?P<line>\d+))",
        "trace={trace}",
        "source",
    ),
    "source": Question(
        "read_file", "path", "{path}", r'(?m)^ *{line} .*settings\["(?P<setting>[\w.]+)"\]', "{line} ", "tests"
    ),
    "tests": Question("run_tests", "service", "{service}", r"{setting} is (?P<value>-?\d+)", "{setting} is", "deploy"),
}


def detective(messages: Sequence[ChatMessage]) -> Reply:
    """The next turn of the investigation."""
    task = _TASK.search(last_user_text(messages))
    if task is None:
        return Reply("I see no task: which trace failed, and where does it start?")
    trace, entry = task.groups()
    written = newest_note(messages, NOTES)
    if not written:
        reading = Call("read_file", {"path": "logs/deploys.log"})
        opening = "I start with what there is and what was deployed today."
        return _turn(opening, _NO_NOTES, Call("list_files", {}), reading)
    notes = {**_NO_NOTES, **{name: value for name, _, value in (one.partition("=") for one in written.split("; "))}}
    if notes["asking"] == "start":
        notes |= {"asking": "hop", "service": entry}
    elif notes["asking"] in _QUESTIONS:
        question, seen = _question(notes, trace), newest_results(messages)
        found = re.search(question.wanted, seen)
        if found is None:
            return _look_closer(notes, question, seen)
        notes |= _learned(notes, question, found)
    if notes["asking"] == "deploy":
        return _name_the_deploy(notes, messages)
    question = _question(notes, trace)
    return _turn(
        f"Next: {question.tool} {question.about}.", notes, Call(question.tool, {question.argument: question.about})
    )


def _question(notes: Notes, trace: str) -> Question:
    line, _, path = notes["where"].partition("@")
    known = {**notes, "trace": trace, "line": line, "path": path}
    return Question(*(text.format_map(known) for text in _QUESTIONS[notes["asking"]]))


def _learned(notes: Notes, question: Question, found: re.Match[str]) -> Notes:
    """What a line says, and the next question."""
    said = found.groupdict()
    if notes["asking"] != "hop":
        return {"asking": question.then, "looked": "whole", **said}
    hop = {"hops": str(int(notes["hops"]) + 1), "looked": "whole"}
    if said["service"]:
        return {**hop, "service": said["service"]}
    return {**hop, "asking": question.then, "failed_at": said["failed_at"], "where": f"{said['line']}@{said['path']}"}


def _look_closer(notes: Notes, question: Question, seen: str) -> Reply:
    hint = _HINT.search(seen)
    if hint and notes["looked"] == "whole":
        search = Call("grep", {"pattern": question.search, "path": hint[0]})
        return _turn("What I need is not in the part I see; the whole was kept.", {**notes, "looked": "hint"}, search)
    if question.tool == "read_file" and notes["looked"] != "narrow":
        search = Call("grep", {"pattern": question.search, "path": question.about})
        return _turn("What I need is not there; I search for it.", {**notes, "looked": "narrow"}, search)
    return Reply(f"I lost the trail at {notes['service']}: the {notes['asking']} result does not hold what I need.")


def _name_the_deploy(notes: Notes, messages: Sequence[ChatMessage]) -> Reply:
    """The list was read in the first turn; by now it may be shortened or gone."""
    service = notes["service"]
    listed = next(_complete_deploys(messages, service), None)
    if listed is not None:
        before = [name for when, name in listed if when < notes["failed_at"]]
        if not before:
            return Reply(f"I found no deploy of {service} before {notes['failed_at']}.")
        return Reply(f"After {notes['hops']} services: {Answer(service, notes['setting'], notes['value'], before[-1])}")
    if notes["looked"] == "narrow":
        return Reply(f"I lost the trail at {service}: the list of deploys cannot be seen.")
    search = Call("grep", {"pattern": f"service={service} ", "path": "logs/deploys.log"})
    return _turn("I no longer see the whole list of deploys; I search it.", {**notes, "looked": "narrow"}, search)


def _complete_deploys(messages: Sequence[ChatMessage], service: str) -> Iterator[list[tuple[str, str]]]:
    """The service's deploys, (time, name), from every result that has all the lines its head promises."""
    for message in messages:
        head, _, rest = text_of(message).partition("\n")
        promised = re.fullmatch(r"# .*logs/deploys\.log: (\d+) lines", head)
        rows = _DEPLOY.findall(rest)
        if message.get("role") == "tool" and promised and len(rows) == int(promised[1]):
            yield [(when, name) for when, name, of in rows if of == service]


def _turn(text: str, notes: Notes, *calls: Call) -> Reply:
    return Reply(f"{text}\n{NOTES}{'; '.join(f'{name}={value}' for name, value in notes.items() if value)}", calls)
