"""Serves one request: plans, sends, judges, retries."""

from proxy.shell.relay.peeking import HELD_BYTES, PIECES_OF_THE_END, PeekedResponse
from proxy.shell.relay.relay import AnyResponse, Relay, Served
from proxy.shell.relay.routes import Route, Routes, asks_for_models, models_of
from proxy.shell.relay.sends import Arrived

__all__ = [
    "HELD_BYTES",
    "PIECES_OF_THE_END",
    "AnyResponse",
    "Arrived",
    "PeekedResponse",
    "Relay",
    "Route",
    "Routes",
    "Served",
    "asks_for_models",
    "models_of",
]
