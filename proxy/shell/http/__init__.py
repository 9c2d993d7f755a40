"""HTTP/1.1 with clients: connections, bodies, comments that keep connections open."""

from proxy.shell.http.bodies import (
    Received,
    Upload,
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
    connection_of,
    content_headers,
    respond,
    until_client_leaves,
)

__all__ = [
    "STATE_KEY",
    "KeepAlive",
    "Losable",
    "Received",
    "Upload",
    "can_unpack",
    "connection_of",
    "content_headers",
    "encoding_of",
    "is_zlibs",
    "plain_body",
    "read_body",
    "respond",
    "unpack",
    "until_client_leaves",
]
