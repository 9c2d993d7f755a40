"""The upstream as seen from the proxy: the only package that knows its HTTP client."""

from proxy.shell.upstream.client import LOOP_HEADER, THROUGH, Upstream, WholePath
from proxy.shell.upstream.requests import Outgoing
from proxy.shell.upstream.responses import (
    CLOSED,
    NO_SUCH_HOST,
    SPEAKS_NO_TLS,
    UNTRUSTED,
    Headers,
    UpstreamResponse,
    header,
)

__all__ = [
    "CLOSED",
    "LOOP_HEADER",
    "NO_SUCH_HOST",
    "SPEAKS_NO_TLS",
    "THROUGH",
    "UNTRUSTED",
    "Headers",
    "Outgoing",
    "Upstream",
    "UpstreamResponse",
    "WholePath",
    "header",
]
