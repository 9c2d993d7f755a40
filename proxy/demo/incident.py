"""A made-up incident: a shop whose checkout fails behind its gateway, and the script of a model that finds out why.

Rule: everything follows from the seed and the number of services, so two runs read the same bytes. Each fact that the
answer needs is in one line among many similar ones. No line has an absolute path or an address, so one in a tool result
comes from whatever shortened it. The model goes on with its script only where the messages that reach it show the fact
that the step was for. Otherwise it looks that up, first where a hint in the result points, then with its own tools, and
gives up if both fail: a request that was cut too hard shows as a longer way or a wrong end. Its place in the script is
in the notes that it repeats in each turn.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
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
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def last_user_text(messages: Sequence[ChatMessage]) -> str:
    """The last question, or nothing."""
    return next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")


def newest_results(messages: Sequence[ChatMessage]) -> str:
    """The tool results since the model last spoke, joined."""
    newest = takewhile(lambda message: message.get("role") != "assistant", reversed(messages))
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
    return f"{datetime.datetime.min + datetime.timedelta(seconds=second_of_day):%H:%M:%S.%f}"[:-3]


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
DEPLOYS: Final = "logs/deploys.log"
_NAMES: Final = (
    "cart", "pricing", "stock", "coupons", "shipping", "tax", "orders", "wallet", "payments", "ledger",
    "fraud", "invoices", "mailer", "loyalty", "returns", "search", "catalog", "media", "reviews", "profile",
    "sessions", "consent", "audit", "lookup", "quota", "rates", "fx", "limits", "slots", "routes",
    "depots", "carriers", "labels", "customs", "weights", "bundles", "gifts", "vouchers", "alerts", "events",
)  # fmt: skip
_BUSY_EVERY: Final = 7
"""Every seventh service logs three times as much as the next one, up to 40 KB: more than a small window holds."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the script."""

    text: str
    notes: Mapping[str, str]
    """What is asked, and what is known by then; the step is recognised by them."""
    calls: tuple[Call, ...]
    facts: Sequence[str] = ()
    """What the results of its calls have to show before the next step."""
    search: str = ""
    """What to search for if they do not."""


_START: Final = Step(
    "I start with what there is and what was deployed today.",
    {"asking": "start", "hops": "0"},
    (Call("list_files", {}), Call("read_file", {"path": DEPLOYS})),
)


@dataclass(frozen=True, slots=True)
class Incident:
    """The world that the agent's tools see, and the script of its model."""

    task: str
    """The user's message."""
    files: Mapping[str, str]
    """Path → text, for logs and sources."""
    test_output: Mapping[str, str]
    """Service → the output of its test run."""
    steps: Sequence[Step]
    """Of the model, from its first turn to the last before its answer."""
    answer: str


def make_incident(services: int, seed: int = 1) -> Incident:
    """An incident whose trace runs through `services` services, the gateway among them (2 to 41)."""
    random = Random(seed)  # noqa: S311 - a made-up world, not a secret
    trace = f"{random.getrandbits(32):08x}"
    trail = (ENTRY, *random.sample(_NAMES, services - 1))
    failing, failed_line = trail[-1], random.randint(180, 220)
    source, setting = f"src/{failing}/limits.py", f"{failing}.retry.attempts"
    listed, deploys, guilty = _deploys(random, trail, failing)
    files, steps = {DEPLOYS: listed}, [_START]
    for index, (service, after) in enumerate(zip_longest(trail, trail[1:])):
        details = f"handed on to={after}" if after else f"gave up after 0 attempts in {source} line {failed_line}"
        busy = index % _BUSY_EVERY == _BUSY_EVERY - 1
        lines = random.randint(380, 420) if busy else random.randint(60, 170)
        path, fact = f"logs/{service}.log", f"[{service}-2] trace={trace} {details}"
        files[path] = _log(random, service, f"{'INFO ' if after else 'ERROR'} {fact}", lines)
        steps.append(_reading(path, {"asking": "hop", "service": service, "hops": str(index)}, fact, f"trace={trace}"))
    files[source] = _source(random, failing, failed_line, setting)
    value = str(random.randint(-3, 0))
    known = {
        "service": failing,
        "hops": str(services),
        "failed_at": moment(_FAILURE_SECOND),
        "where": f"{failed_line}@{source}",
    }
    read = f'{failed_line}     attempts = settings["{setting}"]'
    steps += [
        _reading(source, {"asking": "source", **known}, read, f"{failed_line} "),
        Step(
            f"Next: run_tests {failing}.",
            {"asking": "tests", **known, "setting": setting},
            (Call("run_tests", {"service": failing}),),
            [f"{setting} is {value}"],
            f"{setting} is",
        ),
        Step(
            "I no longer see the whole list of deploys; I search it.",
            {"asking": "deploy", **known, "setting": setting, "value": value},
            (Call("grep", {"pattern": f"service={failing} ", "path": DEPLOYS}),),
            deploys,
            f"service={failing} ",
        ),
    ]
    tests = {failing: _tests(random, failing, setting, value)}
    answer = f"service={failing} setting={setting} value={value} deploy={guilty}"
    return Incident(_TASK.format(trace=trace, deploys=DEPLOYS, entry=ENTRY), files, tests, steps, answer)


