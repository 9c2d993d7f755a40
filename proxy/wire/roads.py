"""The wire that a path leads to, and its path on the upstream's host.

Rule: a path that ends in a wire's path belongs to that wire, whatever precedes it, and the base URL decides what
becomes of that prefix. A path that only looks similar (`/v1/messages/batches`, `/v1/responses/ID`) ends differently and
belongs to no wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from proxy.core.text import jsontext
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.messages.wire import MESSAGES
from proxy.wire.protocol import Wire
from proxy.wire.responses.wire import COMPACTIONS, RESPONSES

VERSION: Final = b"/v1"
"""Clients write this for the base URL."""
WIRES: Final[Mapping[bytes, Wire]] = {
    b"/chat/completions": CHAT_COMPLETIONS,
    b"/v1/messages": MESSAGES,
    b"/responses": RESPONSES,
    b"/responses/compact": COMPACTIONS,
}
"""The end of each wire's path. It includes the version if other paths end in the same word: `/v1/threads/ID/messages`
is not `/v1/messages`."""
_PREFIXES: Final = (b"/v1/", b"/api/v1/", b"/openai/", b"/compatible-mode/v1/", b"/v1beta/openai/", b"/anthropic/v1/")
"""Prefixes of whole APIs: most servers; OpenRouter; Azure and Groq; DashScope; Gemini; servers that speak Anthropic's
API."""
_SLASHES: Final = re.compile(rb"//+")
_DEPLOYMENT: Final = b"/deployments/"
"""Azure's: https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference"""


class Road(Struct, frozen=True):
    """Where a request goes."""

    wire: Wire | None
    """None: the request is passed through."""
    path: bytes
    """On the upstream's host, including that of the base URL."""
    model: str = ""
    """The model that the path names; empty if it names none."""


def road_of(method: str, path: bytes, base_path: bytes) -> Road | None:
    """The road of a request by its path as the client wrote it, including escapes; None if it belongs to no API.
    `base_path` is the base URL's, without a slash at its end.

    >>> road_of("POST", b"//v1//chat/completions/", b"/api/v1").path
    b'/api/v1/chat/completions'
    >>> road_of("GET", b"/v1/models", b"/v1"), road_of("GET", b"/metrics", b"/v1")
    (Road(wire=None, path=b'/v1/models', model=''), None)
    """
    if method == "POST" and (found := _wire_at_end(path)) is not None:
        wire, plain = found
        named = plain.partition(_DEPLOYMENT)[2].partition(b"/")[0]
        model = unquote_to_bytes(named).decode("utf-8", "replace") if named else ""
        return Road(wire, _on_host(plain, base_path), model)
    if path.startswith(_PREFIXES) or path.startswith(base_path + b"/"):
        return Road(None, _on_host(path, base_path))
    return None


def wire_of_body(body: bytes) -> Wire:
    """The wire of a request if only its body is known, by the members that no other wire has.

    >>> wire_of_body(b'{"input": "hi"}').path, wire_of_body(b'{"input": "hi", "messages": []}').path
    ('/responses', '/chat/completions')
    >>> wire_of_body(b'{"system": "", "messages": []}').path
    '/messages'
    """
    try:
        members = jsontext.members(body)
    except jsontext.NotJson:
        return CHAT_COMPLETIONS
    if "messages" not in members:
        return RESPONSES if "input" in members else CHAT_COMPLETIONS
    is_anthropic = "system" in members or b'"input_schema"' in bytes(members.get("tools", b""))
    return MESSAGES if is_anthropic or b'"tool_use_id"' in body else CHAT_COMPLETIONS


def wire_over(path: bytes) -> Wire:
    """The wire whose keys and errors apply to a path that no wire serves: the one whose path is its prefix.

    >>> wire_over(b"/v1/messages/count_tokens").path, wire_over(b"/v1/models").path
    ('/messages', '/chat/completions')
    """
    return next((wire for end, wire in WIRES.items() if end + b"/" in path), CHAT_COMPLETIONS)


def _wire_at_end(path: bytes) -> tuple[Wire, bytes] | None:
    """The wire at the end of a path, and the path in its canonical form: without redundant slashes, and with a version
    if nothing precedes it.

    >>> _wire_at_end(b"/chat/completions//")[1], _wire_at_end(b"/v1/chat/completions/id")
    (b'/v1/chat/completions', None)
    """
    plain = (_SLASHES.sub(b"/", path) if b"//" in path else path).rstrip(b"/")
    for end, wire in WIRES.items():
        if plain.endswith(end):
            return wire, plain if plain != end or end.startswith(VERSION) else VERSION + plain
    return None


def _on_host(path: bytes, base_path: bytes) -> bytes:
    """Where a client's path goes: `/v1` means the base URL; segments at the end of the base URL are not repeated; any
    other prefix is appended to the base URL without its `/v1`.

    >>> _on_host(b"/v1/models", b"/api/v3"), _on_host(b"/api/v1/models", b"/x/api/v1")
    (b'/api/v3/models', b'/x/api/v1/models')
    >>> _on_host(b"/openai/deployments/d/x", b"/v1"), _on_host(b"/openai/deployments/d/x", b"/gate/openai/v1")
    (b'/openai/deployments/d/x', b'/gate/openai/deployments/d/x')
    """
    if path.startswith(VERSION + b"/"):
        return base_path + path.removeprefix(VERSION)
    shared = _shared(base_path, path)
    if shared:
        return base_path + path[shared:]
    root = base_path.removesuffix(VERSION)
    return root + path[_shared(root, path) :]


def _shared(base_path: bytes, path: bytes) -> int:
    """How many bytes at the end of a base path are also at the beginning of a path, in whole segments."""
    at = base_path.find(b"/")
    while at >= 0:
        if path.startswith(base_path[at:] + b"/"):
            return len(base_path) - at
        at = base_path.find(b"/", at + 1)
    return 0
