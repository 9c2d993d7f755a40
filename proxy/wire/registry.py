"""The wire that a path leads to.

Rule: a path that ends in a wire's path belongs to that wire, whatever precedes it, and the base URL decides what
becomes of that prefix. A path that only looks similar (`/v1/messages/batches`, `/v1/responses/ID`) ends differently and
belongs to no wire.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from proxy.core.text import jsontext
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA, OLLAMA_PROMPTS
from proxy.wire.protocol import Wire
from proxy.wire.responses import COMPACTIONS, RESPONSES

DEFAULT: Final[Wire] = CHAT_COMPLETIONS
"""Its keys and errors also serve every path that belongs to no wire."""
VERSION: Final = b"/v1"
"""Clients write this for the base URL."""
_ALL: Final[Sequence[Wire]] = (CHAT_COMPLETIONS, MESSAGES, RESPONSES, COMPACTIONS, OLLAMA, OLLAMA_PROMPTS)
"""A new wire is its folder and its name here."""
WIRES: Final[Mapping[bytes, Wire]] = {wire.end: wire for wire in _ALL}
"""Wires by the ends of their paths."""
_ANTHROPIC_HEADERS: Final = frozenset((b"anthropic-version", b"x-api-key"))
"""Sent by Anthropic's clients: https://platform.claude.com/docs/en/api/overview"""
_ANTHROPIC_MODEL: Final = "claude-"
"""Prefix of all its model names."""
_PREFIXES: Final = (b"/v1/", b"/api/", b"/openai/", b"/compatible-mode/v1/", b"/v1beta/openai/", b"/anthropic/v1/")
"""Prefixes of whole APIs: most servers; Ollama, LM Studio and OpenRouter; Azure and Groq; DashScope; Gemini; servers
that speak Anthropic's API."""
_OLLAMAS: Final = frozenset(("options", "keep_alive", "think"))
"""Members of Ollama's chats: https://docs.ollama.com/api/chat"""
_SLASHES: Final = re.compile(rb"//+")
_VERSION_TWICE: Final = re.compile(rb"\A(?:/+v1)+(?=/+v1/)")
"""Sent by clients that add the version to a base URL that already ends in it, such as an `ANTHROPIC_BASE_URL`."""
_VERTEX: Final = re.compile(rb"/publishers/anthropic/models/([^/:]+):(?:streamR|r)awPredict\Z")
"""Vertex AI's path for a Claude model; the body has no `model`, but `anthropic_version`.
https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai"""
_VERTEX_COUNTS: Final = b"count-tokens"
"""Replaces a model's name in the path: counts the tokens of the body."""
_VERSIONED: Final = re.compile(rb"/api/v\d")
"""APIs with versions: of OpenRouter, of LM Studio."""
_WITHOUT_VERSION: Final = (b"/messages", b"/projects/")
"""Paths that clients ask for if their base URL lacks `/v1`: of Anthropic's API and of Vertex AI."""
_BEDROCK: Final = b"/model/"
"""https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html"""
_SERVERS_OWN: Final = frozenset(
    (
        *(b"health", b"props", b"slots", b"tokenize", b"detokenize", b"apply-template", b"lora-adapters"),
        *(b"completion", b"completions", b"infill", b"embedding", b"embeddings", b"rerank", b"reranking", b"models"),
        *(b"ping", b"version", b"load", b"pooling", b"score", b"classify", b"info", b"generate", b"generate_stream"),
    )
)
"""The first segments of paths that self-hosted servers answer beside `/v1`: llama.cpp (tools/server/README.md), vLLM
(vllm/entrypoints), TGI. None is a page of the proxy."""
_LIKENESS: Final = 0.6
"""A path this similar to one that exists is taken for a misspelling."""
_BLANKS: Final = re.compile(rb"(?:%20|%09)+(?=/|\Z)")
"""From blanks at the end of a base URL."""
_MAX_HINT_BYTES: Final = 100
_REMEMBERED_BYTES: Final = 200
"""Longest path whose match is cached."""
_DEPLOYMENT: Final = b"/deployments/"
"""Azure's: https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference"""


