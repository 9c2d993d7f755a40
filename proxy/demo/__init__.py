"""The demo: a made-up incident, a model server with a small window, and an agent. Nothing in the proxy needs it."""

from proxy.demo.agent import (
    TURNS_BESIDE_HOPS,
    Brief,
    CannotStart,
    Contest,
    HasDefect,
    Report,
    Run,
    Toolbox,
    Turn,
    hold_contest,
    raise_defects,
)
from proxy.demo.incident import Call, ChatMessage, Incident, Reply, detective, make_incident
from proxy.demo.model_server import FLAVOURS, Completion, Load, create_model_server

__all__ = [
    "FLAVOURS",
    "TURNS_BESIDE_HOPS",
    "Brief",
    "Call",
    "CannotStart",
    "ChatMessage",
    "Completion",
    "Contest",
    "HasDefect",
    "Incident",
    "Load",
    "Reply",
    "Report",
    "Run",
    "Toolbox",
    "Turn",
    "create_model_server",
    "detective",
    "hold_contest",
    "make_incident",
    "raise_defects",
]
