"""Every measured figure: its name, its unit, and its target.

A target is a promise to users; it is changed for a reason, never to turn a "no" into a "yes".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tools.bench.apis import CHAT, MESSAGES, RESPONSES, Api
from tools.bench.bodies import ANEW_TURNS, EVENTS_A_SECOND, GROWTH_TURNS, STREAM_EVENTS, STREAMS_AT_ONCE
from tools.bench.contenders import OFF, OURS

LATENCY_CONNECTIONS = 4
"""Those of small requests that are sent at once."""
BESIDE_REQUESTS = 600
"""At most as many small requests of a sample beside large ones."""
WORKERS = 4
WORKER_CONNECTIONS = 16
"""Enough for each worker to get some."""


class Against(StrEnum):
    """The base of which a target is a multiple."""

    NGINX = "× nginx"
    NOTHING = ""


@dataclass(frozen=True, slots=True)
class Target:
    """At most `limit`, as a multiple of nginx's figure or in the figure's own unit."""

    limit: float
    against: Against = Against.NOTHING
    of: str = OURS
    """The contender that is held to it: this project, or the same switched off."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the tables."""

    title: str
    unit: str
    digits: int = 2
    targets: tuple[Target, ...] = ()
    floor: str | None = None
    """The row whose nginx figure is the base for this one's multiple; None if a multiple means nothing."""
    at: tuple[str, ...] = ()
    """Rows that state under which load this one was measured; they are printed beside it."""


@dataclass(frozen=True, slots=True)
class CpuFigure:
    """How a figure in CPU time is measured: requests of a workload, one at a time, on one kept-alive connection."""

    row: str
    """Its key in `FIGURES`."""
    workload: str
    most_requests: int
    """Per round; slow contenders send fewer, as many as a round's CPU allows."""
    warm: int = 1
    """Requests of the same series before the measured ones."""
    per_request: int = 1
    """Divides the CPU of a request: the number of events of its response."""
    scale: float = 1e3
    """From seconds to the figure's unit."""
    only_ours: bool = False
    """Not for the others: they forward a request over the window unchanged, or do not know the API."""


def _most(limit: float) -> tuple[Target, ...]:
    return (Target(limit),)


def _times_nginx(limit: float) -> tuple[Target, ...]:
    return (Target(limit, Against.NGINX),)


