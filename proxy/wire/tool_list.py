"""The tool list of a request with the proxy's own tool at its end: what is the same in every JSON API.

Rule: the client's own entries in the list keep their bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from proxy.core.retrieval_tool.tool import RetrievalPolicy, is_offered
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

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
    listed = jsontext.opened(tools or None)
    found = (tool.get("type") for tool in listed if isinstance(tool, dict)) if isinstance(listed, list) else ()
    return any(types.fullmatch(kind if isinstance(kind, str) else "") is None for kind in found)


class OwnTool:
    """The proxy's own tool in the form of one API."""

    def __init__(self, definition: bytes, names_in: Callable[[bytes], Sequence[str]]) -> None:
        """`definition`: the tool as an item of the list. `names_in`: a tool list → the names in it."""
        self._definition = definition
        self._names_in = names_in
        self._remembered = functools.lru_cache(64)(self._appended)

    def appended(self, members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
        """The `tools` of a request with ours at the end; None if its agent does not have our tool: never beside a tool
        of the same name or beyond the maximum."""
        tools = bytes(members.get("tools", b"null"))
        if policy == "never" or (policy == "auto" and tools in _NO_TOOLS):
            return None
        return (self._remembered if len(tools) <= _MAX_REMEMBERED_BYTES else self._appended)(tools, policy)

    def _appended(self, tools: bytes, policy: RetrievalPolicy) -> bytes | None:
        if not is_offered(self._names_in(tools), policy):
            return None
        if tools == b"null":
            return jsontext.join_array([self._definition])
        if not tools.startswith(b"["):
            return None
        inside = tools[1:-1].strip()
        return b"[" + inside + b"," * bool(inside) + self._definition + b"]"
