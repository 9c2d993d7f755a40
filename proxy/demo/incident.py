"""A made-up incident: a shop whose checkout fails behind its gateway, with everything an investigator can look at.

Rule: everything follows from the seed and the number of services, so two runs read the same bytes; and each fact that
the answer needs is in one line, among many that look like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from proxy.demo.loglines import decoy_line, deploy_line, failing_test, moment, passing_test, source_line

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
    """What an investigation has to find out."""

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
        said = (
            f"handed on to={after}"
            if after
            else f"gave up after 0 attempts in src/{service}/limits.py line {failed_line}"
        )
        busy = index % _BUSY_EVERY == _BUSY_EVERY - 1
        lines = random.randint(380, 420) if busy else random.randint(60, 170)
        files[f"logs/{service}.log"] = _log(
            random, service, f"trace={trace} {said}", lines, "INFO " if after else "ERROR"
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