FIGURES: dict[str, Figure] = {
    "chat_2kb": Figure(
        "2 KB question, CPU", "ms", 3, (*_times_nginx(8), Target(4.6, Against.NGINX, of=OFF)), "chat_2kb"
    ),
    "new_200kb": Figure("200 KB conversation, never seen before, CPU", "ms", 3, _most(7), "new_200kb"),
    "same_200kb": Figure("200 KB conversation, sent again, CPU", "ms", 3, _times_nginx(5), "same_200kb"),
    "growing_2mb": Figure("2 MB conversation, one new exchange, CPU", "ms", 2, _times_nginx(4), "growing_2mb"),
    "cut_2mb": Figure("the same into a window of 128 000 tokens, CPU", "ms", 2, (), "growing_2mb"),
    "new_2mb": Figure("2 MB conversation, never seen before, CPU", "ms", 2, _most(48), "new_2mb"),
    "chunk": Figure("streamed event, CPU", "µs", 0, _times_nginx(2.2), "chunk"),
    "events_a_read": Figure("streamed events that arrive lumped together", "a read", 1),
    "first_token": Figure("first token later than direct", "ms", 2, _most(1.0)),
    "first_token_off": Figure("first token later than with this project switched off", "ms", 2, _most(0.20)),
    "p50": Figure(f"2 KB on {LATENCY_CONNECTIONS} connections, median", "ms", 2),
    "p99": Figure(f"2 KB on {LATENCY_CONNECTIONS} connections, 99th percentile", "ms", 2),
    "start": Figure("start to first answer", "s", 2, _most(0.85)),
    "idle": Figure("idle memory", "MB", 0, _most(85)),
    "planning": Figure(f"{GROWTH_TURNS} turns to 2 MB, CPU over nginx in all", "s", 3, _most(0.30)),
    "exponent": Figure("exponent of that growth", "", 2, _most(1.35)),
    "planning_own": Figure(f"{GROWTH_TURNS} turns to 2 MB, CPU over itself switched off", "s", 3),
    "exponent_own": Figure("exponent of that growth", "", 2),
    "planning_cut": Figure(f"{GROWTH_TURNS} turns to 2 MB into 128 000 tokens, CPU over nginx", "s", 3, _most(0.5)),
    "exponent_cut": Figure("exponent of that growth", "", 2, _most(1.35)),
    "anew": Figure(f"{ANEW_TURNS} turns to 730 KB into 128 000 tokens, CPU in all", "s", 3),
    "anew_clock": Figure("the same with a clock in the system text, × that", "", 2, _most(1.3)),
    "anew_task": Figure("… with a first user message that changes, × that", "", 2, _most(1.3)),
    "anew_metadata": Figure("… with metadata before the messages that change, × that", "", 2, _most(1.3)),
    "anew_last": Figure("… with a last message that is reworded the turn after, × that", "", 2, _most(1.3)),
    "after": Figure("memory after all this", "MB", 0, _most(210)),
    "p99_beside": Figure(
        f"2 KB on {LATENCY_CONNECTIONS} connections beside 2 MB never seen before, 99th percentile",
        "ms",
        2,
        _times_nginx(2),
        "p99_beside",
        at=("beside_a_second",),
    ),
    "beside_a_second": Figure("requests of 2 MB that were answered meanwhile", "large ones a second", 1),
    "streams": Figure(
        f"{STREAMS_AT_ONCE} streams, {EVENTS_A_SECOND} events a second each, CPU of an event",
        "µs",
        1,
        _most(24),
        "streams",
        at=("streams_a_second", "streams_a_read"),
    ),
    "streams_a_second": Figure("events of these streams that arrived", "a second", 0),
    "streams_a_read": Figure("events of these streams that arrive lumped together", "a read", 1),
    "workers": Figure(f"{GROWTH_TURNS} turns to 2 MB over {WORKERS} workers, CPU, × one worker", "", 2, _most(1.4)),
}

MOST_OF_CHAT = 1.15
"""A request in another API may cost at most this much, as a multiple of the same request in chat completions."""

MOST_OVER_OFF = {"chat_2kb": 0.25, "same_200kb": 0.35, "growing_2mb": 1.7}
"""Most that planning, judging and recording a request may cost, by row and in its unit: this project less the same
server only forwarding it. No ratio of the two: it stays the same when both grow."""


def of_api(row: str, api: Api) -> str:
    """The row of the same figure in another API."""
    return row if api is CHAT else f"{row}_{api.name}"


def _in_other_apis(figure: CpuFigure) -> tuple[CpuFigure, ...]:
    """A figure of chat completions, and the same in the other APIs right after it, so that they share a slow minute."""
    others = (MESSAGES, RESPONSES)
    return figure, *(
        replace(figure, row=of_api(figure.row, api), workload=f"{figure.workload}_{api.name}", only_ours=True)
        for api in others
    )


CPU_FIGURES: tuple[CpuFigure, ...] = (
    *_in_other_apis(CpuFigure("chat_2kb", "chat_2kb", most_requests=1_500, warm=20)),
    CpuFigure("new_200kb", "conversation_200kb", most_requests=150, warm=2),
    *_in_other_apis(CpuFigure("same_200kb", "conversation_200kb_again", most_requests=300, warm=2)),
    # Four conversations take turns: the first four requests make them known.
    *_in_other_apis(CpuFigure("growing_2mb", "growing_2mb", most_requests=80, warm=4)),
    CpuFigure("cut_2mb", "growing_2mb_cut", most_requests=80, warm=4, only_ours=True),
    CpuFigure("new_2mb", "new_2mb", most_requests=10),
    *_in_other_apis(CpuFigure("chunk", "stream", most_requests=2, per_request=STREAM_EVENTS, scale=1e6)),
)
