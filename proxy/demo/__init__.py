"""The demo: a made-up incident, a model server with a small window, and an agent. Nothing in the proxy needs it."""

from proxy.demo.agent import TURNS_BESIDE_HOPS, Brief, CannotStart, Contest, HasDefect, Report, Run, Turn, hold_contest
from proxy.demo.model_server import FLAVOURS

__all__ = [
    "FLAVOURS",
    "TURNS_BESIDE_HOPS",
    "Brief",
    "CannotStart",
    "Contest",
    "HasDefect",
    "Report",
    "Run",
    "Turn",
    "hold_contest",
]