class PathMatch(Struct, frozen=True):
    """Where a request goes."""

    wire: Wire | None
    """None: the request is passed through."""
    path: bytes
    """Path on the upstream's host, including that of the base URL."""
    model: str = ""
    """The model that the path names; empty if it names none."""


def match_path(method: str, path: bytes, base_path: bytes) -> PathMatch | None:
    """PathMatch a path as the client wrote it, including escapes; None if it belongs to no API.
    `base_path` is the base URL's, without a slash at its end.

    >>> match_path("POST", b"//v1//chat/completions/", b"/api/v1").path
    b'/api/v1/chat/completions'
    >>> match_path("GET", b"/v1/models", b"/v1"), match_path("GET", b"/metrics", b"/v1")
    (PathMatch(wire=None, path=b'/v1/models', model=''), None)
    """
    return (_match_path if len(path) <= _REMEMBERED_BYTES else _match_path.__wrapped__)(method, path, base_path)


@functools.lru_cache(1024)
def _match_path(method: str, path: bytes, base_path: bytes) -> PathMatch | None:
    path = _VERSION_TWICE.sub(b"", _BLANKS.sub(b"", path) if b"%" in path else path)
    if method == "POST" and _is_mistaken(path):
        return None
    if method == "POST" and (found := _wire_at_end(path)) is not None:
        wire, plain, named = found
        model = unquote_to_bytes(named).decode("utf-8", "replace") if named else ""
        return PathMatch(wire, _on_host(plain, base_path), model)
    if path.startswith(_WITHOUT_VERSION):
        path = VERSION + path
    segment = path.removeprefix(b"/").partition(b"/")[0]
    is_known = path.startswith((*_PREFIXES, base_path + b"/", _BEDROCK)) or segment in _SERVERS_OWN
    return PathMatch(None, _on_host(path, base_path)) if is_known else None


def _is_mistaken(path: bytes) -> bool:
    """Whether a path surely comes from a wrong base URL: the path of an API behind another one's, or one without its
    last letter. Below `/v1` upstreams may have paths that only look similar.

    >>> [_is_mistaken(path) for path in (b"/v1/responses/chat/completions", b"/v1/chat/completion", b"/v1/responses")]
    [True, True, False]
    """
    plain = path.rstrip(b"/")
    if (end := _end_of(plain)) is not None:
        return _end_of(plain.removesuffix(end)) is not None
    return _end_of(plain + b"s") is not None


def _end_of(plain: bytes) -> bytes | None:
    ends = (*WIRES, *(wire.path.encode() for wire in _ALL))
    return next((end for end in ends if plain.endswith(end)), None)


def strange_prefix(path: bytes, base_path: bytes) -> str:
    """What precedes the path of an API although no API is known by it: a reverse proxy in front may have to remove it.

    >>> strange_prefix(b"/llm/v1/chat/completions", b"/v1"), strange_prefix(b"/openai/deployments/x/responses", b"/v1")
    ('/llm', '')
    """
    before = path[: path.rindex(end)] if (end := _end_of(path.rstrip(b"/"))) is not None else b""
    is_known = f"{before.decode('latin-1')}/".encode("latin-1").startswith((*_PREFIXES, base_path + b"/"))
    return "" if is_known else before.removesuffix(VERSION).decode("latin-1")


def like(path: bytes) -> str:
    """The path of an API that a client may have meant; empty if none is like it.

    >>> like(b"/v1message"), like(b"/api/chat/completion"), like(b"/favicon.ico")
    ('/v1/messages', '/v1/chat/completions', '')
    """
    known = [end if end.startswith(VERSION) or wire.is_on_host else VERSION + end for end, wire in WIRES.items()]
    found = get_close_matches(path[:_MAX_HINT_BYTES].decode("latin-1"), [p.decode() for p in known], 1, _LIKENESS)
    return found[0] if found else ""


