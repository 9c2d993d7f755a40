"""What JSON APIs have in common besides messages: the tool list of a request with the proxy's own tool at its end, in
which the client's own entries keep their bytes; and errors in OpenAI's shape: those of its APIs, and of the proxy's own
pages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NotRequired

from typing_extensions import TypedDict

from proxy.core.retrieval_tool.tool import RetrievalPolicy, is_offered
from proxy.core.text import Raw, jsontext
from proxy.errors import ContextOverflow, ProxyError

_MAX_MESSAGE_CHARS: Final = 2_000


class Problem(TypedDict):
    """What is wrong."""

    message: str
    """For people: what was measured, and what is allowed."""
    type: str
    param: str | None
    """The parameter at fault."""
    code: str
    """For programs."""
    upstream: NotRequired[dict[str, str]]
    """The `message` of the upstream that refused it."""


class Refusal(TypedDict):
    """An error, in OpenAI's shape."""

    error: Problem


def error_body(error: ProxyError) -> bytes:
    """An error of the proxy in OpenAI's shape."""
    problem: Problem = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ContextOverflow) and error.upstream_message is not None:
        problem["upstream"] = {"message": error.upstream_message}
    return jsontext.dump(Refusal(error=problem))


def error_in_body(status: int, body: bytes) -> bytes:
    """The body of a response for a client that does not see its status; anything that is no OpenAI error becomes one.

    >>> error_in_body(503, b"")
    b'{"error":{"message":"HTTP 503","type":"upstream_error","param":null,"code":"503"}}'
    """
    try:
        is_known = "error" in jsontext.members(body) or status == 200
    except jsontext.NotJson:
        is_known = False
    if is_known:
        return body
    message = body.decode("utf-8", "replace")[:_MAX_MESSAGE_CHARS]
    said = {"message": message or f"HTTP {status}", "type": "upstream_error", "param": None, "code": str(status)}
    return jsontext.dump({"error": said})


# Tool lists

MAX_NAMES: Final = 1_000
"""Tools of one list whose names are read."""
_NO_TOOLS: Final = frozenset((b"null", b"[]"))
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Of a tool list that is read once for all requests of its agent; sixty-four lists are remembered."""


def has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    """Whether a tool list has a tool of a type other than these; a tool without one has an empty one.

    >>> known = re.compile("(?:function)?")
    >>> has_others(b'[{"type":"web_search"}]', known), has_others(b'[{"type":"function"},{}]', known)
    (True, False)
    """
    return (_has_others if len(tools) <= _MAX_REMEMBERED_BYTES else _has_others.__wrapped__)(tools, types)


@functools.lru_cache(64)
def _has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    found = (tool for tool in jsontext.listed(jsontext.opened(tools or None)) if isinstance(tool, dict))
    return any(types.fullmatch(jsontext.string_in(tool, "type")) is None for tool in found)


def names_in(tools: Raw, name_of: Callable[[Any], str]) -> list[str]:
    """The names in a tool list; empty for a tool without one."""
    return [name_of(tool) for tool in jsontext.listed(jsontext.opened(tools or None))[:MAX_NAMES]]


class OwnTool:
    """The proxy's own tool in the form of one API."""

    def __init__(self, definition: bytes, names_in: Callable[[bytes], Sequence[str]]) -> None:
        """`definition`: the tool as an item of the list. `names_in`: a tool list → the names in it."""
        self._definition = definition
        self.names_in = names_in
        self._remembered = functools.lru_cache(64)(self._appended)

    def appended(self, members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
        """The `tools` of a request with ours at the end; None if its agent does not have our tool: never beside a tool
        of the same name or beyond the maximum."""
        if policy == "auto" and "tools" not in members:
            return None
        tools = bytes(members.get("tools", b"null"))
        if policy == "never" or (policy == "auto" and tools in _NO_TOOLS):
            return None
        return (self._remembered if len(tools) <= _MAX_REMEMBERED_BYTES else self._appended)(tools, policy)

    def _appended(self, tools: bytes, policy: RetrievalPolicy) -> bytes | None:
        if not is_offered(self.names_in(tools), policy):
            return None
        if tools == b"null":
            return jsontext.join_array([self._definition])
        if not tools.startswith(b"["):
            return None
        inside = tools[1:-1].strip()
        return b"[" + inside + b"," * bool(inside) + self._definition + b"]"
