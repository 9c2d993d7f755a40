"""The upstream as seen from the proxy: the only package that knows its HTTP client."""

from proxy.shell.upstream.client import (
    CLOSED,
    LOOP_HEADER,
    NO_SUCH_HOST,
    SPEAKS_NO_TLS,
    THROUGH,
    UNTRUSTED,
    Headers,
    Upstream,
    UpstreamResponse,
    WholePath,
    header,
)
from proxy.shell.upstream.exchange import Outgoing
from proxy.shell.upstream.tap import Consumer, body_of

__all__ = [
    "CLOSED",
    "LOOP_HEADER",
    "NO_SUCH_HOST",
    "SPEAKS_NO_TLS",
    "THROUGH",
    "UNTRUSTED",
    "Consumer",
    "Headers",
    "Outgoing",
    "Upstream",
    "UpstreamResponse",
    "WholePath",
    "body_of",
    "header",
]