def _reading(path: str, notes: Mapping[str, str], fact: str, search: str) -> Step:
    return Step(f"Next: read_file {path}.", notes, (Call("read_file", {"path": path}),), [fact], search)


_TASK: Final = (
    "The checkout with trace={trace} failed today. Find out why. Read {deploys} for what changed, then follow the "
    "trace from logs/{entry}.log from service to service to the one where it failed; find the setting behind it in the "
    "source, its value by running that service's tests, and the deploy behind it: the service's last one before the "
    "failure. Answer with: service=… setting=… value=… deploy=…"
)
_FAILURE_SECOND: Final = 14 * 3600 + 2 * 60 + 11
"""14:02:11, when the trace enters; deploys before and after it tell cause from coincidence."""


def _log(random: Random, service: str, line: str, lines: int) -> str:
    """Lines in time order; the one with the fact is in the middle half, which head and tail do not reach."""
    at = random.randint(lines // 4, 3 * lines // 4)
    said = [line if row == at else decoy_line(random, service) for row in range(lines)]
    times = [moment(_FAILURE_SECOND + (row - at) / 7) for row in range(lines)]
    return "\n".join(map("{} {}".format, times, said)) + "\n"


def _deploys(random: Random, trail: tuple[str, ...], failing: str) -> tuple[str, Sequence[str], str]:
    """The day's deploys, of these the failing service's, and the name of the guilty one: its last before the
    failure."""
    others = [name for name in (*trail, *_NAMES) if name != failing]
    rows = [(random.randint(6 * 3600, 18 * 3600), random.choice(others)) for _ in range(70)]
    guilty_at = _FAILURE_SECOND - random.randint(300, 1500)
    rows += [(guilty_at - 9000, failing), (guilty_at, failing), (_FAILURE_SECOND + 2400, failing)]
    rows.sort()
    lines = [deploy_line(random, at, service, f"d-{5500 + index}") for index, (at, service) in enumerate(rows)]
    own = [line for line, (_, service) in zip(lines, rows, strict=True) if service == failing]
    return "\n".join(lines) + "\n", own, f"d-{5500 + rows.index((guilty_at, failing))}"


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
_HINT: Final = re.compile(r"(?<![\w:/.])/[\w.~%@+-]+(?:/[\w.~%@+=-]+)+\w")
"""An absolute path: no tool here prints one of its own, so whatever shortened the result put it there."""


def next_reply(incident: Incident, messages: Sequence[ChatMessage]) -> Reply:
    """The next step of the script, or another look for what the last one had to show."""
    if incident.task not in last_user_text(messages):
        return Reply("I see no task: which trace failed, and where does it start?")
    notes = dict(re.findall(r"(\w+)=([^;]+)", newest_note(messages, NOTES)))
    looked = notes.pop("looked", "")
    last = next((one for one in incident.steps if one.notes == notes), None)
    if last is None:
        return _turn(_START, "whole", _START.text, *_START.calls)
    shown = "\n".join(text_of(message) for message in messages if message.get("role") == "tool")
    ahead = incident.steps[incident.steps.index(last) :]
    step = next((one for one in ahead if not all(fact in shown for fact in one.facts)), None)
    if step is None:
        return Reply(f"After {notes['hops']} services: {incident.answer}")
    if step is last:
        return _look_closer(step, looked, newest_results(messages))
    return _turn(step, "whole", step.text, *step.calls)


def _look_closer(step: Step, looked: str, shown: str) -> Reply:
    hint, path = _HINT.search(shown), step.calls[-1].arguments.get("path")
    if hint and looked == "whole":
        search = Call("grep", {"pattern": step.search, "path": hint[0]})
        return _turn(step, "hint", "What I need is not in the part I see; the whole was kept.", search)
    if path and looked != "narrow":
        search = Call("grep", {"pattern": step.search, "path": path})
        return _turn(step, "narrow", "What I need is not there; I search for it.", search)
    service, asking = step.notes["service"], step.notes["asking"]
    return Reply(f"I lost the trail at {service}: the {asking} result does not hold what I need.")


def _turn(step: Step, looked: str, text: str, *calls: Call) -> Reply:
    """`looked`: at the whole, where a hint pointed (hint), or with its own grep (narrow)."""
    notes = {"asking": step.notes["asking"], "looked": looked, **step.notes}
    return Reply(f"{text}\n{NOTES}{'; '.join(map('='.join, notes.items()))}", calls)
