"""HTTP/1.1 with clients: connections, bodies, departures."""

from proxy.shell.http.bodies import (
    Received,
    can_unpack,
    encoding_of,
    pieces_of,
    plain_body,
    read_body,
    read_plain_body,
    unpack,
)
from proxy.shell.http.clients import STATE_KEY, until_client_leaves

__all__ = [
    "STATE_KEY",
    "Received",
    "can_unpack",
    "encoding_of",
    "pieces_of",
    "plain_body",
    "read_body",
    "read_plain_body",
    "unpack",
    "until_client_leaves",
]
