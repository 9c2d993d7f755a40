"""A made-up incident, a shop whose checkout fails behind its gateway, and the model that investigates it.

Rule: everything follows from the seed and the number of services, so two runs read the same bytes. Each fact that the
answer needs is in one line among many similar ones. No line has an absolute path or an address, so one in a tool result
comes from whatever shortened it. The model knows neither the incident nor the proxy: it repeats its notes in each turn,
follows the newest it can see, looks up a fact that is missing (first where a hint in the result points, then with its
own tools), and gives up if both fail. A request that was cut too hard shows as a longer way or a wrong end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

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
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("type") == "text"
    )


def last_user_text(messages: Sequence[ChatMessage]) -> str:
    """The last question, or nothing."""
    return next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")


def newest_results(messages: Sequence[ChatMessage]) -> str:
    """The tool results since the model last spoke, joined."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            texts.append(text_of(message))
    return "\n".join(reversed(texts))


def newest_note(messages: Sequence[ChatMessage], mark: str) -> str:
    """The rest of the newest line by the model that starts with `mark`, or nothing."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            for line in text_of(message).splitlines():
                if line.startswith(mark):
                    return line[len(mark) :].strip()
    return ""


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


def passing_test(random: Random, service: str, case: int) -> str:
    """A passing test with its output."""
    took, revision = random.randint(2, 90), random.randint(10, 99)
    return f"tests/{service}/test_limits.py::test_order_{case:03} PASSED in {took} ms (settings revision {revision})"


def failing_test(service: str, case: int, setting: str, value: str) -> str:
    """The failing test; its words are no louder than a log line's."""
    return (
        f"tests/{service}/test_limits.py::test_order_{case:03} FAILED\n    {setting} is {value}, at least 1 is needed"
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
    rows = []
    for index in range(lines):
        when = moment(_FAILURE_SECOND + (index - at) / 7)
        rows.append(f"{when} {level} [{service}-2] {fact}" if index == at else f"{when} {decoy_line(random, service)}")
    return "\n".join(rows) + "\n"


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
    def report() -> Iterator[str]:
        for case in range(1, 261):
            yield failing_test(service, case, setting, value) if case == 131 else passing_test(random, service, case)
        yield "==== 1 failed, 259 passed ===="

    return "\n".join(report()) + "\n"


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
    """Its last look: at the whole, where a hint pointed (hint), or with its own grep (narrow)."""
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
        """Parse a `line`; unknown entries are skipped."""
        entries = (entry.partition("=") for entry in written.split("; "))
        return cls(**{name: value for name, _, value in entries if name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to find out: where to look, and the pattern of the line that contains it."""

    look: Call
    wanted: re.Pattern[str]
    learn: Callable[[Notes, re.Match[str]], Notes]
    """The notes with what the line says, and the next question."""
    narrow: Call | None = None
    """A narrower call with its own grep, if there is a file to search."""
    pattern: str = ""
    """Pattern to search for where a hint points."""


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


def _turn(text: str, notes: Notes, *calls: Call) -> Reply:
    return Reply(f"{text}\n{notes.line()}", calls)
