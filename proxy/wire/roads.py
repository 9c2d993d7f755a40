"""Which wire a path leads to, and where it goes on the upstream's host.

Rule: a path that ends in a wire's path is that wire's, whatever stands before it, and the base URL says what becomes of
that. A path that only looks alike (`/v1/messages/batches`, `/v1/responses/ID`) ends otherwise and is no wire's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.core.text import jsontext
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.messages.wire import MESSAGES
from proxy.wire.protocol import Wire
from proxy.wire.responses.wire import RESPONSES

VERSION: Final = b"/v1"
"""Stands for the base URL, as clients have it."""
WIRES: Final[Mapping[bytes, Wire]] = {
    b"/chat/completions": CHAT_COMPLETIONS,
    b"/v1/messages": MESSAGES,
    b"/responses": RESPONSES,
}
"""How the path of a wire ends. Where others end in the same word, the version belongs to it:
`/v1/threads/ID/messages` is no `/v1/messages`."""
_PREFIXES: Final = (b"/v1/", b"/api/v1/", b"/openai/", b"/compatible-mode/v1/", b"/v1beta/openai/", b"/anthropic/v1/")
"""Under which whole APIs stand: most servers; OpenRouter; Azure and Groq; DashScope; Gemini; who speaks as Anthropic
does."""
_SLASHES: Final = re.compile(rb"//+")
_DEPLOYMENT: Final = b"/deployments/"
"""Of Azure: https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference"""


@dataclass(frozen=True, slots=True)
class Road:
    """Where a request goes."""

    wire: Wire | None
    """None: it is passed through."""
    path: bytes
    """On the upstream's host, that of the base URL included."""
    model: str = ""
    """That the path names; empty when it names none."""


def road_of(method: str, path: bytes, base_path: bytes) -> Road | None:
    """The road of a request by its path as the client wrote it, escapes included; None when it is no API's. `base_path`
    is the base URL's, without a slash at its end.

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
    """The wire of a request of which only the body is known, by the members that no other has.

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
    """Whose keys and errors hold for a path that no wire serves: the wire's under which it stands.

    >>> wire_over(b"/v1/messages/count_tokens").path, wire_over(b"/v1/models").path
    ('/messages', '/chat/completions')
    """
    return next((wire for end, wire in WIRES.items() if end + b"/" in path), CHAT_COMPLETIONS)


def _wire_at_end(path: bytes) -> tuple[Wire, bytes] | None:
    """The wire that a path ends in, and the path in its plain form: without needless slashes, and never without a
    version where nothing stands before it.

    >>> _wire_at_end(b"/chat/completions//")[1], _wire_at_end(b"/v1/chat/completions/id")
    (b'/v1/chat/completions', None)
    """
    plain = (_SLASHES.sub(b"/", path) if b"//" in path else path).rstrip(b"/")
    for end, wire in WIRES.items():
        if plain.endswith(end):
            return wire, plain if plain != end or end.startswith(VERSION) else VERSION + plain
    return None


def _on_host(path: bytes, base_path: bytes) -> bytes:
    """Where a client's path goes: `/v1` stands for the base URL; what the base URL ends with is not said twice; another
    prefix goes behind the base URL without its `/v1`.

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
    """How many bytes at the end of a base path stand at the head of a path, too, in whole segments."""
    at = base_path.find(b"/")
    while at >= 0:
        if path.startswith(base_path[at:] + b"/"):
            return len(base_path) - at
        at = base_path.find(b"/", at + 1)
    return 0