def wire_of_body(body: bytes) -> Wire:
    """The wire of a request if only its body is known, by the members that no other wire has.

    >>> wire_of_body(b'{"input": "hi"}').path, wire_of_body(b'{"input": "hi", "messages": []}').path
    ('/responses', '/chat/completions')
    >>> wire_of_body(b'{"system": "", "messages": []}').path
    '/messages'
    >>> wire_of_body(b'{"anthropic_version": "vertex-2023-10-16", "messages": []}').path
    '/messages'
    >>> wire_of_body(b'{"messages": [], "options": {"num_ctx": 8192}}').path, wire_of_body(b'{"prompt": "hi"}').path
    ('/api/chat', '/api/generate')
    """
    members = jsontext.members_if_any(body)
    if "messages" not in members:
        return RESPONSES if "input" in members else OLLAMA_PROMPTS if "prompt" in members else DEFAULT
    if _OLLAMAS & members.keys():
        return OLLAMA
    is_anthropic = bool({"system", "anthropic_version"} & members.keys()) or b'"input_schema"' in bytes(
        members.get("tools", b"")
    )
    return MESSAGES if is_anthropic or b'"tool_use_id"' in body else DEFAULT


def wire_over(path: bytes) -> Wire:
    """The wire whose keys and errors apply to a path that no wire serves: the one whose path is its prefix.

    >>> wire_over(b"/v1/messages/count_tokens").path, wire_over(b"/v1/models").path
    ('/messages', '/chat/completions')
    """
    if path.startswith(_BEDROCK) or b"/publishers/anthropic/" in path:
        return MESSAGES
    return wire_beside(path) or next((wire for end, wire in WIRES.items() if end + b"/" in path), DEFAULT)


def wire_beside(path: bytes) -> Wire | None:
    """The wire of a server's own API, by the path of another request to that API; None if it belongs to none.

    >>> [wire.path if (wire := wire_beside(path)) else "" for path in (b"/api/tags", b"/api/v1/models", b"/v1/models")]
    ['/api/chat', '', '']
    """
    if _VERSIONED.match(path):
        return None
    return next(
        (wire for end, wire in WIRES.items() if wire.is_on_host and path.startswith(end[: end.rindex(b"/") + 1])), None
    )


def whose_key(headers: Sequence[tuple[bytes, bytes]]) -> tuple[Wire, str] | None:
    """The wire and the model that a client's key is for, by headers that no other wire's clients send; None if it has
    none of these."""
    return (MESSAGES, _ANTHROPIC_MODEL) if any(name in _ANTHROPIC_HEADERS for name, _ in headers) else None


def _wire_at_end(path: bytes) -> tuple[Wire, bytes, bytes] | None:
    """The wire at the end of a path; the path in its canonical form: without redundant slashes, and with a version if
    nothing precedes it; and the model in it, as it is written.

    >>> _wire_at_end(b"/chat/completions//")[1], _wire_at_end(b"/v1/chat/completions/id")
    (b'/v1/chat/completions', None)
    """
    plain = (_SLASHES.sub(b"/", path) if b"//" in path else path).rstrip(b"/")
    if plain == b"/messages":
        plain = VERSION + plain
    for end, wire in WIRES.items():
        if plain.endswith(end):
            named = plain.partition(_DEPLOYMENT)[2].partition(b"/")[0]
            if wire.is_on_host:
                return wire, plain.removeprefix(VERSION), named
            return wire, plain if plain != end or end.startswith(VERSION) else VERSION + plain, named
    vertex = _VERTEX.search(plain)
    if vertex is not None and vertex[1] != _VERTEX_COUNTS:
        return MESSAGES, VERSION + plain if plain.startswith(_WITHOUT_VERSION) else plain, vertex[1]
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
