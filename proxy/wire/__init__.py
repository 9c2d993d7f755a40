"""Translates bytes to the core's types. Pure, like the core."""

from proxy.wire import compress_api, model_list, own_servers
from proxy.wire.error_bodies import judge_answer, report_of
from proxy.wire.json_messages import OwnTool
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
from proxy.wire.protocol import Refusal, Reply, Wire, error_body, error_in_body, repaired
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
from proxy.wire.repairs import fault_in, kind_of, mended, value_in
from proxy.wire.request import Request, RequestOptions, RequestShape
from proxy.wire.streams import SSE, TAIL_BYTES, EventSplitter, Framing, ServerSentEvents, Splitter, Tail

__all__ = [
    "DEFAULT",
    "LARGEST_TOKENS",
    "MAX_NAME_CHARS",
    "NOTHING",
    "SMALLEST_WINDOW_TOKENS",
    "SSE",
    "TAIL_BYTES",
    "VERSION",
    "WIRES",
    "EventSplitter",
    "Framing",
    "ModelLimits",
    "ModelList",
    "OwnTool",
    "PathMatch",
    "Refusal",
    "Reply",
    "Request",
    "RequestOptions",
    "RequestShape",
    "ServerSentEvents",
    "Splitter",
    "Tail",
    "Wire",
    "as_tokens",
    "compress_api",
    "error_body",
    "error_in_body",
    "fault_in",
    "judge_answer",
    "kind_of",
    "like",
    "match_path",
    "mended",
    "modalities_from",
    "model_list",
    "own_servers",
    "repaired",
    "report_of",
    "strange_prefix",
    "value_in",
    "whose_key",
    "wire_beside",
    "wire_of_body",
    "wire_over",
]
