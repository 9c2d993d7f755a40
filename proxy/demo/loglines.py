"""The single lines of the made-up incident: what services, deploys, sources and test runs look like.

Rule: a line without a fact must look like one with a fact, and no line has an absolute path or an address, so that one
found in a tool result can only be a hint from whatever shortened it.
"""

from __future__ import annotations

from random import Random
from typing import Final

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
    """One deploy."""
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
