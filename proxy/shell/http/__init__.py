"""HTTP/1.1 with clients: connections, bodies, comments that keep connections open."""

from proxy.shell.http.bodies import (
    BodyStream,
    Received,
    announced_bytes,
    can_unpack,
    encoding_of,
    is_zlibs,
    plain_body,
    read_body,
    unpack,
)
from proxy.shell.http.clients import (
    STATE_KEY,
    KeepAlive,
    Losable,
    UntilClientLeaves,
    connection_of,
    content_headers,
    respond,
)

__all__ = [
    "STATE_KEY",
    "BodyStream",
    "KeepAlive",
    "Losable",
    "Received",
    "UntilClientLeaves",
    "announced_bytes",
    "can_unpack",
    "connection_of",
    "content_headers",
    "encoding_of",
    "is_zlibs",
    "plain_body",
    "read_body",
    "respond",
    "unpack",
]
