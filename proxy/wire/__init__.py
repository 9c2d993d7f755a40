"""Translates between bytes and the core's types. Pure, like the core."""

from proxy.wire.model_list import (
    LARGEST_TOKENS,
    MAX_NAME_CHARS,
    NOTHING,
    SMALLEST_WINDOW_TOKENS,
    ModelLimits,
    ModelList,
    as_tokens,
    modalities_from,
)
from proxy.wire.protocol import Refusal, Reply, Wire, error_body, repaired
from proxy.wire.registry import (
    DEFAULT,
    VERSION,
    WIRES,
    PathMatch,
    like,
    match_path,
    strange_prefix,
    whose_key,
    wire_beside,
    wire_of_body,
    wire_over,
)
from proxy.wire.request import Request
from proxy.wire.streams import TAIL_BYTES, Splitter, Tail

__all__ = [
    "DEFAULT",
    "LARGEST_TOKENS",
    "MAX_NAME_CHARS",
    "NOTHING",
    "SMALLEST_WINDOW_TOKENS",
    "TAIL_BYTES",
    "VERSION",
    "WIRES",
    "ModelLimits",
    "ModelList",
    "PathMatch",
    "Refusal",
    "Reply",
    "Request",
    "Splitter",
    "Tail",
    "Wire",
    "as_tokens",
    "error_body",
    "like",
    "match_path",
    "modalities_from",
    "repaired",
    "strange_prefix",
    "whose_key",
    "wire_beside",
    "wire_of_body",
    "wire_over",
]
